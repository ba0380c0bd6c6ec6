#!/usr/bin/python3
"""Measures how a server scales with connections: rate, latency, memory and set-up, from one connection on.

    scripts/scale.py                               iwarp on loopback, 1 to 9000 connections: ten minutes
    scripts/scale.py --quick                       fewer connections and one round: a minute
    scripts/scale.py --driver shm                  over shared memory, up to 1000
    scripts/scale.py --connections 1,100,9000 --rounds 5

For each number of connections it starts a server with default options except --memory, and one client
process that makes the connections and null calls at window 1: on all connections, then on ten while
the others are idle. Each round measures every number once, and a figure is the median of the rounds,
since the speed of a machine's CPUs changes over time. Comparisons are made within a round. Over iwarp,
bare TCP follows each time: the same bytes over as many sockets, both ends polling (perf/limits, of
-Dbenchmarks=true), which shows what the kernel itself loses.

Writes scale.json, scale.png and a table to the folder --out. With --require the exit status says
whether the server handles the largest number as it should: all active, calls at 0.8 times the rate of
100 connections, or at 0.9 times the share that bare TCP keeps; ten active, at 0.95 times the rate
and 1.25 times the p99 of ten alone; no error, and at most 900 MiB resident. Each connection takes a
file descriptor at either end: testrpc raises its own limit up to the hard one (ulimit -Hn). Needs
python3-matplotlib.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    from lib import output, scale_plots
except ModuleNotFoundError as error:
    sys.exit(f"scale: {error.name} is missing: apt-get install python3-matplotlib (it is for /usr/bin/python3)")

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = {"iwarp": [1, 10, 30, 100, 300, 1000, 3000, 9000], "shm": [1, 10, 30, 100, 300, 1000]}
QUICK = {"iwarp": [1, 10, 100, 1000], "shm": [1, 10, 100]}
FEW = 10
OF_TCP = "the same, of what bare TCP keeps"
RATE_KEPT, RATE_OF_TCP, FEW_KEPT, FEW_P99, MOST_RESIDENT = 0.8, 0.9, 0.95, 1.25, 900 << 20
SUFFIXES = {"M": 1 << 20, "G": 1 << 30}


def fail(message):
    print(f"scale: {message}", file=sys.stderr)
    sys.exit(2)


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testrpc", type=Path, metavar="FILE",
                        help="the program (default: build/apps/testrpc/testrpc)")
    parser.add_argument("--limits", type=Path, metavar="FILE",
                        help="for bare TCP (default: perf/limits of the same build, if it is there)")
    parser.add_argument("--out", type=Path, default=Path("scale"), metavar="FOLDER")
    parser.add_argument("--driver", choices=["iwarp", "shm"], default="iwarp")
    parser.add_argument("--connections", metavar="N,...")
    parser.add_argument("--memory", default="512M", metavar="BYTES", help="the server's budget (default 512M)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duration", type=float, default=2.0, metavar="SECONDS", help="of each run")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--require", action="store_true")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.duration = 1, 0.5
    if chosen.connections:
        try:
            chosen.connections = sorted({int(n) for n in chosen.connections.split(",")})
        except ValueError:
            fail(f"--connections {chosen.connections} is not a list of numbers")
    else:
        chosen.connections = (QUICK if chosen.quick else NUMBERS)[chosen.driver]
    if chosen.connections[0] < 1 or chosen.rounds < 1 or not 0 < chosen.duration <= 3600:
        fail("--connections and --rounds begin with 1, --duration is within 0 and 3600 seconds")
    if chosen.out.exists() and not chosen.out.is_dir():
        fail(f"--out {chosen.out} is not a folder")
    chosen.testrpc = chosen.testrpc or ROOT / "build/apps/testrpc/testrpc"
    if not os.access(chosen.testrpc, os.X_OK):
        fail(f"{chosen.testrpc} is not there: build it (scripts/quickstart.sh does), or give --testrpc")
    default = chosen.testrpc.parents[2] / "perf/limits" if len(chosen.testrpc.parents) > 2 else Path("limits")
    if chosen.limits and not os.access(chosen.limits, os.X_OK):
        fail(f"--limits {chosen.limits} is not there")
    if chosen.driver != "iwarp":
        chosen.limits = None
    elif not chosen.limits and os.access(default, os.X_OK):
        chosen.limits = default
    if chosen.require and not {FEW, 100} <= set(chosen.connections):
        fail("--require compares with 10 and with 100 connections: name them")
    return chosen


def cpus():
    """Returns the CPUs of the server and of the client, each of which has a thread that polls."""
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[1], allowed[0]) if len(allowed) > 1 else (allowed[0], allowed[0])


def resident(pid):
    """Returns the resident bytes: all, the heap, and the memory of buffers."""
    status = Path(f"/proc/{pid}/status").read_text()
    kib = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", status, re.MULTILINE)}
    huge = kib["HugetlbPages"]  # the kernel counts them separately
    return {"all": 1024 * (kib["VmRSS"] + huge), "heap": 1024 * kib["RssAnon"],
            "buffers": 1024 * (kib["RssShmem"] + huge)}


class Server:
    def __init__(self, chosen, cpu):
        uri = "iwarp://127.0.0.1:0" if chosen.driver == "iwarp" else f"shm:@rrdk-scale-{os.getpid()}"
        self.process = subprocess.Popen(
            [chosen.testrpc, "--server", uri, "--memory", chosen.memory, *polls_on(cpu)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = []
        for line in self.process.stdout:
            self.output.append(line)
            if line.startswith("listening on"):
                self.uri = line.split()[-1]
                return
        fail("the server ended: " + "".join(self.output[-3:]))

    def end(self):
        self.process.terminate()
        rest = self.process.communicate(timeout=60)[0]
        if self.process.returncode != 0:
            fail(f"the server ended with status {self.process.returncode}: {rest}")


def polls_on(cpu):
    return ["--cpu", str(cpu), "--idle", "busy" if len(os.sched_getaffinity(0)) > 1 else "yield"]


def measure(chosen, number):
    """Runs one server and one client with `number` connections."""
    server_cpu, client_cpu = cpus()
    server = Server(chosen, server_cpu)
    alone = resident(server.process.pid)
    few = min(FEW, number)
    with tempfile.NamedTemporaryFile() as result:
        client = subprocess.Popen(
            [chosen.testrpc, "--client", server.uri, "--connections", str(number), "--active", f"{number},{few}",
             "--window", "1", "--engine", "null", "--duration", str(chosen.duration), "--json", result.name,
             *polls_on(client_cpu)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines, idle = [], None
        for line in client.stdout:
            lines.append(line)
            if idle is None and (line.startswith("null") or re.match(r"\d+ connections in ", line)):
                idle = resident(server.process.pid)
        # Runs that had errors have a result, too.
        client.wait()
        text = Path(result.name).read_text()
        if not text:
            server.process.kill()
            fail(f"the client with {number} connections ended with status {client.returncode}: {''.join(lines[-3:])}")
        found = json.loads(text)
    if any(run["latency_ns"]["p99"] is None for run in found["runs"]):
        server.process.kill()
        fail(f"too few calls of the client with {number} connections came back right: {''.join(lines[-3:])}")
    active = resident(server.process.pid)
    server.end()
    return {"connections": number, "runs": found["runs"], "connect_seconds": found["connect_seconds"],
            "environment": found["environment"], "revision": found["revision"],
            "resident": {"alone": alone, "idle": idle, "active": active}}


def bare_tcp(limits, number):
    """Returns calls per second."""
    server_cpu, client_cpu = cpus()
    run = subprocess.run([limits, "tcp-connections", str(client_cpu), str(server_cpu), str(number)],
                         capture_output=True, text=True)
    found = re.search(r"connections, calls/s +(\d+)", run.stdout)
    if run.returncode != 0 or not found:
        fail(f"{limits} ended with status {run.returncode}: {run.stdout[-200:]}{run.stderr[-200:]}")
    return int(found[1])


def per_connection(round_, m, when, what):
    """Returns the bytes per connection beyond the round's smallest number; None for that number itself."""
    first = round_[0]
    if m["connections"] == first["connections"]:
        return None
    grown, grown_at_first = (x["resident"][when][what] - x["resident"]["alone"][what] for x in (m, first))
    return (grown - grown_at_first) / (m["connections"] - first["connections"])


