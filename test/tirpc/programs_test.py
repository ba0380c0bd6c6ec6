#!/usr/bin/env python3
"""Programs of rpcgen's stubs, each in a process of its own, against each other and against testrpc.

Usage: programs_test.py PATH_OF_TESTRPC [CASE...], with RRDK_TIRPC_PROGRAMS naming their folders.
"""
import os
import signal
import socket
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "apps"))
import testrpc_harness as harness  # noqa: E402

PROGRAMS = os.environ.get("RRDK_TIRPC_PROGRAMS", ".").split(":")
EXAMPLE = os.path.join(HERE, "..", "..", "doc", "examples", "tirpc")


class Programs(harness.Case):
    def setUp(self):
        super().setUp()
        os.environ["RRDK_LOG"] = "warning"
        self.bind("")

    def bind(self, file):
        if file:
            os.environ["RRDK_TIRPC_BINDING"] = file
        else:
            os.environ.pop("RRDK_TIRPC_BINDING", None)

    def path_of(self, name):
        paths = [os.path.join(folder, name) for folder in PROGRAMS]
        return next(path for path in paths if os.path.exists(path))

    def program(self, name, *arguments):
        return self.start(*arguments, program=self.path_of(name))

    def run_program(self, name, *arguments):
        process = self.program(name, *arguments)
        process.wait()
        return process

    def addresses(self, server, line):
        """The two addresses that it prints in lines like that."""
        return [server.wait_for_line(line).split()[-1] for _ in range(2)]

    def stop(self, server):
        server.send(signal.SIGTERM)
        self.assert_status(server, 0)


class PerfProgram(Programs):
    """perf.x: what testrpc speaks."""

    def check_stub_client(self, binding):
        self.bind(binding)
        for uri in (self.uri, "iwarp://127.0.0.1:0"):
            server = self.start("--server", uri)
            address = server.wait_for_line("listening on").split()[-1]
            self.assert_status(self.run_program("perf_client", address), 0)
            self.stop_server(server)

    def check_stub_server(self, binding):
        self.bind(binding)
        server = self.program("perf_server", self.uri, "iwarp://127.0.0.1:0")
        for address in self.addresses(server, "listening on"):
            client = self.run_testrpc(
                "--client", address, "--engine", "null,echo,read,write,sandwich,read2", "--size",
                "1,1000,64K,300001", "--window", "4", "--count", "10", "--verify", "--json", self.json_path)
            self.assert_all_right(client, 10)
            self.assert_status(self.run_program("perf_client", address), 0)
        self.stop(server)

    def test_stub_client_of_testrpc(self):
        self.check_stub_client(os.path.join(HERE, "perf.bind"))

    def test_stub_client_of_testrpc_without_a_binding(self):
        self.check_stub_client("")

    def test_testrpc_of_a_stub_server(self):
        self.check_stub_server(os.path.join(HERE, "perf.bind"))


class KvProgram(Programs):
    """kv.x, the example of doc/porting-rpcgen.md."""

    def setUp(self):
        super().setUp()
        self.bind(os.path.join(EXAMPLE, "kv.bind"))

    def ask(self, *arguments):
        client = self.run_program("kv_client", *arguments)
        return client.process.returncode, client.output

    def test_serves_several_addresses(self):
        server = self.program("kv_server", self.uri, "iwarp://127.0.0.1:0")
        shm, iwarp = self.addresses(server, "serving at")
        self.assertEqual(self.ask(shm, "put", "greeting", "hello"), (0, ""))
        self.assertEqual(self.ask(iwarp, "get", "greeting"), (0, "hello"))
        self.assertEqual(self.ask(iwarp, "put", "large", "x" * 100000), (0, ""))
        self.assertEqual(self.ask(shm, "get", "large"), (0, "x" * 100000))
        self.assertEqual(self.ask(shm, "remove", "large"), (0, ""))
        self.assertEqual(self.ask(shm, "list"), (0, "greeting: 5 bytes"))
        self.assertEqual(self.ask(shm, "get", "large")[0], 1)
        self.stop(server)

    def start_loop(self):
        server = self.start(self.uri, "iwarp://127.0.0.1:0", program=self.path_of("loop_server"),
                            stdin=subprocess.PIPE)
        return server, [server.wait_for_line("serving at").split()[-1] for _ in range(3)]

    def tell(self, server, line):
        server.process.stdin.write(line + "\n")
        server.process.stdin.flush()

    def null_over_tcp(self, address):
        """Whether libtirpc's transport, which the same loop serves, answers procedure 0."""
        call = struct.pack(">11I", 0x80000028, 77, 0, 2, 0x20004b56, 1, 0, 0, 0, 0, 0)
        with socket.create_connection(("127.0.0.1", int(address.split(":")[1])), harness.PATIENCE) as peer:
            peer.sendall(call)
            return peer.recv(64) == struct.pack(">7I", 0x80000018, 77, 1, 0, 0, 0, 0)

    def test_a_loop_of_its_own_serves_beside_what_else_it_has(self):
        server, (tcp, shm, iwarp) = self.start_loop()
        self.assertEqual(self.ask(shm, "put", "greeting", "hello"), (0, ""))
        self.tell(server, "ticks")
        server.wait_for_line("ticked")
        self.assertEqual(self.ask(iwarp, "get", "greeting"), (0, "hello"))
        self.assertTrue(self.null_over_tcp(tcp))
        self.assertEqual(self.ask(shm, "list"), (0, "greeting: 5 bytes"))
        self.tell(server, "ticks")
        server.wait_for_line("ticked")
        self.tell(server, "end")
        self.assert_status(server, 0)
        self.assertEqual(server.lines[-1], "rrdk_svc_exit() was called")

    def test_clients_connect_while_a_loop_of_its_own_does_something_else(self):
        server, (_, shm, iwarp) = self.start_loop()
        self.tell(server, "hold")
        server.wait_for_line("holding")
        waiting = [self.program("ping_client", address) for address in (shm, iwarp)]
        for client in waiting:
            client.wait_for_line("answered, calling")
        self.tell(server, "go on")
        for client in waiting:
            self.assert_status(client, 0)
        self.tell(server, "end")
        self.assert_status(server, 0)

    def test_a_client_hears_that_its_server_was_killed(self):
        server = self.start("--server", self.uri)
        server.wait_for_line("listening on")
        # A read that is held back for ten seconds.
        self.bind(os.path.join(HERE, "perf.bind"))
        client = self.program("slow_client", self.uri)
        client.wait_for_line("calling")
        server.send(signal.SIGKILL)
        self.assert_status(client, 0)
        self.assertIn("Unable to receive; errno = Connection reset by peer", client.output)

    def test_a_binding_file_that_is_wrong(self):
        self.bind("/nowhere/at.all")
        self.assertEqual(self.ask(self.uri, "list")[0], 1)
        server = self.run_program("kv_server", self.uri)
        self.assert_status(server, 1)
        self.assertIn("/nowhere/at.all", server.output)

    def test_without_a_server(self):
        status, output = self.ask(self.uri, "list")
        self.assertEqual(status, 1)
        self.assertIn("kv_client: RPC: ", output)


if __name__ == "__main__":
    harness.main()
