#!/usr/bin/env python3
"""Errors: wrong command lines, wrong addresses, and peers that die. Each ends with a clear message and a non-zero
exit status, and disturbs no other process."""
import os
import re
import resource
import signal
import select
import socket
import subprocess
import threading
import time

import testrpc_harness as harness

CALL = ["--engine", "null", "--count", 10]


class Mistakes(harness.Case):
    def assert_refused(self, *arguments):
        self.assert_fails_with_one_line(self.run_testrpc(*arguments), status=2)

    def test_no_role(self):
        self.assert_refused()

    def test_two_roles(self):
        self.assert_refused("--self", "--server", self.uri)

    def test_unknown_option(self):
        self.assert_refused("--self", "--frobnicate")

    def test_slips_are_answered_with_suggestions(self):
        for words, meant in ((["--self", "--engine", "raed"], "did you mean read?"),
                             (["--self", "--widnow", "4"], "did you mean --window?"),
                             (["--self", "-size", "4"], "did you mean --size?"),
                             (["--sever", "shm:/x"], "did you mean --server?")):
            self.assert_fails_with_one_line(self.run_testrpc(*words), meant, status=2)

    def test_options_that_would_do_nothing(self):
        for words, reason in (
                (["--self", "--cpu", "77"], "--cpu is for --server and --client"),
                (["--self", "--max-size", "512", "--size", "4K"], "--max-size is for --server"),
                (["--self", "--workers", "4"], "--workers needs --dispatch worker"),
                (["--client", self.uri, "--workers", "2"], "--workers is for --server and --self"),
                (["--client", self.uri, "--max-size", "4K"], "--max-size is for --server"),
                (["--server", self.uri, "--engine", "null"], "--engine is for --client and --self"),
                (["--server", self.uri, "--rate", "5"], "--rate is for --client and --self"),
                (["--server", self.uri, "--verify"], "--verify is for --client and --self"),
                (["--self", "--drain-timeout", "3"], "--drain-timeout is for --server"),
                (["--self", "--nfs-export", "/x"], "--nfs-export is for --client"),
                (["--client", self.uri, "--nfs-export", "/x"], "--nfs-export needs --engine nfs3"),
                (["--self", "--histogram"], "--histogram needs --json"),
                (["--self", "--max-receive-size", "8K"], "--max-receive-size needs --rpcrdma-version")):
            self.assert_fails_with_one_line(self.run_testrpc(*words), reason, status=2)

    def test_a_log_level_that_there_is_not(self):
        process = self.start("RRDK_LOG=trace", harness.TESTRPC, "--self", *CALL, program="env")
        self.assert_status(process, 0)
        self.assertIn("RRDK_LOG=trace is not one of error, warning, info and debug", process.output)

    def test_cpus_that_are_not_there(self):
        for role in ("--server", "--client"):
            process = self.run_testrpc(role, self.uri, "--cpu", "1000")
            self.assert_fails_with_one_line(process, "CPU 1000 does not exist or is not ours to use", status=2)

    def test_unavailable_memory(self):
        process = self.run_testrpc("--server", self.uri, "--memory", "16384G")
        self.assert_fails_with_one_line(process, "17592186044416 bytes are wanted")
        process = self.run_testrpc("--server", self.uri, "--memory", "16M", "--max-size", "32M")
        self.assert_fails_with_one_line(process, "16777216 bytes has no room")

    def test_bad_size(self):
        self.assert_refused("--self", "--size", "4Q")

    def test_bad_window(self):
        self.assert_refused("--self", "--window", "0")

    def test_a_minus_is_no_range(self):
        for option, value in (("--window", "-1"), ("--size", "-4K"), ("--active", "-1-2")):
            process = self.run_testrpc("--self", option, value)
            self.assert_fails_with_one_line(process, f"{option}: '{value.removesuffix('-2')}' is not a ", status=2)

    def test_places_that_are_not_there(self):
        for option in ("--json", "--csv", "--capture"):
            for role in (["--self"], ["--server", self.uri] if option == "--capture" else ["--client", self.uri]):
                process = self.run_testrpc(*role, option, f"{self.folder}/none/x")
                self.assert_fails_with_one_line(process, "none/x: No such file or directory", status=2)

    def test_help_that_would_be_eals(self):
        for word in ("-h", "--help"):
            process = self.run_testrpc(word, "--", "--self", *CALL)
            self.assert_fails_with_one_line(process, f"'{word}' before -- would be EAL's", status=2)

    def test_bad_number(self):
        self.assert_refused("--self", "--rate", "many")

    def test_count_and_duration(self):
        self.assert_refused("--self", "--count", "1", "--duration", "1")

    def test_eal_refuses_its_arguments(self):
        process = self.run_testrpc("--no-such-eal-option", "--", "--client", self.uri, *CALL)
        self.assert_fails_with_one_line(process, "no-such-eal-option", status=2)

    def test_one_file_for_two_results(self):
        os.symlink(self.folder, f"{self.folder}/here")
        os.symlink("later", f"{self.folder}/link")
        with open(f"{self.folder}/there", "w", encoding="utf-8"):
            os.link(f"{self.folder}/there", f"{self.folder}/too")
        for one, other in (("x", "x"), ("x", "./x"), ("x", "here/x"), ("link", "later"), ("there", "too")):
            for options in (("--json", "--csv"), ("--json", "--capture"), ("--csv", "--capture")):
                process = self.run_testrpc("--self", *CALL, options[0], f"{self.folder}/{one}", options[1],
                                           f"{self.folder}/{other}")
                self.assert_fails_with_one_line(process, f"{options[0]} and {options[1]} are the same file", status=2)
        self.assert_fails_with_one_line(self.run_testrpc("--self", *CALL, "--json", "-", "--csv", "-"), "same", status=2)

    def test_help_is_no_mistake(self):
        process = self.run_testrpc("--help")
        self.assert_status(process, 0)
        for word in ("--server", "--rate", "--verify", "--json", "-i", "What to call:", "shm:PATH", "verbs://HOST"):
            self.assertIn(word, process.output)
        for line in process.lines:
            self.assertLessEqual(len(line), 80, line)
            self.assertEqual(line, line.rstrip())

    def test_the_version(self):
        for word in ("-v", "--version"):
            process = self.run_testrpc(word)
            self.assert_status(process, 0)
            self.assertRegex(process.output, r"^testrpc \d+\.\d+\.\d+ \(\S+\)$")


