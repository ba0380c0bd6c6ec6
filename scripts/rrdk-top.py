#!/usr/bin/env python3
"""A screen of what an RRDK process does, refreshed each second; asks DPDK's telemetry socket.

  scripts/rrdk-top.py                    the process that has a socket, if there is one only
  scripts/rrdk-top.py --prefix NAME      that of --file-prefix NAME
  scripts/rrdk-top.py --socket PATH      that socket
  scripts/rrdk-top.py --list             the processes that can be asked
  scripts/rrdk-top.py --once             one screen of one second, and out; for scripts
  scripts/rrdk-top.py --json             the same as JSON
  scripts/rrdk-top.py --ask COMMAND      one answer of the socket: --ask /rrdk/metrics,testrpc,server

  --interval SECONDS   between screens (1)
  --name NAME          of the Telemetry (default: the first)
  --connections N      how many of the busiest connections to show (10); 0: none are asked about

All rates and percentiles are those of the time since the last screen. testrpc has a socket with EAL's argument
--telemetry: testrpc --telemetry -- --server shm:/tmp/perf.sock
On a terminal the screen is as large as that, and q ends it; elsewhere one follows the other. Exit status: 0; 1: there is nothing to ask, or it went away; 2: the command line.
"""
import argparse
import contextlib
import glob
import json
import os
import re
import select
import shutil
import socket
import struct
import sys
import termios
import time
import tty

from lib import output

SOCKET = "dpdk_telemetry.v2*"
HOME, END_OF_LINE, END_OF_SCREEN = "\033[H", "\033[K\n", "\033[K\033[J"
MOST_BYTES = 65536  # of an answer
MOST_ASKED = 200  # connections looked at for the busiest: each is a question, and a search


def folders():
    """Returns DPDK's runtime folders: root's, and the user's."""
    user = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
    return ["/var/run/dpdk", os.path.join(user, "dpdk")]


class Failed(Exception):
    """A process cannot be asked, or can no longer be asked."""


@contextlib.contextmanager
def asking(path):
    try:
        yield
    except (OSError, ValueError) as error:
        raise Failed(f"{path}: {error}") from error


def text_of(packet):
    """Returns the packet as text; bytes that are not UTF-8 are replaced."""
    return packet.decode("utf-8", "replace")


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
        about = json.loads(text_of(self.socket.recv(1024)))
        self.pid = pid or about["pid"]  # in a container its own process id may be 1

    def ask(self, command):
        """Returns the answer, or None if the process does not know the command or its subject."""
        with asking(self.path):
            self.socket.sendall(command.encode())
            packet = self.socket.recv(MOST_BYTES)
            if not packet:
                raise ConnectionError("the process is gone")
            return next(iter(json.loads(text_of(packet)).values()))


def sockets():
    """Returns each socket that a process listens at, with its prefix."""
    found = []
    for folder in folders():
        for path in sorted(glob.glob(os.path.join(folder, "*", SOCKET))):
            try:
                found.append((os.path.basename(os.path.dirname(path)), Telemetry(path)))
            except Failed:
                continue  # left behind by a process that has ended
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


def ask_each(telemetry, name, many, one):
    """Asks about each entry of a list; returns the answers."""
    places = telemetry.ask(f"/rrdk/{many},{name}") or []
    answers = (telemetry.ask(f"/rrdk/{one},{name},{place}") for place in range(len(places)))
    return [answer for answer in answers if answer]


def snapshot(telemetry, name, with_connections=True):
    """Returns everything at one moment: metrics by name, procedures, connections by id."""
    connections = {}
    for number in connection_ids(telemetry, name) if with_connections else ():
        connection = telemetry.ask(f"/rrdk/connection,{name},{number}")
        if connection:
            connections[number] = connection
    metrics = {}
    for prefix in ("server", "client", "core", "pool", "runtime"):
        metrics.update(telemetry.ask(f"/rrdk/metrics,{name},{prefix}") or {})
    return {"time": time.monotonic(), "metrics": metrics,
            "procedures": ask_each(telemetry, name, "procedures", "procedure"),
            "called": ask_each(telemetry, name, "called", "called_procedure"), "connections": connections}


