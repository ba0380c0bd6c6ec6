#!/usr/bin/python3
"""scripts/rrdk-top.py: rates and percentiles of the time between two looks, and a screen that fits its terminal.
That it asks a real process is shown by test/apps/testrpc_telemetry_test.py."""
import fcntl
import importlib.util
import json
import os
import pty
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "rrdk-top.py"
sys.path.insert(0, str(SCRIPT.parent))
SPEC = importlib.util.spec_from_file_location("rrdk_top", SCRIPT)
top = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(top)

BUCKETS = (37 - top.SUB_BITS + 1) << top.SUB_BITS


def buckets(**counts):
    return [counts.get(f"of{number}", 0) for number in range(BUCKETS)]


def procedure(name, calls, times=None):
    return {"name": name, "program": 1, "version": 1, "calls": calls, "errors": 0, "received_bytes": 0, "sent_bytes": 0,
            "calls_in_progress": 0, "handler_buckets": times or buckets()}


def looks(seconds, before, after, metrics=None, **lists):
    """The difference between two snapshots of procedures."""
    rest = {"metrics": metrics or {"core_passes/0": 1}, "called": [], "connections": {}}
    return top.difference({"time": 10, "procedures": before, **rest}, {"time": 10 + seconds, "procedures": after, **rest, **lists})


class FakeProcess:
    """A telemetry socket with many procedures, one of which is called."""
    NAMES = [f"PROC{number} of pr\udcffog\x1b[2J" for number in range(40)]

    def __init__(self, case):
        folder = tempfile.TemporaryDirectory()
        case.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "socket")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(self.path)
        self.socket.listen()
        self.calls = 0
        threading.Thread(target=self.serve, daemon=True).start()
        case.addCleanup(self.socket.close)

    def serve(self):
        with self.socket.accept()[0] as peer:
            peer.sendall(json.dumps({"pid": 1}).encode())
            while command := peer.recv(1024).decode():
                answer = json.dumps({command: self.answer(command)}, ensure_ascii=False)
                peer.sendall(answer.encode(errors="surrogateescape"))

    def answer(self, command):
        kind, *arguments = command.removeprefix("/rrdk/").split(",")
        if kind == "procedure":
            self.calls += 100
            return procedure(self.NAMES[int(arguments[1])], self.calls)
        return {"list": ["fake"], "procedures": self.NAMES, "connections": {"ids": []},
                "metrics": {f"core_passes/{core}": 1 for core in range(64)}}.get(kind)


