#!/usr/bin/env python3
"""testrpc --stages: where the time of calls goes, at both ends together."""
import testrpc_harness as harness

SERVER = ["fetch", "decode", "queue", "handler", "reply"]
ALL = ["wait", "post", "request", *SERVER, "response", "complete"]


class Stages(harness.Case):
    def stages_of(self, process):
        self.assert_status(process, 0)
        return self.result()["runs"][0]["stages"]

    def measure(self, uri, *arguments):
        return self.run_testrpc("--client", uri, "--count", "400", "--json", self.json_path, *arguments)

    def test_both_ends_of_calls_over_every_software_driver(self):
        for uri in (self.uri, "iwarp://127.0.0.1:0"):
            server = self.start("--server", uri)
            where = server.wait_for_line("listening on").split()[-1]
            stages = self.stages_of(self.measure(where, "--engine", "write", "--size", "64K", "--stages", "16"))
            self.assertEqual(stages["every"], 16)
            [write] = stages["procedures"]
            self.assertEqual(write["name"], "WRITE")
            self.assertGreater(write["calls"], 0)
            self.assertEqual([stage["stage"] for stage in write["stages"]], ALL)
            for stage in write["stages"]:
                self.assertLessEqual(stage["p50_ns"], stage["p90_ns"], stage)
                self.assertLessEqual(stage["p90_ns"], stage["max_ns"], stage)
            times = {stage["stage"]: stage for stage in write["stages"]}
            self.assertGreater(times["fetch"]["p50_ns"], times["decode"]["p50_ns"], write)
            self.stop_server(server)

    def test_a_server_that_samples_nothing_leaves_one_stage_for_all_of_its_own(self):
        server = self.start("--server", self.uri, "--stages", "0")
        server.wait_for_line("listening on")
        stages = self.stages_of(self.measure(self.uri, "--engine", "null", "--stages", "1"))
        [null] = stages["procedures"]
        self.assertEqual([stage["stage"] for stage in null["stages"]], ["wait", "post", "network", "complete"])
        self.stop_server(server)

    def test_the_table_is_of_the_whole_run_and_says_of_how_many_calls(self):
        self.assert_status(self.run_testrpc("--self", "--engine", "echo", "--size", "100", "--duration", "1", "--stages",
                                            "1", "--json", self.json_path), 0)
        [run] = self.result()["runs"]
        [echo] = run["stages"]["procedures"]
        self.assertEqual(echo["calls"], run["calls_right"])
        self.assertEqual(echo["round_trip"]["calls"], run["calls_right"])
        self.assertLessEqual(echo["round_trip"]["max_ns"], run["latency_ns"]["max"])
        # The server has the last 1024 each time that it is asked: after each quarter of a second.
        handler = next(stage for stage in echo["stages"] if stage["stage"] == "handler")
        self.assertGreater(handler["calls"], min(1024, run["calls_right"] * 3 // 4))
        self.assertLessEqual(handler["calls"], run["calls_right"])

    def test_no_percentile_without_the_calls_for_it(self):
        result = self.run_testrpc("--self", "--engine", "null", "--count", "50", "--stages", "1", "--json",
                                  self.json_path)
        self.assert_status(result, 0)
        [run] = self.result()["runs"]
        latency, trip = run["latency_ns"], run["stages"]["procedures"][0]["round_trip"]
        self.assertEqual([latency["p99"], latency["p99.9"], trip["p99_ns"]], [None] * 3)
        self.assertLessEqual(latency["p90"], latency["max"])
        self.assertLessEqual(trip["p90_ns"], trip["max_ns"])
        self.assertRegex(result.output, r"null +- +1 +\S+ +- +\S+ +- +- +\S+s ")
        self.assertRegex(result.output, r"round trip +50 +\d+\.\d+ +\d+\.\d+ +- +\d")

    def test_workers_are_waited_for_in_the_queue(self):
        result = self.run_testrpc("--self", "--engine", "null,echo", "--size", "100", "--dispatch", "worker", "--count",
                                  "400", "--stages", "1")
        self.assert_status(result, 0)
        tables = result.output.split("STAGES of ")[1:]
        self.assertEqual([table.splitlines()[0] for table in tables], ["null w=1, NULL", "echo 100 w=1, ECHO"])
        self.assertRegex(tables[1], r"server +queue +\d+ +\d+\.\d+ ")
        for line in tables[0].splitlines() + tables[1].splitlines()[:14]:
            self.assertLessEqual(len(line), 80, line)

    def test_no_table_unless_it_is_asked_for(self):
        result = self.run_testrpc("--self", "--engine", "null", "--count", "1000", "--json", self.json_path)
        self.assert_status(result, 0)
        self.assertNotIn("stages", self.result()["runs"][0])

    def test_a_wrong_number_is_an_error(self):
        result = self.run_testrpc("--self", "--stages", "often")
        self.assert_fails_with_one_line(result, "--stages", status=2)


if __name__ == "__main__":
    harness.main()