# As in rrdk/procedure_stats.h: every power of two is cut into eight equal buckets.
SUB_BITS = 3


def upper_end_ns(bucket):
    shift = 0 if bucket < 2 << SUB_BITS else (bucket >> SUB_BITS) - 1
    return (bucket - (shift << SUB_BITS) + 1 << shift) - 1


def percentile_ns(buckets, percent):
    """Returns the percentile in nanoseconds, or None if nothing was measured."""
    left = sum(buckets) * percent / 100
    if not left:
        return None
    for bucket, count in enumerate(buckets):
        left -= count
        if left <= 0 and count:
            return upper_end_ns(bucket)
    return upper_end_ns(len(buckets) - 1)


def times_between(before, after, name):
    """Returns how many calls were timed between the two snapshots, and their p50 and p99."""
    now, old = after[f"{name}_buckets"], before.get(f"{name}_buckets") or []
    since = [count - (old[i] if i < len(old) else 0) for i, count in enumerate(now)]
    return {"timed_calls": sum(since), **{f"{name}_p{percent}_ns": percentile_ns(since, percent) for percent in (50, 99)}}


def earlier(before, after):
    """Yields pairs of an entry before and after. If it is new or was reset, the former is all zeros."""
    def key(entry):
        return entry.get("target"), entry["program"], entry["version"], entry["name"]

    old = {key(entry): entry for entry in before}
    for entry in after:
        was = old.get(key(entry), {})
        counter = "calls" if "calls" in entry else "timed_calls"
        fresh = was.get(counter, 0) > entry[counter] or not was  # its service was removed and added again
        yield dict.fromkeys((k for k in entry if not k.endswith("_buckets")), 0) if fresh else was, entry


def difference(before, after):
    """Returns what happened between two snapshots, as rates, and the current state."""
    seconds = max(after["time"] - before["time"], 1e-6)
    old = before["metrics"]

    def rate(metric):
        return max(0, after["metrics"].get(metric, 0) - old.get(metric, 0)) / seconds

    cores = sorted({int(m.split("/")[1]) for m in after["metrics"] if m.startswith("core_passes/")})
    procedures = [{
        "name": p["name"], "calls_per_s": (p["calls"] - was["calls"]) / seconds,
        "errors_per_s": (p["errors"] - was["errors"]) / seconds,
        "bytes_per_s": sum(p[key] - was[key] for key in ("received_bytes", "sent_bytes")) / seconds,
        "calls_in_progress": p["calls_in_progress"], "calls": p["calls"], **times_between(was, p, "handler")}
        for was, p in earlier(before["procedures"], after["procedures"])]
    called = []
    for was, c in earlier(before["called"], after["called"]):
        timed = c["timed_calls"] - was["timed_calls"]
        means = {f"{stage}_mean_ns": (c[f"{stage}_total_ns"] - was[f"{stage}_total_ns"]) / timed if timed else None
                 for stage in ("wait", "post", "away", "complete", "callback")}
        called.append({"name": c["name"], "target": c["target"],
                       "calls_per_s": timed / seconds * after["metrics"].get("runtime_stamp_every", 0),
                       **times_between(was, c, "call"), **means})
    for entries in (procedures, called):
        entries.sort(key=lambda entry: -entry["calls_per_s"])
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
        "procedures": procedures, "called": called, "connections": connections, "waits": {m: r for m, r in waits.items() if r},
        "pools": pools(after["metrics"])}


def pools(metrics):
    """Returns the number of buffers of each size class, how many are free, and the low-water mark."""
    sizes = sorted({tuple(map(int, m.split("/")[1:])) for m in metrics if m.startswith("pool_buffers/")})
    return [{"size": size, "node": node,
             **{key: metrics.get(f"pool_buffers{suffix}/{size}/{node}", 0)
                for key, suffix in (("buffers", ""), ("free", "_free"), ("more", "_more"), ("least", "_least"))}}
            for size, node in sizes]


