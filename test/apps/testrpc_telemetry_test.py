#!/usr/bin/env python3
"""The telemetry of a running testrpc: DPDK's telemetry, scripts/rrdk-top.py, and --metrics."""
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
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

    def top(self, *arguments, stdout=subprocess.PIPE):
        return subprocess.run([sys.executable, TOP, "--prefix", self.prefix, "--interval", "0.2", *arguments],
                              stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=harness.PATIENCE)

    def call_null(self, count):
        client = self.run_testrpc("--client", self.uri, "--engine", "null", "--count", count)
        self.assert_status(client, 0)

    def test_the_socket_has_connections_procedures_and_cores(self):
        server = self.start_telling_server()
        self.call_null(1000)
        holder = self.start("--telemetry", f"--file-prefix={self.prefix}-c", "--", "--client", self.uri, "--engine", "echo",
                            "--rate", "500", "--duration", "60")
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
        reader, writer = os.pipe()
        os.close(reader)
        for where, status, words in (("/dev/full", 1, "cannot write to stdout: No space"),
                                     (writer, -signal.SIGPIPE, "")):
            with open(where, "w", encoding="utf-8") as out:
                lost = self.top("--once", stdout=out)
            self.assertEqual(lost.returncode, status, lost.stderr)
            self.assertIn(words, lost.stderr)
        self.prefix += "-c"
        called = json.loads(self.top("--json", "--interval", "2").stdout)["called"]
        echo = next(c for c in called if "ECHO" in c["name"])
        self.assertEqual(echo["target"], self.uri)
        self.assertGreater(echo["call_p99_ns"], 0)
        self.assertGreater(echo["away_mean_ns"], 0)
        self.assertGreater(echo["calls_per_s"], 50)
        holder.send(signal.SIGINT)
        holder.wait()
        self.stop_server(server)

    def test_no_process_to_ask(self):
        self.prefix = "rrdk-test-nobody"
        top = self.top("--once")
        self.assertEqual(top.returncode, 1)
        self.assertIn("--telemetry", top.stderr)

    def start_metrics(self, address="0"):
        """Starts a server that sleeps; returns the address of its metrics."""
        server = self.start("--server", self.uri, "--metrics", address, "--idle", "adaptive")
        url = server.wait_for_line("metrics at").split()[-1]
        server.wait_for_line("listening on")
        return server, url

    def get(self, url, **headers):
        """Returns the body and its content type."""
        request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
        with urllib.request.urlopen(request, timeout=harness.PATIENCE) as answer:
            return answer.read(), answer.headers

    def test_metrics_by_http(self):
        server, url = self.start_metrics()
        self.call_null(1000)
        body, headers = self.get(url, Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1")
        self.assertIn("application/openmetrics-text", headers["Content-Type"])
        text = body.decode()
        self.assert_openmetrics(text)
        calls = int(re.search(r'^rrdk_server_calls_received_total\{server="0"\} (\d+)$', text, re.M)[1])
        self.assertGreaterEqual(calls, 1000)
        self.assertIn(f"metrics at {url}", server.output)
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(url.replace("/metrics", "/other"), timeout=harness.PATIENCE)
        self.stop_server(server)

    def test_metrics_in_the_older_format_and_packed(self):
        server, url = self.start_metrics()
        self.call_null(1000)
        plain, headers = self.get(url, Accept="*/*")
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertNotIn("Content-Encoding", headers)
        self.assertIn(b"# TYPE rrdk_server_calls_received_total counter\n", plain)
        self.assertLess(len(re.findall(rb"^rrdk_", plain, re.M)), 400)  # time series of a server that serves one procedure
        for encoding, is_packed in (("gzip", True), ("deflate, GZip;q=0.5", True), ("gzip;q=0", False),
                                    ("gzip;q=0.000, br", False), ("identity", False)):
            body, headers = self.get(url, Accept_Encoding=encoding)
            self.assertEqual(headers.get("Content-Encoding"), "gzip" if is_packed else None, encoding)
            if is_packed:
                self.assertLess(len(body), len(plain) / 4)
                body = gzip.decompress(body)
            self.assertIn(b"rrdk_server_calls_received_total{", body)
        self.check_with_promtool(plain)
        self.stop_server(server)

    def check_with_promtool(self, text):
        if shutil.which("promtool") is None:
            print("promtool is not installed (Debian's package prometheus): the text was not checked by it")
            return
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False,
                                 timeout=harness.PATIENCE)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, b"", b""))

    def test_metrics_of_a_client(self):
        server = self.start_server()
        client = self.start("--client", f"{self.uri}?peer_memory=1G", "--engine", "echo", "--rate", "500", "--duration", "60",
                            "--stages", "4", "--connections", "3", "--metrics", "0")
        url = client.wait_for_line("metrics at").split()[-1]
        client.wait_for_line("echo")
        found = None
        while found is None:  # calls are made at any time from here on
            text = self.get(url)[0].decode()
            found = re.search(r'^rrdk_client_call_seconds_count\{(.*procedure="ECHO of perf")\} (\d+)$', text, re.M)
        self.assertEqual(found[1], f'target="{self.uri}",program="536893030",version="1",procedure="ECHO of perf"')
        self.assertGreater(int(found[2]), 0)
        for stage in ("wait", "post", "away", "complete", "callback"):
            self.assertIn(f'rrdk_client_stage_seconds_total{{{found[1]},stage="{stage}"}} ', text)
        self.assertIn("\nrrdk_runtime_stamp_every 4\n", text)
        self.assertRegex(text, r'\nrrdk_build_info\{version="[0-9.]+"\} 1\n')
        started = float(re.search(r"^rrdk_process_start_time_seconds (\S+)$", text, re.M)[1])
        self.assertAlmostEqual(started, time.time(), delta=harness.PATIENCE)
        self.check_with_promtool(text.encode())
        client.kill()
        self.stop_server(server)

    def assert_openmetrics(self, text):
        """The rules of OpenMetrics 1.0 on which a parser would fail."""
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
                base = re.sub("_(total|bucket|sum|count|info)$", "", match[1])
                self.assertIn(base if base in types else match[1], types, line)
                if types.get(base) == "counter":
                    self.assertTrue(match[1].endswith("_total"), line)

    def test_a_server_that_sleeps_counts_it_and_gives_no_hints_for_programmers(self):
        server, url = self.start_metrics()
        sleeps = 0
        while sleeps == 0:
            with urllib.request.urlopen(url, timeout=harness.PATIENCE) as answer:
                sleeps = int(re.search(r'^rrdk_core_sleeps_total\{core="0"\} (\d+)$', answer.read().decode(), re.M)[1])
        self.stop_server(server)
        self.assertNotIn("kAdaptive", server.output)

    def test_memory_of_scrapes_is_reported(self):
        client = self.start("--self", "--engine", "null", "--duration", "60", "--metrics", "0")
        url = client.wait_for_line("metrics at").split()[-1]
        for _ in range(2):  # the first may come before anything is measured
            client.wait_for_line("RPC/s")
            with urllib.request.urlopen(url, timeout=harness.PATIENCE) as answer:
                answer.read()
        client.send(signal.SIGINT)
        self.assert_status(client, 0)
        self.assertRegex(client.output, r"allocations [1-9]\d*, registrations 0 \(including those of scrapes\)")

    def connect(self, url):
        peer = socket.create_connection(("127.0.0.1", int(re.search(r":(\d+)/", url)[1])), harness.PATIENCE)
        self.addCleanup(peer.close)
        return peer

    def ask(self, url, request):
        """The answer's status, headers and body."""
        peer = self.connect(url)
        peer.sendall(request)
        answer = b"".join(iter(lambda: peer.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:]), body

    def test_metrics_are_got_with_get_and_head_only_and_nothing_else_is(self):
        server, url = self.start_metrics()
        for request, status in ((b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200), (b"GET /metrics HTTP/1.0\n\n", 200),
                                (b"GET /metrics?a=b HTTP/1.1\r\n\r\n", 200), (b"HEAD /metrics HTTP/1.1\r\n\r\n", 200),
                                (b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", 405),
                                (b"DELETE /metrics HTTP/1.1\r\n\r\n", 405), (b"get /metrics HTTP/1.1\r\n\r\n", 405),
                                (b"GET / HTTP/1.1\r\n\r\n", 404), (b"GET /metrics/ HTTP/1.1\r\n\r\n", 404),
                                (b"GET /metrics%0d%0aX:y HTTP/1.1\r\n\r\n", 404), (b"HEAD /x HTTP/1.1\r\n\r\n", 404),
                                (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", 404),
                                (b"GET /metrics HTTP/2.0\r\n\r\n", 505), (b"PRI * HTTP/2.0\r\n\r\n", 505),
                                (b"GET /metrics\r\n\r\n", 400), (b"\r\n\r\n", 400), (b"\x16\x03\x01\x00\n\n", 400),
                                (b"GET /metrics HTTP/1.1\r\nX: " + b"b" * 200000 + b"\r\n\r\n", 431)):
            with self.subTest(request[:40]):
                found, headers, body = self.ask(url, request)
                self.assertEqual(found, status)
                if request.startswith(b"HEAD"):
                    self.assertEqual(body, b"")
                    self.assertGreater(int(headers["Content-Length"]), 0)
                else:
                    self.assertEqual(int(headers["Content-Length"]), len(body))
                self.assertEqual(body.startswith(b"# TYPE rrdk_"), status == 200 and not request.startswith(b"HEAD"))
                self.assertEqual(headers.get("Allow"), "GET, HEAD" if status == 405 else None)
        self.stop_server(server)

    def test_connections_that_say_nothing_or_little_delay_no_scrape(self):
        server, url = self.start_metrics()
        crowd = []
        for number in range(224):
            peer = self.connect(url)
            crowd.append(peer)
            try:
                if number % 3 == 1:
                    peer.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
                if number % 3 == 2:  # and never reads
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                    peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            except ConnectionError:
                pass  # it made way
            if number % 50 == 1 or number == 223:
                with urllib.request.urlopen(url, timeout=10) as answer:  # as long as Prometheus waits
                    self.assertTrue(answer.read().startswith(b"# TYPE rrdk_"))
        self.assertLess(len(os.listdir(f"/proc/{server.pid}/fd")), 110)
        self.stop_server(server)

    def test_readers_at_once_share_an_answer_whatever_their_headers_look_like(self):
        server, url = self.start_metrics()
        server.send(signal.SIGSTOP)  # so that it finds all requests in one pass
        os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)
        readers = []
        for number in range(24):
            peer = self.connect(url)
            accept = ("text/plain", "application/openmetrics-text")[number % 2]
            encoding = (b"identity", b"gzip")[number // 2 % 2]
            peer.sendall(b"GET /metrics HTTP/1.1\r\nAccept: %s;of=%d\r\nAccept-Encoding: %s;of=%d\r\n\r\n"
                         % (accept.encode(), number, encoding, number))
            readers.append((peer, accept, encoding == b"gzip"))
        server.send(signal.SIGCONT)
        found = {}
        for peer, accept, is_packed in readers:
            answer = b"".join(iter(lambda: peer.recv(65536), b""))
            head, _, body = answer.partition(b"\r\n\r\n")
            self.assertIn(f"Content-Type: {accept};".encode(), head)
            self.assertEqual(b"Content-Encoding: gzip" in head, is_packed)
            # CPU time differs in any two looks at the metrics.
            found.setdefault(accept, set()).add(gzip.decompress(body) if is_packed else body)
        self.assertEqual([len(bodies) for bodies in found.values()], [1, 1])
        self.stop_server(server)

    def test_metrics_over_ipv6(self):
        try:
            with socket.create_server(("::1", 0), family=socket.AF_INET6):
                pass
        except OSError as error:
            self.skipTest(f"there is no ::1: {error}")
        server, url = self.start_metrics("[::1]:0")
        self.assertRegex(url, r"^http://\[::1\]:\d+/metrics$")
        with urllib.request.urlopen(url, timeout=harness.PATIENCE) as answer:
            self.assertTrue(answer.read().startswith(b"# TYPE rrdk_"))
        self.stop_server(server)

    def test_impossible_addresses(self):
        for address in ("nowhere", "", ":80", "host:", "host:port", "::1:80", "[]:80", "1:65536"):
            process = self.run_testrpc("--server", self.uri, "--metrics", address)
            self.assert_fails_with_one_line(process, f"'{address}' is neither PORT nor HOST:PORT", status=2)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for address, reason in ((f"127.0.0.1:{port}", "Address already in use"),
                                    ("10.255.255.1:80", "Cannot assign requested address")):
                process = self.run_testrpc("--server", self.uri, "--metrics", address)
                self.assert_fails_with_one_line(process, f"{address}: {reason}")


harness.main()
