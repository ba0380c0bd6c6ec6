#!/usr/bin/env python3
"""The ways to run testrpc: --self, closed and open loop, JSON, and the prompt."""
import csv
import datetime
import json
import os
import re
import signal
import stat
import subprocess

import testrpc_harness as harness
from testrpc_terminal import Terminal, screen

RUN_KEYS = {"time", "duration", "count", "connection_lost", "stopped", "engine", "size", "sizes", "window", "connections", "active", "dispatch", "verify",
            "seed", "think_us", "warmup_seconds", "warmup_calls", "seconds", "calls",
            "calls_right", "errors", "errors_by_reason", "rate", "reconnects", "retransmissions", "keepalives",
            "tried_later",
            "preemptions", "rpcrdma_version", "fallbacks", "wrong_bytes", "rpc_per_s", "bytes_per_s",
            "latency_ns", "calls_per_connection", "limits", "outliers", "noise"}
OPEN_LOOP_KEYS = {"arrivals", "calls_due", "calls_not_made", "saturated"}
LATENCY_KEYS = ["min", "mean", "p50", "p90", "p99", "p99.9", "max"]
QUICK = ["--self", "--engine", "null", "--count", "10"]


class Json(harness.Case):
    def test_has_exactly_the_keys_that_are_promised(self):
        process = self.run_testrpc("--self", "--engine", "null,read", "--size", "1K,64K",
                                   "--window", "1,4", "--duration", "0.3", "--json",
                                   self.json_path)
        result = self.assert_all_right(process)
        self.assertEqual(set(result), {"tool", "schema", "version", "revision", "time", "environment", "command",
                                       "uri", "options", "negotiated", "connect_seconds", "runs", "audit"})
        self.assertEqual(set(result["negotiated"]), {"peer", "driver", "rpcrdma_version", "send_size", "receive_size",
                                                     "credits"})
        self.assertEqual(result["negotiated"]["rpcrdma_version"], 1)
        self.assertEqual(result["negotiated"]["send_size"], 4096)
        self.assertEqual(set(result["environment"]), {"host", "cpu", "cpus", "memory_bytes", "kernel", "dpdk",
                                                      "compiler", "optimized"})
        self.assertEqual(result["environment"]["kernel"], f"{os.uname().sysname} {os.uname().release}")
        self.assertEqual(result["command"][1:6], ["--self", "--engine", "null,read", "--size", "1K,64K"])
        self.assertEqual(set(result["options"]), {
            "idle", "pinned_cpus", "timeout_ms", "connect_timeout_ms", "credits", "backward_credits", "inline", "max_receive_size",
            "chunk_threshold", "auth", "touch", "segments", "pieces", "seed", "rpcrdma_version",
            "rpcrdma_dialect", "compat", "reconnect",
            "retransmit", "keepalive_ms", "faults", "memory", "workers", "nfs", "server"})
        began = datetime.datetime.strptime(result["time"], "%Y-%m-%dT%H:%M:%S%z")
        self.assertLessEqual(began, datetime.datetime.now(datetime.timezone.utc))
        self.assertEqual(result["tool"], "testrpc")
        self.assertRegex(result["version"], r"^\d+\.\d+\.\d+$")
        self.assertTrue(result["uri"].startswith("shm:"))
        self.assertEqual([(r["engine"], r["size"], r["window"]) for r in result["runs"]],
                         [("null", 0, 1), ("null", 0, 4), ("read", 1024, 1), ("read", 1024, 4),
                          ("read", 65536, 1), ("read", 65536, 4)])
        for run in result["runs"]:
            self.assertEqual(set(run), RUN_KEYS)
            self.assertEqual(list(run["latency_ns"]), LATENCY_KEYS)
            ladder = [run["latency_ns"][k] for k in ("min", "p50", "p90", "p99", "p99.9", "max")
                      if run["latency_ns"][k] is not None]
            self.assertEqual(ladder, sorted(ladder))
            self.assertGreater(ladder[0], 0)
            self.assertAlmostEqual(run["rpc_per_s"], run["calls"] / run["seconds"],
                                   delta=1 + 0.001 * run["rpc_per_s"])
            # The rate has one decimal.
            self.assertAlmostEqual(run["bytes_per_s"], run["rpc_per_s"] * run["size"],
                                   delta=1 + 0.05 * run["size"] + 0.001 * run["bytes_per_s"])
            self.assertEqual(run["calls_right"], run["calls"])
            self.assertEqual(run["errors_by_reason"], {})
            self.assertIsNone(run["rate"])
            self.assertEqual((run["duration"], run["count"]), (0.3, None))
            self.assertEqual((run["stopped"], run["connection_lost"]), (False, False))
            self.assertLessEqual(result["time"], run["time"])
            self.assertEqual(set(run["limits"]), {"cache_line_rtt_ns", "p50_per_cache_line_rtt",
                                                  "memcpy_bytes_per_s", "of_memcpy"})
        self.assertEqual(set(result["audit"]), {"pools_whole", "allocations", "allocations_per_call",
                                                "registrations", "registrations_per_call"})

    def test_says_what_was_asked_for(self):
        server = self.start_server()
        process = self.run_testrpc("--client", self.uri, "--engine", "mixed", "--size", "1K,8K", "--rate", "300",
                                   "--duration", "0.5", "--verify", "--idle", "adaptive", "--credits", "7",
                                   "--faults", "delay-us=1:0.5,seed=3", "--json", self.json_path)
        result = self.assert_all_right(process)
        run = result["runs"][0]
        self.assertEqual(set(run), RUN_KEYS | OPEN_LOOP_KEYS)
        self.assertEqual((run["rate"], run["sizes"], run["verify"]), (300, [1024, 8192], True))
        self.assertEqual((run["arrivals"], run["calls_due"], run["calls_not_made"]), ("even", 150, 0))
        options = result["options"]
        self.assertEqual((options["idle"], options["credits"]), ("adaptive", 7))
        self.assertEqual(options["faults"], "delay-us=1:0.5,seed=3")
        self.stop_server(server)

    def test_errors_have_their_reasons(self):
        server = self.start_server("--max-size", "64K")
        table = f"{self.folder}/result.csv"
        client = self.run_testrpc("--client", self.uri, "--engine", "read", "--size", "128K", "--count", "10",
                                  "--json", self.json_path, "--csv", table, "--repeat", "2")
        self.assert_status(client, 1)
        run = self.result()["runs"][0]
        # Without a call there is no latency: 0 would be the best of all.
        self.assertEqual(run["latency_ns"], dict.fromkeys(LATENCY_KEYS))
        self.assertEqual([one["p50_ns"] for one in run["repetitions"]], [None, None])
        with open(table, encoding="utf-8", newline="") as file:
            self.assertEqual(next(csv.DictReader(file))["latency_ns.p50"], "")
        reason, = run["errors_by_reason"]
        self.assertIn("--max-size", reason)
        self.assertEqual(run["errors_by_reason"][reason], run["errors"])
        self.stop_server(server)

    def split(self, *arguments, **options):
        """Its exit status, stdout and stderr, apart."""
        done = subprocess.run([os.path.abspath(harness.TESTRPC), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=harness.PATIENCE, **options)
        return done.returncode, done.stdout, done.stderr

    def test_dash_is_stdout_and_the_table_goes_to_stderr(self):
        status, out, err = self.split(*QUICK, "--json", "-", cwd=self.folder)
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(out)["runs"][0]["calls"], 10)
        self.assertRegex(err, r"null +- +1 +\d+")
        self.assertEqual(os.listdir(self.folder), [])

    def test_another_name_of_stdout_is_stdout(self):
        status, out, err = self.split(*QUICK, "--json", "/proc/self/fd/1")
        self.assertEqual(status, 0, err)
        self.assertEqual(json.loads(out)["tool"], "testrpc")

    def test_a_pipe_is_written_into(self):
        path = f"{self.folder}/pipe"
        os.mkfifo(path)
        process = self.start(*QUICK, "--json", path)
        with open(path, encoding="utf-8") as pipe:
            self.assertEqual(json.load(pipe)["tool"], "testrpc")
        self.assert_status(process, 0)
        self.assertTrue(stat.S_ISFIFO(os.lstat(path).st_mode))

    def run_with_mounts(self, inside):
        """Runs a shell script with its own mounts, whose $1 is the folder and $2 testrpc."""
        if os.geteuid() != 0:
            self.skipTest("mounts and device nodes need root")
        done = subprocess.run(["unshare", "--mount", "sh", "-c", inside, "sh", self.folder, harness.TESTRPC],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=harness.PATIENCE)
        if "unshare failed" in done.stderr or "mount:" in done.stderr or "mknod:" in done.stderr:
            self.skipTest(f"no mount namespace or device node here: {done.stderr.strip()}")
        return done

    def test_a_device_is_written_into(self):
        done = self.run_with_mounts('mount -t tmpfs none "$1" && mknod "$1/null" c 1 3 && "$2" --self --engine null '
                                    '--count 10 --json "$1/null" && stat -c %F "$1/null"')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("character special file", done.stdout)

    def test_a_mount_point_is_written_into(self):
        done = self.run_with_mounts(': >"$1/host" && : >"$1/result.json" && mount --bind "$1/host" "$1/result.json" && '
                                    '"$2" --self --engine null --count 10 --json "$1/result.json"')
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(f"{self.folder}/host", encoding="utf-8") as file:
            self.assertEqual(json.load(file)["tool"], "testrpc")
        self.assertEqual(sorted(os.listdir(self.folder)), ["host", "result.json"])

    def test_results_beyond_a_full_disk_are_on_stdout(self):
        done = self.run_with_mounts('mount -t tmpfs -o size=4k none "$1" && echo old >"$1/result.json" && "$2" --self '
                                    '--engine null --count 10 --json "$1/result.json"; echo " status $?"; '
                                    'ls "$1"; cat "$1/result.json"')
        text, _, rest = done.stdout[done.stdout.index("{\n"):].partition(" status ")
        self.assertEqual(json.loads(text)["tool"], "testrpc")
        self.assertEqual(rest.split(), ["1", "result.json", "old"])
        self.assertIn("No space left on device; the results are on stdout", done.stderr)

    def test_a_link_at_a_temporary_name_is_not_followed(self):
        process = self.start(*QUICK[:-2], "--duration", "3", "--json", self.json_path)
        process.wait_for_line("null w=1")  # it has tried the file's folder by now
        with open(f"{self.folder}/victim", "w", encoding="utf-8") as file:
            file.write("precious")
        os.symlink("victim", f"{self.json_path}.{process.pid}.tmp")
        self.assert_all_right(process)
        with open(f"{self.folder}/victim", encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")
        self.assertFalse(os.path.islink(self.json_path))

    def test_a_name_that_is_no_utf8(self):
        uri = os.fsencode(f"--self=shm:{self.folder}/") + b"\xff.sock"
        table = f"{self.folder}/result.csv"
        environment = os.environ | {"RRDK_LOG_STYLE": "json", "RRDK_LOG": "debug"}
        done = subprocess.run([harness.TESTRPC, uri, *QUICK[1:], "--json", self.json_path, "--csv", table],
                              stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=harness.PATIENCE,
                              env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("/\ufffd.sock", self.result()["uri"])
        with open(table, encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 2)
        lines = [json.loads(line.decode()) for line in done.stderr.splitlines() if line.startswith(b"{")]
        self.assertTrue(any("\ufffd.sock" in line["message"] for line in lines), done.stderr)

    def test_a_symbolic_link_stays_and_its_target_is_written(self):
        target = f"{self.folder}/target.json"
        for there in (False, True):
            link = f"{self.folder}/link{there}"
            os.symlink("target.json", link)
            self.assert_status(self.run_testrpc(*QUICK, "--json", link), 0)
            self.assertTrue(os.path.islink(link))
            with open(target, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["tool"], "testrpc")

    def test_a_file_is_replaced_as_a_whole_and_keeps_its_mode(self):
        with open(self.json_path, "w", encoding="utf-8") as file:
            file.write("old")
        os.chmod(self.json_path, 0o600)
        with open(self.json_path, encoding="utf-8") as old:
            self.assert_status(self.run_testrpc(*QUICK, "--json", self.json_path), 0)
            self.assertEqual(old.read(), "old")
        self.assertEqual(stat.S_IMODE(os.stat(self.json_path).st_mode), 0o600)
        self.assertEqual(os.listdir(self.folder), ["result.json"])

    def test_a_folder_is_refused(self):
        self.assert_fails_with_one_line(self.run_testrpc(*QUICK, "--json", self.folder), "directory", status=2)

    def test_steady_state_allocates_and_registers_nothing(self):
        process = self.run_testrpc("--self", "--engine",
                                   "null,echo,read,write,sandwich,read2,callback",
                                   "--size", "1000,64K", "--window", "8", "--duration", "0.5",
                                   "--json", self.json_path)
        audit = self.assert_all_right(process)["audit"]
        self.assertLessEqual(process.output.count("buffers may have"), 1)  # one end says it for both
        self.assertIn(audit["allocations_per_call"], (0, None))  # None: the sanitizer has malloc
        self.assertEqual(audit["registrations_per_call"], 0)

    def test_histogram_only_when_asked_for(self):
        process = self.run_testrpc("--self", "--engine", "null", "--count", "1000", "--histogram",
                                   "--json", self.json_path)
        run = self.assert_all_right(process, 1000)["runs"][0]
        self.assertEqual(sum(n for _, n in run["histogram"]), 1000)
        self.assertEqual(run["histogram"][-1][0], run["latency_ns"]["max"])

    def test_a_file_that_cannot_be_written_is_an_error(self):
        process = self.run_testrpc("--self", "--engine", "null", "--count", "10", "--json",
                                   f"{self.folder}/none/result.json")
        self.assert_fails_with_one_line(process, "none/result.json", status=2)


class Loops(harness.Case):
    def test_open_loop_keeps_its_rate(self):
        process = self.run_testrpc("--self", "--engine", "null", "--rate", "500", "--duration",
                                   "2", "--json", self.json_path)
        run = self.assert_all_right(process)["runs"][0]
        self.assertEqual(run["calls"], 1000)
        self.assertEqual((run["rate"], run["calls_due"], run["calls_not_made"]), (500, 1000, 0))

    def test_open_loop_above_capacity_ends_and_counts_what_it_did_not_make(self):
        # Megabytes with every byte checked, one at a time: of the ten million calls that are due
        # there is time for a few thousand, and making all would take half an hour.
        process = self.run_testrpc("--self", "--engine", "read", "--size", "1M", "--verify", "--window", "1",
                                   "--rate", "10000000", "--duration", "1", "--json", self.json_path)
        run = self.assert_all_right(process)["runs"][0]
        self.assertEqual(run["calls_due"], 10_000_000)
        self.assertEqual(run["calls"] + run["calls_not_made"], 10_000_000)
        self.assertGreater(run["calls_not_made"], 5_000_000)
        self.assertTrue(run["saturated"])
        self.assertRegex(process.output, r"SATURATED: read 1M w=1 at 10000000/s: offered 10000000 RPC/s, achieved [\d.]+; \d+ of "
                                         r"10000000 not made")
        row = next(line for line in process.lines if line.startswith("read  "))
        self.assertRegex(row, r"^read +1M +1 +10000000 +[\d.]+ +\d+( +([\d.]+(us|ms|s)|-)){4}$")

    def test_open_loop_of_a_core_that_sleeps(self):
        # How well it wakes up is tested by test_runtime's ApplicationTimers; here no call gets lost
        # in it.
        process = self.run_testrpc("--self", "--engine", "null", "--rate", "200", "--duration", "1", "--idle",
                                   "adaptive", "--json", self.json_path)
        run = self.assert_all_right(process)["runs"][0]
        self.assertEqual(run["calls"], 200)

    def test_open_loop_counts_the_wait_of_calls_that_start_late(self):
        # One call in flight, and each holds a megabyte to verify: a million calls a second are far
        # out of reach, and the last ones wait for most of the run. Without their wait half of the
        # calls would take a hundredth of the run at most.
        process = self.run_testrpc("--self", "--engine", "read", "--size", "1M", "--verify",
                                   "--window", "1", "--rate", "1000000", "--count", "200",
                                   "--json", self.json_path)
        run = self.assert_all_right(process, 200)["runs"][0]
        self.assertGreater(run["latency_ns"]["max"], 0.7e9 * run["seconds"])
        self.assertGreater(run["latency_ns"]["p50"], 0.01e9 * run["seconds"])

    def test_a_count_above_the_servers_limit_is_told(self):
        server = self.start_server("--max-size", "64K")
        client = self.run_testrpc("--client", self.uri, "--engine", "read", "--size", "128K",
                                  "--count", "10")
        self.assert_status(client, 1)
        self.assertIn("refused by the perf program", client.output)
        # It is an error: one call finds that out, and the refusals are not counted as throughput.
        self.assertRegex(client.output, r"read +128K +1 +!0 ")
        self.assertRegex(client.output, r"ERRORS in read 128K w=1: \d refused")
        self.stop_server(server)

    def test_on_one_cpu_nothing_is_probed(self):
        cpu = min(os.sched_getaffinity(0))
        self.start_server()
        process = self.start("-c", cpu, harness.TESTRPC, "--client", self.uri, "--engine", "null",
                             "--count", "10", "--json", self.json_path, program="taskset")
        result = self.assert_all_right(process, count=10)
        self.assertEqual(result["runs"][0]["limits"]["cache_line_rtt_ns"], 0)

    def test_self_with_eal_arguments(self):
        process = self.run_testrpc("--no-huge", "-m", "64", "--no-pci", "--", "--self", "--engine",
                                   "null", "--count", "100", "--json", self.json_path)
        self.assert_all_right(process, 100)

    def test_eal_cores_alone_leave_the_rest_as_it_was(self):
        cpu = max(os.sched_getaffinity(0))
        process = self.run_testrpc("-l", cpu, "--", *QUICK)
        self.assert_status(process, 0)
        self.assertNotIn("EAL:", process.output)
        self.assertNotIn("PCI", process.output)

    def pinned_to(self, process):
        """The CPUs that the main thread may use."""
        return os.sched_getaffinity(process.pid)

    def test_the_record_has_the_clients_cpu_and_not_that_of_the_probe(self):
        cpu = min(os.sched_getaffinity(0))
        server = self.start_server("--idle", "adaptive")
        self.assert_status(self.run_testrpc("--client", self.uri, "--cpu", cpu, "--engine", "null", "--count", "5",
                                            "--json", self.json_path), 0)
        options = self.result()["options"]
        self.assertEqual((options["pinned_cpus"], options["server"]), ([cpu], None))
        self.stop_server(server)

    def test_two_of_eals_cores_on_one_cpu_are_one_cpu(self):
        cpu = min(os.sched_getaffinity(0))
        process = self.run_testrpc("--lcores", f"(0,1)@{cpu}", "--", "--self", "--engine", "null", "--count", "5")
        self.assert_status(process, 0)
        self.assertIn("client and server share one CPU, both yield", process.output)

    def test_a_client_stays_on_eals_core_or_on_that_of_cpu(self):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("needs two CPUs")
        server = self.start_server("--idle", "adaptive")
        call = ["--client", self.uri, "--idle", "adaptive", "--engine", "null", "--rate", "1000", "--duration", "600"]
        for cpu in cpus[:2]:
            for where in (["-l", cpu, "--", *call], [*call, "--cpu", cpu]):
                client = self.start(*where)
                client.wait_for_line("RPC/s")
                self.assertEqual(self.pinned_to(client), {cpu}, where)
                client.send(signal.SIGINT)
                self.assert_status(client, 0)
        self.stop_server(server)

    def test_two_that_poll_on_one_cpu_are_told(self):
        cpu = min(os.sched_getaffinity(0))
        servers = [self.start("--server", uri, "--cpu", cpu) for uri in (self.uri, self.uri + "-other")]
        for server in servers:
            server.wait_for_line("listening on")
        client = self.run_testrpc("--client", self.uri, "--engine", "null", "--count", "10", "--cpu", cpu)
        self.assert_status(client, 0)
        for server in servers:
            self.assertIn(f"CPU {cpu} is shared with process {server.pid}", client.output)
            self.stop_server(server)

    def test_an_idle_server_says_that_it_takes_a_cpu(self):
        server = self.start_server()
        self.stop_server(server)
        self.assertRegex(server.output, "idle policy yield: this keeps a CPU busy even without calls")
        server = self.start_server("--idle", "adaptive")
        self.stop_server(server)
        self.assertNotIn("busy", server.output)

    def test_a_server_says_what_it_has_too_few_cpus_for_and_what_it_takes_in_vain(self):
        cpus = len(os.sched_getaffinity(0))
        server = self.start_server("--dispatch", "worker", "--workers", cpus, "--connections", "9")
        self.stop_server(server)
        self.assertIn(f"{cpus + 1} threads poll on {cpus} CPU", server.output)
        self.assertIn("--connections has no effect here", server.output)

    def test_self_at_a_port_that_the_system_chooses(self):
        process = self.run_testrpc("--self=iwarp://127.0.0.1:0", "--engine", "null", "--count", "100", "--json",
                                   self.json_path)
        self.assertRegex(self.assert_all_right(process, 100)["uri"], r"^iwarp://127\.0\.0\.1:[1-9]\d*$")

    def test_the_table_fits_eighty_columns(self):
        process = self.run_testrpc("--self", "--engine", "sandwich,mixed", "--size", "1000K", "--window", "32",
                                   "--verify", "--count", "500")
        self.assert_status(process, 0)
        for heading in ("p50", "latency of a call", "calls in"):
            self.assertIn(heading, process.output)
        for line in process.lines[1:]:
            if " rrdk: " not in line and " is shared with process " not in line:  # another test's
                self.assertLessEqual(len(line), 80, line)

    def test_touching_what_is_received_changes_no_result(self):
        process = self.run_testrpc("--self", "--engine", "echo,read,write,sandwich,read2", "--size", "0,3,64K",
                                   "--window", "8", "--verify", "--touch", "--count", "200", "--json", self.json_path)
        result = self.assert_all_right(process, 200)
        self.assertTrue(result["options"]["touch"])

    def test_no_call_is_answered_before_its_work_is_done(self):
        process = self.run_testrpc("--self", "--engine", "null,echo,read,write,sandwich,read2", "--size", "1K",
                                   "--server-work", "300000", "--count", "20", "--json", self.json_path)
        for run in self.assert_all_right(process, 20)["runs"]:
            self.assertGreaterEqual(run["latency_ns"]["min"], 300000, run["engine"])

    def test_self_on_workers(self):
        process = self.run_testrpc("--self", "--engine", "null,read", "--dispatch", "worker",
                                   "--verify", "--count", "500", "--json", self.json_path)
        result = self.assert_all_right(process, 500)
        self.assertEqual(result["runs"][0]["dispatch"], "worker")


class Knees(harness.Case):
    def test_are_looked_for_between_light_load_and_capacity(self):
        process = self.run_testrpc("--self", "--engine", "null,read", "--size", "4K", "--window", "16", "--find-knee",
                                   "--duration", "0.1", "--json", self.json_path)
        self.assert_status(process, 0)
        result = self.result()
        self.assertEqual([(k["engine"], k["window"]) for k in result["knees"]], [("null", 16), ("read", 16)])
        for knee in result["knees"]:
            runs = [run for run in result["runs"] if run["engine"] == knee["engine"]]
            self.assertEqual(knee["steps"], 7)
            self.assertEqual(len({run["rate"] for run in runs}), 7)
            # A step is made once, or, if it was disturbed, three times, of which the one in the middle counts.
            closed = sorted(run["rpc_per_s"] for run in runs if run["rate"] is None)
            self.assertIn(len(closed), (1, 3))
            self.assertEqual(knee["closed_loop_rate"], closed[len(closed) // 2])
            light = [run for run in runs if run["rate"] == runs[len(closed)]["rate"]]
            self.assertAlmostEqual(light[0]["rate"], knee["closed_loop_rate"] / 10, delta=1)
            self.assertIn(knee["light_p99_ns"], [run["latency_ns"]["p99"] for run in light])
            self.assertGreater(knee["rate"] or knee["above"], light[0]["rate"])
            self.assertLess(knee["rate"] or 0, knee["above"] or 1.1 * knee["closed_loop_rate"])
            self.assertEqual(knee["settled"], knee["doubts"] == [])
        self.assertEqual(process.output.count("KNEE of "), 2)
        # Each line about a run names its rate.
        self.assertRegex(process.output, r"\nnull w=16 at \d+/s, 2 of 14")
        self.assertNotRegex(process.output, r"\nARRIVALS in (null|read 4K) w=16:")
        for line in re.findall(r"\nDISTURBED (.*?):", process.output):
            self.assertRegex(line, r"^(null|read 4K) w=16( at [\d.]+/s)?$")

    def test_choose_rates_themselves(self):
        for wrong in (["--rate", "100"], ["--count", "5"], ["-i"]):
            process = self.run_testrpc("--self", "--engine", "null", "--find-knee", *wrong)
            self.assert_fails_with_one_line(process, "--find-knee", status=2)
        self.assert_fails_with_one_line(self.run_testrpc("--self", "--find-knee"), "--engine", status=2)


class Interactive(harness.Case):
    def test_progress_leaves_alone_what_is_being_typed(self):
        server = self.start_server()
        terminal = Terminal(self, "--client", self.uri, "-i")
        terminal.wait_for("testrpc> ")
        terminal.type("set engine null")
        terminal.wait_for("testrpc> ")
        terminal.type("start")
        terminal.wait_for(r"RPC/s [^\n]*us\r?\n")
        terminal.send("show conf")
        terminal.wait_for("show conf")
        terminal.wait_for(r"RPC/s [^\n]*us\r?\n")
        terminal.wait_for("show conf")
        lines = screen(terminal.text)
        self.assertEqual(lines[-1], "testrpc> show conf", terminal.text)
        progress = [line for line in lines if "RPC/s" in line]
        self.assertGreaterEqual(len(progress), 2)
        for line in progress:
            self.assertRegex(line, r"^ +\d+ s +\d+ RPC/s .*us *$")
        terminal.type("ig")
        terminal.wait_for("engine null")
        terminal.type("quit")
        terminal.wait_for("pools whole: yes")
        self.stop_server(server)

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
        terminal.wait_for("unknown command 'frobnicate'")
        terminal.type("set engine null")
        terminal.type("set count 100")
        terminal.type("start")
        terminal.wait_for("stopped")
        terminal.type("quit")
        terminal.wait_for(r"null +- +4 +\d+")
        terminal.wait_for("pools whole: yes")
        self.assertEqual(terminal.process.wait(harness.PATIENCE), 0, terminal.text)
        self.stop_server(server)

    def client_prompt(self, *options):
        server = self.start_server("--idle", "adaptive")
        self.addCleanup(server.kill)
        terminal = Terminal(self, "--client", self.uri, "--idle", "adaptive", "-i", *options)
        terminal.wait_for("testrpc> ")
        return terminal

    def test_ctrl_c_ends_a_run_with_its_result_and_the_prompt_comes_back(self):
        terminal = self.client_prompt()
        for _ in range(2):
            terminal.type("start")
            terminal.wait_for("RPC/s")
            terminal.send("\x03")
            terminal.wait_for(r"null +- +1 +\d+")
            terminal.wait_for("stopped")
            terminal.wait_for("testrpc> ")
        terminal.send("set eng\x03")  # and forgets a line
        terminal.wait_for("testrpc> ")
        terminal.type("quit")
        self.assertEqual(terminal.process.wait(harness.PATIENCE), 0, terminal.text)

    def test_words_and_values_are_completed(self):
        terminal = self.client_prompt()
        terminal.send("se\teng\tsand\t\n")
        terminal.send("sh\tc\t\n")
        terminal.wait_for(r"engine sandwich\s")
        terminal.send("set engine null,re\t\t")
        terminal.wait_for("read2")
        terminal.send("\x03")
        terminal.send("set ver\t\t\t")  # verify, the common beginning of both values, and both
        terminal.wait_for(r"\son\s+off\s")

    def test_unfinished_commands_list_what_there_is(self):
        terminal = self.client_prompt()
        terminal.type("show")
        terminal.wait_for("config, stats, faults")
        terminal.type("clear")
        terminal.wait_for("clear what: stats")
        terminal.type("set")
        terminal.wait_for(r"engine NAME.*null, echo")
        terminal.type("set rate")
        terminal.wait_for(r"rate CALLS_PER_SECOND\|off: open loop")
        terminal.type("set sizes 4K")
        terminal.wait_for("did you mean size")
        terminal.type("set connections 4")
        terminal.wait_for("fixed when testrpc starts")

    def test_rates_and_counts_can_be_undone(self):
        terminal = self.client_prompt()
        terminal.type("set rate 2000")
        terminal.type("set count 50")
        terminal.type("show config")
        terminal.wait_for(r"duration off \(count\)\s+count 50\s+rate 2000 calls/s")
        terminal.type("start")
        terminal.wait_for(r"null +- +64 +2000 ")
        terminal.type("set rate off")
        terminal.type("set window 1")
        terminal.type("start")
        terminal.wait_for(r"null +- +1 +\d")
        terminal.type("set count off")
        terminal.type("set duration 0.5")
        terminal.type("show config")
        terminal.wait_for(r"duration 0.5 s\s+count off\s+rate off")

    def test_stats_include_the_run_at_hand(self):
        terminal = self.client_prompt()
        terminal.type("start")
        terminal.wait_for("RPC/s")
        terminal.type("show stats")
        terminal.wait_for(r"null +- +1 +\d+")
        terminal.wait_for("the last run is not over")
        terminal.type("clear stats")  # must leave the current run alone
        terminal.type("stop")
        terminal.wait_for(r"null +- +1 +\d+")

    def test_a_script_waits_for_its_runs(self):
        server = self.start_server()
        read, write = os.pipe()
        os.write(write, b"set count 100\nstart\nwait\nset engine echo\nstart\nwait\nquit\n")
        os.close(write)
        client = self.start("--client", self.uri, "-i", "--json", self.json_path, stdin=read)
        os.close(read)
        result = self.assert_all_right(client, 100)
        self.assertEqual([run["engine"] for run in result["runs"]], ["null", "echo"])
        self.stop_server(server)

    def test_a_server_has_a_prompt(self):
        terminal = Terminal(self, "--server", self.uri, "-i")
        terminal.wait_for("listening on")
        terminal.wait_for("testrpc> ")
        self.assert_status(self.run_testrpc("--client", self.uri, "--engine", "null", "--count", "10"), 0)
        terminal.type("show stats")
        terminal.wait_for(r"served \d+ calls on 1 connections")
        terminal.type("show connections")
        terminal.wait_for("connections now; 1 accepted")
        terminal.type("show")
        terminal.wait_for("stats, connections, procedures, cores, faults, limits")
        terminal.type("show procedures")
        terminal.wait_for(r"NULL of perf +\d+ +0 ")
        table = terminal.text.rsplit("show procedures", 1)[1].splitlines()
        self.assertLessEqual(max(map(len, table)), 80, terminal.text)
        terminal.type("set faults delay-us=1:0.5,seed=9")
        terminal.type("show faults")
        terminal.wait_for(r"faults delay-us=1:0.5,seed=9\s")
        terminal.type("quit")
        terminal.wait_for("pools whole: yes")
        self.assertEqual(terminal.process.wait(harness.PATIENCE), 0, terminal.text)

    def test_a_server_shows_its_connections_and_closes_one(self):
        server = Terminal(self, "--server", self.uri, "-i")
        server.wait_for("testrpc> ")
        client = Terminal(self, "--client", self.uri, "-i")
        client.wait_for("testrpc> ")
        client.type("start")
        client.wait_for("RPC/s")
        server.type("show connections")
        row = server.wait_for(rf"(\d+) pid {client.process.pid} \(uid {os.getuid()}\) +1 +\d+ +\d+ +\d+\.\d\s")
        server.wait_for("1 connections now")
        table = server.text.rsplit("show connections", 1)[1].splitlines()
        self.assertLessEqual(max(map(len, table)), 80, server.text)
        for none in ("4711", "the other one", ""):
            server.type("close " + none)
            server.wait_for("no connection 4711" if none == "4711" else "one of those")
        server.type("close " + row.group(1))
        server.wait_for("closing connection " + row.group(1))
        client.wait_for("the connection is lost")
        self.assertEqual(client.process.wait(harness.PATIENCE), 1, client.text)

    def test_a_server_changes_its_limits(self):
        server = Terminal(self, "--server", self.uri, "-i", "--idle-timeout", "60000")
        server.wait_for("testrpc> ")
        server.type("show limits")
        server.wait_for(r"max-connections-per-client 0 \(half of those that memory allows\)")
        server.wait_for("first-call-timeout 30000")
        server.wait_for("idle-timeout 60000")
        server.type("set first-call-timeout 0")
        server.type("set max-connections 7")
        server.type("show limits")
        server.wait_for("max-connections 7\\s")
        server.wait_for(r"first-call-timeout 0 \(never\)")
        server.type("set capture")
        server.wait_for(r"capture FILE\|off: ")
        server.type("set")
        server.wait_for("set what: capture, faults, first-call-timeout, idle-timeout")
        server.type("set idle-timeout never")
        server.wait_for("idle-timeout.*never")
        client = Terminal(self, "--client", self.uri, "-i")
        client.wait_for("testrpc> ")
        # The client makes a call at once, so that it is not taken for a client that never will.
        server.type("show procedures")
        server.wait_for(r"NULL of perf +1 +0 ")
        server.type("set idle-timeout 1")
        server.wait_for("ended: no calls for 1 ms")
        server.type("show limits")
        server.wait_for("idle-timeout 1\\s")
        server.type("show stats")
        server.wait_for("closed idle +1")
        server.type("quit")
        server.wait_for("pools whole: yes")

    def test_a_server_with_poll_threads_has_a_prompt(self):
        terminal = Terminal(self, "--server", self.uri, "-i", "--poll-cpus", str(min(os.sched_getaffinity(0))),
                            "--idle", "adaptive")
        terminal.wait_for("testrpc> ")
        terminal.type("show cores")
        terminal.wait_for("core 0: 0 connections")
        terminal.type("quit")
        terminal.wait_for("pools whole: yes")

    def test_ctrl_u_forgets_the_line(self):
        terminal = Terminal(self, "--server", self.uri, "-i")
        terminal.wait_for("testrpc> ")
        terminal.send("show stats\x1b[D\x1b[D\x15")
        terminal.type("show cores")
        terminal.wait_for("core 0: 0 connections")
        terminal.type("quit")
        terminal.wait_for("pools whole: yes")
        self.assertNotIn("unknown command", terminal.text)

    def test_the_last_line_of_a_file_needs_no_end(self):
        commands = os.path.join(self.folder, "commands")
        with open(commands, "w", encoding="utf-8") as file:
            file.write("show limits\nshow cores")
        with open(commands, encoding="utf-8") as file:
            server = self.start("--server", self.uri, "-i", "--idle", "adaptive", stdin=file)
            self.assert_status(server, 0)
        self.assertIn("core 0: 0 connections", server.output)

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
