#!/usr/bin/env python3
"""The parts of a run and its results: warm-up, repetitions, schedules, sizes, targets, CSV."""
import csv
import os
import re
import shutil
import signal
import stat
import subprocess

import testrpc_harness as harness
from testrpc_terminal import Terminal


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

    def test_stages_are_of_what_was_measured(self):
        process = self.run_testrpc("--self", "--engine", "null", "--warmup", "0.2", "--count", "40", "--repeat", "3",
                                   "--stages", "1", "--json", self.json_path)
        run, = self.assert_all_right(process, 120)["runs"]
        null, = run["stages"]["procedures"]
        self.assertGreater(null["calls"], 0)
        self.assertLessEqual(null["calls"], 40)

    def test_errors_of_a_warm_up_are_not_lost(self):
        server = self.start_server("--max-size", "4K")
        process = self.run_testrpc("--client", self.uri, "--engine", "read", "--size", "8K", "--warmup", "0.3",
                                   "--count", "10", "--json", self.json_path)
        self.assert_status(process, 1)
        self.assertGreater(self.result()["runs"][0]["errors"], 0)
        self.stop_server(server)


class Repetitions(Case):
    def repeated(self, *arguments):
        process = self.run_testrpc("--self", *arguments, "--json", self.json_path)
        return process, self.assert_all_right(process)["runs"]

    def test_are_made_in_turns_and_their_medians_shown(self):
        process, runs = self.repeated("--engine", "null,read", "--size", "4K", "--count", "200", "--repeat", "3")
        # The lines that begin the runs: they take turns.
        self.assertEqual(re.findall(r"^(\w+)(?: 4K)? w=1, \d of 6$", process.output, re.M), ["null", "read"] * 3)
        self.assertEqual([(run["engine"], run["calls"]) for run in runs], [("null", 600), ("read", 600)])
        for run in runs:
            times = run["repetitions"]
            self.assertEqual([t["calls"] for t in times], [200] * 3)
            self.assertEqual(run["rpc_per_s"], sorted(t["rate"] for t in times)[1])
            self.assertEqual([run["latency_ns"]["p99.9"], *(t["p99.9_ns"] for t in times)], [None] * 4)
            for name in ("min", "mean", "p50", "p90", "p99", "max"):
                self.assertEqual(run["latency_ns"][name], sorted(t[name + "_ns"] for t in times)[1])
            rates = [t["rate"] for t in times]
            spread = (max(rates) - min(rates)) / run["rpc_per_s"]
            # It has six digits, and rates have one behind the point.
            self.assertAlmostEqual(run["spread"], spread, delta=0.0002 + spread * (0.00001 + 0.1 / run["rpc_per_s"]))
            self.assertEqual(run["calls_per_connection"], {"min": 200, "mean": 200, "max": 200})
        spread = 100 * runs[0]["spread"]
        row, = re.findall(r"^null .* ([\d.]+)%$", process.output, re.M)
        self.assertAlmostEqual(float(row), spread, delta=(0.06 if spread < 999.9 else 0.6) + spread / 100000)
        for line in process.output[process.output.index("latency of a call"):].splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_the_median_of_an_even_number_is_between_the_two(self):
        _, runs = self.repeated("--engine", "null", "--count", "100", "--repeat", "2", "--histogram")
        times = runs[0]["repetitions"]
        self.assertAlmostEqual(runs[0]["rpc_per_s"], (times[0]["rate"] + times[1]["rate"]) / 2, delta=0.11)
        self.assertEqual(sum(calls for _, calls in runs[0]["histogram"]), 200)

    def test_an_open_loop(self):
        process, runs = self.repeated("--engine", "null", "--rate", "2000", "--count", "100", "--repeat", "2")
        self.assertEqual((runs[0]["calls_due"], runs[0]["rate"]), (200, 2000))
        self.assertRegex(process.output, r"null +- +64 +2000 +\d+ +[\d.]+% ")

    def test_are_one_row_at_the_prompt(self):
        server = self.start_server("--idle", "adaptive")
        read, write = os.pipe()
        os.write(write, b"set count 50\nset repeat 3\nshow config\nstart\nwait\nset repeat 1\nstart\nwait\nquit\n")
        os.close(write)
        client = self.start("--client", self.uri, "-i", "--json", self.json_path, stdin=read)
        os.close(read)
        self.assert_status(client, 0)
        runs = self.result()["runs"]
        self.assertEqual([run["calls"] for run in runs], [150, 50])
        self.assertEqual(len(runs[0]["repetitions"]), 3)
        self.assertNotIn("repetitions", runs[1])
        self.assertRegex(client.output, r"(?m)^repeat 3$")
        self.stop_server(server)


