"""Runs RRDK's testrpc and other software in turns: see scripts/bench-peers.sh."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import output

PORT = 13480  # of the processes of UCX and libfabric
SMALL = 64  # bytes: a null call has 68, its reply 52
PATIENCE = 60


class Failed(Exception):
    """Says why a peer could not be measured."""


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench-peers.sh", add_help=False)
    parser.add_argument("build", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--cpus", default="0,1")
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds and --seconds are above 0")
    try:
        args.cpus = [int(cpu) for cpu in args.cpus.split(",")]
    except ValueError:
        args.cpus = []
    if len(args.cpus) != 2 or not set(args.cpus) <= os.sched_getaffinity(0):
        parser.error(f"--cpus takes two of {sorted(os.sched_getaffinity(0))}")
    return args


def run(command, **options):
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=PATIENCE,
                              check=False, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    if done.returncode != 0:
        raise Failed(((done.stderr or done.stdout).strip().splitlines() or ["it gave no reason"])[-1])
    return done.stdout


class Machine:
    """Runs the programs; every measurement returns one number."""

    def __init__(self, args):
        self.build, self.seconds, (self.server, self.client) = args.build, args.seconds, args.cpus
        self.folder = tempfile.TemporaryDirectory(prefix="bench-peers-")

    def rrdk(self, driver, figure, *options):
        testrpc = self.build / "apps/testrpc/testrpc"
        uri = {"shm": f"shm:{self.folder.name}/socket", "tcp": "iwarp://127.0.0.1:20052"}[driver]
        output = Path(self.folder.name) / "result.json"
        server = subprocess.Popen([testrpc, "--server", uri, "--idle", "busy", "--cpu", str(self.server)],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            if not any(line.startswith("listening on") for line in server.stdout):
                raise Failed("testrpc --server did not come up")
            run([testrpc, "--client", uri, "--idle", "busy", "--cpu", self.client, *options,
                 "--duration", self.seconds, "--json", output])
        finally:
            server.terminate()
            server.communicate()
        result = json.loads(output.read_text(encoding="utf-8"))["runs"][0]
        return {"us": result["latency_ns"]["p50"] / 1000, "rate": result["rpc_per_s"] / 1e6,
                "GB/s": result["bytes_per_s"] / 1e9}[figure]

    def beside(self, server, client, environment=None):
        """Runs a server and a client, each on its CPU; returns the client's output."""
        def pinned(cpu, command):
            return ["taskset", "-c", *map(str, [cpu, *command])]
        with subprocess.Popen(pinned(self.server, server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=environment) as process:
            try:
                self.wait_for(PORT)
                return run(pinned(self.client, client), env=environment)
            finally:
                process.kill()

    def ucx(self, transport, figure, test, *options):
        environment = {**os.environ, "UCX_LOG_LEVEL": "error", **{
            "shm": {"UCX_TLS": "posix,cma,self"},
            "tcp": {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}}[transport]}
        server = ["ucx_perftest", "-p", PORT]
        out = self.beside(server, [*server, "127.0.0.1", "-t", test, "-f", "-v", *options], environment)
        line = dict(zip(*(row.split(",") for row in out.strip().splitlines()[-2:])))
        return {"us": 2 * float(line["50.0_percentile_lat"]), "rate": float(line["overall_mr"]) / 1e6,
                "GB/s": float(line["overall_bw"]) * 2**20 / 1e9}[figure]

    def libfabric(self, provider, endpoint, size, iterations):
        common = ["fi_pingpong", "-p", provider, "-e", endpoint, "-I", iterations, "-S", size]
        out = self.beside([*common, "-B", PORT], [*common, "-P", PORT, "127.0.0.1"])
        names, values = (row.split() for row in out.strip().splitlines()[-2:])
        return 2 * float(dict(zip(names, values))["usec/xfer"])

    def libtirpc(self):
        return json.loads(run([self.build / "perf/tirpc_call", "--seconds", self.seconds, "--cpus",
                               f"{self.server},{self.client}"]))["p50_us"]

    @staticmethod
    def wait_for(port):
        """Waits until a process listens. Reads the kernel's table, since connecting would disturb the server."""
        wanted = f":{port:04X} "
        for _ in range(500):
            rows = [row for name in ("tcp", "tcp6") for row in open(f"/proc/net/{name}", encoding="ascii")]
            if any(wanted in row.split(" 0A ")[0] for row in rows if " 0A " in row):
                return
            time.sleep(0.01)
        raise Failed(f"no process listens on port {port}")


def cases(m):
    """Returns title, unit, whether more is better, and what is measured, RRDK first."""
    null, read = ("--engine", "null", "--window"), ("--engine", "read", "--size", "1M", "--window")
    return [
        ("shared memory: round trip", "us", False, {
            "RRDK null call": lambda: m.rrdk("shm", "us", *null, 1),
            "UCX active message, 64 bytes": lambda: m.ucx("shm", "us", "ucp_am_lat", "-s", SMALL, "-n", 200000),
            "libfabric shm message, 64 bytes": lambda: m.libfabric("shm", "rdm", SMALL, 100000)}),
        ("shared memory: millions a second", "rate", True, {
            "RRDK null calls, 32 in flight": lambda: m.rrdk("shm", "rate", *null, 32),
            "UCX messages one way, 64 bytes": lambda: m.ucx("shm", "rate", "ucp_am_bw", "-s", SMALL, "-n", 2000000)}),
        ("shared memory: reads of 1 MiB, 8 in flight", "GB/s", True, {
            "RRDK READ": lambda: m.rrdk("shm", "GB/s", *read, 8),
            "UCX get": lambda: m.ucx("shm", "GB/s", "ucp_get", "-s", 1 << 20, "-n", 3000, "-w", 100, "-O", 8)}),
        ("TCP on loopback: round trip", "us", False, {
            "RRDK null call, iWARP": lambda: m.rrdk("tcp", "us", *null, 1),
            "UCX active message, 64 bytes": lambda: m.ucx("tcp", "us", "ucp_am_lat", "-s", SMALL, "-n", 30000),
            "libfabric tcp message, 64 bytes": lambda: m.libfabric("tcp", "msg", SMALL, 20000),
            "libtirpc null call": m.libtirpc}),
        ("TCP on loopback: millions a second", "rate", True, {
            "RRDK null calls, 32 in flight": lambda: m.rrdk("tcp", "rate", *null, 32),
            "UCX messages one way, 64 bytes": lambda: m.ucx("tcp", "rate", "ucp_am_bw", "-s", SMALL, "-n", 300000)}),
        ("TCP on loopback: reads of 1 MiB, 8 in flight", "GB/s", True, {
            "RRDK READ, iWARP": lambda: m.rrdk("tcp", "GB/s", *read, 8),
            "UCX get": lambda: m.ucx("tcp", "GB/s", "ucp_get", "-s", 1 << 20, "-n", 1000, "-w", 50, "-O", 8)}),
    ]


def measure(contenders, rounds):
    """Returns name -> its figures, one per round, or why it could not be measured."""
    results = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, once in contenders.items():
            if isinstance(results[name], str):
                continue
            try:
                results[name].append(once())
            except Failed as error:
                results[name] = str(error)
    return results


def main():
    args = arguments()
    machine = Machine(args)
    rows = []
    for title, unit, more_is_better, contenders in cases(machine):
        print(f"\n{title}")
        results = measure(contenders, args.rounds)
        ours = next(iter(results.values()))
        if isinstance(ours, str):
            sys.exit(f"bench-peers: testrpc failed: {ours}")
        for name, figures in results.items():
            if isinstance(figures, str):
                print(f"  {name:34} left out: {figures}")
            else:
                ratios = sorted(mine / it if more_is_better else it / mine for mine, it in zip(ours, figures))
                spread = "" if figures is ours else \
                    f"   ours is {statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})"
                print(f"  {name:34} {statistics.median(figures):9.2f} {'M/s' if unit == 'rate' else unit}{spread}",
                      flush=True)
            outcome = "left_out" if isinstance(figures, str) else "figures"
            rows.append({"case": title, "name": name, "unit": unit, outcome: figures})
    if args.json:
        with output.file(args.json) as file:
            json.dump(rows, file, indent=1)


sys.exit(output.run("bench-peers", main))
