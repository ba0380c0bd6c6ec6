#!/usr/bin/env python3
"""RFC 5666's compatibility mode between two processes: doc/compat-rfc5666.md."""
import testrpc_harness as harness

COUNT = 200
LARGE = 65536


class Compat(harness.Case):
    def run_pair(self, uri, server_options, client_options, *what):
        server = self.start("--server", uri, *server_options)
        listening = server.wait_for_line("listening on").split()[-1]
        client = self.run_testrpc("--client", listening, "--count", COUNT, "--window", 8, "--verify",
                                  "--json", self.json_path, *client_options, *what)
        runs = self.assert_all_right(client, COUNT)["runs"]
        self.stop_server(server)
        return runs, server

    def check_mode(self, uri):
        mode = ["--compat", "rfc5666"]
        runs, server = self.run_pair(uri, mode, mode, "--engine", "null,echo,read,write",
                                     "--size", f"512,{LARGE}")
        before = {"padded_calls": 0, "read_replies": 0}
        for run in runs:
            stats = run["rfc5666"]
            self.assertEqual(stats["configured"], 1)
            self.assertEqual(stats["read_replies"], stats["dones"])
            fresh = {name: stats[name] - before[name] for name in before}
            before = {name: stats[name] for name in before}
            padded = run["engine"] in ("echo", "write") and run["size"] == 512
            read = run["engine"] == "read" and run["size"] == LARGE
            self.assertEqual(fresh["padded_calls"] >= COUNT, padded, run)
            self.assertEqual(fresh["read_replies"] >= COUNT, read, run)
        self.assertIn("replies read", server.output)
        self.assertIn("padded calls", server.output)

    # Shows: V1-CCP-18
    def test_two_processes_over_shm(self):
        self.check_mode(self.uri)

    def test_two_processes_over_iwarp(self):
        self.check_mode("iwarp://127.0.0.1:0")

    def test_a_server_without_it_serves_a_client_with_it(self):
        runs, _ = self.run_pair(self.uri, [], ["--compat", "rfc5666"], "--engine", "null,echo,read",
                                "--size", f"512,{LARGE}")
        for run in runs:
            self.assertEqual(run["rfc5666"], {"configured": 0, "padded_calls": 0, "read_replies": 0,
                                              "dones": 0})

    def test_a_client_without_it_is_served_by_a_server_with_it(self):
        runs, server = self.run_pair(self.uri, ["--compat", "rfc5666"], [], "--engine",
                                     "null,echo,read,write", "--size", f"512,{LARGE}")
        self.assertEqual(len(runs), 7)
        self.assertNotIn("replies read", server.output)

    def test_it_is_about_version_1(self):
        self.assert_fails_with_one_line(
            self.run_testrpc("--client", self.uri, "--compat", "rfc5666", "--rpcrdma-version", "2"),
            "version 1", status=2)


harness.main()