def scalars(run, before=""):
    """A run of the JSON as the CSV's line should show it."""
    for name, value in run.items():
        if isinstance(value, dict) and name not in ("errors_by_reason", "procedures"):
            yield from scalars(value, before + name + ".")
        elif not isinstance(value, (dict, list)):
            yield before + name, value


class Intervals(Case):
    def runs(self, *arguments, interval="0.05"):
        process = self.run_testrpc("--self", "--engine", "null", *arguments, "--interval", interval, "--json",
                                   self.json_path)
        result = self.assert_all_right(process)
        self.assertEqual(result["audit"]["allocations"], 0, process.describe())
        return result["runs"]

    def test_are_a_run_cut_into_parts(self):
        for arguments in (["--duration", "0.6"], ["--rate", "2000", "--duration", "0.6"],
                          ["--duration", "0.3", "--repeat", "2"]):
            [run] = self.runs(*arguments, "--histogram")
            parts, at = run["series"], 0
            self.assertGreater(len(parts), 1)
            for part in parts:
                self.assertAlmostEqual(part["start"], at, delta=1e-5)
                at = part["start"] + part["seconds"]
                self.assertEqual(sum(calls for _, calls in part["histogram"]), part["calls"])
            self.assertAlmostEqual(at, run["seconds"], delta=1e-4)
            self.assertEqual(sum(part["calls"] for part in parts), run["calls_right"])

    def test_a_run_shorter_than_one_has_one_part(self):
        [run] = self.runs("--count", "3", interval="600")
        self.assertEqual([part["calls"] for part in run["series"]], [3])

    def test_need_a_place_and_are_not_shorter_than_the_client_looks(self):
        process = self.run_testrpc("--self", "--interval", "0.1")
        self.assert_fails_with_one_line(process, "--interval needs --json", status=2)
        process = self.run_testrpc("--self", "--interval", "0.001", "--json", self.json_path)
        self.assert_fails_with_one_line(process, "'0.001' is less than 0.01 seconds", status=2)


class Arrivals(Case):
    def opened(self, *arguments):
        process = self.run_testrpc("--self", "--engine", "null", "--rate", "2000", *arguments, "--json", self.json_path)
        return process, self.assert_all_right(process)["runs"][0]

    def test_any_rate_has_its_digits_and_its_column(self):
        for rate, shown in (("0.5", "0.5"), ("1000000000", "1e+09")):
            process, run = self.opened("--rate", rate, "--count", "1")
            self.assertEqual(run["rate"], float(rate))
            self.assertRegex(process.output, rf"\nnull +- +64 +{re.escape(shown)} +\S+ +0 ")

    def test_the_seed_of_a_poisson_process_decides_how_many_calls_are_due(self):
        process, run = self.opened("--arrivals", "poisson", "--duration", "0.5", "--seed", "77")
        self.assertEqual((run["arrivals"], run["seed"]), ("poisson", 77))
        self.assertIn("ARRIVALS in null w=64 at 2000/s: poisson, seed 77", process.output)
        self.assertEqual(run["calls_not_made"], 0)
        _, again = self.opened("--arrivals", "poisson", "--duration", "0.5", "--seed", "77")
        _, other = self.opened("--arrivals", "poisson", "--duration", "0.5", "--seed", "5")
        self.assertEqual(again["calls_due"], run["calls_due"])
        self.assertNotEqual(other["calls_due"], run["calls_due"])
        self.assertEqual(run["calls"], run["calls_due"])

    def test_bursts_are_due_at_once_and_wait_for_the_window(self):
        process, run = self.opened("--arrivals", "burst:100", "--window", "1", "--count", "300")
        self.assertEqual((run["arrivals"], run["calls"]), ("burst:100", 300))
        self.assertIn("ARRIVALS in null w=1 at 2000/s: burst:100", process.output)
        # 300 calls are three bursts: the last one is due after 200/2000 seconds.
        self.assertGreaterEqual(run["seconds"], 0.1)
        # The last one of a burst has waited for all others.
        self.assertGreater(run["latency_ns"]["max"], run["latency_ns"]["p50"])

    def test_runs_last_until_their_end_when_no_call_is_due_any_more(self):
        _, run = self.opened("--arrivals", "burst:500", "--duration", "0.5", "--idle", "adaptive")
        self.assertEqual((run["calls_due"], run["calls"]), (1000, 1000))
        self.assertGreaterEqual(run["seconds"], 0.5)
        self.assertLessEqual(run["rpc_per_s"], 2000)

    def test_even_ones_say_nothing(self):
        process, run = self.opened("--count", "10")
        self.assertEqual(run["arrivals"], "even")
        self.assertNotIn("ARRIVALS", process.output)


