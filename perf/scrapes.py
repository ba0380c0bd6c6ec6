#!/usr/bin/env python3
"""Measures how long a scrape of --metrics takes, of a server that answers calls of many connections all the time:
alone, and beside readers that are slow.

  perf/scrapes.py build/apps/testrpc/testrpc [--connections 1000] [--slow 50] [--scrapes 50]

Half of the slow readers send a byte of their request each second. The others read a byte of their answer each second,
through a buffer of 2 KiB. Each is replaced when the server closes it. Prints the median and the longest of the
scrapes, from connecting to the last byte, and how many calls the server answered meanwhile.
"""
import argparse
import re
import socket
import statistics
import subprocess
import threading
import time

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: %s\r\n\r\n"


class Program:
    def __init__(self, *arguments):
        self.process = subprocess.Popen(list(map(str, arguments)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)

    def line(self, pattern):
        for line in self.process.stdout:
            if found := re.search(pattern, line):
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return found
        raise SystemExit(f"no line with {pattern}")

    def lines(self, *patterns):
        found = {}
        for line in self.process.stdout:
            found.update({pattern: match for pattern in patterns if (match := re.search(pattern, line))})
            if len(found) == len(patterns):
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return [found[pattern][1] for pattern in patterns]
        raise SystemExit(f"no line with each of {patterns}")

    def end(self):
        self.process.terminate()
        self.process.wait()


def scrape(port, encoding):
    """Returns the seconds that it took, and the answer."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        peer.sendall(REQUEST % encoding)
        answer = b"".join(iter(lambda: peer.recv(1 << 20), b""))
    took = time.monotonic() - began
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 ") or len(body) != int(re.search(rb"Content-Length: (\d+)", head)[1]):
        raise SystemExit(f"not a whole answer: {head!r}")
    return took, body


class SlowReader(threading.Thread):
    def __init__(self, port, reads):
        super().__init__(daemon=True)
        self.port, self.reads, self.stopped, self.opened = port, reads, threading.Event(), 0

    def run(self):
        while not self.stopped.is_set():
            try:
                self.be_slow()
            except OSError:
                pass  # closed by the server

    def be_slow(self):
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            peer.connect(("127.0.0.1", self.port))
            self.opened += 1
            if self.reads:
                peer.sendall(REQUEST % b"identity")
                while not self.stopped.wait(1):
                    if not peer.recv(1):
                        return
            for byte in REQUEST:
                if self.stopped.wait(1):
                    return
                peer.sendall(bytes((byte,)))


def measure(name, port, scrapes, encoding):
    def calls():
        text = scrape(port, b"identity")[1]
        return int(re.search(rb'^rrdk_server_calls_received_total\{server="0"\} (\d+)$', text, re.M)[1])

    before, began, times, size = calls(), time.monotonic(), [], 0
    for _ in range(scrapes):
        took, body = scrape(port, encoding)
        times.append(1000 * took)
        size = len(body)
        time.sleep(0.1)
    rate = (calls() - before) / (time.monotonic() - began)
    print(f"{name:<34} {encoding.decode():<9} {size:8,} bytes  median {statistics.median(times):6.1f} ms  "
          f"longest {max(times):6.1f} ms  {rate:9,.0f} calls/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("testrpc")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--slow", type=int, default=50)
    parser.add_argument("--scrapes", type=int, default=50)
    chosen = parser.parse_args()
    server = Program(chosen.testrpc, "--server", "iwarp://127.0.0.1:0", "--metrics", "0", "--memory", "512M")
    port, uri = server.lines(r"metrics at http://127\.0\.0\.1:(\d+)/", r"listening on (\S+)")
    port = int(port)
    client = Program(chosen.testrpc, "--client", uri, "--engine", "null", "--connections", chosen.connections,
                     "--duration", "100000", "--memory", "256M")
    client.line("null")
    for encoding in (b"identity", b"gzip"):
        measure(f"{chosen.connections} busy connections", port, chosen.scrapes, encoding)
    readers = [SlowReader(port, number % 2 == 0) for number in range(chosen.slow)]
    for reader in readers:
        reader.start()
    while not all(reader.opened for reader in readers):
        time.sleep(0.1)
    for encoding in (b"identity", b"gzip"):
        measure(f"the same beside {chosen.slow} slow readers", port, chosen.scrapes, encoding)
    print(f"the slow readers connected {sum(reader.opened for reader in readers)} times")
    for reader in readers:
        reader.stopped.set()
    client.end()
    server.end()


if __name__ == "__main__":
    main()
