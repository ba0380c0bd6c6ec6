#!/usr/bin/env python3
"""Puts testrpc over the iwarp driver beside bare TCP on loopback, in one run on one machine: two
processes that poll, against two threads that poll a socket (perf/limits). Rounds alternate, and of
each number the best is taken, so that a machine with other work to do counts as little as can be.

    compare-iwarp.py BUILD [--rounds N] [--require]

With --require the exit status says whether the ratios are what they should be: 1 MiB reads and
writes at 70 % of TCP's bandwidth, a null call in 1.5 times TCP's round trip.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BANDWIDTH, ROUND_TRIP = 0.7, 1.5


def limits(build, cpus):
    text = subprocess.run([build / "perf/limits", "tcp", *map(str, cpus)], capture_output=True, text=True,
                          check=True).stdout
    return {"round trip": float(re.search(r"us +([\d.]+)", text)[1]),
            "stream": float(re.search(r"GB/s +([\d.]+)", text)[1])}


def testrpc(build, cpus, engine, *options):
    program = build / "apps/testrpc/testrpc"
    server = subprocess.Popen([program, "--server", "iwarp://127.0.0.1:0", "--idle", "busy", "--cpu", str(cpus[1])],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        uri = next(line.split()[-1] for line in server.stdout if line.startswith("listening on"))
        with tempfile.NamedTemporaryFile() as results:
            subprocess.run([program, "--client", uri, "--idle", "busy", "--cpu", str(cpus[0]), "--engine", engine,
                            "--json", results.name, *options], check=True, capture_output=True)
            return json.loads(Path(results.name).read_text())["runs"]
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="a build directory with apps/testrpc/testrpc and perf/limits")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--require", action="store_true")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    cpus = (cpus[0], cpus[-1])
    best = {"round trip": float("inf"), "stream": 0, "null": float("inf"), "read": 0, "write": 0}
    for number in range(1, options.rounds + 1):
        for name, value in limits(options.build, cpus).items():
            best[name] = (min if name == "round trip" else max)(best[name], value)
        for run in testrpc(options.build, cpus, "null", "--duration", "1"):
            best["null"] = min(best["null"], run["latency_ns"]["p50"] / 1e3)
        for run in testrpc(options.build, cpus, "read,write", "--size", "1M", "--window", "1,2,4", "--duration", "1"):
            best[run["engine"]] = max(best[run["engine"]], run["bytes_per_s"] / 1e9)
        print(f"round {number} of {options.rounds}: "
              + ", ".join(f"{name} {value:.2f}" for name, value in best.items()), flush=True)
    ratios = {"null": best["null"] / best["round trip"], "read": best["read"] / best["stream"],
              "write": best["write"] / best["stream"]}
    print(f"null call      {best['null']:8.2f} us    TCP {best['round trip']:8.2f} us    {ratios['null']:.2f} of it "
          f"(wanted: {ROUND_TRIP} at most)")
    for name in ("read", "write"):
        print(f"{name:5} of 1 MiB {best[name]:8.2f} GB/s  TCP {best['stream']:8.2f} GB/s  {ratios[name]:.2f} of it "
              f"(wanted: {BANDWIDTH} at least)")
    held = ratios["null"] <= ROUND_TRIP and min(ratios["read"], ratios["write"]) >= BANDWIDTH
    sys.exit(0 if held or not options.require else 1)


main()
