#!/usr/bin/env python3
"""Runs the examples as their readers would: a server, and clients in other processes."""

import os
import signal
import subprocess
import sys
import tempfile


def run(client, *arguments):
    done = subprocess.run([client, *arguments], capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout.strip()


def check_memory_disk(program, folder):
    uri = "shm:" + os.path.join(folder, "disk.sock")
    assert run(program, "check", uri)[0] == 1, "a check without a disk must fail"
    assert run(program)[0] == 2
    for where in (uri, "iwarp://127.0.0.1:0"):
        disk = subprocess.Popen([program, "serve", where], stdout=subprocess.PIPE, text=True)
        try:
            address = disk.stdout.readline().split()[-1]
            assert run(program, "check", address) == (0, "16777216 bytes were written and read back")
        finally:
            disk.send_signal(signal.SIGTERM)
            assert disk.wait(timeout=60) == 0


def main(server, echo_client, direct_placement, memory_disk):
    with tempfile.TemporaryDirectory() as folder:
        uri = "shm:" + os.path.join(folder, "echo.sock")
        assert run(echo_client, uri)[0] != 0, "a client without a server must fail"
        process = subprocess.Popen([server, uri], stdout=subprocess.PIPE, text=True)
        try:
            line = process.stdout.readline().strip()
            assert line.startswith("listening on "), line
            assert run(echo_client, uri) == (0, "hello")
            assert run(echo_client, uri, "a longer text") == (0, "a longer text")
            other = "shm:" + os.path.join(folder, "bulk.sock")
            assert run(direct_placement, other, "500000") == (0, "500000 bytes, in place")
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(timeout=60)
        assert status == 0, f"the server's exit status is {status}"
        check_memory_disk(memory_disk, folder)
    print("the examples work")


if __name__ == "__main__":
    main(*sys.argv[1:])
