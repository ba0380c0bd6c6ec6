#!/usr/bin/env python3
"""Attacks on a server, each beside an honest client.

    attacks.py TESTRPC [--seconds N] [--recovery N] [--p99-ms MS] [--list] [ATTACK...]

For each attack a `testrpc --server` is started, an honest `testrpc --client` calls it all the time, and
others connect to it, make a call and leave. Then the attacker comes, for --seconds, and goes. Claimed is:

  - the server lives, and ends cleanly when it is told to;
  - every honest call succeeds, and so does every honest connection;
  - with --p99-ms: the honest client's calls take no longer than that at the 99th percentile. (For an
    idle machine: without it nothing depends on time.)
  - descriptors, mappings, threads, page tables and private memory of the server are back where they
    were within --recovery seconds after the attacker has left, and its pools are within their budget.

Attacks are functions that attack_modules register with @attack; each is run in a process of its own.
"""
import argparse
import collections
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

attack_modules = ["shm_attacks", "iwarp_attacks"]

# The longest that something may take without counting as a hang. If all is well, nothing waits this
# long.
PATIENCE = 120

Attack = collections.namedtuple("Attack", "name scheme run server_arguments what")
_attacks = {}


def attack(name, scheme, *server_arguments):
    """Registers run(uri, until): attacks the server at `uri` and returns, or is killed, at `until`
    (time.monotonic()). `scheme` is "shm" or "iwarp". The first line of its docstring describes the attack."""
    def register(run):
        what = (run.__doc__ or "").strip().split("\n")[0]
        _attacks[name] = Attack(name, scheme, run, server_arguments, what)
        return run
    return register


class Skip(Exception):
    """Raised by an attack that cannot be made here; its text says why."""


BUDGET_KB = 256 << 10  # in the server's pools


