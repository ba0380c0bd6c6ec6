#!/usr/bin/env python3
"""testrpc --server as a service: its messages to the service manager, as systemd's sd_notify(3) defines them."""
import os
import signal
import socket

import testrpc_harness as harness


class Service(harness.Case):
    def setUp(self):
        super().setUp()
        if "RRDK_SYSTEMD" not in os.environ:
            self.skipTest("built without libsystemd: apt-get install libsystemd-dev")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.bind(os.path.join(self.folder, "notify.sock"))
        self.socket.settimeout(harness.PATIENCE)
        os.environ["NOTIFY_SOCKET"] = self.socket.getsockname()
        self.addCleanup(os.environ.pop, "NOTIFY_SOCKET")

    def told(self):
        return self.socket.recv(4096).decode().split("\n")

    def test_ready_when_it_listens_and_stopping_when_told_to(self):
        server = self.start_server()
        self.assertIn("READY=1", self.told())
        server.send(signal.SIGTERM)
        self.assertIn("STOPPING=1", self.told())
        self.assertEqual(server.wait(), 0, server.describe())

    def assert_beats(self, *arguments):
        os.environ["WATCHDOG_USEC"] = "200000"
        self.addCleanup(os.environ.pop, "WATCHDOG_USEC")
        server = self.start_server(*arguments)
        self.assertIn("READY=1", self.told())
        for _ in range(3):
            self.assertEqual(self.told(), ["WATCHDOG=1"])
        server.send(signal.SIGTERM)
        self.assertEqual(server.wait(), 0, server.describe())

    def test_watchdog_of_the_main_thread(self):
        self.assert_beats("--idle", "adaptive")

    def test_watchdog_of_poll_cores(self):
        self.assert_beats("--idle", "adaptive", "--poll-cpus", min(os.sched_getaffinity(0)))


if __name__ == "__main__":
    harness.main()