class Dealing(Case):
    """Calls of an open loop come to connections in turn."""

    def calls_of_connections(self, server):
        server.type("show connections")
        server.wait_for(r"\d+ connections now")
        table = server.text.rsplit("show connections", 1)[1]
        return [int(n) for n in re.findall(r"uid \d+\) +1 +\d+ +(\d+) ", table)]

    def test_the_server_counts_equally_many_on_each_connection(self):
        server = Terminal(self, "--server", self.uri, "-i", "--idle", "adaptive")
        server.wait_for("testrpc> ")
        for arrivals in ("even", "poisson", "burst:9"):
            client = self.start("--client", self.uri, "--engine", "null", "--connections", "16", "--rate", "4000",
                                "--arrivals", arrivals, "--duration", "100", "--idle", "adaptive")
            client.wait_for_line(" 1 s ")
            client.send(signal.SIGSTOP)  # so that the server comes to an end
            before, calls = None, self.calls_of_connections(server)
            while calls != before:
                before, calls = calls, self.calls_of_connections(server)
            client.send(signal.SIGCONT)
            client.send(signal.SIGINT)
            self.assert_status(client, 0)
            self.assertEqual(len(calls), 16, server.text)
            self.assertGreater(min(calls), 100)
            self.assertLessEqual(max(calls), 1.1 * min(calls), f"{arrivals}: {calls}")
        server.type("quit")
        server.wait_for("pools whole: yes")

    def test_every_search_for_a_knee_does_so_on_those_that_are_active(self):
        process = self.run_testrpc("--self", "--engine", "null", "--find-knee", "--duration", "0.2", "--connections", "5",
                                   "--active", "3", "--server-work", "100000", "--json", self.json_path)
        runs = [run for run in self.assert_all_right(process)["runs"] if run["rate"] is not None]
        self.assertGreater(len(runs), 1)
        for run in runs:
            calls = run["calls_per_connection"]
            self.assertLessEqual(calls["max"] - calls["min"], 1 + run["calls_not_made"], run)


class Thinking(Case):
    def thoughtful(self, *arguments):
        process = self.run_testrpc("--self", "--engine", "null", *arguments, "--json", self.json_path)
        return process, self.assert_all_right(process)["runs"][0]

    def test_each_call_waits_after_the_one_before(self):
        for idle in ("yield", "adaptive"):
            process, run = self.thoughtful("--think", "20000.5", "--count", "7", "--window", "2", "--idle", idle)
            self.assertEqual((run["calls"], run["think_us"]), (7, 20000.5))
            # The fourth one of a place in the window.
            self.assertGreaterEqual(run["seconds"], 3 * 0.02)
            self.assertIn("THINK in null w=2: 20000.5 us", process.output)

    def test_runs_with_a_duration_are_not_begun_again(self):
        _, run = self.thoughtful("--think", "400000", "--duration", "0.6", "--window", "3")
        self.assertLessEqual(run["calls"], 3 * 2)