def count(value):
    """Formats 1234567 as 1.23M: at most five columns."""
    for unit in ("", "k", "M", "G"):
        if value < 1000 or unit == "G":
            return f"{value:.0f}" if not unit else f"{value:.3g}{unit}"
        value /= 1000
    return str(value)


def us(ns):
    return "-" if ns is None else f"{ns / 1000:.1f}"


def both_us(entry, name):
    return f"{us(entry[f'{name}_p50_ns'])}/{us(entry[f'{name}_p99_ns'])}"


def clean(text, width):
    """Returns the printable part of a name that another program chose."""
    return "".join(c if c.isprintable() else "?" for c in text)[:width]


class Section:
    def __init__(self, title, rows):
        self.title, self.rows, self.shown = title, rows, len(rows)

    def lines(self):
        """Returns the section's lines, beginning with an empty one."""
        left = len(self.rows) - self.shown
        return ["", self.title, *self.rows[:self.shown], *([f"  ... and {left} more"] if left else [])]


def cores_of(now):
    return Section(f"{'core':>4} {'connections':>11} {'passes/s':>9} {'with work':>9} {'completions/s':>13}",
                   [f"{c['core']:>4} {c['connections']:>11} {count(c['passes_per_s']):>9} {c['busy']:>9.0%} "
                    f"{count(c['completions_per_s']):>13}" for c in now["cores"]])


def procedures_of(now):
    return Section(
        f"{'procedure':<24} {'calls/s':>8} {'errors/s':>8} {'MB/s':>7} {'open':>5} {'handler p50/p99 us':>19}",
        [f"{clean(p['name'], 24):<24} {count(p['calls_per_s']):>8} {count(p['errors_per_s']):>8} "
         f"{p['bytes_per_s'] / 1e6:>7.0f} {p['calls_in_progress']:>5} {both_us(p, 'handler'):>19}"
         for p in now["procedures"] if p["calls"] or p["calls_in_progress"]])


def called_of(now):
    return Section(
        f"{'called procedure':<20} {'at server':<22} {'calls/s':>8} {'p50/p99 us':>15} {'away us':>9}",
        [f"{clean(c['name'], 20):<20} {clean(c['target'], 22):<22} {count(c['calls_per_s']):>8} "
         f"{both_us(c, 'call'):>15} {us(c['away_mean_ns']):>9}" for c in now["called"]])


def connections_of(now, most):
    return Section(f"{'id':>8} {'peer':<34} {'calls/s':>8} {'open':>5} {'credits':>7} {'idle s':>7}",
                   [f"{c['id']:>8} {clean(c['peer'], 34):<34} {count(c['calls_per_s']):>8} {c['in_progress']:>5} "
                    f"{c['credits']:>7} {c['idle_us'] / 1e6:>7.1f}" for c in now["connections"][:most]])


def pools_of(now):
    return Section(f"{'buffers of':>10} {'made':>8} {'free':>8} {'to come':>8} {'least':>8}",
                   [f"{p['size']:>10} {p['buffers']:>8} {p['free']:>8} {p['more']:>8} {p['least']:>8}"
                    for p in now["pools"]])


def waits_of(now):
    return Section("waits, refusals and breaches per second:",
                   [f"  {metric.replace('/', ' ')} {count(rate)}" for metric, rate in sorted(now["waits"].items())])


def fit(sections, height):
    """Removes rows of the longest sections, and in the end the last sections, until `height` lines are left."""
    while len(sections) > 1 and sum(len(section.lines()) for section in sections) > height:
        longest = max(sections, key=lambda section: section.shown)
        if longest.shown > 1:
            longest.shown -= 1
        else:
            sections.pop()
    return sections