def figures(round_):
    """Returns the figures of one round: a row for each number of connections."""
    rows = []
    for m in round_:
        everybody, few = m["runs"]
        rows.append({
            "connections": m["connections"],
            "errors": everybody["errors"] + few["errors"],
            "tcp_rate": m.get("tcp_rate"),
            "rate": everybody["rpc_per_s"], "few_rate": few["rpc_per_s"],
            "slowest": share(everybody),
            "p50_us": everybody["latency_ns"]["p50"] / 1000, "p99_us": everybody["latency_ns"]["p99"] / 1000,
            "few_p50_us": few["latency_ns"]["p50"] / 1000, "few_p99_us": few["latency_ns"]["p99"] / 1000,
            "connects_per_s": m["connections"] / m["connect_seconds"],
            "resident": max(memory["all"] for memory in m["resident"].values()),
            "idle_heap": per_connection(round_, m, "idle", "heap"),
            "idle_buffers": per_connection(round_, m, "idle", "buffers"),
            "used_bytes": per_connection(round_, m, "active", "all"),
        })
    return rows


def share(run):
    calls = run["calls_per_connection"]
    return calls["min"] / calls["mean"] if calls["mean"] else 0


def medians(rounds):
    rows = []
    for same in zip(*rounds):
        row = {name: None if value is None else statistics.median(r[name] for r in same)
               for name, value in same[0].items()}
        row["errors"] = sum(r["errors"] for r in same)
        rows.append(row)
    return rows


