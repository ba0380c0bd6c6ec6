#!/usr/bin/python3
"""Profiles latency with testrpc: sweeps engines, sizes and windows, and draws what it finds.

    scripts/latency-profile.py                     the whole sweep, about two minutes
    scripts/latency-profile.py --quick             a short one, about ten seconds
    scripts/latency-profile.py --client URI        against a server that runs already
    scripts/latency-profile.py --compare A.json B.json

Writes profile.json, percentiles.png, throughput.png and index.html (one page with all of it) into
the folder --out. --compare takes two profile.json, or two results of testrpc --json, and writes
compare.png and compare.html: runs are compared that agree in everything that is asked for (engine,
sizes, window, connections, dispatch, rate, verify, idle policy, transport and its options), and it
says which are not. With one run on each side a difference may be noise: that is said, and no verdict
given. Needs python3-matplotlib.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

try:
    from lib import profile_page, profile_plots, profile_runs
except ModuleNotFoundError as error:
    sys.exit(f"latency-profile: {error.name} is missing: apt-get install python3-matplotlib "
             "(it is for /usr/bin/python3)")

ROOT = Path(__file__).resolve().parent.parent
SWEEP = {"engines": "null,echo,read,write", "sizes": "4K,64K,1M", "windows": "1,2,4,8,16,32",
         "duration": 1.0}
QUICK = {"engines": "null,read", "sizes": "4K,1M", "windows": "1,8,32", "duration": 0.4}
UNSIZED = {"null"}


def fail(message):
    print(f"latency-profile: {message}", file=sys.stderr)
    sys.exit(2)


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
    if not 0 < chosen.duration <= 3600:
        fail(f"--duration {chosen.duration:g} is not within 0 and 3600 seconds")
    if chosen.out.exists() and not chosen.out.is_dir():
        fail(f"--out {chosen.out} is not a folder")
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


def run_testrpc(command):
    """Its output; what it complains of is our complaint."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        fail(f"{' '.join(map(str, command))}\n  ended with status {done.returncode}: "
             f"{output[-1] if output else 'no output'}")
    return done.stdout


def arguments(program, chosen, engine, size, window, *more):
    role = ["--client", chosen.client] if chosen.client else ["--self"]
    command = [program, *role, "--engine", engine, "--window", window, "--dispatch",
               chosen.dispatch, *more]
    return command + (["--size", size] if size else [])


def check(program, chosen):
    """A call of each kind, so that a mistake is found before anything is made or measured."""
    run_testrpc(arguments(program, chosen, chosen.engines, chosen.sizes, chosen.windows, "--count", "1"))


def progress(done, total, began, what):
    elapsed = time.monotonic() - began
    left = f"{elapsed / done * (total - done):4.0f} s left" if done else ""
    text = f"[{done:3}/{total}] {what:<28} {left}"
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="" if done < total else "\n", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def sweep(program, chosen):
    """The results of all runs as one, as if one testrpc had made them."""
    todo = list(combinations(chosen))
    began = time.monotonic()
    profile = None
    for done, (engine, size, window) in enumerate(todo):
        progress(done, len(todo), began, f"{engine} {size or ''} window {window}")
        result = json.loads(run_testrpc(arguments(
            program, chosen, engine, size, window, "--duration", str(chosen.duration),
            "--histogram", "--json", "-")))
        if profile is None:
            profile = {**result, "runs": []}
        profile["runs"] += result["runs"]
    progress(len(todo), len(todo), began, "done")
    return {**profile, "tool": "latency-profile", "command": sys.argv}


def load(path):
    """A profile.json or a testrpc result."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        schema = result.get("schema", 1)
    except (OSError, ValueError, AttributeError) as error:
        fail(f"{path} is not a result of latency-profile or testrpc: {error}")
    if schema != profile_runs.SCHEMA:
        fail(f"{path} has schema {schema}, and this program reads {profile_runs.SCHEMA}: measure again, or "
             "use the version of it that goes with that testrpc")
    if not result.get("runs"):
        fail(f"{path} has no runs")
    return result


def compare(paths, out):
    results = [load(path) for path in paths]
    pairs, unmatched = profile_runs.match(*results)
    if not pairs:
        fail("no run of one result is of the same kind as one of the other:\n  "
             + "\n  ".join(unmatched))
    out.mkdir(parents=True, exist_ok=True)
    names = distinct(paths)
    remarks = profile_runs.remarks(results, pairs, unmatched)
    print(profile_page.compare_text(pairs))
    print("\n" + "\n".join(profile_runs.environments(results, names) + [""] + remarks))
    profile_plots.compare(pairs, [name.stem for name in names], out / "compare.png")
    profile_page.write_compare(pairs, profile_runs.environments(results, paths), remarks, out)
    print(f"\n{out / 'compare.html'}")


def distinct(paths):
    """Paths whose stems differ, for the legend: profile.json of two folders by their folders."""
    return paths if paths[0].stem != paths[1].stem else [p.resolve().parent for p in paths]


def main():
    chosen = options()
    if chosen.compare:
        compare(chosen.compare, chosen.out)
        return
    program = find_testrpc(chosen)
    check(program, chosen)
    profile = sweep(program, chosen)
    chosen.out.mkdir(parents=True, exist_ok=True)
    with open(chosen.out / "profile.json", "w", encoding="utf-8") as file:
        json.dump(profile, file)
    profile_plots.percentiles(profile, chosen.out / "percentiles.png")
    profile_plots.throughput(profile, chosen.out / "throughput.png")
    profile_page.write_profile(profile, chosen.out)
    print(chosen.out / "index.html")


main()
