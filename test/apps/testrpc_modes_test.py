#!/usr/bin/env python3
"""The ways to run testrpc: --self, closed and open loop, JSON, and the prompt."""
import os
import re

import testrpc_harness as harness
from testrpc_terminal import Terminal

RUN_KEYS = {"engine", "size", "window", "connections", "dispatch", "seconds", "calls", "errors",
            "reconnects", "retransmissions", "keepalives", "rpcrdma_version", "fallbacks",
            "wrong_bytes", "rpc_per_s", "bytes_per_s", "latency_ns"}
LATENCY_KEYS = ["min", "mean", "p50", "p90", "p99", "p99.9", "max"]


class Json(harness.Case):
    def test_has_exactly_the_keys_that_are_promised(self):
        process = self.run_testrpc("--self", "--engine", "null,read", "--size", "1K,64K",
                                   "--window", "1,4", "--duration", "0.3", "--json",
                                   self.json_path)
        result = self.assert_all_right(process)
        self.assertEqual(set(result), {"tool", "version", "uri", "runs", "limits", "audit"})
        self.assertEqual(result["tool"], "testrpc")
        self.assertRegex(result["version"], r"^\d+\.\d+\.\d+$")
        self.assertTrue(result["uri"].startswith("shm:"))
        self.assertEqual([(r["engine"], r["size"], r["window"]) for r in result["runs"]],
                         [("null", 0, 1), ("null", 0, 4), ("read", 1024, 1), ("read", 1024, 4),
                          ("read", 65536, 1), ("read", 65536, 4)])
        for run in result["runs"]:
            self.assertEqual(set(run), RUN_KEYS)
            self.assertEqual(list(run["latency_ns"]), LATENCY_KEYS)
            ladder = [run["latency_ns"][k] for k in ("min", "p50", "p90", "p99", "p99.9", "max")]
            self.assertEqual(ladder, sorted(ladder))
            self.assertGreater(ladder[0], 0)
            self.assertAlmostEqual(run["rpc_per_s"], run["calls"] / run["seconds"],
                                   delta=1 + 0.001 * run["rpc_per_s"])
            self.assertAlmostEqual(run["bytes_per_s"], run["rpc_per_s"] * run["size"],
                                   delta=1 + 0.001 * run["bytes_per_s"])
        self.assertEqual(set(result["audit"]),
                         {"pools_whole", "allocations_per_call", "registrations_per_call"})

    def test_steady_state_allocates_and_registers_nothing(self):
        process = self.run_testrpc("--self", "--engine", "null,echo,read,write,sandwich,read2",
                                   "--size", "1000,64K", "--window", "8", "--duration", "0.5",
                                   "--json", self.json_path)
        audit = self.assert_all_right(process)["audit"]
        self.assertIn(audit["allocations_per_call"], (0, None))  # None: the sanitizer has malloc
        self.assertEqual(audit["registrations_per_call"], 0)

    def test_histogram_only_when_asked_for(self):
        process = self.run_testrpc("--self", "--engine", "null", "--count", "1000", "--histogram",
                                   "--json", self.json_path)
        run = self.assert_all_right(process, 1000)["runs"][0]
        self.assertEqual(sum(n for _, n in run["histogram"]), 1000)
        self.assertEqual(run["histogram"][-1][0], run["latency_ns"]["max"])

    def test_a_file_that_can_not_be_written_is_an_error(self):
        process = self.run_testrpc("--self", "--engine", "null", "--count", "10", "--json",
                                   f"{self.folder}/none/result.json")
        self.assert_fails_with_one_line(process, "none/result.json")


