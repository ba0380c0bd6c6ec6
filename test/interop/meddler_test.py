#!/usr/bin/env python3
"""testrpc's engine nfs3 and nfs-memory-server with meddler.py between them: calls that arrive with a
header which is wrong, and a first message that lies unread as it may in Linux's siw.

Usage: meddler_test.py TESTRPC NFS_MEMORY_SERVER [CASE...]
"""
import os
import re
import signal
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "apps"))
SERVER = sys.argv.pop(2)
import testrpc_harness as harness  # noqa: E402: it takes the path of testrpc from the command line


class Meddled(harness.Case):
    def run_meddled(self, *options, calls=200):
        """The client's, the meddler's and the server's process, all ended, and the client's JSON."""
        server = self.start("--listen", "iwarp://127.0.0.1:0", "--mount-port", 0, program=SERVER)
        mount = server.wait_for_line("MOUNT on TCP port").split()[-1]
        port = server.wait_for_line("listening on").split(":")[-1]
        meddler = self.start(os.path.join(HERE, "meddler.py"), "--listen", "127.0.0.1:0",
                             "--to", f"127.0.0.1:{port}", *options, program=sys.executable)
        between = meddler.wait_for_line("listening on").split()[-1]
        client = self.run_testrpc("--client", f"iwarp://{between}", "--engine", "nfs3", "--nfs-mount", mount,
                                  "--nfs-calls", "null,getattr,lookup,readlink", "--nfs-names", 0, "--window", 4,
                                  "--count", calls, "--timeout", 60000, "--json", self.json_path)
        server.send(signal.SIGTERM)
        self.assert_status(server, 0)
        meddler.send(signal.SIGINT)
        meddler.wait()
        self.assertIn("pools whole: yes", server.output)
        self.assertRegex(server.output, r"served \d+ calls on 1 connections", "no connection was lost")
        return client, meddler, server, self.result()

    def assert_one_call_each(self, kinds, words, counted):
        breaks = ",".join(f"{kind}@{50 + 20 * i}" for i, kind in enumerate(kinds))
        client, meddler, server, result = self.run_meddled("--break", breaks)
        self.assert_status(client, 1)
        run = result["runs"][0]
        self.assertEqual((run["errors"], run["reconnects"]), (len(kinds), 0), meddler.describe())
        self.assertRegex(client.output, rf"ERRORS in nfs3 \S+ w=4: {len(kinds)} {words}\n")
        self.assertEqual(len(re.findall(r"^call \d+, XID", meddler.output, re.M)), len(kinds))
        for line in counted:
            self.assertIn(line, server.output)


class Refused(Meddled):
    # Shows: V1-ERR-14
    def test_version(self):
        self.assert_one_call_each(["version"] * 3, "transport version error", ["unknown transport version: 3"])

    def test_chunk_lists(self):
        self.assert_one_call_each(["discriminator", "truncated", "nomessage", "type"], "chunk error", [
            "bad list discriminator: 1", "truncated header: 1", "no message: 1", "unknown message type: 1"])


class Stranded(Meddled):
    def test_first_message_is_brought_on_its_way(self):
        client, meddler, _, result = self.run_meddled("--hold")
        self.assert_status(client, 0)
        self.assertEqual(result["runs"][0]["errors"], 0)
        self.assertEqual(meddler.lines[1:], ["the first frame is held", "the first frame goes on"])


harness.main()
