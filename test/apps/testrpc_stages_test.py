#!/usr/bin/env python3
"""testrpc --stages: where the time of calls goes, both ends together."""
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
                self.assertLessEqual(stage["p50_ns"], stage["p99_ns"], stage)
                self.assertLessEqual(stage["p99_ns"], stage["max_ns"], stage)
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

    def test_workers_are_waited_for_in_the_queue(self):
        result = self.run_testrpc("--self", "--engine", "null,echo", "--size", "100", "--dispatch", "worker", "--count",
                                  "400", "--stages", "1")
        self.assert_status(result, 0)
        tables = result.output.split("STAGES of ")[1:]
        self.assertEqual([table.split(":")[0] for table in tables], ["null w=1, NULL", "echo 100 w=1, ECHO"])
        self.assertRegex(tables[1], r"server +queue +\d+\.\d+ ")
        for line in tables[0].splitlines() + tables[1].splitlines()[:13]:
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
