#!/usr/bin/env python3
"""Counts at the servers how evenly testrpc's open loops spread their calls over connections and servers.

  perf/open_loops.py build/apps/testrpc/testrpc [--rows RATE:CONNECTIONS:SECONDS,...] [--driver iwarp|shm] [--delay MS]

Each row is a client with connections to two servers (one, if it has a single connection), whose counters of each
connection are read when the client has been stopped after that many seconds. The last column is how far the
connections with the fewest and with the most calls are apart, of their mean. Exit status 1: a connection was lost, or
these are apart by more than a tenth, where there were 100 calls and more on each.

--delay puts a proxy before each server, whose round trip takes that many milliseconds: one for the handshake of TCP,
and half of one for what either end sends.
"""
import argparse
import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time

# At least 100 calls are due on each connection, unless that would take too long.
ROWS = ("20:1:6,20:2:12,200:16:10,1000:16:3,1000:100:12,10000:100:3,10000:1000:12,100000:1:3,100000:16:3,"
        "100000:100:3,100000:1000:4")


class Process:
    def __init__(self, *arguments, **options):
        self.process = subprocess.Popen(list(map(str, arguments)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, **options)
        self.seen = []

    def line(self, text):
        for line in self.process.stdout:
            self.seen.append(line)
            if text in line:
                return line
        raise SystemExit(f"no line with {text}:\n{''.join(self.seen)}")


class Server(Process):
    def __init__(self, testrpc, driver, number):
        prefix = f"rrdk-open-loops-{os.getpid()}-{number}"
        uri = "iwarp://127.0.0.1:0?silence=600" if driver == "iwarp" else f"shm:@{prefix}"
        super().__init__(testrpc, "--telemetry", f"--file-prefix={prefix}", "--", "--server", uri, "--memory", "512M")
        self.uri = re.search(r"listening on (\S+)", self.line("listening on"))[1]
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(f"/var/run/dpdk/{prefix}/dpdk_telemetry.v2")
        self.socket.recv(1 << 16)

    def ask(self, command):
        self.socket.send(command.encode())
        return json.loads(self.socket.recv(1 << 16))[command.split(",")[0]]

    def calls(self):
        """How many calls each connection has made, by its id."""
        ids, first = [], 0
        while first is not None:
            page = self.ask(f"/rrdk/connections,testrpc,{first}")
            ids += page["ids"]
            first = page.get("next")
        return {number: self.ask(f"/rrdk/connection,testrpc,{number}")["calls"] for number in ids}


async def forward(reader, writer, seconds):
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 16):
        loop.call_later(seconds, writer.write, data)
    loop.call_later(seconds, writer.close)


async def delay_all(port, trip):
    async def serve(reader, writer):
        await asyncio.sleep(trip)
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(forward(reader, there[1], trip / 2), forward(there[0], writer, trip / 2))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096)
    print("iwarp://127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def run(testrpc, driver, delay, rate, connections, seconds):
    servers = [Server(testrpc, driver, number) for number in range(min(connections, 2))]
    uris, proxies = [server.uri for server in servers], []
    if delay:
        ports = [uri.rsplit(":", 1)[1] for uri in uris]
        proxies = [Process(sys.executable, __file__, "--proxy", port, "--delay", delay) for port in ports]
        uris = [proxy.line("iwarp:").strip() for proxy in proxies]
    client = Process(testrpc, "--client", ",".join(uris), "--engine", "null", "--connections", connections, "--rate", rate,
                     "--duration", 100000, "--warmup", 0.001, "--memory", f"{256 + connections}M")
    client.line("RPC/s")
    time.sleep(seconds)
    client.process.send_signal(signal.SIGSTOP)
    before, calls = None, [server.calls() for server in servers]
    while calls != before:
        before, calls = calls, [server.calls() for server in servers]
    client.process.kill()
    client.process.communicate()
    for process in servers + proxies:
        process.process.terminate()
        process.process.wait()
    made = [calls for of_server in calls for calls in of_server.values()]
    mean = sum(made) / len(made)
    apart = (max(made) - min(made)) / mean
    up = re.search(r"connections in (\S+ s)", "".join(client.seen))
    print(f"{rate:>7,} {connections:>11,} {up[1] if up else '-':>9} {mean:>10,.0f} {min(made):>7,} {max(made):>7,} "
          f"{' + '.join(f'{sum(of_server.values()):,}' for of_server in calls):>21} {100 * apart:>7.1f} %"
          f"{'' if len(made) == connections else f'  {connections - len(made)} connections were lost'}", flush=True)
    return len(made) == connections and (mean < 100 or apart <= 0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("testrpc", nargs="?")
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--driver", choices=["iwarp", "shm"], default="iwarp")
    parser.add_argument("--delay", type=float, default=0, metavar="MS")
    parser.add_argument("--proxy", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if chosen.proxy:
        asyncio.run(delay_all(chosen.proxy, chosen.delay / 1000))
    print("calls/s connections all up in   on each  fewest    most        of each server     apart", flush=True)
    good = [run(chosen.testrpc, chosen.driver, chosen.delay, *map(int, row.split(":"))) for row in chosen.rows.split(",")]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
