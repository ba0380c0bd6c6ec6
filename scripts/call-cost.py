#!/usr/bin/env python3
"""Counts the instructions and cache lines of a call with Valgrind: the same on every machine.

  scripts/call-cost.py BUILD                  a build directory with -Dbenchmarks=true, best in release
  scripts/call-cost.py BUILD --window 1       calls in flight (default 16)
  scripts/call-cost.py BUILD --kind 0,4       by number (default: all)
  scripts/call-cost.py BUILD --functions 20   the most expensive functions, too
  scripts/call-cost.py BUILD --lines          cache lines, too: about two minutes per kind
  scripts/call-cost.py BUILD --json FILE      the figures, for programs

Both ends of a call over shared memory run in one thread (perf/call_bench.cc), so the figures are those
of client and server together, drivers included. Instructions are counted by callgrind inside
make_calls(). A cache line counts once per round of calls, however often the round touches it: lackey
logs every access, and stores to the marker of perf/call_bench.cc show where rounds begin and end.
Lines of the stack and of code are not counted.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from lib import output

KINDS = ["null", "null, AUTH_SYS", "echo 1000", "echo 1000, AUTH_SYS", "READ 4K", "WRITE 4K",
         "READ 4K, AUTH_SYS", "WRITE 4K, AUTH_SYS", "echo 64K"]
ROUNDS = 200  # perf/call_bench.cc
LINE = 64
STACK = range(0x1FF0000000, 0x2000000000)  # of the main thread, under Valgrind


def arguments():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--window", type=int, choices=(1, 16), default=16)
    parser.add_argument("--kind", default=",".join(str(k) for k in range(len(KINDS))))
    parser.add_argument("--functions", type=int, default=0)
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("-h", "--help", action="store_true")
    args = parser.parse_args()
    if args.help or args.build is None:
        print(__doc__.strip())
        sys.exit(0 if args.help else 2)
    args.program = args.build / "perf" / "perf_call"
    if not args.program.exists():
        sys.exit(f"call-cost: {args.program} is not there: build it with -Dbenchmarks=true")
    try:
        args.kinds = [int(k) for k in args.kind.split(",")]
    except ValueError:
        args.kinds = [-1]
    if any(not 0 <= k < len(KINDS) for k in args.kinds):
        sys.exit(f"call-cost: --kind takes numbers from 0 to {len(KINDS) - 1}")
    return args


def command(args, kind, *tool):
    return ["valgrind", *tool, str(args.program),
            f"--benchmark_filter=counted/kind:{kind}/window:{args.window}/"]


def count_instructions(args, kind):
    """Returns the instructions per call, in total and of each function."""
    with tempfile.NamedTemporaryFile() as out:
        run = subprocess.run(command(args, kind, "--tool=callgrind", "--toggle-collect=*make_calls*",
                                     f"--callgrind-out-file={out.name}"),
                             capture_output=True, text=True)
        collected = re.search(r"Collected : (\d+)", run.stderr)
        if run.returncode != 0 or collected is None:
            sys.exit(f"call-cost: valgrind failed:\n{run.stderr[-2000:]}")
        text = subprocess.run(["callgrind_annotate", "--threshold=100", out.name],
                              capture_output=True, text=True).stdout
    calls = ROUNDS * args.window
    functions = collections.Counter()
    for line in text.splitlines():
        match = re.match(r"\s*([\d,]+) \(\s*[\d.]+%\)\s+\S+?:([^\[]*)", line)
        if match:
            name = re.sub(r"\(.*", "", match[2].replace("(anonymous namespace)", "")).strip()
            functions[name] += int(match[1].replace(",", "")) / calls
    return int(collected[1]) / calls, functions


def count_lines(args, kind):
    """Returns the cache lines of data that a round touches, per call: the median of the later half of rounds."""
    process = subprocess.Popen(command(args, kind, "--tool=lackey", "--trace-mem=yes"),
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", bufsize=1 << 20)
    marker = None
    inside = False
    touched = set()
    rounds = []
    for line in process.stdout:
        if line[0] != " " or line[1] == " ":
            if marker is None and (found := re.search(r"marked at 0x([0-9a-f]+)", line)):
                marker = int(found[1], 16)
            continue
        if marker is None:
            continue
        text, size = line[3:].split(",")
        address = int(text, 16)
        if address == marker and line[1] == "S":
            if inside:
                rounds.append(len(touched))
                touched.clear()
            inside = not inside
        elif inside and address not in STACK:
            touched.update(range(address // LINE, (address + int(size) - 1) // LINE + 1))
    if process.wait() != 0 or len(rounds) < ROUNDS:
        sys.exit("call-cost: valgrind --tool=lackey failed, or found no marks")
    later = sorted(rounds[ROUNDS // 2:])
    return later[len(later) // 2] / args.window


def main():
    args = arguments()
    results = []
    print(f"both ends of one call, {args.window} in flight")
    for kind in args.kinds:
        instructions, functions = count_instructions(args, kind)
        row = {"kind": KINDS[kind], "window": args.window, "instructions": round(instructions)}
        text = f"{KINDS[kind]:22} {instructions:8.0f} instructions"
        if args.lines:
            row["cache_lines"] = count_lines(args, kind)
            text += f" {row['cache_lines']:7.1f} cache lines"
        print(text, flush=True)
        for name, count in functions.most_common(args.functions):
            print(f"  {count:8.1f}  {name}")
        results.append(row)
    if args.json:
        with output.file(args.json) as file:
            file.write(json.dumps({"calls": results}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(output.run("call-cost", main))
