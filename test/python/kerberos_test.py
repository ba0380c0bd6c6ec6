#!/usr/bin/env python3
"""The module rrdk with Kerberos: a client of testrpc's server. Runs in the realm of test/gss/realm.py."""
import python_harness as harness
import rrdk
from python_harness import ECHO, PROGRAM
from rrdk import AuthStat, CallError, ErrorCode, Protection


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


if __name__ == "__main__":
    harness.main()