def screen(pid, name, now, most_connections, size=None):
    """Returns the lines of a screen, cut to the size of the terminal, or all lines without a size."""
    head = f"{name}, process {pid}: {count(now['calls_per_s'])} calls/s, " \
           f"{sum(c['connections'] for c in now['cores'])} connections; of the last {now['seconds']:.1f} s"
    sections = [cores_of(now), procedures_of(now), called_of(now), waits_of(now),
                connections_of(now, most_connections), pools_of(now)]
    sections = [section for section in sections if section.rows]
    if not size:
        return [head, *(line for section in sections for line in section.lines())]
    fit(sections, size.lines - 1)
    lines = [f"{head}; q ends", *(line for section in sections for line in section.lines())]
    return [line[:size.columns] for line in lines[:size.lines]]


class Terminal:
    """Draws each screen over the last one and reads keys. Without a terminal, screens follow each other."""

    def __init__(self):
        self.draws = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.keys = self.draws and sys.stdin is not None and sys.stdin.isatty()
        self.before, self.is_first = None, True

    def __enter__(self):
        if self.keys:
            self.before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_):
        if self.draws:
            print(flush=True)
        if self.before:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self.before)

    def size(self):
        return shutil.get_terminal_size() if self.draws else None

    def show(self, lines):
        if self.draws:
            text = HOME + END_OF_LINE.join(lines) + END_OF_SCREEN + "\r"
        else:
            text = ("" if self.is_first else "\n") + "".join(line + "\n" for line in lines)
        self.is_first = False
        print(text, end="", flush=True)

    def wait(self, seconds):
        """Returns False if q was pressed."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.keys:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 64)[:1] in (b"q", b"Q", b""):
                return False
        return True


def choose(args):
    """Returns the socket that the command line selects."""
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
                 + ", ".join(f"{t.path} (process {t.pid})" for _, t in found))
    return found[0][1]


def arguments():
    parser = argparse.ArgumentParser(add_help=False)
    for option in ("--prefix", "--socket", "--name", "--ask"):
        parser.add_argument(option)
    for option in ("--list", "--once", "--json", "--help", "-h"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--interval", type=float, default=1)
    parser.add_argument("--connections", type=int, default=10)
    args = parser.parse_args()
    if args.help or args.h:
        print(__doc__.strip())
        sys.exit(0)
    if not 0.1 <= args.interval <= 3600:
        parser.error("--interval is from 0.1 to 3600 seconds")
    if args.connections < 0:
        parser.error("--connections is 0 or more")
    return args


def ask(args):
    telemetry = choose(args)
    answer = telemetry.ask(args.ask)
    if answer is None:
        raise Failed(f"{telemetry.path}: '{args.ask}' has no answer")
    print(json.dumps(answer))


def watch(args):
    telemetry = choose(args)
    names = telemetry.ask("/rrdk/list") or []
    name = args.name or (names[0] if names else None)
    if name not in names:
        sys.exit(f"rrdk-top: {telemetry.path}: there is no Telemetry "
                 + (f"named '{name}': {', '.join(names)}" if name and names else "in that process"))
    with Terminal() as terminal:
        if args.once or args.json:
            terminal.draws = terminal.keys = False
        before = snapshot(telemetry, name, args.connections)
        while terminal.wait(args.interval):
            after = snapshot(telemetry, name, args.connections)
            now = difference(before, after)
            before = after
            if args.json:
                print(json.dumps({"process": telemetry.pid, "name": name, **now}))
            else:
                terminal.show(screen(telemetry.pid, name, now, args.connections, terminal.size()))
            if args.once or args.json:
                return


def main():
    args = arguments()
    try:
        if args.list:
            for prefix, telemetry in sockets():
                print(f"{telemetry.path} process {telemetry.pid} "
                      f"{' '.join(telemetry.ask('/rrdk/list') or ['(not RRDK)'])}")
        elif args.ask:
            ask(args)
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
