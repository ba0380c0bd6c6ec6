#!/usr/bin/env python3
"""How a server ends, and how it treats clients that hold too much of its memory."""
import signal

import testrpc_harness as harness

# Results of this size wait in the server's memory until the client takes them.
READ = ["--engine", "read", "--size", "64K", "--window", "16", "--duration", "600"]
MIXED = ["--engine", "mixed", "--size", "0,1000,64K", "--window", "16", "--duration", "600",
         "--verify"]


class Survival(harness.Case):
    def start_load(self, load, *options):
        client = self.start("--client", self.uri, *load, *options)
        client.wait_for_line("RPC/s")
        return client

    def start_stopped_client(self, server):
        """A stopped client with calls in flight that takes no more replies. A client that is stopped under load may
        have taken all its replies and made no call yet: so the server is stopped first, until the whole window
        waits for it."""
        client = self.start_load(READ)
        server.send(signal.SIGSTOP)
        client.wait_for_line(" 0 RPC/s")
        client.send(signal.SIGSTOP)
        server.send(signal.SIGCONT)
        return client


class Drain(Survival):
    def test_under_load(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.start_server()
            client = self.start_load(MIXED)
            server.send(number)
            self.assert_status(server, 0)
            self.assertIn("pools whole: yes", server.output)
            self.assertNotIn("not drained", server.output)
            self.assert_status(client, 1)
            self.assertRegex(client.output, r"ERRORS in mixed \S+ w=16: \d+ connection lost\n")

    def test_takes_as_long_as_was_said(self):
        server = self.start_server("--drain-timeout", "100")
        self.start_stopped_client(server)
        server.send(signal.SIGTERM)
        server.wait_for_line("not drained in 100 ms: 1 connections")
        self.assert_status(server, 0)
        self.assertIn("pools whole: yes", server.output)

    def test_a_second_signal_ends_it(self):
        server = self.start_server("--drain-timeout", "600000")
        self.start_stopped_client(server)
        server.send(signal.SIGTERM)
        server.wait_for_line("draining")
        server.send(signal.SIGINT)
        self.assert_status(server, -signal.SIGINT)


class Limits(Survival):
    def test_connections_of_one_client(self):
        server = self.start_server("--max-connections-per-client", "2", "--connections", "4")
        call = ["--client", self.uri, "--engine", "null", "--count", "10"]
        self.assert_fails_with_one_line(self.run_testrpc(*call, "--connections", "3"), "rejected")
        self.assert_status(self.run_testrpc(*call, "--connections", "2"), 0)
        self.stop_server(server)
        self.assertRegex(server.output, r"refused per client +1\n")

    def test_idle_connections(self):
        server = self.start_server("--idle-timeout", "50")
        self.start("--client", self.uri, "--engine", "null", "--rate", "1", "--duration", "600")
        server.wait_for_line("no calls for 50 ms")
        self.stop_server(server)
        self.assertRegex(server.output, r"closed idle +1\n")

    def test_replies_that_are_not_taken(self):
        server = self.start_server("--send-timeout", "2000", "--connections", "2")
        self.start_stopped_client(server)
        server.wait_for_line("has taken no reply for 2000 ms")
        other = self.run_testrpc("--client", self.uri, "--engine", "null", "--count", "10")
        self.assert_status(other, 0)
        self.stop_server(server)
        self.assertRegex(server.output, r"closed stalled +1\n")


class ReplayCache(Survival):
    def test_writes_are_kept(self):
        server = self.start_server("--drc", "on")
        client = self.run_testrpc("--client", self.uri, "--engine", "write,sandwich,read",
                                  "--size", "0,64K", "--count", "100", "--verify", "--json",
                                  self.json_path)
        self.assert_all_right(client)
        self.stop_server(server)
        # Two engines, two sizes, 100 calls and some to warm up.
        self.assertRegex(server.output, r"replies kept +[4-9]\d\d\n")
        self.assertRegex(server.output, r"answered again +0\n")


harness.main()
