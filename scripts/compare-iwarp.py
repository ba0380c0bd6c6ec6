#!/usr/bin/env python3
"""Compares the iwarp driver with bare TCP on loopback, in one run on one machine. 1 MiB reads and
writes of two testrpc processes that poll, at the window where they are fastest, are compared with two
threads that poll a socket and have as many buffers at each end (perf/limits); a null call is compared
with a round trip of as many bytes, alternating every millisecond (perf/null_call). A round measures
each once, one right after the other. The result is the median of the rounds' ratios, since the
distance between a virtual machine's CPUs changes over time, and with it all figures.

    compare-iwarp.py BUILD [--rounds N] [--require]
    compare-iwarp.py BUILD --idle N [--rounds N] [--require]

BUILD is a build directory made with -Dbenchmarks=true.

With --idle it compares null calls on ten connections of a server that has N more idle connections
with those of a server that has only the ten.

With --require the exit status says whether the ratios are what they should be: 1 MiB reads and
writes at 70 % of TCP's bandwidth, a null call in 1.5 times TCP's round trip; idle connections make
calls slower by 10 % at most.
"""
import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BANDWIDTH, ROUND_TRIP, IDLE = 0.7, 1.5, 1.1
ACTIVE = 10


def tcp_stream(build, cpus):
    """Returns GB/s by the number of buffers at each end."""
    text = subprocess.run([build / "perf/limits", "tcp", *map(str, cpus)], capture_output=True, text=True,
                          check=True).stdout
    return {int(buffers): float(rate) for buffers, rate in re.findall(r"with +(\d+) buffers.*GB/s +([\d.]+)", text)}


def null_call(build):
    return json.loads(subprocess.run([build / "perf/null_call", "--json"], capture_output=True, text=True,
                                     check=True).stdout)


@contextlib.contextmanager
def server(build, cpu, *options):
    """Runs a testrpc server; yields its address."""
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
    """Runs a client with that many connections, which calls once a second on one connection and sleeps."""
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
    ratios = []

    def measure(uri):
        runs = client(build, cpus[0], uri, "null", *credits, "--connections", str(ACTIVE), "--duration", "1")
        return min(run["latency_ns"]["p50"] / 1e3 for run in runs)

    for number in range(1, rounds + 1):
        # A new server for each, so that both are equally old.
        with server(build, cpus[1], *room) as uri:
            alone = measure(uri)
        with server(build, cpus[1], *room) as uri, idle_connections(build, uri, idle, credits):
            among = measure(uri)
        ratios.append(among / alone)
        print(f"round {number} of {rounds}: alone {alone:.2f} us, among idle ones {among:.2f} us", flush=True)
    ratio = statistics.median(ratios)
    print(f"null calls on {ACTIVE} connections with {idle} idle ones take {ratio:.2f} of the time without them "
          f"({min(ratios):.2f} to {max(ratios):.2f}; wanted: {IDLE} at most)")
    return ratio <= IDLE


def measure_round(build, cpus):
    """Returns the round's figures as text, and its ratios."""
    null, stream = null_call(build), tcp_stream(build, cpus)
    text = f"null call {null['call_ns'] / 1e3:.2f} us, TCP round trip {null['tcp_ns'] / 1e3:.2f} us"
    ratios = {"null": null["ratio"]}
    for engine in ("read", "write"):
        runs = testrpc(build, cpus, engine, "--size", "1M", "--window", ",".join(map(str, stream)), "--duration", "1")
        best = max(runs, key=lambda run: run["bytes_per_s"])
        bare = stream[best["window"]]
        text += f"; {engine} {best['bytes_per_s'] / 1e9:.2f} of {bare:.2f} GB/s at window {best['window']}"
        ratios[engine] = best["bytes_per_s"] / 1e9 / bare
    return text, ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="a build directory, with benchmarks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=int, metavar="N", help="compare with N idle connections")
    parser.add_argument("--require", action="store_true")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    cpus = (cpus[0], cpus[-1])
    for program in ("apps/testrpc/testrpc", "perf/limits", "perf/null_call"):
        if not os.access(options.build / program, os.X_OK):
            sys.exit(f"{options.build / program} is not there: build with -Dbenchmarks=true")
    if options.idle:
        held = compare_idle(options.build, cpus, options.rounds, options.idle)
        sys.exit(0 if held or not options.require else 1)
    ratios = {"null": [], "read": [], "write": []}
    for number in range(1, options.rounds + 1):
        text, of_round = measure_round(options.build, cpus)
        for name, ratio in of_round.items():
            ratios[name].append(ratio)
        print(f"round {number} of {options.rounds}: {text}", flush=True)
    middle = {name: statistics.median(of_rounds) for name, of_rounds in ratios.items()}
    for name, what, bound in (("null", "a null call takes {} of TCP's round trip", f"{ROUND_TRIP} at most"),
                              ("read", "1 MiB reads have {} of TCP's bandwidth", f"{BANDWIDTH} at least"),
                              ("write", "1 MiB writes have {} of TCP's bandwidth", f"{BANDWIDTH} at least")):
        print(what.format(f"{middle[name]:.2f}")
              + f" ({min(ratios[name]):.2f} to {max(ratios[name]):.2f}; wanted: {bound})")
    held = middle["null"] <= ROUND_TRIP and min(middle["read"], middle["write"]) >= BANDWIDTH
    sys.exit(0 if held or not options.require else 1)


main()
