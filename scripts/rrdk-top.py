#!/usr/bin/env python3
"""A screen of what an RRDK process does, refreshed each second; asks DPDK's telemetry socket.

  scripts/rrdk-top.py                    the process that has a socket, if there is one only
  scripts/rrdk-top.py --prefix NAME      that of --file-prefix NAME
  scripts/rrdk-top.py --socket PATH      that socket
  scripts/rrdk-top.py --list             the processes that can be asked
  scripts/rrdk-top.py --once             one screen of one second, and out; for scripts
  scripts/rrdk-top.py --json             the same as JSON

  --interval SECONDS   between screens (1)
  --name NAME          of the Telemetry (default: the first)
  --connections N      how many of the busiest connections to show (10)

testrpc has a socket with EAL's argument --telemetry: testrpc --telemetry -- --server shm:/tmp/perf.sock
Ctrl-C ends it. Exit status: 0; 1: there is nothing to ask, or it went away; 2: the command line.
"""
import argparse
import contextlib
import glob
import json
import os
import re
import socket
import struct
import sys
import time

from lib import output

SOCKET = "dpdk_telemetry.v2*"
CLEAR = "\033[H\033[2J"
MOST_BYTES = 65536  # of an answer
MOST_ASKED = 200  # connections looked at for the busiest: each is a question, and a search


def folders():
    """Where DPDK has its runtime folders: of root, and of a user."""
    user = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
    return ["/var/run/dpdk", os.path.join(user, "dpdk")]


class Failed(Exception):
    """A process cannot be asked, or not any more."""


@contextlib.contextmanager
def asking(path):
    try:
        yield
    except (OSError, ValueError) as error:
        raise Failed(f"{path}: {error}") from error