class Loops(harness.Case):
    def test_open_loop_keeps_its_rate(self):
        process = self.run_testrpc("--self", "--engine", "null", "--rate", "500", "--duration",
                                   "2", "--json", self.json_path)
        run = self.assert_all_right(process)["runs"][0]
        self.assertEqual(run["calls"], 1000)

    def test_open_loop_counts_the_wait_of_calls_that_start_late(self):
        # One call in flight, and each holds a megabyte to verify: a million calls a second are
        # far out of reach, and the last ones wait for most of the run.
        process = self.run_testrpc("--self", "--engine", "read", "--size", "1M", "--verify",
                                   "--window", "1", "--rate", "1000000", "--count", "200",
                                   "--json", self.json_path)
        run = self.assert_all_right(process, 200)["runs"][0]
        self.assertGreater(run["latency_ns"]["max"], 0.7e9 * run["seconds"])
        self.assertGreater(run["latency_ns"]["p50"], 0.3e9 * run["seconds"])

    def test_a_count_above_the_servers_limit_is_told(self):
        server = self.start_server("--max-size", "64K")
        client = self.run_testrpc("--client", self.uri, "--engine", "read", "--size", "128K",
                                  "--count", "10")
        self.assert_status(client, 1)
        self.assertIn("refused by the perf program", client.output)
        self.stop_server(server)

    def test_on_one_cpu_nobody_is_probed(self):
        cpu = min(os.sched_getaffinity(0))
        self.start_server()
        process = self.start("-c", cpu, harness.TESTRPC, "--client", self.uri, "--engine", "null",
                             "--count", "10", "--json", self.json_path, program="taskset")
        result = self.assert_all_right(process, count=10)
        self.assertEqual(result["limits"]["cache_line_rtt_ns"], 0)

    def test_self_with_eal_arguments(self):
        process = self.run_testrpc("--no-huge", "-m", "64", "--no-pci", "--", "--self", "--engine",
                                   "null", "--count", "100", "--json", self.json_path)
        self.assert_all_right(process, 100)

    def test_self_on_workers(self):
        process = self.run_testrpc("--self", "--engine", "null,read", "--dispatch", "worker",
                                   "--verify", "--count", "500", "--json", self.json_path)
        result = self.assert_all_right(process, 500)
        self.assertEqual(result["runs"][0]["dispatch"], "worker")


class Interactive(harness.Case):
    def test_a_session(self):
        server = self.start_server()
        terminal = Terminal(self, "--client", self.uri, "-i")
        terminal.wait_for("testrpc> ")
        terminal.type("help")
        terminal.wait_for("show stats")
        terminal.type("set engine read")
        terminal.type("set size 64K")
        terminal.type("set window 4")
        terminal.type("set verify on")
        terminal.type("show config")
        terminal.wait_for(r"engine read\s+size 64K\s+window 4\s")
        terminal.wait_for(r"verify on\s")
        terminal.type("start")
        terminal.wait_for(r"read 64K w=4")
        terminal.wait_for(r"RPC/s")
        terminal.type("start")
        terminal.wait_for("running already")
        terminal.type("stop")
        terminal.wait_for("stopped")
        terminal.type("show stats")
        terminal.wait_for(r"read +64K +4 +\d+")
        terminal.type("clear stats")
        terminal.type("set engine nonsense")
        terminal.wait_for("unknown engine 'nonsense'")
        terminal.type("set size 1G")
        terminal.wait_for("not a size")
        terminal.type("frobnicate")
        terminal.wait_for("(?i)bad arguments|not found|unknown|incomplete")
        terminal.type("set engine null")
        terminal.type("set count 100")
        terminal.type("start")
        terminal.wait_for("stopped")
        terminal.type("quit")
        terminal.wait_for(r"null +- +4 +\d+")
        terminal.wait_for("pools whole: yes")
        self.assertEqual(terminal.process.wait(harness.PATIENCE), 0, terminal.text)
        self.stop_server(server)

    def test_the_end_of_input_quits(self):
        server = self.start_server()
        client = self.start("--client", self.uri, "-i")  # its input is empty
        self.assert_status(client, 0)
        self.stop_server(server)

    def test_the_server_dies(self):
        server = self.start_server()
        terminal = Terminal(self, "--client", self.uri, "-i")
        terminal.wait_for("testrpc> ")
        terminal.type("start")
        terminal.wait_for("RPC/s")
        server.process.kill()
        terminal.wait_for("the connection is lost")
        self.assertEqual(terminal.process.wait(harness.PATIENCE), 1, terminal.text)


harness.main()
