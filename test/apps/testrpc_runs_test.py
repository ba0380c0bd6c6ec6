#!/usr/bin/env python3
"""What a run consists of, and what is made of it: warm-up, repetitions, schedules, sizes, targets, CSV."""
import re

import testrpc_harness as harness


class Case(harness.Case):
    def served(self, server):
        """Calls that the server has answered, once it is stopped."""
        self.stop_server(server)
        return int(re.search(r"served (\d+) calls", server.output)[1])


class WarmUp(Case):
    def test_calls_are_made_and_count_in_no_figure(self):
        server = self.start_server()
        process = self.run_testrpc("--client", self.uri, "--engine", "echo", "--size", "100", "--window", "4",
                                   "--warmup", "0.3", "--count", "500", "--histogram", "--json", self.json_path)
        run = self.assert_all_right(process, 500)["runs"][0]
        self.assertEqual(run["calls_right"], 500)
        self.assertEqual(sum(calls for _, calls in run["histogram"]), 500)
        self.assertEqual(run["calls_per_connection"]["max"], 500)
        self.assertAlmostEqual(run["bytes_per_s"] * run["seconds"], 500 * 100, delta=5000)
        self.assertGreaterEqual(run["warmup_seconds"], 0.3)
        # One more says hello when the connection is made.
        self.assertEqual(self.served(server), 1 + run["warmup_calls"] + 500)

    def test_longer_ones_say_so(self):
        process = self.run_testrpc("--self", "--engine", "null", "--warmup", "1.2", "--count", "10")
        self.assert_status(process, 0)
        self.assertRegex(process.output, r"\n +\d+ s warming up\n")

    def test_errors_of_a_warm_up_are_not_lost(self):
        server = self.start_server("--max-size", "4K")
        process = self.run_testrpc("--client", self.uri, "--engine", "read", "--size", "8K", "--warmup", "0.3",
                                   "--count", "10", "--json", self.json_path)
        self.assert_status(process, 1)
        self.assertGreater(self.result()["runs"][0]["errors"], 0)
        self.stop_server(server)


harness.main()