class Telemetry:
    """A telemetry socket. An answer is one packet."""

    def __init__(self, path):
        self.path = path
        with asking(path):
            self.connect(path)

    def connect(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(5)
        self.socket.connect(path)
        pid, user, _ = struct.unpack("3i", self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user not in (0, os.geteuid()):  # what it says would go to our terminal
            raise PermissionError(f"it is a socket of process {pid}, which is another user's")
        self.about = json.loads(self.socket.recv(1024))

    def ask(self, command):
        """What it answers; None: it does not know the command, or what that is about."""
        with asking(self.path):
            self.socket.sendall(command.encode())
            packet = self.socket.recv(MOST_BYTES)
            if not packet:
                raise ConnectionError("the process is gone")
            return next(iter(json.loads(packet).values()))


def sockets():
    """Each socket that somebody listens at, with its prefix."""
    found = []
    for folder in folders():
        for path in sorted(glob.glob(os.path.join(folder, "*", SOCKET))):
            try:
                found.append((os.path.basename(os.path.dirname(path)), Telemetry(path)))
            except Failed:
                continue  # left behind by a process that is gone
    return found


def connection_ids(telemetry, name):
    ids, first = [], 0
    while len(ids) < MOST_ASKED:
        page = telemetry.ask(f"/rrdk/connections,{name},{first}")
        if not page:
            break
        ids += page["ids"]
        first = page.get("next")
        if first is None:
            break
    return ids[:MOST_ASKED]


def snapshot(telemetry, name):
    """Everything at one moment: metrics by name, procedures, connections by id."""
    places = telemetry.ask(f"/rrdk/procedures,{name}") or []
    procedures = [telemetry.ask(f"/rrdk/procedure,{name},{place}") for place in range(len(places))]
    connections = {}
    for number in connection_ids(telemetry, name):
        connection = telemetry.ask(f"/rrdk/connection,{name},{number}")
        if connection:
            connections[number] = connection
    metrics = {}
    for prefix in ("server", "client", "core", "pool"):
        metrics.update(telemetry.ask(f"/rrdk/metrics,{name},{prefix}") or {})
    return {"time": time.monotonic(), "metrics": metrics, "procedures": [p for p in procedures if p],
            "connections": connections}


def difference(before, after):
    """What happened between two snapshots, as rates; and what is."""
    seconds = max(after["time"] - before["time"], 1e-6)
    old = before["metrics"]

    def rate(metric):
        return max(0, after["metrics"].get(metric, 0) - old.get(metric, 0)) / seconds

    cores = sorted({int(m.split("/")[1]) for m in after["metrics"] if m.startswith("core_passes/")})
    def key(procedure):
        return procedure["program"], procedure["version"], procedure["name"]

    old_calls = {key(p): p for p in before["procedures"]}
    procedures = []
    for p in after["procedures"]:
        was = old_calls.get(key(p), dict.fromkeys(p, 0))
        if was["calls"] > p["calls"]:  # its service was removed and added again
            was = dict.fromkeys(p, 0)
        procedures.append({
            "name": p["name"], "calls_per_s": (p["calls"] - was["calls"]) / seconds,
            "errors_per_s": (p["errors"] - was["errors"]) / seconds,
            "bytes_per_s": sum(p[key] - was[key] for key in ("received_bytes", "sent_bytes")) / seconds,
            "calls_in_progress": p["calls_in_progress"],
            **{key: p[key] for key in p if key.endswith("_ns")}})
    connections = []
    for number, c in after["connections"].items():
        was = before["connections"].get(number)
        if was is None:  # what it did before is not of this second
            was = {"calls": 0 if c["age_us"] < seconds * 1e6 else c["calls"]}
        connections.append({**c, "calls_per_s": max(0, c["calls"] - was["calls"]) / seconds})
    connections.sort(key=lambda c: -c["calls_per_s"])
    waits = {m: rate(m) for m in after["metrics"] if re.search("_waits_|refus|breaches|missing", m)}
    return {
        "seconds": seconds,
        "cores": [{"core": core, "connections": after["metrics"].get(f"core_connections/{core}", 0),
                   "passes_per_s": rate(f"core_passes/{core}"),
                   "busy": rate(f"core_busy_passes/{core}") / max(rate(f"core_passes/{core}"), 1e-9),
                   "completions_per_s": rate(f"core_completions/{core}")} for core in cores],
        "calls_per_s": sum(rate(m) for m in after["metrics"] if re.match(r"server_calls_received/\d+$|client_calls_made$", m)),
        "procedures": procedures, "connections": connections, "waits": {m: r for m, r in waits.items() if r},
        "pools": pools(after["metrics"])}


def pools(metrics):
    """Of each size class: buffers, free ones, and the low-water mark."""
    sizes = sorted({tuple(map(int, m.split("/")[1:])) for m in metrics if m.startswith("pool_buffers/")})
    return [{"size": size, "node": node,
             **{key: metrics.get(f"pool_buffers{suffix}/{size}/{node}", 0)
                for key, suffix in (("buffers", ""), ("free", "_free"), ("more", "_more"), ("least", "_least"))}}
            for size, node in sizes]


def count(value):
    """1234567 as 1.23M: at most five columns."""
    for unit in ("", "k", "M", "G"):
        if value < 1000 or unit == "G":
            return f"{value:.0f}" if not unit else f"{value:.3g}{unit}"
        value /= 1000
    return str(value)


def us(ns):
    return f"{ns / 1000:.1f}"


def screen(about, name, now, most_connections):
    lines = [f"{name}, process {about['pid']}: {count(now['calls_per_s'])} calls/s, "
             f"{sum(c['connections'] for c in now['cores'])} connections", ""]
    lines.append(f"{'core':>4} {'connections':>11} {'passes/s':>9} {'busy':>5} {'completions/s':>13}")
    for c in now["cores"]:
        lines.append(f"{c['core']:>4} {c['connections']:>11} {count(c['passes_per_s']):>9} {c['busy']:>5.0%} "
                     f"{count(c['completions_per_s']):>13}")
    if now["procedures"]:
        lines += ["", f"{'procedure':<24} {'calls/s':>8} {'errors/s':>8} {'MB/s':>7} {'open':>5} "
                      f"{'handler p50/p99 us':>19}"]
    for p in now["procedures"]:
        times = f"{us(p['handler_p50_ns'])}/{us(p['handler_p99_ns'])}" if p["handler_p99_ns"] else "-"
        lines.append(f"{p['name'][:24]:<24} {count(p['calls_per_s']):>8} {count(p['errors_per_s']):>8} "
                     f"{p['bytes_per_s'] / 1e6:>7.0f} {p['calls_in_progress']:>5} {times:>19}")
    if now["connections"]:
        lines += ["", f"{'id':>8} {'peer':<34} {'calls/s':>8} {'open':>5} {'credits':>7} {'idle s':>7}"]
    for c in now["connections"][:most_connections]:
        lines.append(f"{c['id']:>8} {c['peer'][:34]:<34} {count(c['calls_per_s']):>8} {c['in_progress']:>5} "
                     f"{c['credits']:>7} {c['idle_us'] / 1e6:>7.1f}")
    lines += ["", f"{'buffers of':>10} {'made':>8} {'free':>8} {'to come':>8} {'least':>8}"]
    for p in now["pools"]:
        lines.append(f"{p['size']:>10} {p['buffers']:>8} {p['free']:>8} {p['more']:>8} {p['least']:>8}")
    if now["waits"]:
        lines += ["", "waits, refusals and breaches per second:"]
        lines += [f"  {metric.replace('/', ' ')} {count(rate)}" for metric, rate in sorted(now["waits"].items())]
    return "\n".join(lines)


def choose(args):
    """The socket that the command line means."""
    if args.socket:
        return Telemetry(args.socket)
    found = [(prefix, t) for prefix, t in sockets()
             if (args.prefix is None or prefix == args.prefix) and t.ask("/rrdk/list")]
    if not found:
        wanted = f" of prefix '{args.prefix}'" if args.prefix else ""
        sys.exit(f"rrdk-top: no process{wanted} can be asked: start it with EAL's argument --telemetry, "
                 "and create a Telemetry in it (testrpc does)")
    if len(found) > 1:
        sys.exit("rrdk-top: several processes can be asked, choose one with --socket: "
                 + ", ".join(f"{t.path} (process {t.about['pid']})" for _, t in found))
    return found[0][1]


def arguments():
    parser = argparse.ArgumentParser(add_help=False)
    for option in ("--prefix", "--socket", "--name"):
        parser.add_argument(option)
    for option in ("--list", "--once", "--json", "--help", "-h"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--interval", type=float, default=1)
    parser.add_argument("--connections", type=int, default=10)
    args = parser.parse_args()
    if args.help or args.h:
        print(__doc__.strip())
        sys.exit(0)
    if args.interval < 0.1:
        parser.error("--interval is 0.1 seconds at least")
    return args


def watch(args):
    telemetry = choose(args)
    names = telemetry.ask("/rrdk/list") or []
    name = args.name or (names[0] if names else None)
    if name not in names:
        sys.exit(f"rrdk-top: {telemetry.path}: there is no Telemetry "
                 + (f"named '{name}': {', '.join(names)}" if name and names else "in that process"))
    before = snapshot(telemetry, name)
    while True:
        time.sleep(args.interval)
        after = snapshot(telemetry, name)
        now = difference(before, after)
        before = after
        if args.json:
            print(json.dumps({"process": telemetry.about["pid"], "name": name, **now}))
        else:
            print(("" if args.once else CLEAR) + screen(telemetry.about, name, now, args.connections), flush=True)
        if args.once or args.json:
            return


def main():
    args = arguments()
    try:
        if args.list:
            for prefix, telemetry in sockets():
                print(f"{telemetry.path} process {telemetry.about['pid']} "
                      f"{' '.join(telemetry.ask('/rrdk/list') or ['(not RRDK)'])}")
        else:
            watch(args)
    except KeyboardInterrupt:
        pass
    except Failed as error:
        sys.exit(f"rrdk-top: {error}")
    except KeyError as error:
        sys.exit(f"rrdk-top: an answer has no {error}")


if __name__ == "__main__":
    sys.exit(output.run("rrdk-top", main, failed=1))
