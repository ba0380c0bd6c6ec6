#!/usr/bin/python3
"""Profiles latency with testrpc: sweeps engines, sizes and windows, and draws what it finds.

    scripts/latency-profile.py                     the whole sweep, about two minutes
    scripts/latency-profile.py --quick             a short one, about ten seconds
    scripts/latency-profile.py --client URI        against a server that runs already
    scripts/latency-profile.py --compare A.json B.json

Writes profile.json, percentiles.png, throughput.png and index.html (one page with all of it) into
the folder --out. --compare takes two profile.json, or two results of testrpc --json, and writes
compare.png and compare.html. Needs python3-matplotlib.
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    from lib import profile_page, profile_plots
except ModuleNotFoundError as error:
    sys.exit(f"latency-profile: {error.name} is missing: apt-get install python3-matplotlib "
             "(it is for /usr/bin/python3)")

ROOT = Path(__file__).resolve().parent.parent
SWEEP = {"engines": "null,echo,read,write", "sizes": "4K,64K,1M", "windows": "1,2,4,8,16,32",
         "duration": 1.0}
QUICK = {"engines": "null,read", "sizes": "4K,1M", "windows": "1,8,32", "duration": 0.4}
UNSIZED = {"null"}


def fail(message):
    sys.exit(f"latency-profile: {message}")


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testrpc", type=Path, metavar="FILE",
                        help="the program (default: build/apps/testrpc/testrpc)")
    parser.add_argument("--out", type=Path, default=Path("latency-profile"), metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="a short sweep")
    parser.add_argument("--client", metavar="URI", help="call this server instead of our own")
    parser.add_argument("--engines", metavar="NAME,...")
    parser.add_argument("--sizes", metavar="BYTES,...")
    parser.add_argument("--windows", metavar="N,...")
    parser.add_argument("--duration", type=float, metavar="SECONDS", help="of each run")
    parser.add_argument("--dispatch", choices=["inline", "worker"], default="inline")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A.json", "B.json"))
    chosen = parser.parse_args()
    for name, value in (QUICK if chosen.quick else SWEEP).items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    return chosen


def find_testrpc(chosen):
    program = chosen.testrpc or ROOT / "build/apps/testrpc/testrpc"
    if not os.access(program, os.X_OK):
        fail(f"{program} is not there: build it (scripts/quickstart.sh does), or give --testrpc")
    return program


def combinations(chosen):
    for engine in chosen.engines.split(","):
        for size in [None] if engine in UNSIZED else chosen.sizes.split(","):
            for window in chosen.windows.split(","):
                yield engine, size, window


def measure(program, chosen, engine, size, window, path):
    """One run of testrpc; returns its result."""
    role = ["--client", chosen.client] if chosen.client else ["--self"]
    command = [program, *role, "--engine", engine, "--window", window, "--dispatch",
               chosen.dispatch, "--duration", str(chosen.duration), "--histogram", "--json", path]
    if size:
        command += ["--size", size]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        fail(f"{' '.join(map(str, command))}\n  ended with status {done.returncode}: "
             f"{output[-1] if output else 'no output'}")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def progress(done, total, began, what):
    elapsed = time.monotonic() - began
    left = f"{elapsed / done * (total - done):4.0f} s left" if done else ""
    text = f"[{done:3}/{total}] {what:<28} {left}"
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="" if done < total else "\n", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def sweep(program, chosen):
    todo = list(combinations(chosen))
    began = time.monotonic()
    profile = {"tool": "latency-profile", "cpu": cpu_model(), "cpus": os.cpu_count(),
               "kernel": platform.release(), "runs": [], "limits": []}
    with tempfile.TemporaryDirectory(prefix="latency-profile-") as folder:
        for done, (engine, size, window) in enumerate(todo):
            progress(done, len(todo), began, f"{engine} {size or ''} window {window}")
            result = measure(program, chosen, engine, size, window, f"{folder}/result.json")
            profile.update(version=result["version"], uri=result["uri"])
            profile["runs"] += result["runs"]
            profile["limits"] += result["limits"]["runs"]
    progress(len(todo), len(todo), began, "done")
    return profile


def load(path):
    """The runs of a profile.json or of a testrpc result."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        if not result["runs"]:
            fail(f"{path} has no runs")
        return result
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{path} is not a result of latency-profile or testrpc: {error}")


def compare(paths, out):
    pairs = profile_plots.match(load(paths[0])["runs"], load(paths[1])["runs"])
    if not pairs:
        fail("the two results have no run in common (same engine, size and window)")
    print(profile_page.compare_text(pairs))
    profile_plots.compare(pairs, [p.stem for p in distinct(paths)], out / "compare.png")
    profile_page.write_compare(pairs, paths, out)
    print(f"\n{out / 'compare.html'}")


def distinct(paths):
    """Paths whose stems differ, for the legend: profile.json of two folders by their folders."""
    return paths if paths[0].stem != paths[1].stem else [p.resolve().parent for p in paths]


def main():
    chosen = options()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.compare:
        compare(chosen.compare, chosen.out)
        return
    profile = sweep(find_testrpc(chosen), chosen)
    with open(chosen.out / "profile.json", "w", encoding="utf-8") as file:
        json.dump(profile, file)
    profile_plots.percentiles(profile, chosen.out / "percentiles.png")
    profile_plots.throughput(profile, chosen.out / "throughput.png")
    profile_page.write_profile(profile, chosen.out)
    print(chosen.out / "index.html")


main()