class Footprint:
    """The resources of a process."""
    # Growth that is not a leak: the allocator's arenas, the stacks of ended threads that the C
    # library keeps (two mappings each), a log's buffer, and the calls of a core's pool, 14 KB each,
    # which it keeps for later calls. Pages of its budget stay with the pool for others to use.
    SLACK = {"descriptors": 2, "mappings": 32, "threads": 1, "private_kb": 32768, "pools_kb": BUDGET_KB, "pool_files": 8,
             "page_tables_kb": 256 + BUDGET_KB // 512}

    def __init__(self, pid):
        files = list(self._open_files(f"/proc/{pid}/fd"))
        # The budget's, which grows in at most eight.
        pool_files = files.count("/memfd:rrdk (deleted)")
        self.values = {"descriptors": len(files) - pool_files, "pool_files": pool_files}
        with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
            self.values["mappings"] = sum(1 for _ in file)
        names = {"Threads": "threads", "RssAnon": "private_kb", "RssShmem": "pools_kb",
                 "VmPTE": "page_tables_kb"}
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in names:
                    self.values[names[name]] = int(value.split()[0])

    @staticmethod
    def _open_files(folder):
        for name in os.listdir(folder):
            try:
                yield os.readlink(os.path.join(folder, name))
            except FileNotFoundError:
                pass  # closed meanwhile

    def growth_since(self, before):
        """The resources that have grown, in words; empty if none has."""
        return [f"{name} {before.values[name]} -> {value}" for name, value in self.values.items()
                if value > before.values[name] + self.SLACK[name]]

    def __str__(self):
        return " ".join(f"{name}={value}" for name, value in self.values.items())


class Program:
    """A running testrpc, with its output."""

    def __init__(self, testrpc, *arguments):
        self.process = subprocess.Popen([testrpc, *arguments], stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
        self.lines = []
        self._came = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._came:
                self.lines.append(line.rstrip("\n"))
                self._came.notify_all()
        with self._came:
            self._ended = True
            self._came.notify_all()

    def wait_for(self, text):
        def there():
            return self._ended or any(text in line for line in self.lines)
        with self._came:
            self._came.wait_for(there, PATIENCE)
        for line in self.lines:
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r}:\n{self.output()}")

    def end(self, with_signal=None):
        """Its exit status, once it has ended; negative if a signal ended it; None if it hangs."""
        if with_signal is not None:
            self.process.send_signal(with_signal)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = None
        self._reader.join(PATIENCE)
        return status

    def output(self):
        return "\n".join(self.lines[-40:])


class Visits(threading.Thread):
    """Honest clients that connect, make some calls and leave, one after the other; at least one."""

    def __init__(self, testrpc, uri):
        super().__init__(daemon=True)
        self.testrpc, self.uri = testrpc, uri
        self.good, self.failures = 0, []
        self._enough = threading.Event()

    def run(self):
        while True:
            visit = subprocess.run([self.testrpc, "--client", self.uri, "--engine", "null", "--count", "10"],
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if visit.returncode == 0:
                self.good += 1
            else:
                self.failures.append(visit.stderr.strip().split("\n")[-1] or f"exit status {visit.returncode}")
            if self._enough.is_set():
                return

    def finish(self):
        self._enough.set()
        self.join(PATIENCE)


def _play(run, uri, seconds, result):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        said = run(uri, time.monotonic() + seconds)
        result.put(("done", said))
    except Skip as reason:
        result.put(("skip", str(reason)))


def play(which, uri, seconds, beside):
    """Runs the attack in its own process; returns the attack's own report. Starts `beside` when that process
    exists: forked later, it would keep pipes of programs that are just being started."""
    context = multiprocessing.get_context("fork")
    result = context.SimpleQueue()
    attacker = context.Process(target=_play, args=(which.run, uri, seconds, result), daemon=True)
    attacker.start()
    beside.start()
    attacker.join(seconds + PATIENCE)
    if attacker.is_alive():
        attacker.kill()
        attacker.join()
    if not result.empty():
        return result.get()
    # An attacker that was killed by its own attack (SIGBUS, for example) did attack.
    if attacker.exitcode is not None and attacker.exitcode < 0:
        return ("done", f"ended by {signal.Signals(-attacker.exitcode).name}")
    raise AssertionError(f"the attack itself failed, exit status {attacker.exitcode}")


def run_attack(which, options, folder):
    """Returns ("ok" | "skip" | "failed", lines for people)."""
    uri = f"shm:{folder}/socket" if which.scheme == "shm" else "iwarp://127.0.0.1:0"
    server = Program(options.testrpc, "--server", uri, "--idle", "adaptive", "--memory", f"{BUDGET_KB}K",
                     *which.server_arguments)
    try:
        uri = server.wait_for("listening on").split()[-1]
        return _run_beside(which, options, folder, uri, server)
    finally:
        server.process.kill()
        server.end()


def _run_beside(which, options, folder, uri, server):
    wrong = []
    # One visit first: what the server makes for the first visitor of its kind is no leak.
    calm = Visits(options.testrpc, uri)
    calm.start()
    calm.finish()
    nobody = Footprint(server.process.pid)
    json_path = os.path.join(folder, "honest.json")
    honest = Program(options.testrpc, "--client", uri, "--engine", "mixed", "--size", "100,4K,64K,1M", "--verify",
                     "--rate", "200", "--window", "8", "--timeout", "60000", "--json", json_path,
                     "--duration", "100000")
    try:
        before = _once_connected(server, honest, nobody)
        visits = Visits(options.testrpc, uri)
        outcome, said = play(which, uri, options.seconds, visits)
        visits.finish()
        if outcome == "skip":
            return "skip", [said]
        left = time.monotonic()
        if server.process.poll() is not None:
            wrong.append(f"the server ended: exit status {server.end()}\n{server.output()}")
            return "failed", wrong
        growth = ["not looked"]
        while growth and time.monotonic() < left + options.recovery:
            after = Footprint(server.process.pid)
            growth = after.growth_since(before)
            if growth:
                time.sleep(0.1)
        wrong += [f"not back after {options.recovery:g} s: {line}" for line in growth]
        wrong += [f"an honest connection failed: {line}" for line in calm.failures + visits.failures]
        if honest.process.poll() is not None:
            wrong.append(f"the honest client ended early:\n{honest.output()}")
        status = honest.end(signal.SIGINT)
        if status not in (0, 130):
            wrong.append(f"the honest client: exit status {status}\n{honest.output()}")
        lines = [f"attacker: {said}" if said else "attacker: done", f"server before: {before}",
                 f"server after:  {after}"]
        lines += _judge(json_path, options, visits, wrong)
        status = server.end(signal.SIGTERM)
        if status != 0:
            wrong.append(f"the server's end: exit status {status}\n{server.output()}")
        return ("failed" if wrong else "ok"), lines + wrong
    finally:
        honest.process.kill()
        honest.end()


def _once_connected(server, honest, nobody):
    """The server's resources when the honest client is connected."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and honest.process.poll() is None:
        now = Footprint(server.process.pid)
        if now.values["descriptors"] > nobody.values["descriptors"]:
            time.sleep(0.5)  # for its handshake to end, and its first calls
            return Footprint(server.process.pid)
        time.sleep(0.05)
    raise AssertionError(f"the honest client does not connect:\n{honest.output()}")


def _judge(json_path, options, visits, wrong):
    if not os.path.exists(json_path):
        wrong.append("the honest client left no result")
        return []
    with open(json_path, encoding="utf-8") as file:
        run = json.load(file)["runs"][0]
    latency = run["latency_ns"]
    if latency["max"] is None:
        wrong.append(f"honest calls: {run['calls']}, none of which came back right")
        return []
    p99_ms = (latency["p99"] or latency["max"]) / 1e6  # null: of less than 100 calls
    if run["calls"] == 0 or run["errors"] or run["wrong_bytes"]:
        wrong.append(f"honest calls: {run['calls']}, errors: {run['errors']}, wrong bytes: {run['wrong_bytes']}")
    if options.p99_ms is not None and p99_ms > options.p99_ms:
        wrong.append(f"the honest client's p99 is {p99_ms:.1f} ms")
    return [f"honest: {run['calls']} calls, p99 {p99_ms:.2f} ms, max {run['latency_ns']['max'] / 1e6:.2f} ms, "
            f"{visits.good} visits"]


def main():
    parser = argparse.ArgumentParser(description="Attacks on a testrpc server, beside honest clients.")
    parser.add_argument("testrpc")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help="names, or beginnings of names; all if none")
    parser.add_argument("--seconds", type=float, default=60, help="length of each attack (60)")
    parser.add_argument("--recovery", type=float, default=10, help="what it held is back after that time (10)")
    parser.add_argument("--p99-ms", type=float, help="bound of the honest client's 99th percentile; 20 is claimed")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_intermixed_args()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.modules["attacks"] = sys.modules["__main__"]  # so that the modules import this one
    for module in attack_modules:
        importlib.import_module(module)
    if options.list:
        for which in _attacks.values():
            print(f"{which.name:24} {which.what}")
        return 0
    chosen = [a for a in _attacks.values()
              if not options.attacks or any(a.name.startswith(name) for name in options.attacks)]
    if not chosen:
        parser.error("no such attack; --list names them")
    failed = 0
    for which in chosen:
        print(f"[ RUN      ] attacks.{which.name}", flush=True)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="rrdk-attack-") as folder:
            outcome, lines = run_attack(which, options, folder)
        for line in lines:
            print(f"  {line}")
        if outcome == "skip":
            print(f"{__file__}:1: Skipped\n{lines[0]}")
        failed += outcome == "failed"
        mark = {"ok": "       OK ", "skip": "  SKIPPED ", "failed": "  FAILED  "}[outcome]
        print(f"[{mark}] attacks.{which.name} ({int((time.monotonic() - began) * 1000)} ms)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
