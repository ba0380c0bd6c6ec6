#!/usr/bin/env python3
"""testrpc --faults, at each end and from the prompt."""
import re

import testrpc_harness as harness
from testrpc_terminal import Terminal


def injected(output):
    """The counts below "faults injected:"."""
    _, _, below = output.partition("faults injected:\n")
    return {name: int(count) for name, count in re.findall(r"^  ([a-z-]+) (\d+)\r?$", below, re.M)}


class Faults(harness.Case):
    def test_late_completions_lose_nothing(self):
        process = self.run_testrpc("--self", "--engine", "mixed", "--size", "1K,64K", "--count",
                                   "2000", "--verify", "--faults", "delay-us=50:0.02,seed=7",
                                   "--json", self.json_path)
        self.assert_all_right(process, 2000)
        self.assertGreater(injected(process.output)["delay-us"], 0)

    def test_a_failed_send_ends_the_run_by_name(self):
        process = self.run_testrpc("--self", "--engine", "null", "--count", "2000", "--faults",
                                   "send-error=1/500:peer-lost")
        self.assertEqual(process.wait(), 1, process.describe())
        self.assertIn("connection lost", process.output)
        self.assertIn("pools whole: yes", process.output)
        self.assertEqual(injected(process.output), {"send-error": 1})

    def test_a_server_with_faults(self):
        server = self.start_server("--faults", "delay-us=20:0.1,no-buffers=1/100")
        client = self.run_testrpc("--client", self.uri, "--engine", "echo", "--count", "3000")
        self.assertIn(client.wait(), (0, 1), client.describe())
        self.stop_server(server)
        self.assertIn("pools whole: yes", server.output)
        self.assertGreater(injected(server.output)["no-buffers"], 0, server.describe())

    def test_a_bad_plan_is_refused(self):
        for spec, word in (("send-eror=1", "send-eror"), ("send-error=2", "0 to 1"),
                           ("delay-us=5", "delay-us=N:RATE"), ("send-error=1:odd", "odd")):
            process = self.run_testrpc("--self", "--faults", spec)
            self.assert_fails_with_one_line(process, "--faults", word, status=2)

    def test_from_the_prompt(self):
        server = self.start_server()
        terminal = Terminal(self, "--client", self.uri, "-i")
        terminal.wait_for("testrpc> ")
        terminal.type("show faults")
        terminal.wait_for(r"faults off\s+faults injected:\s+none")
        terminal.type("set faults send-eror=1")
        terminal.wait_for("there is no such fault")
        terminal.type("set faults delay-us=30:0.5,seed=3")
        terminal.type("show config")
        terminal.wait_for(r"faults delay-us=30:0.5,seed=3\s")
        terminal.type("set engine null")
        terminal.type("set count 500")
        terminal.type("start")
        terminal.wait_for("stopped")
        terminal.type("show faults")
        terminal.wait_for(r"faults injected:\s+delay-us [1-9]\d*\s")
        terminal.type("set faults off")
        terminal.type("show faults")
        terminal.wait_for(r"faults off\s")
        terminal.type("quit")
        terminal.wait_for("pools whole: yes")
        self.assertEqual(terminal.process.wait(harness.PATIENCE), 0, terminal.text)
        self.stop_server(server)


harness.main()
