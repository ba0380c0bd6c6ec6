#!/usr/bin/env python3
"""The module rrdk with Kerberos: a client of testrpc's server, and both ends. Runs in the realm of test/gss/realm.py."""
import os
import subprocess
import sys

import python_harness as harness
import rrdk
from python_harness import ECHO, PROGRAM
from rrdk import Acceptance, AuthStat, CallError, CallSecurity, ErrorCode, Protection


class Kerberos(harness.World):
    def echoes(self, call):
        call.begin(PROGRAM, ECHO, expect_reply=4).put_opaque(b"four")
        results = call.wait()
        self.assertEqual(results.get_opaque(), b"four")
        results.end()

    def assert_denied(self, call):
        with self.assertRaises(CallError) as raised:
            self.echoes(call)
        self.assertEqual(raised.exception.status, rrdk.CallStatus.AUTH_ERROR)
        self.assertEqual(raised.exception.auth_stat, AuthStat.TOOWEAK)

    def test_a_context_is_a_credential(self):
        server = self.start_server("--sec", "krb5p")
        self.begin()
        client = rrdk.Client(self.runtime)
        connection = client.connect(self.uri)
        call = rrdk.Call(connection)
        self.assert_denied(call)
        alice = connection.establish_context(PROGRAM, "nfs@localhost", Protection.PRIVACY)
        connection.set_credential(alice)
        self.echoes(call)
        connection.set_credential(None)
        self.assert_denied(call)
        call.set_credential(alice)
        self.echoes(call)
        client.set_credential(alice)  # for later connections
        del alice
        with client.connect(self.uri) as other:
            self.echoes(rrdk.Call(other))
        weak = connection.establish_context(PROGRAM, "nfs@localhost", Protection.NONE, principal="alice")
        call.set_credential(weak)
        self.assert_denied(call)
        del call, weak
        self.end()
        self.stop_server(server)

    def test_errors_have_their_codes(self):
        server = self.start_server("--sec", "krb5p")
        self.begin()
        with rrdk.Client(self.runtime) as client, client.connect(self.uri) as connection:
            for target, options, code in (("nfs@elsewhere", {}, ErrorCode.NOT_FOUND),
                                          ("other@localhost", {}, ErrorCode.REFUSED),
                                          ("nfs@localhost", {"principal": "carol"}, ErrorCode.NOT_FOUND),
                                          ("nfs@localhost", {"protection": 4}, ErrorCode.INVALID_ARGUMENT)):
                with self.subTest(target=target, options=options), self.assertRaises(rrdk.Error) as raised:
                    connection.establish_context(PROGRAM, target, **options)
                self.assertEqual(raised.exception.code, code)
            with self.assertRaises(TypeError):
                connection.establish_context(PROGRAM, None)
            with self.assertRaises(TypeError):
                connection.set_credential("alice")
        self.end()
        self.stop_server(server)


