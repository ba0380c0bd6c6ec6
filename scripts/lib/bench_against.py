"""Runs two testrpc in turns and compares them: see scripts/bench-against.sh."""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

import output

# Title, URI, options, and the figure of a run that is compared: calls per second, or the median round trip.
CASES = [(f"{driver} {title}", uri, options, figure)
         for driver, uri in (("shm", "--self"), ("iwarp", "--self=iwarp://127.0.0.1:20051"))
         for title, options, figure in (
             ("null, window 1", ("--engine", "null", "--window", "1"), "p50"),
             ("null, window 32", ("--engine", "null", "--window", "32"), "rate"),
             ("echo 1000, window 32", ("--engine", "echo", "--size", "1000", "--window", "32"), "rate"),
             ("echo 64K, window 8", ("--engine", "echo", "--size", "64K", "--window", "8"), "rate"),
             ("read 4K, window 8", ("--engine", "read", "--size", "4K", "--window", "8"), "rate"),
             ("write 4K, window 8", ("--engine", "write", "--size", "4K", "--window", "8"), "rate"),
             ("read 1M, window 8", ("--engine", "read", "--size", "1M", "--window", "8"), "rate"),
             ("write 1M, window 8", ("--engine", "write", "--size", "1M", "--window", "8"), "rate"))]


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench-against.sh", add_help=False)
    parser.add_argument("programs", nargs=2)
    parser.add_argument("--names", nargs=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--loss", type=float, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds and --seconds are above 0")
    if not any(args.only in case[0] for case in CASES):
        parser.error(f"no case has '{args.only}' in its name")
    return args


def measure(program, uri, options, figure, seconds):
    """Returns calls or round trips per second (more is always better), and how long a cache line took from
    CPU to CPU and back meanwhile, in ns, if that testrpc reports it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [program, uri, *options, "--duration", str(seconds), "--json", file.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 10 * seconds)
        if done.returncode != 0:
            sys.exit(f"bench-against: {' '.join(command)} failed:\n{done.stderr}")
        run = json.load(open(file.name))["runs"][0]
    rate = run["rpc_per_s"] if figure == "rate" else 1e9 / run["latency_ns"]["p50"]
    return rate, run.get("limits", {}).get("cache_line_rtt_ns")


def main():
    args = arguments()
    rows = []
    slower = 0
    print(f"{'':26} {args.names[0]:>12} {args.names[1]:>12}   ratio (spread of the ratios)  trips of a cache line")
    cases = [case for case in CASES if args.only in case[0]]
    for title, uri, options, figure in cases:
        results = ([], [])
        lines = []
        for _ in range(args.rounds):
            for side in (0, 1):
                rate, line = measure(args.programs[side], uri, options, figure, args.seconds)
                results[side].append(rate)
                lines += [line] if line else []
        ratios = sorted(new / old for old, new in zip(*results))
        old, new, ratio = statistics.median(results[0]), statistics.median(results[1]), statistics.median(ratios)
        lost = ratio < 1 - args.loss / 100
        slower += lost
        unit = "/s" if figure == "rate" else " rt/s"
        distance = f"  {min(lines):.0f} to {max(lines):.0f} ns" if lines else ""
        print(f"{title:26} {old:12.0f} {new:12.0f}{unit:>5}  {ratio:5.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
              f"{distance}{'  SLOWER' if lost else ''}", flush=True)
        rows.append({"case": title, "figure": figure, "before": results[0], "after": results[1], "ratio": ratio,
                     "cache_line_rtt_ns": lines})
    if args.json:
        with output.file(args.json) as file:
            json.dump({"names": args.names, "cases": rows}, file, indent=1)
    if slower:
        print(f"{slower} of {len(cases)} are more than {args.loss:g} % slower")
    return 1 if slower else 0


sys.exit(output.run("bench-against", main))
