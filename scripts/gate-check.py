#!/usr/bin/env python3
"""Is this machine quiet enough for the comparisons of latency-profile?

    scripts/gate-check.py                  ten times each, about fifteen minutes
    scripts/gate-check.py --times 3 --slower 10 --fail-above 1
    scripts/gate-check.py -- --windows 16  what comes after -- goes to latency-profile

Compares testrpc with itself, where no difference must be found, and with itself slowed down
(--server-work) by --slower percent of a NULL call, which must be found to be slower. Also says whether the
gate (--fail-above, which stops a build that is slower by at least that percentage) stopped it or could not
tell. Exit status: 0 if the verdict was right each time, 1 if not, 2 if a run failed.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

GATE = {0: "passed", 1: "stopped", 3: "could not tell"}  # by the exit status of latency-profile
ROOT = Path(__file__).resolve().parent.parent


def options(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testrpc", type=Path, default=ROOT / "build/apps/testrpc/testrpc", metavar="FILE")
    parser.add_argument("--times", type=int, default=10, metavar="N")
    parser.add_argument("--slower", type=float, default=10, metavar="PERCENT")
    parser.add_argument("--fail-above", type=float, default=5, metavar="PERCENT")
    cut = words.index("--") if "--" in words else len(words)
    chosen = parser.parse_args(words[:cut])
    chosen.passed_on = words[cut + 1:]
    return chosen


def compare(chosen, work_ns, out):
    """Returns the gate's exit status and the lines of the comparison."""
    command = [ROOT / "scripts/latency-profile.py", "--testrpc", chosen.testrpc, "--quick", "--windows", "1",
               "--fail-above", f"{chosen.fail_above:g}", "--against-options", f"--server-work {work_ns:.0f}",
               "--out", out, *chosen.passed_on]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in GATE:
        print(done.stderr.splitlines()[-1] if done.stderr else f"status {done.returncode}", file=sys.stderr)
        sys.exit(2)
    return done.returncode, done.stdout.splitlines()


def median_ns(out):
    """Returns the p50 of side A's first call."""
    with open(out / "comparison.json", encoding="utf-8") as file:
        rounds = json.load(file)["rows"][0]["rounds"]
    return sorted(one["A"]["p50_ns"] for one in rounds)[len(rounds) // 2]


def main():
    chosen = options(sys.argv[1:])
    right = {"itself": 0, "slowed": 0}
    stopped = dict(right)
    call_ns = None
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        for number in range(1, chosen.times + 1):
            for name in right:
                work_ns = 0 if name == "itself" else chosen.slower / 100 * call_ns
                status, lines = compare(chosen, work_ns, out)
                call_ns = median_ns(out)
                lines = [line for line in lines if line.split()[2:3] in (["RPC/s"], ["p50"])]
                verdict = next((word for word in ("slower", "faster") for line in lines if f" {word} by " in line),
                               "no difference")
                good = verdict == ("no difference" if name == "itself" else "slower")
                right[name] += good
                stopped[name] += status == 1
                by = f" by {work_ns:.0f} ns of {call_ns:.0f}" if work_ns else ""
                print(f"{number:2} {name}{by}: {verdict}{'' if good else ', WRONG'}; the gate: {GATE[status]}")
                for line in lines:
                    print(f"     {line}", flush=True)
    print(f"itself: no difference {right['itself']} of {chosen.times} times, stopped {stopped['itself']} times; slowed "
          f"by {chosen.slower:g} %: slower {right['slowed']} of {chosen.times} times, stopped {stopped['slowed']} times")
    return 0 if set(right.values()) == {chosen.times} else 1


sys.exit(main())