class Acceptor(harness.Both):
    """A server in Python that demands krb5i or better."""

    def note(self, call):
        self.security = call.security
        call.args.end()
        call.reply()

    def start_secured(self, **options):
        self.acceptor = rrdk.GssAcceptor("nfs@localhost", **options)
        self.addCleanup(self.acceptor.close)
        self.begin()
        self.security = None
        self.program = rrdk.Program(0x20001234, 1, "test", [
            rrdk.Procedure(1, "NAME", self.note),
            rrdk.Procedure(2, "OPEN", self.note, accepts=Acceptance.NONE | Acceptance.SYS),
            rrdk.Procedure(3, "SECRET", self.note, accepts=Acceptance.PRIVACY),
        ], accepts=Acceptance.INTEGRITY | Acceptance.PRIVACY)
        self.server, self.bound = self.serve("shm", self.program, gss=self.acceptor)
        self.connection = rrdk.Client(self.runtime).connect(self.bound)
        self.call = rrdk.Call(self.connection)

    def assert_told(self, number, *security):
        self.security = None
        self.answer(number)
        self.assertEqual(self.security, CallSecurity(*security))

    def assert_denied(self, *numbers):
        for number in numbers:
            self.security = None
            self.assertEqual(self.assert_status(rrdk.CallStatus.AUTH_ERROR, number).auth_stat, AuthStat.TOOWEAK)
            self.assertIsNone(self.security)

    def use(self, protection):
        self.connection.set_credential(self.connection.establish_context(self.program, "nfs@localhost", protection))

    def test_a_server_demands_kerberos_and_is_told_who_calls(self):
        self.start_secured(tcp="127.0.0.1:0")
        alice = f"alice@{os.environ['RRDK_TEST_REALM']}"
        self.assert_denied(1, 3)
        self.assert_told(2, 0, Protection.NONE, "")
        self.connection.set_credential(rrdk.Credential(rrdk.AuthSys(0, 0)))
        self.assert_denied(1, 3)
        self.assert_told(2, 1, Protection.NONE, "")
        self.use(Protection.NONE)
        self.assert_denied(1, 2, 3)
        self.use(Protection.INTEGRITY)
        self.assert_told(1, 6, Protection.INTEGRITY, alice)
        self.assert_denied(2, 3)
        self.use(Protection.PRIVACY)
        self.assert_told(1, 6, Protection.PRIVACY, alice)
        self.assert_told(3, 6, Protection.PRIVACY, alice)
        stats = self.acceptor.stats()
        self.assertEqual(stats.pop("contexts") + stats.pop("destroyed"), 3)
        self.assertEqual(stats, {"established": 3, "refused": 0, "expired": 0, "evicted": 0, "tcp_refused": 0})
        self.assertNotEqual(self.acceptor.tcp_port, 0)

    def test_security_is_not_shown_after_the_answer(self):
        self.start_secured()
        kept = []
        self.program.by_number[2] = self.program.by_number[2]._replace(
            handler=lambda call: (kept.append(call), call.reply()))
        self.answer(2)
        with self.assertRaises(rrdk.ClosedError):
            kept[0].security

    def test_an_acceptor_is_closed_after_its_servers(self):
        self.start_secured()
        self.acceptor.close()
        self.assertTrue(self.server.closed)
        with self.assertRaises(rrdk.ClosedError):
            rrdk.Server(self.runtime, gss=self.acceptor)
        with rrdk.GssAcceptor() as any_service, rrdk.Server(self.runtime, gss=any_service) as server:
            self.assertEqual(any_service.tcp_port, 0)
            server.close()
            self.assertFalse(any_service.closed)

    def test_wrong_options_of_an_acceptor(self):
        for options, code in (({"service": "other@localhost"}, ErrorCode.NOT_FOUND),
                              ({"key_table": "/nonexistent/keys"}, ErrorCode.NOT_FOUND),
                              ({"tcp": "localhost:1"}, ErrorCode.INVALID_ARGUMENT),
                              ({"max_contexts": 0}, ErrorCode.INVALID_ARGUMENT),
                              ({"max_protected_bytes": 1023}, ErrorCode.INVALID_ARGUMENT)):
            with self.subTest(options=options), self.assertRaises(rrdk.Error) as raised:
                rrdk.GssAcceptor(**options)
            self.assertEqual(raised.exception.code, code)
        for options in ({"service": 5}, {"max_contexts": "many"}, {"credits": 3}):
            with self.subTest(options=options), self.assertRaises(TypeError):
                rrdk.GssAcceptor(**options)
        self.begin()
        with self.assertRaises(TypeError):
            rrdk.Server(self.runtime, gss="nfs@localhost")
        with self.assertRaises(rrdk.Error) as raised:
            rrdk.Program(0x20001234, 1, "test", [], accepts=32)
        self.assertEqual(raised.exception.code, ErrorCode.UNSUPPORTED)

    def test_an_acceptor_that_is_left_is_closed_at_the_end(self):
        text = "\n".join(["import rrdk", "acceptor = rrdk.GssAcceptor('nfs@localhost')",
                          "runtime = rrdk.Runtime(rrdk.Memory(bytes=64 << 20, hugepages=rrdk.Hugepages.NEVER))",
                          "server = rrdk.Server(runtime, gss=acceptor)", "print(acceptor.tcp_port)"])
        done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", text], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(harness.ROOT / "python")))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "0\n", ""))


if __name__ == "__main__":
    harness.main()
