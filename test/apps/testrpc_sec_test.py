#!/usr/bin/env python3
"""testrpc --sec: calls by AUTH_NONE, AUTH_SYS and Kerberos. Runs in the realm of test/gss/realm.py."""
import os
import re
import socket
import struct

import testrpc_harness as harness

KINDS = ["none", "sys", "krb5", "krb5i", "krb5p"]


def sec(kind):
    """The options of a client of a server whose address has no host."""
    return ["--sec", kind] + (["--target", "nfs@localhost"] if kind.startswith("krb") else [])


class Security(harness.Case):
    def test_each_kind_carries_all_calls_over_both_drivers(self):
        for kind in KINDS:
            for ends in (["--self", *sec(kind)], ["--self=iwarp://localhost:0", "--sec", kind]):
                with self.subTest(ends):
                    process = self.run_testrpc(*ends, "--engine", "null,echo,read,write,sandwich", "--size", "100,64K",
                                               "--window", "4", "--count", "40", "--verify", "--json", self.json_path)
                    self.assertEqual(self.assert_all_right(process, 40)["options"]["auth"], kind)

    def errors_of(self, kind):
        """Why the server refuses calls."""
        self.run_testrpc("--client", self.uri, *sec(kind), "--engine", "null,echo", "--size", "100", "--count", "10",
                         "--json", self.json_path)
        null, echo = self.result()["runs"]
        self.assertEqual(null["errors"], 0, "NULL is for everyone")
        return list(echo["errors_by_reason"])

    def test_a_server_accepts_what_its_list_names(self):
        server = self.start_server("--sec", "sys,krb5i,krb5p")
        for kind in KINDS:
            accepted = kind in ("sys", "krb5i", "krb5p")
            self.assertEqual(self.errors_of(kind), [] if accepted else ["authentication error"], kind)
        self.stop_server(server)
        self.assertRegex(server.output, "flavour that the service does not take +[1-9]")

    def test_a_server_accepts_none_and_sys_by_default(self):
        server = self.start_server()
        self.assertEqual(self.errors_of("none"), [])
        self.assertEqual(self.errors_of("sys"), [])
        refused = self.run_testrpc("--client", self.uri, *sec("krb5"), "--count", "1")
        self.assert_fails_with_one_line(refused, "no security context", "takes no RPCSEC_GSS")
        self.stop_server(server)

    def test_many_connections_share_few_contexts(self):
        server = self.start_server("--sec", "krb5p")
        process = self.run_testrpc("--client", self.uri, *sec("krb5p"), "--connections", "150", "--engine", "echo",
                                   "--size", "100", "--count", "300", "--json", self.json_path)
        self.assert_all_right(process, 300)
        self.stop_server(server)

    def test_says_what_is_missing(self):
        server = self.start_server("--sec", "krb5")
        unknown = self.run_testrpc("--client", self.uri, "--sec", "krb5", "--target", "nfs@elsewhere", "--count", "1")
        self.assert_fails_with_one_line(unknown, "no security context", "nfs@elsewhere")
        wrong = self.run_testrpc("--client", self.uri, "--sec", "krb5", "--target", "other@localhost", "--count", "1")
        self.assert_fails_with_one_line(wrong, "no security context", "refused")
        self.stop_server(server)
        without = self.start("--server", self.uri, "--sec", "krb5",
                             environment={**os.environ, "KRB5_KTNAME": "/nonexistent"})
        self.assert_fails_with_one_line(without, "KRB5_KTNAME", "klist -k")

    def test_contexts_are_made_by_tcp_too(self):
        server = self.start_server("--sec", "krb5i", "--gss-tcp", "127.0.0.1:0")
        port = int(re.search(r"contexts of Kerberos are also made at TCP port (\d+)", server.output)[1])
        with socket.create_connection(("127.0.0.1", port), 60) as tcp:
            # RFC 5531: a last fragment with a call of NULL, which is answered to anyone
            tcp.sendall(struct.pack(">11I", 1 << 31 | 40, 77, 0, 2, 0x20005666, 1, 0, 0, 0, 0, 0))
            with tcp.makefile("rb") as answer:
                self.assertEqual(struct.unpack(">7I", answer.read(28)), (1 << 31 | 24, 77, 1, 0, 0, 0, 0))
        self.assertEqual(self.errors_of("krb5i"), [])
        taken = self.run_testrpc("--server", f"{self.uri}-2", "--sec", "krb5i", "--gss-tcp", f"127.0.0.1:{port}")
        self.assert_fails_with_one_line(taken, f"127.0.0.1:{port}", "in use")
        self.stop_server(server)

    def test_wrong_options_are_refused(self):
        for options, word in ((["--self", "--sec", "krb5,sys"], "several"),
                              (["--self", "--sec", "krb9"], "krb9"),
                              (["--self", "--sec", ""], "''"),
                              (["--self", "--target", "nfs@localhost"], "--target needs --sec"),
                              (["--self", "--sec", "krb5", "--target", "nfs"], "nfs@server.example.org"),
                              (["--server", self.uri, "--target", "nfs@localhost"], "--target"),
                              (["--self", "--sec", "krb5", "--gss-tcp", "127.0.0.1:0"], "--gss-tcp"),
                              (["--server", self.uri, "--gss-tcp", "127.0.0.1:0"], "--gss-tcp needs krb5"),
                              (["--server", self.uri, "--sec", "sys", "--gss-tcp", "[::1]:0"], "--gss-tcp needs"),
                              *((["--server", self.uri, "--sec", "krb5", "--gss-tcp", address], f"'{address}'")
                                for address in ("2049", "localhost:2049", "127.0.0.1", "::1:2049", "0.0.0.0:65536",
                                                "[::]:", ""))):
            with self.subTest(options):
                self.assert_fails_with_one_line(self.run_testrpc(*options), word, status=2)


if __name__ == "__main__":
    harness.main()
