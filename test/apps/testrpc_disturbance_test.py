#!/usr/bin/env python3
"""Disturbances of a run are reported, and named as the cause of its slowest calls."""
import json
import os
import re
import subprocess
import sys

import testrpc_harness as harness

# Takes a CPU for 5 ms every 100 ms, with real-time priority if allowed, until its input ends; then
# reports how much of the CPU it got, and by what means.
THIEF = """
import os, select, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    how = "real time"
except OSError:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        how = "nice -20"
    except OSError:
        how = "an ordinary process"
print("ready", flush=True)
while not select.select([0], [], [], 0.095)[0]:
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        pass
print(time.process_time(), how, flush=True)
"""
LEAST_STOLEN_S = 0.02
MS = 1_000_000


class Thief:
    def __init__(self, cpu):
        self.process = subprocess.Popen([sys.executable, "-c", THIEF, str(cpu)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def stop(self):
        """The seconds of CPU that it stole, and by what means."""
        stolen, how = self.process.communicate("", timeout=harness.PATIENCE)[0].split(maxsplit=1)
        return float(stolen), how.strip()

    def kill(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()


def names(call, cause, cpu=None):
    return any(c["cause"] == cause and cpu in (None, c["cpu"]) for c in call["causes"])


class Outliers(harness.Case):
    def steal(self, uri, side, *arguments):
        """Runs with a client or server that loses its CPU at times; asserts that its slow calls say so."""
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("needs two CPUs")
        cpu = cpus[0 if side == "client" else 1]
        thief = Thief(cpu)
        self.addCleanup(thief.kill)
        process = self.run_testrpc(f"--self{uri}", "--engine", "null", "--duration", "3", "--outliers", "24", "--json",
                                   self.json_path, *arguments)
        stolen, how = thief.stop()
        result = self.assert_all_right(process)
        self.assertEqual(result["options"]["pinned_cpus"], cpus[:2])
        if stolen < LEAST_STOLEN_S:
            self.skipTest(f"the thief ({how}) got {stolen:.3f} s of CPU {cpu}")
        run = result["runs"][0]
        slow = [call for call in run["outliers"] if call["total_ns"] > MS]
        # Other programs on this machine may take a CPU away as well, and be the cause of slow
        # calls.
        named = [call for call in slow if names(call, "switched out")]
        by_thief = [call for call in named if names(call, "switched out", cpu)]
        print(f"the thief ({how}) got {stolen:.3f} s of CPU {cpu}, the {side}'s; of {len(slow)} calls above 1 ms "
              f"{len(named)} name a switch, {len(by_thief)} of them on that CPU")
        self.assertGreaterEqual(len(named), 0.9 * len(slow), json.dumps(slow))
        if slow:
            self.assertTrue(by_thief, json.dumps(slow))
        for call in by_thief:
            for cause in call["causes"]:
                self.assertEqual(cause["side"], "client" if cause["cpu"] == cpus[0] else "server", call)
        thread, = (t for t in run["noise"]["threads"] if t["side"] == side)
        self.assertEqual(thread["cpu"], cpu)
        self.assertGreater(thread["gaps"]["switched out"]["count"], 0, thread)

    def test_a_stolen_cpu_of_the_client_over_shm(self):
        self.steal("", "client")

    def test_a_stolen_cpu_of_the_server_over_shm(self):
        self.steal("", "server")

    def test_a_stolen_cpu_of_the_client_over_iwarp(self):
        self.steal("=iwarp://127.0.0.1:0", "client")

    def test_a_stolen_cpu_of_the_server_over_iwarp(self):
        self.steal("=iwarp://127.0.0.1:0", "server")

    def test_calls_on_a_schedule_that_a_gap_threw_back(self):
        self.steal("", "server", "--rate", "20000", "--window", "4")

    def test_are_the_slowest_calls_of_the_run(self):
        process = self.run_testrpc("--self", "--engine", "mixed", "--size", "1K,8K", "--connections", "3", "--count",
                                   "5000", "--outliers", "5", "--json", self.json_path)
        run = self.assert_all_right(process, 5000)["runs"][0]
        calls = run["outliers"]
        self.assertEqual(len(calls), 5)
        totals = [call["total_ns"] for call in calls]
        self.assertEqual(totals, sorted(totals, reverse=True))
        self.assertEqual(totals[0], run["latency_ns"]["max"])
        for call in calls:
            self.assertEqual(set(call),
                             {"start_ns", "total_ns", "connection", "engine", "size", "stages", "causes"})
            self.assertLess(call["start_ns"] + call["total_ns"], run["noise"]["seconds"] * 1e9 + MS)
            self.assertIn(call["connection"], range(3))
            self.assertIn(call["engine"], ("null", "echo", "read", "write", "sandwich", "read2"))
            self.assertIn(call["size"], (0, 1024, 8192))
        self.assertIn("SLOWEST in mixed", process.output)

    def test_have_their_stages_if_they_are_stamped(self):
        process = self.run_testrpc("--self", "--engine", "null", "--count", "2000", "--json", self.json_path,
                                   "--stages", "1")
        calls = self.assert_all_right(process)["runs"][0]["outliers"]
        apart = 0
        for call in calls:
            # One that the server no longer has, because the call took long elsewhere.
            if "network" in call["stages"]:
                self.assertEqual(list(call["stages"]), ["wait", "post", "network", "complete"])
            else:
                self.assertEqual(list(call["stages"]), ["wait", "post", "request", "fetch", "decode", "queue",
                                                        "handler", "reply", "response", "complete"])
            apart += abs(sum(call["stages"].values()) - call["total_ns"]) > call["total_ns"] / 2 + MS
        # The clocks are read a moment apart from each other, in which a busy machine may do
        # something else.
        self.assertLess(apart, len(calls) / 2)
        process = self.run_testrpc("--self", "--engine", "null", "--count", "2000", "--stages", "0", "--json",
                                   self.json_path)
        self.assertEqual({str(call["stages"]) for call in self.assert_all_right(process)["runs"][0]["outliers"]},
                         {"None"})

    def test_say_in_which_stage_of_the_server_they_were(self):
        server = self.start("--server", self.uri, "--stages", "1", "--faults", "stage-us=100000:1/1000:handler")
        server.wait_for_line("listening on")
        process = self.run_testrpc("--client", self.uri, "--engine", "echo", "--size", "100", "--count", "5000",
                                   "--stages", "1", "--outliers", "8", "--json", self.json_path)
        self.assertGreaterEqual(len(re.findall(r"^  \d.* handler \S+ms \(server\)", process.output, re.M)), 4)
        # Most of the five slowed calls are no longer among the last 1024 that a core keeps.
        slowed = [call for call in self.assert_all_right(process)["runs"][0]["outliers"]
                  if call["stages"].get("handler", 0) >= 100 * MS]
        self.assertGreaterEqual(len(slowed), 4)
        self.stop_server(server)

    def test_eight_unless_more_or_fewer_are_asked_for(self):
        process = self.run_testrpc("--self", "--engine", "null", "--count", "1000", "--json", self.json_path)
        self.assertEqual(len(self.assert_all_right(process)["runs"][0]["outliers"]), 8)
        self.assertNotIn("SLOWEST", process.output)
        process = self.run_testrpc("--self", "--engine", "null", "--count", "1000", "--outliers", "0", "--json",
                                   self.json_path)
        self.assertEqual(self.assert_all_right(process)["runs"][0]["outliers"], [])
        self.assertNotIn("SLOWEST", process.output)


class Noise(harness.Case):
    def run_once(self, *arguments):
        process = self.run_testrpc(*arguments, "--engine", "null", "--count", "2000", "--json", self.json_path)
        noise = self.assert_all_right(process)["runs"][0]["noise"]
        self.assertEqual(set(noise), {"seconds", "remarks", "threads", "cpus", "cache_line", "waits"})
        for thread in noise["threads"]:
            self.assertEqual(set(thread), {"side", "cpu", "cpu_ns", "waited_ns", "obtained", "voluntary_switches",
                                           "involuntary_switches", "minor_faults", "major_faults",
                                           "tcp_retransmissions", "gaps"})
            self.assertGreater(thread["cpu_ns"], 0)
        for cpu in noise["cpus"]:
            self.assertEqual(set(cpu), {"cpu", "interrupts", "most_interrupts", "softirqs", "steal_ns", "khz_before",
                                        "khz_after"})
        lines = [line for line in process.lines if line.startswith("DISTURBED")]
        self.assertEqual(len(lines), 1 if noise["remarks"] else 0, process.output)
        for line in lines:
            self.assertLessEqual(len(line), 80)
            self.assertIn(noise["remarks"][0], line)
        return noise

    def test_both_ends(self):
        noise = self.run_once("--self")
        self.assertEqual([t["side"] for t in noise["threads"]], ["client", "server"])
        self.assertIsNone(noise["threads"][0]["tcp_retransmissions"])
        if len(os.sched_getaffinity(0)) >= 2:
            self.assertEqual({t["cpu"] for t in noise["threads"]}, {c["cpu"] for c in noise["cpus"]})
            self.assertGreater(noise["cache_line"]["before_ns"], 0)

    def test_tcp_connections_are_looked_at(self):
        noise = self.run_once("--self=iwarp://127.0.0.1:0")
        for thread in noise["threads"]:
            self.assertIsNotNone(thread["tcp_retransmissions"], thread)

    def test_waits_for_credits_are_counted(self):
        process = self.run_testrpc("--self", "--engine", "null", "--window", "32", "--credits", "2", "--count", "2000",
                                   "--json", self.json_path)
        self.assertGreater(self.assert_all_right(process)["runs"][0]["noise"]["waits"]["credit"], 0)

    def test_a_client_alone(self):
        server = self.start_server()
        noise = self.run_once("--client", self.uri)
        self.assertEqual([t["side"] for t in noise["threads"]], ["client"])
        self.stop_server(server)


harness.main()
