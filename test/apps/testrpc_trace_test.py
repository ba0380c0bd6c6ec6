#!/usr/bin/env python3
"""scripts/rrdk-trace.py: static probes of a running testrpc."""
import os
import re
import shutil
import subprocess
import sys

import testrpc_harness as harness

TRACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/rrdk-trace.py")


def trace(*arguments):
    return subprocess.run([sys.executable, TRACE, *map(str, arguments)], capture_output=True, text=True,
                          timeout=harness.PATIENCE)


def why_not():
    """Why the kernel's probes cannot be used here, or an empty text."""
    if shutil.which("bpftrace") is None:
        return "bpftrace is not installed"
    tried = subprocess.run(["bpftrace", "-e", "BEGIN { exit(); }"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else "bpftrace cannot be used here: " + tried.stderr.strip().splitlines()[-1]


class Trace(harness.Case):
    def ends(self):
        """A server that is called, and its client."""
        server = self.start("--server", self.uri, "--stages", "1")
        server.wait_for_line("listening on")
        client = self.start("--client", self.uri, "--engine", "null", "--rate", "500", "--duration", "60", "--stages", "1")
        client.wait_for_line(" s ")
        return server, client

    def ask(self, process, *question):
        reason = why_not()
        if reason:
            self.skipTest(reason)
        told = trace(process.pid, *question, "--seconds", "2")
        if "tracefs is not mounted" in told.stderr:
            self.skipTest(told.stderr.strip())
        self.assertEqual(told.returncode, 0, told.stderr)
        return told.stdout

    def test_the_program_has_its_probes(self):
        server, _ = self.ends()
        shown = trace(server.pid, "stages", "--print")
        if "has no probes" in shown.stderr:
            self.skipTest(shown.stderr.strip())
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn(":rrdk:stage", shown.stdout)

    def test_histograms_of_the_stages_of_either_end(self):
        server, client = self.ends()
        told = self.ask(server, "stages")
        for stage in ("fetch", "decode", "queue", "handler", "reply"):
            self.assertIn(f"@ns[server, {stage}]", told)
        self.assertNotIn("client", told)
        told = self.ask(client, "stages")
        for stage in ("wait", "post", "away", "complete", "callback"):
            self.assertIn(f"@ns[client, {stage}]", told)

    def test_calls_that_are_slow_are_shown_one_by_one(self):
        _, client = self.ends()
        told = self.ask(client, "slow", "1")
        self.assertRegex(told, r"made [0-9a-f]+ of connection \d+, program 20005666 procedure 0: \d+ us: wait \d+ post")
        for took in re.findall(r": (\d+) us: wait", told):
            self.assertGreaterEqual(int(took), 1)
        self.assertNotIn("made", self.ask(client, "slow", "4000000000"))

    def test_a_program_that_has_been_replaced_since_it_was_started(self):
        program = os.path.join(self.folder, "te st\udcffrpc")
        shutil.copy2(harness.TESTRPC, program)
        server = self.start("--server", self.uri, "--stages", "1", program=program)
        server.wait_for_line("listening on")
        os.unlink(program)
        with open(program, "wb") as other:
            other.write(b"rrdk\0stage\0, but nothing else")
        shown = trace(server.pid, "stages", "--print")
        if "has no probes" in shown.stderr:
            self.skipTest(shown.stderr.strip())
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertNotIn(program, shown.stdout)
        client = self.start("--client", self.uri, "--engine", "null", "--rate", "500", "--duration", "60")
        client.wait_for_line(" s ")
        self.assertIn("@ns[server, handler]", self.ask(server, "stages"))

    def test_without_tracefs(self):
        if shutil.which("bpftrace") is None:
            self.skipTest("bpftrace is not installed")
        alone = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/kernel && exec "$@"', "sh"]
        tried = subprocess.run([*alone, "true"], capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(f"nothing can be mounted here: {tried.stderr.strip()}")
        refused = subprocess.run([*alone, sys.executable, TRACE, str(os.getpid()), "switched-out", "--seconds", "1"],
                                 capture_output=True, text=True, timeout=harness.PATIENCE)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertEqual(refused.stderr.count("mount -t tracefs"), 1, refused.stderr)

    def test_unanswerable_questions(self):
        for arguments, words in (((2 ** 22 + 1, "stages"), "there is no process"),
                                 ((os.getpid(), "stages"), "has no probes of RRDK"),
                                 ((2 ** 22 + 1, "switched-out"), "there is no process")):
            refused = trace(*arguments)
            self.assertEqual(refused.returncode, 1, refused.stderr)
            self.assertIn(words, refused.stderr)
        self.assertEqual(trace(1, "slow", "0").returncode, 2)


if __name__ == "__main__":
    harness.main()