class Mixes(Case):
    def test_are_drawn_by_weight_and_told_apart(self):
        process = self.run_testrpc("--self", "--engine", "read,mixed", "--size", "1K:3,8K:1", "--window", "4",
                                   "--verify", "--count", "4000", "--json", self.json_path)
        runs = self.assert_all_right(process, 4000)["runs"]
        self.assertEqual(len(runs), 2)
        read = runs[0]
        self.assertEqual([(part["size"], part["weight"]) for part in read["mix"]], [(1024, 3), (8192, 1)])
        small, large = read["mix"]
        self.assertEqual(small["calls_right"] + large["calls_right"], 4000)
        self.assertAlmostEqual(small["calls_right"] / 4000, 0.75, delta=0.035)  # five standard deviations
        self.assertAlmostEqual(small["rpc_per_s"] + large["rpc_per_s"], read["rpc_per_s"], delta=0.2)
        self.assertAlmostEqual(small["bytes_per_s"] + large["bytes_per_s"], read["bytes_per_s"], delta=0.2)
        self.assertAlmostEqual(large["bytes_per_s"], 8192 * large["rpc_per_s"], delta=5000)
        for what, choose in (("min", min), ("max", max)):
            self.assertEqual(choose(part["latency_ns"][what] for part in read["mix"]), read["latency_ns"][what])
        self.assertRegex(process.output, r"(?m)^read +mix +4 +\d+ ")
        self.assertIn("MIX in read mix w=4: 1K:3,8K:1", process.output)
        # NULL calls are among those of "mixed", and a size is drawn for them as well.
        self.assertEqual(sum(part["calls_right"] for part in runs[1]["mix"]), 4000)

    def test_repeated_runs_are_added_up(self):
        process = self.run_testrpc("--self", "--engine", "echo", "--size", "0:1,100:1", "--count", "300", "--repeat",
                                   "3", "--json", self.json_path)
        self.assert_status(process, 0)
        run, = self.result()["runs"]
        self.assertEqual(sum(part["calls_right"] for part in run["mix"]), 900)


class Targets(Case):
    def second_server(self):
        server = self.start("--server", "iwarp://127.0.0.1:0", "--idle", "adaptive")
        return server, server.wait_for_line("listening on").split()[-1]

    def test_get_connections_in_turn_and_are_told_apart(self):
        first = self.start_server("--idle", "adaptive")
        second, second_uri = self.second_server()
        process = self.run_testrpc("--client", f"{self.uri},{second_uri}", "--engine", "read", "--size", "8K", "--verify",
                                   "--connections", "3", "--count", "400", "--idle", "adaptive", "--json", self.json_path)
        result = self.assert_all_right(process, 400)
        run, = result["runs"]
        self.assertEqual(result["uri"], f"{self.uri},{second_uri}")
        self.assertEqual([(t["uri"], t["connections"]) for t in run["targets"]], [(self.uri, 2), (second_uri, 1)])
        calls = [t["calls_right"] for t in run["targets"]]
        self.assertEqual(sum(calls), 400)
        self.assertGreater(min(calls), 0)
        served = [self.served(server) for server in (first, second)]
        # Each connection begins with one more.
        self.assertEqual(sum(served), 3 + run["warmup_calls"] + 400)
        for target, answered in zip(run["targets"], served):
            self.assertLessEqual(target["calls_right"], answered - target["connections"])
            self.assertIn(f"TARGET in read 8K w=1: {target['uri']}", process.output)
            self.assertAlmostEqual(target["bytes_per_s"], 8192 * target["rpc_per_s"], delta=500)

    def test_are_called_equally_often_on_a_schedule(self):
        first = self.start_server("--idle", "adaptive")
        second, second_uri = self.second_server()
        process = self.run_testrpc("--client", f"{self.uri},{second_uri}", "--engine", "null", "--connections", "4",
                                   "--rate", "2000", "--count", "600", "--idle", "adaptive", "--json", self.json_path)
        run, = self.assert_all_right(process, 600)["runs"]
        self.assertEqual([t["calls_right"] for t in run["targets"]], [300, 300])
        self.assertEqual(run["calls_per_connection"], {"min": 150, "mean": 150, "max": 150})
        served = [self.served(server) for server in (first, second)]
        self.assertEqual(sum(served), 4 + run["warmup_calls"] + 600)
        self.assertLessEqual(abs(served[0] - served[1]), 2)

    def test_a_missing_one_is_named(self):
        self.start_server()
        process = self.run_testrpc("--client", f"{self.uri},shm:{self.folder}/nobody", "--engine", "null", "--count", "5")
        self.assert_fails_with_one_line(process, f"{self.folder}/nobody")