class Top(unittest.TestCase):
    def test_buckets_are_those_of_the_library(self):
        self.assertEqual([top.upper_end_ns(n) for n in (0, 15, 16, 17, 23, 24, BUCKETS - 1)],
                         [0, 15, 17, 19, 31, 35, (1 << 37) - 1])
        self.assertIsNone(top.percentile_ns(buckets(), 50))
        self.assertEqual([top.percentile_ns(buckets(of3=99, of24=1), percent) for percent in (50, 99, 99.5)], [3, 3, 35])

    def test_percentiles_are_of_the_time_since_the_last_look(self):
        now = looks(2, [procedure("A", 10, buckets(of5=1000000))],
                    [procedure("A", 30, buckets(of5=1000000, of100=20))])["procedures"][0]
        self.assertEqual((now["calls_per_s"], now["timed_calls"]), (10, 20))
        self.assertEqual(now["handler_p50_ns"], top.upper_end_ns(100))
        quiet = looks(1, [procedure("A", 10, buckets(of5=7))], [procedure("A", 10, buckets(of5=7))])["procedures"][0]
        self.assertIsNone(quiet["handler_p50_ns"])

    def test_a_procedure_that_begins_again_counts_from_nothing(self):
        now = looks(1, [procedure("A", 1000, buckets(of5=900))], [procedure("A", 3, buckets(of7=2))])["procedures"][0]
        self.assertEqual((now["calls_per_s"], now["handler_p50_ns"]), (3, 7))

    def test_the_busiest_come_first_and_those_never_called_not_at_all(self):
        now = looks(1, [], [procedure("IDLE", 0), procedure("SLOW", 1), procedure("FAST", 9)])
        text = "\n".join(top.screen(1, "x", now, 10))
        self.assertLess(text.index("FAST"), text.index("SLOW"))
        self.assertNotIn("IDLE", text)

    def test_calls_of_a_client_are_what_was_timed_times_the_sampling(self):
        called = {"name": "READ of blk", "target": "shm:x", "program": 1, "version": 1, "timed_calls": 50,
                  "call_buckets": buckets(of9=50),
                  **{f"{stage}_total_ns": 5000 for stage in ("wait", "post", "away", "complete", "callback")}}
        now = looks(1, [], [], {"runtime_stamp_every": 16}, called=[called])["called"][0]
        self.assertEqual((now["calls_per_s"], now["call_p99_ns"], now["away_mean_ns"]), (800, 9, 100))

    def test_every_size_of_terminal_keeps_the_head(self):
        now = looks(1, [], [procedure(f"P{number}", 100 - number) for number in range(60)],
                    {f"core_passes/{core}": 1 for core in range(32)})
        now["waits"] = {f"server_waits_{number}/0": 1 for number in range(30)}
        for height in range(2, 150):
            lines = top.screen(1, "x", now, 10, os.terminal_size((80, height)))
            self.assertLessEqual(len(lines), height)
            self.assertTrue(lines[0].startswith("x, process 1"))
            self.assertTrue(all(len(line) <= 80 for line in lines))
        lines = top.screen(1, "x", now, 10, os.terminal_size((80, 24)))
        self.assertIn("procedure", lines[lines.index("") + 1] + lines[lines.index("", 3) + 1])
        self.assertTrue(any(re.fullmatch(r"  \.\.\. and \d+ more", line) for line in lines), lines)

    def test_on_a_terminal_it_is_drawn_in_place_and_q_ends_it(self):
        fake = FakeProcess(self)
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        before = termios.tcgetattr(slave)
        running = subprocess.Popen([SCRIPT, "--socket", fake.path, "--interval", "0.1"], stdin=slave, stdout=slave,
                                   stderr=slave, env=os.environ | {"TERM": "xterm"})
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        text = ""
        while text.count(top.END_OF_SCREEN) < 3:
            self.assertTrue(select.select([master], [], [], 60)[0], text)
            text += os.read(master, 65536).decode()
        screens = text.split(top.HOME)[1:3]
        for screen in screens:
            self.assertLess(screen.count("\n"), 24)
            self.assertTrue(screen.startswith("fake, process "), screen)
            self.assertNotIn("\x1b[2J", screen)
        os.write(master, b"q")
        while running.poll() is None:
            if select.select([master], [], [], 0.05)[0]:
                os.read(master, 65536)
        self.assertEqual(running.returncode, 0)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.close(slave)

    def test_elsewhere_there_are_plain_lines(self):
        for terminal in ("xterm", "dumb"):
            fake = FakeProcess(self)
            told = subprocess.run([SCRIPT, "--socket", fake.path, "--once", "--interval", "0.1"], capture_output=True,
                                  env=os.environ | {"TERM": terminal, "LC_ALL": "C", "PYTHONUTF8": "0", "COLUMNS": "20"},
                                  timeout=60, check=True).stdout.decode("ascii")
            self.assertNotIn("\x1b", told)
            self.assertEqual(told.count("PROC"), 40)  # every procedure

    def test_one_question(self):
        fake = FakeProcess(self)
        ask = [SCRIPT, "--socket", fake.path, "--ask"]
        told = subprocess.run([*ask, "/rrdk/list"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((told.returncode, told.stdout, told.stderr), (0, '["fake"]\n', ""))
        fake = FakeProcess(self)
        told = subprocess.run([SCRIPT, "--socket", fake.path, "--ask", "/no"], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual((told.returncode, told.stderr), (1, f"rrdk-top: {fake.path}: '/no' has no answer\n"))

    def test_values_that_cannot_be(self):
        for arguments in (("--interval", "nan"), ("--interval", "0"), ("--connections", "-1")):
            told = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(told.returncode, 2, told.stderr)
            self.assertNotIn("Traceback", told.stderr)


unittest.main()
