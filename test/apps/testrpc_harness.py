"""Shared by the tests of testrpc: starting it, waiting for its lines, and reporting each case as GoogleTest does,
which scripts/lib/tally.py counts. Usage of a test: NAME_test.py PATH_OF_TESTRPC [CASE...]
"""
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

TESTRPC = sys.argv[1] if len(sys.argv) > 1 else "testrpc"
# Long enough for a build with sanitizers on a busy machine. Nothing waits this long if all is well.
PATIENCE = 120


class Process:
    """A running testrpc, or another program. Its output is read all the time, so that it never blocks on a pipe."""

    def __init__(self, *arguments, stdin=subprocess.DEVNULL, program=TESTRPC, environment=None):
        self.arguments = [str(a) for a in arguments]
        self.program = program
        self.process = subprocess.Popen(
            [program, *self.arguments], stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", env=environment)
        self.lines = []
        self._fresh = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._fresh.put(self.lines[-1])
        self._fresh.put(None)

    @property
    def pid(self):
        return self.process.pid

    @property
    def output(self):
        return "\n".join(self.lines)

    def wait_for_line(self, text):
        """The next line that contains the text. Fails when the output ends without one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                line = self._fresh.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {text!r} in time:\n{self.describe()}") from None
            if line is None:
                raise AssertionError(f"ended without a line with {text!r}:\n{self.describe()}")
            if text in line:
                return line

    def send(self, number):
        self.process.send_signal(number)

    def wait(self):
        """The exit status, once it has ended and all its output was read."""
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end:\n{self.describe()}") from None
        self._reader.join(PATIENCE)
        return status

    def describe(self):
        return f"{os.path.basename(self.program)} {' '.join(self.arguments)}\n{self.output}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        self.process.stdout.close()


class Case(unittest.TestCase):
    """A test case with its own folder; the processes that it started are gone afterwards."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="testrpc-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.uri = f"shm:{self.folder}/socket"
        self.json_path = os.path.join(self.folder, "result.json")

    def start(self, *arguments, **options):
        process = Process(*arguments, **options)
        self.addCleanup(process.kill)
        return process

    def start_server(self, *arguments):
        server = self.start("--server", self.uri, *arguments)
        server.wait_for_line("listening on")
        return server

    def run_testrpc(self, *arguments):
        """Runs it to its end; returns the process."""
        process = self.start(*arguments)
        process.wait()
        return process

    def status(self, process):
        return process.wait()

    def assert_status(self, process, expected):
        self.assertEqual(process.wait(), expected, process.describe())

    def assert_fails_with_one_line(self, process, *words, status=1):
        self.assert_status(process, status)
        lines = [line for line in process.lines if line.startswith("testrpc: ")]
        self.assertEqual(len(lines), 1, process.describe())
        for word in words:
            self.assertIn(word, lines[0])

    def stop_server(self, server):
        """Ctrl-C: a clean end, with the table, all pools whole."""
        server.send(signal.SIGINT)
        self.assert_status(server, 0)
        self.assertIn("served", server.output)
        self.assertIn("pools whole: yes", server.output)

    def result(self):
        with open(self.json_path, encoding="utf-8") as file:
            return json.load(file)

    def assert_all_right(self, process, count=None):
        """Exit status zero, and a JSON whose every run is flawless."""
        self.assert_status(process, 0)
        result = self.result()
        self.assertTrue(result["audit"]["pools_whole"])
        for run in result["runs"]:
            self.assertEqual(run["errors"], 0, run)
            self.assertEqual(run["wrong_bytes"], 0, run)
            if count is None:
                self.assertGreater(run["calls"], 0, run)
            else:
                self.assertEqual(run["calls"], count, run)
        return result


class _Report(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()
        print(f"[ RUN      ] {_name(test)}", flush=True)

    def _end(self, test, mark):
        took = int((time.monotonic() - self.began) * 1000)
        print(f"[{mark}] {_name(test)} ({took} ms)", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._end(test, "       OK ")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"{__file__}:1: Skipped\n{reason}")
        self._end(test, "  SKIPPED ")

    def _bad(self, test, error):
        print(self._exc_info_to_string(error, test))
        self._end(test, "  FAILED  ")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._bad(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self._bad(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._bad(test, err)


def _name(test):
    return f"{type(test).__name__}.{test.id().rsplit('.', 1)[1]}"


def main():
    module = sys.modules["__main__"]
    tests = list(_flatten(unittest.defaultTestLoader.loadTestsFromModule(module)))
    wanted = sys.argv[2:]
    report = _Report()
    for test in tests:
        if not wanted or any(word in _name(test) for word in wanted):
            test.run(report)
    sys.exit(0 if report.wasSuccessful() and report.testsRun > 0 else 1)


def _flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _flatten(item)
        else:
            yield item