def ratios(rounds):
    """Returns the ratios of the largest number to others, each within a round: medians of the rounds."""
    def of(rows, number):
        return next((r for r in rows if r["connections"] == number), None)

    found = {}
    pairs = {"rate, of 100 connections'": (100, "rate", "rate"),
             "rate of ten active, of ten alone": (FEW, "few_rate", "few_rate"),
             "p99 of ten active, of ten alone": (FEW, "few_p99_us", "few_p99_us")}
    for name, (base, figure, base_figure) in pairs.items():
        if all(of(rows, base) for rows in rounds):
            found[name] = statistics.median(rows[-1][figure] / max(of(rows, base)[base_figure], 1e-9)
                                            for rows in rounds)
    if rounds[0][0]["tcp_rate"] and of(rounds[0], 100):
        kept = [[rows[-1][rate] / max(of(rows, 100)[rate], 1e-9) for rate in ("rate", "tcp_rate")] for rows in rounds]
        found[OF_TCP] = statistics.median(ours / tcp for ours, tcp in kept)
    return found


def verdicts(rows, found):
    yield "calls fail at no number of connections", not any(r["errors"] for r in rows)
    yield (f"rate at least {RATE_KEPT} of 100 connections', or {RATE_OF_TCP} of what bare TCP keeps",
           found["rate, of 100 connections'"] >= RATE_KEPT or found.get(OF_TCP, 0) >= RATE_OF_TCP)
    yield f"ten active at least {FEW_KEPT} of ten alone", found["rate of ten active, of ten alone"] >= FEW_KEPT
    yield f"p99 of ten active at most {FEW_P99} times", found["p99 of ten active, of ten alone"] <= FEW_P99
    yield f"resident at most {MOST_RESIDENT >> 20} MiB", max(r["resident"] for r in rows) <= MOST_RESIDENT


def print_table(rows, found):
    print(f"\n{'':>11} {'all active':^41} {'ten active':^26} {'KiB per connection':^20}")
    print(f"{'connections':>11} {'RPC/s':>8} {'of TCP':>6} {'p50 us':>8} {'p99 us':>8} {'slow':>5}"
          f" {'RPC/s':>9} {'p50 us':>8}"
          f" {'p99 us':>8} {'idle':>6} {'grant':>6} {'used':>6} {'connects/s':>10}")
    def kib(size):
        return "-" if size is None else f"{size / 1024:.1f}"

    def of_tcp(row):
        return f"{100 * row['rate'] / row['tcp_rate']:.0f}%" if row["tcp_rate"] else "-"

    for r in rows:
        print(f"{r['connections']:>11.0f} {r['rate']:>8.0f} {of_tcp(r):>6} {r['p50_us']:>8.1f} {r['p99_us']:>8.1f}"
              f" {100 * r['slowest']:>4.0f}% {r['few_rate']:>9.0f} {r['few_p50_us']:>8.1f} {r['few_p99_us']:>8.1f}"
              f" {kib(r['idle_heap']):>6} {kib(r['idle_buffers']):>6} {kib(r['used_bytes']):>6}"
              f" {r['connects_per_s']:>10.0f}{'  ERRORS' if r['errors'] else ''}")
    print("of TCP: rate, of bare TCP's with as many sockets. slow: calls of the slowest connection, of the mean.\n"
          "KiB of the server's memory, beyond what the first row's took: heap of an idle connection, buffers\n"
          "behind its grant, and all once it was used")
    for name, ratio in found.items():
        print(f"{rows[-1]['connections']:.0f} connections: {name}: {ratio:.2f}")


def main():
    chosen = options()
    began = time.monotonic()
    todo = chosen.rounds * len(chosen.connections)
    done, raw = 0, []
    for number_of_round in range(chosen.rounds):
        raw.append([])
        for number in chosen.connections:
            left = f", {(time.monotonic() - began) / done * (todo - done):.0f} s left" if done else ""
            print(f"[{done}/{todo}] round {number_of_round + 1}: {number} connections{left}", file=sys.stderr,
                  flush=True)
            raw[-1].append(measure(chosen, number))
            if chosen.limits:
                raw[-1][-1]["tcp_rate"] = bare_tcp(chosen.limits, number)
            done += 1
    rounds = [figures(r) for r in raw]
    rows, found = medians(rounds), ratios(rounds)
    first = raw[0][0]
    print_table(rows, found)
    with output.folder(chosen.out) as out:
        with output.file(out / "scale.json") as file:
            file.write(json.dumps({
                "tool": "scale", "schema": 1, "command": sys.argv, "revision": first["revision"],
                "environment": first["environment"], "driver": chosen.driver, "memory": chosen.memory,
                "medians": rows, "ratios": found, "rounds": rounds}, indent=1) + "\n")
        scale_plots.draw(rows, rounds, chosen.driver, out / "scale.png")
    print(f"{chosen.out}/scale.json, {chosen.out}/scale.png")
    wrong = any(r["errors"] for r in rows)
    if chosen.require:
        for what, holds in verdicts(rows, found):
            print(f"{'holds' if holds else 'FAILS'}: {what}")
            wrong = wrong or not holds
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(output.run("scale", main))
