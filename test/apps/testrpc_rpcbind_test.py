#!/usr/bin/env python3
"""testrpc --rpcbind with the system's rpcbind, in namespaces of its own: servers that a client can
reach are found, and what is listed is what is served. Needs root and rpcbind."""
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import testrpc_harness as harness

INSIDE = "RRDK_IN_NAMESPACES"
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
CALL = ["--engine", "null", "--count", 3]
# A reply of version 4: a record mark, the header, AUTH_NONE twice.
NULL_CALL = struct.pack(">11I", 1 << 31 | 40, 1, 0, 2, 100000, 4, 0, 0, 0, 0, 0)
NAMESPACES = ["unshare", "-n", "-m", "-p", "-f", "--mount-proc"]


def missing():
    """Why this cannot run here, or an empty text."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if shutil.which("rpcbind", path=PATH) is None:
        return "no rpcbind is installed"
    if not all(shutil.which(name, path=PATH) for name in ("unshare", "ip", "mount")):
        return "unshare, ip or mount is missing"
    if subprocess.run([*NAMESPACES, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        return "namespaces cannot be made here"
    return ""


def enter_namespaces():
    os.environ[INSIDE] = "yes"
    os.execvp("unshare", [*NAMESPACES, sys.executable, *sys.argv])


def arrange_namespaces():
    """Loopback, an empty /run, and a name with addresses of both families."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write("127.0.0.1 both.example\n::1 both.example\n")
        file.flush()
        for words in (["ip", "link", "set", "lo", "up"], ["mount", "-t", "tmpfs", "none", "/run"],
                      ["mount", "--bind", file.name, "/etc/hosts"]):
            subprocess.run(words, check=True, env={**os.environ, "PATH": PATH})


WHY_NOT = "" if INSIDE in os.environ else missing()
if INSIDE not in os.environ and not WHY_NOT:
    enter_namespaces()
if INSIDE in os.environ:
    arrange_namespaces()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Rpcbind(harness.Case):
    def setUp(self):
        super().setUp()
        self.rpcbind = None
        self.start_rpcbind()

    def start_rpcbind(self):
        self.rpcbind = self.start("-f", program=shutil.which("rpcbind", path=PATH))
        for _ in range(harness.PATIENCE * 100):
            try:
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect("/run/rpcbind.sock")
                    client.sendall(NULL_CALL)
                    if client.recv(4):
                        return
            except OSError:
                time.sleep(0.01)
            if self.rpcbind.process.poll() is not None:
                self.skipTest(f"rpcbind does not run here: {self.rpcbind.describe()}")
        self.fail(self.rpcbind.describe())

    def serve(self, uri):
        server = self.start("--server", uri, "--rpcbind", "--idle", "adaptive")
        server.wait_for_line("listening on")
        return server

    def end(self, server):
        server.send(signal.SIGTERM)
        self.assert_status(server, 0)

    def ask(self, uri):
        return self.run_testrpc("--client", uri, "--rpcbind", *CALL)

    def assert_found(self, *uris):
        for uri in uris:
            self.assert_status(self.ask(uri), 0)

    def assert_not_listed(self, uri):
        self.assert_fails_with_one_line(self.ask(uri), "does not list")

    def test_a_server_of_one_family_is_found_by_a_name_of_both(self):
        for uri in ("iwarp://127.0.0.1:0", "iwarp://[::1]:0"):
            server = self.serve(uri)
            self.assert_found("iwarp://both.example", uri.removesuffix(":0"))
            self.end(server)

    def test_a_server_at_all_addresses_is_found_over_both(self):
        server = self.serve("iwarp://[::]:0")
        self.assert_found("iwarp://127.0.0.1", "iwarp://[::1]")
        self.end(server)
        self.assert_not_listed("iwarp://127.0.0.1")
        self.assert_not_listed("iwarp://[::1]")

    def test_a_new_server_is_found_when_the_old_one_has_ended(self):
        old = self.serve("iwarp://127.0.0.1:0")
        new = self.serve("iwarp://127.0.0.1:0")
        self.end(old)
        self.assert_found("iwarp://127.0.0.1")
        self.end(new)
        self.assert_not_listed("iwarp://127.0.0.1")

    def test_a_server_is_found_after_a_restart_of_rpcbind(self):
        server = self.serve("iwarp://127.0.0.1:0")
        self.rpcbind.send(signal.SIGTERM)
        self.rpcbind.wait()
        self.start_rpcbind()
        server.wait_for_line("rpcbind had lost the entry")
        self.assert_found("iwarp://127.0.0.1")
        self.end(server)


if __name__ == "__main__":
    harness.main()
