#!/usr/bin/env python3
"""testrpc --capture, at each end, as tshark reads it."""
import collections
import os
import shutil
import signal
import subprocess
import sys

import testrpc_harness as harness
from testrpc_terminal import Terminal

CALLS = 30
CALL = ["--engine", "null", "--count", "10"]
DUMP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/rrdk-dump.py")
# Opcodes of RoCEv2's base header.
WRITES, READ_REQUESTS, READ_RESPONSES = {6, 7, 8, 10}, {12}, {13, 14, 15, 16}


class Capture(harness.Case):
    def setUp(self):
        super().setUp()
        if shutil.which("tshark") is None:
            self.skipTest("there is no tshark (Debian: tshark)")
        self.file = os.path.join(self.folder, "wire.pcapng")

    def fields(self, *names):
        """The fields of each frame of the capture, in tshark's dissection."""
        command = ["tshark", "-r", self.file, "-o", "rpc.dissect_unknown_programs:TRUE", "-T", "fields"]
        for name in names:
            command += ["-e", name]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [line.split("\t") for line in out.splitlines()]

    def assert_well_formed(self):
        """tshark finds no error, no rule is broken, and each reply matches a call. Returns how many there are of
        each."""
        dump = subprocess.run([sys.executable, DUMP, "--breaches", self.file], capture_output=True, text=True)
        self.assertEqual(dump.returncode, 0, dump.stdout + dump.stderr)
        rows = self.fields("_ws.malformed", "rpc.msgtyp", "rpc.time")
        self.assertEqual([row for row in rows if row[0]], [])
        replies = [row for row in rows if row[1].startswith("1")]
        self.assertEqual([row for row in replies if not row[2]], [])
        return len([row for row in rows if row[1].startswith("0")]), len(replies)

    def opcodes(self):
        return collections.Counter(int(row[0]) for row in self.fields("infiniband.bth.opcode") if row[0])

    def test_a_clients_messages(self):
        for uri in self.uri, "iwarp://127.0.0.1:0", "iwarp://[::1]:0":
            process = self.run_testrpc(f"--self={uri}", "--engine", "null,echo,read,write", "--size", "1000",
                                       "--chunk-threshold", "0", "--count", CALLS, "--window", "4",
                                       "--capture", self.file)
            self.assert_status(process, 0)
            self.assertIn("captured: ", process.output)
            calls, replies = self.assert_well_formed()
            self.assertGreaterEqual(calls, 4 * CALLS, process.describe())  # and warm-ups
            self.assertEqual(calls, replies)

    def test_a_servers_writes_and_reads(self):
        for uri in self.uri, "iwarp://127.0.0.1:0":
            server = self.start("--server", uri, "--capture", self.file)
            at = server.wait_for_line("listening on").split()[-1]
            client = self.run_testrpc("--client", at, "--engine", "read,write", "--size", "10000",
                                      "--chunk-threshold", "0", "--count", CALLS)
            self.assert_status(client, 0)
            self.stop_server(server)
            self.assert_well_formed()
            counts = self.opcodes()
            packets = 3  # that 10000 bytes take
            for kind, each in ((WRITES, packets), (READ_REQUESTS, 1), (READ_RESPONSES, packets)):
                self.assertGreaterEqual(sum(counts[o] for o in kind), each * CALLS, counts)
            self.assertEqual(sum(counts[o] for o in READ_RESPONSES), packets * sum(counts[o] for o in READ_REQUESTS))

    def test_an_impossible_file(self):
        process = self.run_testrpc("--self", "--engine", "null", "--count", "10", "--capture", "/nowhere/x.pcapng")
        self.assert_fails_with_one_line(process, "/nowhere/x.pcapng", status=2)

    def test_a_file_that_does_not_take_it_all(self):
        process = self.run_testrpc("--self", *CALL, "--capture", "/dev/full")
        self.assert_fails_with_one_line(process, "the capture is incomplete: ", "messages are lost")
        self.assertIn("/dev/full ends here: No space left on device", process.output)
        server = self.start("--server", self.uri, "--capture", "/dev/full")
        server.wait_for_line("listening on")
        self.assert_status(self.run_testrpc("--client", self.uri, *CALL), 0)
        server.send(signal.SIGTERM)
        self.assert_fails_with_one_line(server, "the capture is incomplete: ")

    def test_an_unread_pipe_keeps_nothing_waiting(self):
        os.mkfifo(self.file)
        self.assert_fails_with_one_line(self.run_testrpc("--self", *CALL, "--capture", self.file), "no process reads")

    def test_stdout_is_for_the_table(self):
        out = os.path.join(self.folder, "out")
        with open(out, "w", encoding="utf-8") as file:
            done = subprocess.run([harness.TESTRPC, "--self", *CALL, "--capture", out], stdin=subprocess.DEVNULL,
                                  stdout=file, stderr=subprocess.PIPE, text=True, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--capture and stdout are the same file", done.stderr)

    def test_from_the_prompt(self):
        server = self.start_server()
        terminal = Terminal(self, "--client", self.uri, "-i")
        terminal.wait_for("testrpc> ")
        for line in ("set engine null", f"set count {CALLS}", f"set capture {self.file}", "start"):
            terminal.type(line)
        terminal.wait_for("stopped")
        terminal.type("set capture off")
        terminal.wait_for("captured: ")
        terminal.type("start")
        terminal.wait_for("stopped")
        terminal.type("quit")
        terminal.wait_for("pools whole: yes")
        calls, replies = self.assert_well_formed()
        self.assertIn(calls, range(CALLS, 2 * CALLS))
        self.assertEqual(calls, replies)
        self.stop_server(server)


harness.main()
