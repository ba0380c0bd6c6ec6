#!/usr/bin/env python3
"""What a running testrpc tells: by DPDK's telemetry, scripts/rrdk-top.py, and --metrics."""
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import testrpc_harness as harness

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/rrdk-top.py")


class Telemetry(harness.Case):
    def start_telling_server(self, *arguments):
        """A server with a telemetry socket of its own."""
        self.prefix = f"rrdk-test-{os.getpid()}-{self.id().rsplit('.', 1)[1][-20:]}"
        server = self.start("--telemetry", f"--file-prefix={self.prefix}", "--", "--server", self.uri, *arguments)
        server.wait_for_line("listening on")
        return server

    def top(self, *arguments):
        return subprocess.run([sys.executable, TOP, "--prefix", self.prefix, "--interval", "0.2", *arguments],
                              capture_output=True, text=True, timeout=harness.PATIENCE)

    def call_null(self, count):
        client = self.run_testrpc("--client", self.uri, "--engine", "null", "--count", count)
        self.assert_status(client, 0)

    def test_the_socket_has_connections_procedures_and_cores(self):
        server = self.start_telling_server()
        self.call_null(1000)
        holder = self.start("--client", self.uri, "--engine", "echo", "--rate", "500", "--duration", "60")
        holder.wait_for_line(" s ")
        seen = json.loads(self.top("--json").stdout)
        self.assertEqual(seen["name"], "testrpc")
        self.assertEqual(seen["process"], server.pid)
        self.assertEqual([c["peer"].split(" (")[0] for c in seen["connections"]], [f"pid {holder.pid}"])
        self.assertGreater(seen["connections"][0]["calls_per_s"], 50)
        names = {p["name"]: p for p in seen["procedures"]}
        echo = next(p for name, p in names.items() if "ECHO" in name)
        self.assertGreater(echo["calls_per_s"], 50)
        self.assertEqual(seen["cores"][0]["connections"], 1)
        self.assertTrue(any(p["buffers"] for p in seen["pools"]))
        screen = self.top("--once")
        self.assertEqual(screen.returncode, 0, screen.stderr)
        for word in ("calls/s", "ECHO", f"pid {holder.pid}", "handler p50/p99"):
            self.assertIn(word, screen.stdout)
        holder.send(signal.SIGINT)
        holder.wait()
        self.stop_server(server)

    def test_nobody_to_ask(self):
        self.prefix = "rrdk-test-nobody"
        top = self.top("--once")
        self.assertEqual(top.returncode, 1)
        self.assertIn("--telemetry", top.stderr)

    def need_civetweb(self):
        process = self.run_testrpc("--server", self.uri, "--metrics", "10.255.255.1:80")
        if "without civetweb" in process.output:
            self.skipTest("testrpc was built without civetweb (Debian: libcivetweb-dev)")

    def test_metrics_by_http(self):
        self.need_civetweb()
        server = self.start("--server", self.uri, "--metrics", "0")
        url = server.wait_for_line("metrics at").split()[-1]
        server.wait_for_line("listening on")
        self.call_null(1000)
        with urllib.request.urlopen(url, timeout=harness.PATIENCE) as answer:
            self.assertIn("application/openmetrics-text", answer.headers["Content-Type"])
            text = answer.read().decode()
        self.assert_openmetrics(text)
        calls = int(re.search(r'^rrdk_server_calls_total\{server="0"\} (\d+)$', text, re.M)[1])
        self.assertGreaterEqual(calls, 1000)
        self.assertIn(f"metrics at {url}", server.output)
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(url.replace("/metrics", "/other"), timeout=harness.PATIENCE)
        self.stop_server(server)

    def assert_openmetrics(self, text):
        """The rules of OpenMetrics 1.0 that a parser would stumble over."""
        lines = text.splitlines()
        self.assertEqual(lines[-1], "# EOF")
        types = {}
        for line in lines[:-1]:
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                self.assertNotIn(name, types)
                types[name] = kind
            elif not line.startswith("# "):
                match = re.fullmatch(r'([a-z0-9_]+)(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? \d+(\.\d+)?', line)
                self.assertTrue(match, line)
                base = re.sub("_(total|bucket|sum|count)$", "", match[1])
                self.assertIn(base if base in types else match[1], types, line)
                if types.get(base) == "counter":
                    self.assertTrue(match[1].endswith("_total"), line)

    def test_an_address_that_is_none(self):
        self.need_civetweb()
        for address, word, status in (("nowhere", "neither PORT nor HOST:PORT", 2),
                                      ("10.255.255.1:80", "10.255.255.1:80", 1)):
            process = self.run_testrpc("--server", self.uri, "--metrics", address)
            self.assert_fails_with_one_line(process, word, status=status)


harness.main()