class Output(harness.Case):
    """Output that cannot be written."""

    def run_into(self, stdout, *arguments, **options):
        return subprocess.run([harness.TESTRPC, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=stdout,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=harness.PATIENCE, **options)

    def test_a_full_disk(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for words in (["--self", *CALL], ["--help"], ["--version"], ["--completion", "bash"],
                          ["--self", *CALL, "--json", "-"]):
                done = self.run_into(full, *words)
                self.assertEqual(done.returncode, 1, done.stderr)
                lines = [line for line in done.stderr.splitlines() if line.startswith("testrpc: ")]
                self.assertEqual(len(lines), 1, done.stderr)
                self.assertIn("cannot write to stdout", lines[0])

    def test_a_log_that_is_as_large_as_files_may_be(self):
        most = 1 << 30  # of which memory takes a part

        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        with open(f"{self.folder}/log", "wb") as log:
            log.truncate(most)
            log.seek(most)
            for words in (["--self", *CALL], ["--help"], ["--completion", "bash"]):
                done = self.run_into(log, *words, preexec_fn=limit_files)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("cannot write to stdout", done.stderr)

    def test_results_that_are_larger_than_files_may_be(self):
        for options, what in ((["--json", self.json_path], f"cannot write {self.json_path}: File too large; the results "
                                                           "are on stdout"),
                              (["--capture", f"{self.folder}/capture"], "/capture ends here: File too large")):
            testrpc = self.start("--self", "--engine", "null", "--rate", 100, "--duration", 600, *options)
            testrpc.wait_for_line("RPC/s")
            resource.prlimit(testrpc.pid, resource.RLIMIT_FSIZE, (100, 100))
            testrpc.wait_for_line("RPC/s")
            testrpc.send(signal.SIGINT)
            self.assert_status(testrpc, 1)
            self.assertIn(what, testrpc.output)
            self.assertIn("pools whole: yes", testrpc.output)

    def test_a_closed_stdout(self):
        done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", harness.TESTRPC, "--self=iwarp://127.0.0.1:0", "--verify",
                               *map(str, CALL), "--json", self.json_path], stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot write to stdout", done.stderr)
        self.assertEqual(self.result()["runs"][0]["errors"], 0)


class Addresses(harness.Case):
    def test_no_such_socket(self):
        process = self.run_testrpc("--client", self.uri, *CALL)
        self.assert_fails_with_one_line(process, f"{self.folder}/socket")

    def test_client_unknown_scheme(self):
        process = self.run_testrpc("--client", "carrier-pigeon://loft", *CALL)
        self.assert_fails_with_one_line(process, "carrier-pigeon", status=2)

    def test_server_unknown_scheme(self):
        self.assert_fails_with_one_line(self.run_testrpc("--server", "nonsense"), "nonsense", status=2)

    def test_an_address_is_said_once(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]  # bound, without a listener
            process = self.run_testrpc("--client", f"iwarp://127.0.0.1:{port}", *CALL)
            self.assert_fails_with_one_line(process, f"testrpc: iwarp://127.0.0.1:{port}: Connection refused")
        process = self.run_testrpc("--client", "shm:", *CALL)
        self.assert_fails_with_one_line(process, "testrpc: shm:: names no socket", status=2)

    def test_invalid_addresses(self):
        for uri in ("shm:", "iwarp://", "iwarp://host:port", "iwarp://127.0.0.1:1?colour=red"):
            for role in ("--client", "--server", "--self"):
                self.assert_fails_with_one_line(self.run_testrpc(f"{role}={uri}"), status=2)

    def test_server_in_a_folder_that_is_not_there(self):
        process = self.run_testrpc("--server", f"shm:{self.folder}/none/socket")
        self.assert_fails_with_one_line(process, "none/socket")

    def foreign_socket(self, kind=socket.SOCK_SEQPACKET, greeting=b""):
        """The service of another program. A client that connects gets the greeting, if there is one."""
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(f"{self.folder}/socket")
        listener.listen()

        def serve():
            peers = []
            while True:
                try:
                    peers.append(listener.accept()[0])
                    peers[-1].sendall(greeting)
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self.addCleanup(listener.close)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)

    def test_client_meets_somebody_elses_socket(self):
        self.foreign_socket(greeting=b"220 mail.example ESMTP\r\n")
        process = self.run_testrpc("--client", self.uri, *CALL)
        self.assert_fails_with_one_line(process, f"{self.folder}/socket")

    def test_client_meets_a_stream_socket(self):
        self.foreign_socket(socket.SOCK_STREAM, b"220 mail.example ESMTP\r\n")
        process = self.run_testrpc("--client", self.uri, *CALL)
        self.assert_fails_with_one_line(process, f"{self.folder}/socket")

    def test_client_meets_a_silent_socket(self):
        self.foreign_socket()
        process = self.run_testrpc("--client", self.uri, *CALL)
        self.assert_fails_with_one_line(process, f"{self.folder}/socket")

    def test_server_leaves_somebody_elses_socket_alone(self):
        self.foreign_socket()
        process = self.run_testrpc("--server", self.uri)
        self.assert_fails_with_one_line(process, f"{self.folder}/socket")
        self.assertTrue(os.path.exists(f"{self.folder}/socket"))

    def test_server_leaves_a_file_alone(self):
        with open(f"{self.folder}/socket", "w", encoding="utf-8") as file:
            file.write("precious")
        process = self.run_testrpc("--server", self.uri)
        self.assert_fails_with_one_line(process, f"{self.folder}/socket")
        with open(f"{self.folder}/socket", encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")

    def test_client_meets_a_file(self):
        with open(f"{self.folder}/socket", "w", encoding="utf-8"):
            pass
        process = self.run_testrpc("--client", self.uri, *CALL)
        self.assert_fails_with_one_line(process, f"{self.folder}/socket")

    def test_two_servers_on_one_path(self):
        first = self.start_server()
        self.assert_fails_with_one_line(self.run_testrpc("--server", self.uri), self.uri[4:])
        self.assert_status(self.run_testrpc("--client", self.uri, *CALL), 0)
        self.stop_server(first)

    def test_a_dead_servers_path_can_be_used_again(self):
        first = self.start_server()
        first.send(signal.SIGKILL)
        first.wait()
        second = self.start_server()
        self.assert_status(self.run_testrpc("--client", self.uri, *CALL), 0)
        self.stop_server(second)


LOAD = ["--engine", "mixed", "--size", "0,1000,64K,1M", "--window", "16", "--verify",
        "--duration", "600", "--timeout", "60000"]


class Deaths(harness.Case):
    def start_load(self, *options):
        client = self.start("--client", self.uri, *LOAD, *options)
        client.wait_for_line("RPC/s")
        return client

    def test_client_killed_under_load_disturbs_no_other(self):
        server = self.start_server("--connections", 3)
        victim = self.start_load()
        witness = self.start_load("--json", self.json_path)
        victim.send(signal.SIGKILL)
        victim.wait()
        witness.wait_for_line("RPC/s")  # it continues
        witness.wait_for_line("RPC/s")
        witness.send(signal.SIGINT)
        self.assert_all_right(witness)
        self.stop_server(server)
        self.assertIn("on 2 connections", server.output)

    def test_server_serves_many_clients_that_die(self):
        server = self.start_server("--connections", 2)
        for _ in range(3):
            victim = self.start_load()
            victim.send(signal.SIGKILL)
            victim.wait()
        self.assert_status(self.run_testrpc("--client", self.uri, *CALL), 0)
        self.stop_server(server)

    def test_server_killed_under_load_ends_every_call_by_name(self):
        server = self.start_server()
        client = self.start_load()
        server.send(signal.SIGKILL)
        self.assert_status(client, 1)
        errors = re.search(r"ERRORS in mixed \S+ w=16: (\d+) connection lost", client.output)
        self.assertTrue(errors, client.describe())
        self.assertLessEqual(int(errors[1]), 16)
        self.assertIn("pools whole: yes", client.output)

    def test_self_that_is_killed_leaves_nothing_and_admits_no_other(self):
        testrpc = self.start(f"TMPDIR={self.folder}", harness.TESTRPC, "--self", *LOAD,
                             program="env")
        testrpc.wait_for_line("RPC/s")
        self.assertEqual(os.listdir(self.folder), [])
        uri = re.search(r"^shm:@testrpc-\S+(?=;)", testrpc.output, re.MULTILINE)
        self.assertTrue(uri, testrpc.describe())
        other = self.run_testrpc("--client", uri[0], *CALL)
        self.assert_fails_with_one_line(other, "rejected")
        testrpc.send(signal.SIGKILL)
        testrpc.wait()
        self.assertEqual(os.listdir(self.folder), [])

    def test_server_that_hangs_makes_calls_time_out(self):
        server = self.start_server()
        client = self.start("--client", self.uri, "--engine", "null", "--window", "4",
                            "--duration", "600", "--timeout", "300")
        client.wait_for_line("RPC/s")
        server.send(signal.SIGSTOP)
        client.wait_for_line("errors")
        client.send(signal.SIGINT)
        self.assert_status(client, 1)
        self.assertRegex(client.output, r"ERRORS in null w=4: \d+ timeout")
        server.send(signal.SIGCONT)
        self.stop_server(server)


class StartsThatHang(harness.Case):
    """The first signal ends a start that hangs, and the last line says what it waited for."""

    def assert_ends_by(self, process, number, what):
        process.send(number)
        self.assert_status(process, -number)
        self.assertEqual(process.lines[-1], f"testrpc: ended by {number.name} while {what}")

    def start_beside_stale_eal(self, *role):
        """A secondary process waits for the first one to say that its configuration is complete."""
        folder = os.path.join(self.folder, "dpdk", "rte")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config"), "wb") as file:
            file.truncate(64 << 20)
        return self.start("--proc-type=secondary", "--", *role,
                          environment={**os.environ, "RUNTIME_DIRECTORY": self.folder})

    def wait_for(self, found, process):
        for _ in range(harness.PATIENCE * 100):
            if (what := found()) or process.process.poll() is not None:
                return what
            time.sleep(0.01)
        return None

    @staticmethod
    def text_of(path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_eal(self):
        server = self.start_beside_stale_eal("--server", self.uri)
        maps = f"/proc/{server.pid}/maps"
        self.wait_for(lambda: "dpdk/rte/config" in self.text_of(maps), server)
        self.assert_ends_by(server, signal.SIGTERM, "EAL starts")

    def test_the_server_of_self(self):
        both = self.start_beside_stale_eal("--self", *CALL)
        children = f"/proc/{both.pid}/task/{both.pid}/children"
        child = int(self.wait_for(lambda: self.text_of(children), both))
        self.assert_ends_by(both, signal.SIGINT, "the server process starts")
        while os.path.exists(f"/proc/{child}/exe"):  # the kernel kills it
            time.sleep(0.01)

    def assert_ends_while_a_name_is_looked_up(self, what, *arguments):
        """Beside a name server that gets the question and does not answer, in its own mount namespace."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            try:
                silent.bind(("127.0.53.53", 53))
            except PermissionError:
                self.skipTest("a name server needs root")
            silent.settimeout(harness.PATIENCE)
            for name, text in (("resolv.conf", "nameserver 127.0.53.53\noptions timeout:30 attempts:5\n"),
                               ("nsswitch.conf", "hosts: dns\n")):
                with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
                    file.write(text)
            alone = ["--mount", "sh", "-ec", 'for name in resolv.conf nsswitch.conf; do '
                     'mount --bind "$0/$name" "/etc/$name"; done; exec "$@"', self.folder]
            tried = subprocess.run(["unshare", *alone, "true"], capture_output=True, text=True, check=False)
            if tried.returncode != 0:
                self.skipTest(f"no mount namespace of its own: {tried.stderr.strip()}")
            testrpc = self.start(*alone, harness.TESTRPC, *arguments, program="unshare")
            self.assertIn(b"\4slow\4test\0", silent.recv(512))
            self.assert_ends_by(testrpc, signal.SIGTERM, what)

    def test_listening(self):
        self.assert_ends_while_a_name_is_looked_up("the server begins to listen", "--server", "iwarp://slow.test:0")

    def test_metrics(self):
        self.assert_ends_while_a_name_is_looked_up("metrics start", "--server", self.uri, "--metrics", "slow.test:0")

    def test_a_connection(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            client = self.start("--client", f"iwarp://127.0.0.1:{port}", *CALL)
            mute, _ = listener.accept()
            with mute:
                self.assert_ends_by(client, signal.SIGINT, "connections are made")


class Proxy:
    """Between clients and a server of iwarp. Forwards nothing before `together` clients are there, and of each client
    only the first `pieces` that it sends, if that is given. With `first_waits`, nothing of the first client is
    forwarded before each of the others has sent that number of pieces."""

    def __init__(self, case, uri, together=1, pieces=None, first_waits=0):
        self.port = int(uri.rsplit(":", 1)[1])
        self.together, self.pieces, self.first_waits = together, pieces, first_waits
        self.pairs = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.uri = f"iwarp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.over, self.end = socket.socketpair()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        case.addCleanup(self.close)

    def run(self):
        while True:
            ends = [self.listener, self.end]
            if len(self.pairs) >= self.together:
                for pair in self.pairs:
                    if pair[1] is None:
                        pair[1] = socket.create_connection(("127.0.0.1", self.port))
                    ends += pair[:2]
                if any(pair[2] < self.first_waits for pair in self.pairs[1:]):
                    ends.remove(self.pairs[0][0])
            for ready in select.select(ends, [], [])[0]:
                if ready is self.end:
                    return
                if ready is self.listener:
                    self.pairs.append([self.listener.accept()[0], None, 0])
                else:
                    self.forward(ready)

    def forward(self, end):
        pair, = [pair for pair in self.pairs if end in pair]
        try:
            data = end.recv(1 << 16)
            if end is pair[0]:
                pair[2] += 1
                if self.pieces is not None and pair[2] > self.pieces:
                    return
            pair[1 if end is pair[0] else 0].sendall(data)
        except OSError:
            data = b""
        if not data:
            self.pairs.remove(pair)
            for each in pair[:2]:
                each.close()

    def close(self):
        self.over.close()
        self.thread.join(harness.PATIENCE)
        for end in [self.listener, self.end] + [end for pair in self.pairs for end in pair[:2] if end is not None]:
            end.close()


class ManyConnections(harness.Case):
    def iwarp_server(self, *arguments):
        server = self.start("--server", "iwarp://127.0.0.1:0", "--idle", "adaptive", *arguments)
        return server, server.wait_for_line("listening on").split()[-1]

    def test_are_made_at_a_time(self):
        server, uri = self.iwarp_server()
        proxy = Proxy(self, uri, together=40)
        client = self.run_testrpc("--client", proxy.uri, "--connections", "100", "--engine", "null", "--count", "1000",
                                  "--idle", "adaptive", "--json", self.json_path)
        self.assert_all_right(client, 1000)
        self.stop_server(server)

    def test_make_a_call_each_as_they_come_up(self):
        # When all are up it may be too late: a server closes connections that make no call for long.
        server, uri = self.iwarp_server()
        # A client sends what asks for a connection, and then its first call.
        proxy = Proxy(self, uri, together=3, first_waits=2)
        client = self.run_testrpc("--client", proxy.uri, "--connections", "3", "--idle", "adaptive", *CALL)
        self.assert_status(client, 0)
        self.stop_server(server)

    def test_a_server_waits_for_the_first_call_for_as_long_as_it_is_told(self):
        server, uri = self.iwarp_server("--first-call-timeout", "100")
        proxy = Proxy(self, uri, pieces=1)
        client = self.run_testrpc("--client", proxy.uri, *CALL)
        self.assert_status(client, 1)
        self.stop_server(server)
        self.assertRegex(server.output, r"closed silent +1\n")
        self.assertIn("made no call in its first 100 ms", server.output)

    def test_that_are_lost_together_are_few_lines(self):
        server = self.start_server()
        client = self.start("--client", self.uri, "--connections", "50", "--engine", "null", "--duration", "100")
        client.wait_for_line("RPC/s")
        server.send(signal.SIGKILL)
        self.assert_status(client, 1)
        lines = [line for line in client.lines if f"connection to {self.uri} ended: " in line]
        self.assertGreater(len(lines), 0, client.output)
        self.assertLess(len(lines), 25, client.output)
        for line in lines:
            self.assertIn("the peer", line)

    def test_beyond_those_that_a_server_takes_are_refused(self):
        server = self.start_server("--max-connections", "3", "--idle", "adaptive")
        client = self.run_testrpc("--client", self.uri, "--connections", "3", "--idle", "adaptive", *CALL)
        self.assert_status(client, 0)
        client = self.run_testrpc("--client", self.uri, "--connections", "5", "--idle", "adaptive", *CALL)
        self.assert_fails_with_one_line(client, self.uri)
        self.stop_server(server)
        self.assertRegex(server.output, r"connections refused +[12]\n")

    def test_ask_for_the_credits_that_their_windows_use(self):
        for arguments, credits in ((["--window", "100,7"], 100), (["--window", "7"], 64),
                                   (["--window", "100", "--credits", "9"], 9)):
            client = self.run_testrpc("--self", "--engine", "null", "--count", "1000", *arguments, "--json", self.json_path)
            self.assertEqual(self.assert_all_right(client, 1000)["options"]["credits"], credits)

    def test_are_granted_as_many_at_first_as_the_server_is_told(self):
        server = self.start_server("--first-credits", "11", "--idle", "adaptive")
        client = self.run_testrpc("--client", self.uri, *CALL, "--json", self.json_path)
        self.assertEqual(self.assert_all_right(client, 10)["negotiated"]["credits"], 11)
        self.stop_server(server)


class Survival(harness.Case):
    def start_load(self, *options):
        client = self.start("--client", self.uri, *LOAD, "--reconnect", "--json", self.json_path,
                            *options)
        client.wait_for_line("RPC/s")
        return client

    def restart(self, server):
        server.send(signal.SIGKILL)
        server.wait()
        return self.start_server()

    def wait_for_calls(self, client):
        """Waits until a whole second of the run, from now on, has calls that were answered."""
        for _ in range(2):
            client.wait_for_line("RPC/s")
        while int(re.search(r"(\d+) RPC/s", client.wait_for_line("RPC/s"))[1]) == 0:
            pass

    def test_a_run_goes_on_with_the_next_server(self):
        server = self.start_server()
        client = self.start_load("--retransmit")
        for _ in range(2):
            server = self.restart(server)
            self.wait_for_calls(client)
        client.send(signal.SIGINT)
        run = self.assert_all_right(client)["runs"][0]
        self.assertEqual(run["reconnects"], 2)
        self.assertGreaterEqual(run["retransmissions"], 1)
        self.assertRegex(client.output, r"SURVIVED in mixed \S+ w=16: 2 reconnections")
        self.stop_server(server)

    def test_without_retransmission_the_calls_on_their_way_are_errors(self):
        server = self.start_server()
        client = self.start_load()
        server = self.restart(server)
        self.wait_for_calls(client)
        client.send(signal.SIGINT)
        self.assert_status(client, 1)
        run = self.result()["runs"][0]
        self.assertEqual(run["reconnects"], 1)
        self.assertEqual(run["retransmissions"], 0)
        self.assertLessEqual(run["errors"], 16)
        self.assertIn("pools whole: yes", client.output)
        self.stop_server(server)

    def test_a_server_that_hangs_is_given_up(self):
        server = self.start_server("--connections", 4)
        client = self.start_load("--retransmit", "--keepalive-ms", "300")
        server.send(signal.SIGSTOP)
        # It is silent, or takes no messages: whichever comes first.
        client.wait_for_line("connecting again")
        server.send(signal.SIGCONT)
        self.wait_for_calls(client)
        client.send(signal.SIGINT)
        self.assertGreaterEqual(self.assert_all_right(client)["runs"][0]["reconnects"], 1)
        self.stop_server(server)


class CtrlC(harness.Case):
    @staticmethod
    def abstract_names():
        """Names of UNIX sockets on this host that are no files."""
        with open("/proc/net/unix") as sockets:
            return {line.split()[-1] for line in sockets if line.split()[-1].startswith("@")}

    def abstract_name(self, process):
        """The address at which the two ends of --self have met."""
        name = re.search(r"shm:(@\S+?);", process.wait_for_line("shm:"))[1]
        self.assertIn(name, self.abstract_names())
        return name

    def test_client_ends_with_the_table(self):
        server = self.start_server()
        client = self.start("--client", self.uri, "--engine", "read", "--size", "64K", "--window",
                            "8", "--duration", "600", "--json", self.json_path)
        client.wait_for_line("RPC/s")
        client.send(signal.SIGINT)
        self.assert_all_right(client)
        self.assertRegex(client.output, r"read +64K +8 +\d+")
        self.assertEqual(len(self.result()["runs"]), 1)
        self.stop_server(server)

    def test_self_ends_with_the_table_and_leaves_nothing(self):
        process = self.start("--self", "--engine", "null", "--duration", "600")
        socket = self.abstract_name(process)
        process.wait_for_line("RPC/s")
        children = self.children(process.pid)
        self.assertEqual(len(children), 1)
        process.send(signal.SIGINT)
        self.assert_status(process, 0)
        self.assertRegex(process.output, r"null +- +1 +\d+")
        self.assertNotIn(socket, self.abstract_names())
        self.assertFalse(os.path.exists(f"/proc/{children[0]}"))

    def test_self_leaves_nothing_when_its_terminal_or_its_reader_goes(self):
        # Not ignored, as they are if nohup runs this.
        self.addCleanup(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_DFL))
        for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM):
            process = self.start("--self", "--engine", "null", "--duration", "600")
            socket = self.abstract_name(process)
            process.wait_for_line("RPC/s")
            process.send(number)
            self.assert_status(process, 0 if number == signal.SIGTERM else -number)
            self.assertNotIn(socket, self.abstract_names(), number)

    def test_the_report_is_written_whatever_ends_a_server(self):
        self.addCleanup(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_DFL))
        out = f"{self.folder}/out"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            with open(out, "w", encoding="utf-8") as file:
                server = subprocess.Popen([harness.TESTRPC, "--server", self.uri], stdin=subprocess.DEVNULL,
                                          stdout=file, stderr=subprocess.DEVNULL)
            self.addCleanup(server.kill)
            log = harness.Process("-c", "+0", "-f", out, program="tail")
            self.addCleanup(log.kill)
            log.wait_for_line("listening on")
            server.send_signal(number)
            self.assertEqual(server.wait(harness.PATIENCE), -number if number == signal.SIGPIPE else 0)
            with open(out, encoding="utf-8") as file:
                self.assertIn("pools whole: yes", file.read(), number)

    def test_server_of_self_dies_with_it(self):
        process = self.start("--self", "--engine", "null", "--duration", "600")
        process.wait_for_line("RPC/s")
        child = self.children(process.pid)[0]
        handle = os.pidfd_open(child)
        self.addCleanup(os.close, handle)
        process.send(signal.SIGKILL)
        process.wait()
        # The descriptor becomes readable when the process has ended.
        self.assertTrue(select.select([handle], [], [], harness.PATIENCE)[0])

    def test_figures_so_far(self):
        server = self.start_server("--idle", "adaptive")
        client = self.start("--client", self.uri, "--engine", "null", "--duration", "600", "--rate", "100",
                            "--json", self.json_path)
        client.wait_for_line("RPC/s")
        server.send(signal.SIGUSR1)
        self.assertRegex(server.wait_for_line("served"), r"served [1-9]\d* calls on 1 connections")
        server.wait_for_line("so far; the server goes on, with 1 connections")
        client.send(signal.SIGUSR1)
        client.wait_for_line("the last run is not over")
        client.wait_for_line("RPC/s")
        client.send(signal.SIGINT)
        self.assert_all_right(client)
        self.stop_server(server)

    def test_a_server_without_a_terminal_reloads(self):
        # A new session has no terminal; if there is one, SIGHUP means the terminal's end.
        self.addCleanup(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_DFL))
        for arguments in ([], ["--poll-cpus", min(os.sched_getaffinity(0)), "--idle", "adaptive"]):
            server = self.start("--wait", harness.TESTRPC, "--server", self.uri, *arguments, program="setsid")
            server.wait_for_line("listening on")
            pid = self.children(server.pid)[0] if self.children(server.pid) else server.pid
            os.kill(pid, signal.SIGHUP)
            server.wait_for_line("so far; the server goes on")
            os.kill(pid, signal.SIGTERM)
            self.assert_status(server, 0)

    def children(self, pid):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]


harness.main()