class Ranks(Case):
    """Under mpirun. Without MPI it is refused."""
    ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def built_with_mpi(self):
        # With MPI it fails for another reason.
        done = subprocess.run([harness.TESTRPC, "--client", f"shm:{self.folder}/nobody"], env={**os.environ, "OMPI_COMM_WORLD_SIZE": "2"},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=harness.PATIENCE)
        return "built without MPI" not in done.stderr

    def mpirun(self, *arguments):
        if not self.built_with_mpi():
            self.skipTest("this testrpc was built without MPI (meson's option mpi)")
        if shutil.which("mpirun") is None:
            self.skipTest("there is no mpirun here (Debian: openmpi-bin)")
        process = self.start("-n", "4", "--oversubscribe", harness.TESTRPC, *arguments, program="mpirun",
                             environment={**os.environ, **self.ROOT})
        process.wait()
        return process

    def test_are_refused_without_mpi(self):
        if self.built_with_mpi():
            self.skipTest("this testrpc was built with MPI")
        process = self.start("--self", environment={**os.environ, "OMPI_COMM_WORLD_SIZE": "2"})
        self.assert_fails_with_one_line(process, "built without MPI", "-Dmpi=enabled", status=2)

    def test_are_one_load_with_one_table(self):
        server = self.start_server("--idle", "adaptive")
        process = self.mpirun("--client", self.uri, "--engine", "null,read", "--size", "4K:1,8K:1", "--verify", "--count",
                              "1003", "--repeat", "2", "--histogram", "--json", self.json_path)
        result = self.assert_all_right(process, 2 * 1003)
        self.assertEqual(len(result["ranks"]), 4)
        self.assertEqual(process.output.count("RPC/s  GB/s"), 1)
        self.assertIn("4 ranks are one load", process.output)
        for run in result["runs"]:
            self.assertEqual((run["connections"], run["active"], run["count"]), (4, 4, 1003))
            self.assertEqual(sum(calls for _, calls in run["histogram"]), 2006)
            self.assertEqual([t["calls"] for t in run["repetitions"]], [1003, 1003])
            # 1003 are 251 for each of three, and 250 for the last one.
            self.assertEqual(run["calls_per_connection"], {"min": 250, "mean": 250.8, "max": 251})
        self.assertEqual(sum(part["calls_right"] for part in result["runs"][1]["mix"]), 2006)
        warmup = sum(run["warmup_calls"] for run in result["runs"])
        self.assertEqual(self.served(server), 4 + warmup + 4 * 1003)

    def test_share_a_rate(self):
        server = self.start_server("--idle", "adaptive")
        process = self.mpirun("--client", self.uri, "--engine", "null", "--rate", "1000", "--duration", "0.5",
                              "--idle", "adaptive", "--json", self.json_path)
        run, = self.assert_all_right(process)["runs"]
        self.assertEqual((run["rate"], run["calls_due"], run["calls"]), (1000, 500, 500))
        self.stop_server(server)

    def test_all_end_when_one_cannot_begin(self):
        process = self.mpirun("--client", self.uri, "--engine", "null", "--count", "100")
        self.assertNotEqual(process.wait(), 0)
        self.assertIn(self.uri[4:], process.output)

    def test_are_clients(self):
        process = self.mpirun("--self", "--engine", "null", "--count", "100")
        self.assertNotEqual(process.wait(), 0)
        self.assertIn("the ranks that mpirun starts are clients", process.output)


