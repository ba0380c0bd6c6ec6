#!/usr/bin/env python3
"""The appliance under everything that its peers do to it: they are not there, stall, break connections, are
killed and come back. In no call of the library does the reactor wait for them, and no append is run twice as
long as the server lives.

Usage: run_test.py APPLIANCE APPLIANCE_IN_C [MOST_US [MOST_WORK_US]]

MOST_US: how long a call may sleep, and how long it may work, at most, unless MOST_WORK_US says that. Peers stall for
STALL_US here, so by default a call that took two thirds of that has waited for one. Shorter times prove nothing: a
loaded machine may take the CPU away from a thread that holds a lock. On a quiet machine with two CPUs the longest
sleep was 0.85 ms, and the longest work 1.9 ms.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

STALL_US = 300_000
most_us = most_work_us = STALL_US * 2 // 3
SECONDS = 100


class Process:
    def __init__(self, program, *arguments):
        self.process = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "RRDK_LOG": "error"})
        self.output = ""

    def line(self):
        line = self.process.stdout.readline()
        self.output += line
        return line.strip()

    def send(self, number):
        self.process.send_signal(number)

    def end(self, status=0, stopped=False):
        """Waits for its end, with this status. The times of a program that was stopped mean nothing."""
        rest, _ = self.process.communicate(timeout=SECONDS)
        self.output += rest
        assert self.process.returncode == status, f"status {self.process.returncode}:\n{self.output}"
        if not stopped:
            assert self.number("asleep for") <= most_us, self.output
            assert self.number("at work for") <= most_work_us, self.output  # polling in a circle is waiting, too
        return self

    def kill(self):
        self.process.kill()
        self.process.communicate(timeout=SECONDS)

    def number(self, words):
        found = re.search(re.escape(words) + r":? (\d+)", self.output)
        assert found, f"'{words}' is not in:\n{self.output}"
        return int(found[1])


class Appliance:
    """A server of one program, and clients of the other."""

    def __init__(self, server, client, folder, where):
        self.program, self.client = server, client
        self.disk = os.path.join(folder, "disk")
        self.where = f"shm:{folder}/socket" if where == "shm" else "iwarp://127.0.0.1:0"
        if os.path.exists(self.disk):
            os.unlink(self.disk)
        self.start()

    def start(self):
        self.server = Process(self.program, "serve", self.disk, self.where)
        line = self.server.line()
        assert line.startswith("listening on "), line
        self.where = line.split()[-1]  # the same again, when it comes back

    def load(self, calls, block=0):
        return Process(self.client, "load", self.where, "4", str(calls), str(block))

    def let_run(self, passes):
        """Waits until the server has run `passes` more appends, which its disk shows."""
        goal = self.appends() + passes
        while self.appends() < goal:
            assert self.server.process.poll() is None, self.server.output
            os.sched_yield()

    def appends(self):
        with open(self.disk, "rb") as disk:
            disk.seek(256 * 65536)
            return int.from_bytes(disk.read(8), sys.byteorder)

    def stop(self, stopped=False):
        self.server.send(signal.SIGTERM)
        return self.server.end(stopped=stopped)


def nobody_there(appliance):
    appliance.stop()
    load = appliance.load(100).end(status=1)
    assert load.number("failed") == 100


def broken_connections(appliance):
    load = appliance.load(8000)
    for _ in range(10):
        appliance.let_run(100)
        appliance.server.send(signal.SIGUSR1)
    load.end()
    server = appliance.stop()
    assert load.number("wrong") == load.number("failed") == 0
    assert load.number("reconnections") >= 10, load.output
    assert server.number("appends run") == load.number("appends"), server.output + load.output


def a_server_that_stalls(appliance):
    load = appliance.load(4000)
    appliance.let_run(100)
    appliance.server.send(signal.SIGSTOP)
    other = appliance.load(4000, block=16)  # its connections are not accepted
    go_on_after(appliance, STALL_US / 1e6)
    load.end()
    other.end()
    assert appliance.stop(stopped=True).number("appends run") == load.number("appends") + other.number("appends")


def go_on_after(appliance, seconds):
    """Lets the stopped server continue after this time."""
    try:
        appliance.server.process.wait(timeout=seconds)
        raise AssertionError("the server has ended")
    except subprocess.TimeoutExpired:
        appliance.server.send(signal.SIGCONT)


def a_server_that_is_killed(appliance):
    load = appliance.load(8000)
    for _ in range(3):
        appliance.let_run(200)
        appliance.server.kill()
        appliance.start()
    load.end()
    assert load.number("reconnections") >= 3 and load.number("wrong") == 0
    # What a killed server ran without an answer it does not know: at most what was in flight.
    surplus = appliance.stop().number("appends run") - load.number("appends")
    assert 0 <= surplus <= 3 * 16, surplus


def a_server_that_drains(appliance):
    load = appliance.load(8000)
    appliance.let_run(200)
    before = appliance.stop().number("appends run")
    appliance.start()
    load.end()
    assert before >= 200 and load.number("failed") == 0
    appliance.stop()


def clients_that_stall_and_die(appliance):
    stalled, killed = appliance.load(10**9, block=16), appliance.load(10**9, block=32)
    appliance.let_run(200)
    stalled.send(signal.SIGSTOP)
    killed.kill()
    load = appliance.load(2000)
    load.end()
    stalled.kill()
    appliance.stop()


SCENARIOS = (nobody_there, broken_connections, a_server_that_stalls, a_server_that_is_killed, a_server_that_drains,
             clients_that_stall_and_die)


def main(in_cpp, in_c):
    with tempfile.TemporaryDirectory() as folder:
        for server, client, where in ((in_cpp, in_c, "shm"), (in_c, in_cpp, "iwarp"), (in_c, in_c, "shm"),
                                      (in_cpp, in_cpp, "iwarp")):
            for scenario in SCENARIOS:
                print(f"{os.path.basename(server)}, {os.path.basename(client)}, {where}: {scenario.__name__}",
                      flush=True)
                appliance = Appliance(server, client, folder, where)
                try:
                    scenario(appliance)
                finally:
                    appliance.server.kill()
    print("the appliance works")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        most_us = int(sys.argv[3])
        most_work_us = int(sys.argv[-1])
    main(*sys.argv[1:3])
