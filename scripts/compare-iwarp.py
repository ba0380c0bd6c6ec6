#!/usr/bin/env python3
"""Puts testrpc over the iwarp driver beside bare TCP on loopback, in one run on one machine: two
processes that poll, against two threads that poll a socket (perf/limits). Rounds alternate, and of
each number the best is taken, so that a machine with other work to do counts as little as can be.

    compare-iwarp.py BUILD [--rounds N] [--require]
    compare-iwarp.py BUILD --idle N [--rounds N] [--require]

With --idle it compares null calls on ten connections of a server that has N more, which are idle,
with those of a server that has just the ten.

With --require the exit status says whether the ratios are what they should be: 1 MiB reads and
writes at 70 % of TCP's bandwidth, a null call in 1.5 times TCP's round trip; idle connections make
calls slower by 10 % at most.
"""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BANDWIDTH, ROUND_TRIP, IDLE = 0.7, 1.5, 1.1
ACTIVE = 10


def limits(build, cpus):
    text = subprocess.run([build / "perf/limits", "tcp", *map(str, cpus)], capture_output=True, text=True,
                          check=True).stdout
    return {"round trip": float(re.search(r"us +([\d.]+)", text)[1]),
            "stream": float(re.search(r"GB/s +([\d.]+)", text)[1])}


@contextlib.contextmanager
def server(build, cpu, *options):
    """A testrpc server; gives its address."""
    process = subprocess.Popen([build / "apps/testrpc/testrpc", "--server", "iwarp://127.0.0.1:0", "--idle", "busy",
                                "--cpu", str(cpu), *options],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield next(line.split()[-1] for line in process.stdout if line.startswith("listening on"))
    finally:
        process.terminate()
        process.wait()


def client(build, cpu, uri, engine, *options):
    with tempfile.NamedTemporaryFile() as results:
        subprocess.run([build / "apps/testrpc/testrpc", "--client", uri, "--idle", "busy", "--cpu", str(cpu),
                        "--engine", engine, "--json", results.name, *options], check=True, capture_output=True)
        return json.loads(Path(results.name).read_text())["runs"]


def testrpc(build, cpus, engine, *options):
    with server(build, cpus[1]) as uri:
        return client(build, cpus[0], uri, engine, *options)


@contextlib.contextmanager
def idle_connections(build, uri, number, credits):
    """A client that calls once a second on one of them, and sleeps."""
    process = subprocess.Popen([build / "apps/testrpc/testrpc", "--client", uri, "--idle", "adaptive", *credits,
                                "--connections", str(number), "--engine", "null", "--rate", "1", "--window", "1",
                                "--duration", "3600"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        for line in process.stdout:
            if "RPC/s" in line:  # the first second's line: all are there
                break
        else:
            sys.exit(f"{number} idle connections could not be made")
        yield
    finally:
        process.kill()
        process.wait()


def compare_idle(build, cpus, rounds, idle):
    credits = ("--credits", "4")
    room = (*credits, "--max-size", "64K", "--connections", str(idle + ACTIVE))
    best = {"alone": float("inf"), "among idle ones": float("inf")}

    def measure(name, uri):
        for run in client(build, cpus[0], uri, "null", *credits, "--connections", str(ACTIVE), "--duration", "1"):
            best[name] = min(best[name], run["latency_ns"]["p50"] / 1e3)

    for number in range(1, rounds + 1):
        # A server of its own for each, so that both are as old.
        with server(build, cpus[1], *room) as uri:
            measure("alone", uri)
        with server(build, cpus[1], *room) as uri, idle_connections(build, uri, idle, credits):
            measure("among idle ones", uri)
        print(f"round {number} of {rounds}: " + ", ".join(f"{name} {value:.2f} us" for name, value in best.items()),
              flush=True)
    ratio = best["among idle ones"] / best["alone"]
    print(f"null calls on {ACTIVE} connections {best['alone']:.2f} us; with {idle} idle ones "
          f"{best['among idle ones']:.2f} us: {ratio:.2f} of it (wanted: {IDLE} at most)")
    return ratio <= IDLE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="a build directory with apps/testrpc/testrpc and perf/limits")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=int, metavar="N", help="compare with N idle connections")
    parser.add_argument("--require", action="store_true")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    cpus = (cpus[0], cpus[-1])
    if options.idle:
        held = compare_idle(options.build, cpus, options.rounds, options.idle)
        sys.exit(0 if held or not options.require else 1)
    best = {"round trip": float("inf"), "stream": 0, "null": float("inf"), "read": 0, "write": 0}
    for number in range(1, options.rounds + 1):
        for name, value in limits(options.build, cpus).items():
            best[name] = (min if name == "round trip" else max)(best[name], value)
        for run in testrpc(options.build, cpus, "null", "--duration", "1"):
            best["null"] = min(best["null"], run["latency_ns"]["p50"] / 1e3)
        for run in testrpc(options.build, cpus, "read,write", "--size", "1M", "--window", "1,4,16", "--duration", "1"):
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