class Csv(Case):
    def setUp(self):
        super().setUp()
        self.csv_path = os.path.join(self.folder, "result.csv")

    def lines(self):
        with open(self.csv_path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, strict=True))

    def assert_same(self, cell, value, what):
        if value is None:
            self.assertEqual(cell, "", what)
        elif isinstance(value, bool):
            self.assertEqual(cell, "true" if value else "false", what)
        elif isinstance(value, str):
            self.assertEqual(cell, value, what)
        else:
            self.assertEqual(float(cell), value, what)

    def test_has_the_figures_of_the_json(self):
        self.assert_status(self.run_testrpc("--self", "--engine", "null,read", "--size", "4K,64K", "--window", "1,4",
                                            "--count", "200", "--repeat", "2", "--histogram", "--json", self.json_path,
                                            "--csv", self.csv_path), 0)
        runs, lines = self.result()["runs"], self.lines()
        self.assertEqual(len(lines), 6)
        for run, line in zip(runs, lines):
            expected = dict(scalars(run))
            self.assertLess(set(expected), set(line))
            self.assertLess({"engine", "window", "rpc_per_s", "spread", "latency_ns.p99.9", "limits.of_memcpy"}, set(line))
            for name, value in expected.items():
                self.assert_same(line[name], value, name)
            self.assertEqual(line["sizes"], " ".join(map(str, run["sizes"])))

    def test_files_of_any_two_runs_have_the_same_columns_which_tell_them_apart(self):
        heads = []
        for options in (["--rate", "5000", "--stages", "1"], ["--compat", "rfc5666", "--auth", "sys"],
                        ["--rpcrdma-version", "2", "--max-receive-size", "16K", "--change-receive-size", "2"],
                        ["--faults", "send-error=1/1"]):  # no call of which comes back right
            process = self.run_testrpc("--self", "--engine", "null", "--count", "20", *options, "--json", self.json_path,
                                       "--csv", self.csv_path)
            process.wait()
            result, [line] = self.result(), self.lines()
            self.assertLess(set(dict(scalars(result["runs"][0]))), set(line))
            heads.append(list(line))
            self.assertEqual([line["uri"], line["environment.host"], line["revision"], line["options.auth"]],
                             [result["uri"], result["environment"]["host"], result["revision"],
                              result["options"]["auth"]])
            self.assertEqual(line["negotiated.driver"], "shm")
        self.assertEqual(heads, [heads[0]] * 4)
        self.assertEqual((line["calls_right"], line["latency_ns.p50"], line["latency_ns.max"]), ("0", "", ""))

    def test_a_run_without_a_figure_has_an_empty_cell(self):
        server = self.start_server("--idle", "adaptive")
        read, write = os.pipe()
        os.write(write, b"set count 50\nstart\nwait\nset rate 5000\nstart\nwait\nquit\n")
        os.close(write)
        client = self.start("--client", self.uri, "-i", "--csv", self.csv_path, stdin=read)
        os.close(read)
        self.assert_status(client, 0)
        closed, opened = self.lines()
        self.assertEqual((closed["rate"], closed["calls_due"]), ("", ""))
        self.assertEqual((opened["rate"], opened["calls_due"], opened["saturated"]), ("5000", "50", "false"))
        self.stop_server(server)

    def test_dash_is_stdout_and_the_table_goes_to_stderr(self):
        done = subprocess.run([harness.TESTRPC, "--self", "--engine", "null", "--count", "10", "--csv", "-"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        line, = csv.DictReader(done.stdout.splitlines(), strict=True)
        self.assertEqual((line["engine"], line["calls"]), ("null", "10"))
        self.assertRegex(done.stderr, r"null +- +1 +\d+")

    def test_a_pipe_is_written_into(self):
        os.mkfifo(self.csv_path)
        process = self.start("--self", "--engine", "null", "--count", "10", "--csv", self.csv_path)
        self.assertEqual(self.lines()[0]["engine"], "null")
        self.assert_status(process, 0)
        self.assertTrue(stat.S_ISFIFO(os.lstat(self.csv_path).st_mode))

    def test_both_cannot_be_stdout(self):
        process = self.run_testrpc("--self", "--engine", "null", "--json", "-", "--csv", "/dev/stdout")
        self.assert_fails_with_one_line(process, "--json and --csv", status=2)


harness.main()
