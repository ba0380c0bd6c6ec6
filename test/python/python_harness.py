"""Shared by the tests of the module rrdk: where it is, reporting as GoogleTest does, and the program of testrpc
(apps/testrpc/perf_program.h) in Python, both ends.

RRDK_LIBRARY is the library. A test's first argument is what it needs, usually the path of testrpc.
"""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test/apps")]

import rrdk  # noqa: E402  (found by the paths above)
from rrdk import _client, _runtime, _serving  # noqa: E402
from testrpc_harness import PATIENCE, Case, main  # noqa: E402,F401

NULL, ECHO, READ, WRITE, SANDWICH, READ2, CALLBACK = range(7)
VERIFY = 1
LARGEST = 4 << 20
_BYTES = bytes((i * 167 + 13) & 255 for i in range(256))


def pattern(offset, length):
    """The byte at offset x is (x ^ x >> 8 ^ x >> 16) * 167 + 13."""
    data = bytearray()
    for block in range(offset >> 8, (offset + length + 255) >> 8):
        mask = (block ^ block >> 8) & 255
        data += bytes(_BYTES[i ^ mask] for i in range(256))
    return bytes(data[offset & 255:(offset & 255) + length])


def _crc_table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
        yield byte


_CRC = list(_crc_table())


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 255]
    return crc ^ 0xffffffff


def crc_if(flags, data):
    return crc32c(data) if flags & VERIFY else 0


# ---- The server's handlers ----

def echo(call):
    data = call.args.borrow_item()
    call.args.end()
    call.results.put_opaque(data)
    call.reply()


def put_read(results, call, offset, count, flags):
    """Writes an item of `count` bytes; returns its checksum."""
    buffer = call.result_buffer(count)
    data = pattern(offset, count)
    buffer.view()[:count] = data
    results.append((buffer, count))
    return crc_if(flags, data)


def read(call):
    offset, count, flags, delay_us = call.args.unpack("QIII")
    call.args.end()
    items = []
    crc = put_read(items, call, offset, count, flags)
    call.results.pack("II", 0, crc).put_buffer(*items[0])
    if delay_us:
        call.reply_after(delay_us / 1e6)
    else:
        call.reply()


def write(call):
    offset, flags, delay_us = call.args.unpack("QII")
    data = call.args.borrow_item(LARGEST)
    call.args.end()
    if flags & VERIFY and data != pattern(offset, len(data)):
        raise ValueError("other data than the pattern was written")
    call.results.pack("III", 0, len(data), crc_if(flags, data))
    call.reply()


def sandwich(call):
    head = call.args.get_opaque()
    flags = call.args.get_u32()
    data = call.args.get_item(LARGEST)
    tail = call.args.get_opaque()
    call.args.end()
    call.results.pack("IIIII", 0, crc_if(flags, head), crc_if(flags, data), crc_if(flags, tail), len(data))
    call.reply()


def read2(call):
    offset, count1, count2, flags = call.args.unpack("QIII")
    call.args.end()
    items = []
    crc1 = put_read(items, call, offset, count1, flags)
    crc2 = put_read(items, call, offset + count1, count2, flags)
    call.results.put_u32(0).put_buffer(*items[0]).put_u32(crc1).put_buffer(*items[1]).put_u32(crc2)
    call.reply()


class CallingBack:
    """Makes `count` calls to the client, one after another, before it answers."""

    def __init__(self, call):
        self.left, self.size = call.args.unpack("II")
        call.args.end()
        self.answered = 0
        self.answer = call
        self.client = call.backward_client()
        self.call = rrdk.Call(self.client)
        self.next()

    def next(self):
        if self.left == 0:
            self.client.close()
            self.answer.results.put_u32(self.answered)
            self.answer.reply()
            return
        self.left -= 1
        self.call.begin(BACKWARD, 1, expect_reply=self.size).put_opaque(pattern(self.left, self.size))
        self.call.submit(self.done)

    def done(self, call):
        self.answered += call.results.get_opaque() == pattern(self.left, self.size)
        self.next()


PROGRAM = rrdk.Program(0x20005666, 1, "perf", [
    rrdk.Procedure(NULL, "NULL"),
    rrdk.Procedure(ECHO, "ECHO", echo, fixed_results=4),
    rrdk.Procedure(READ, "READ", read, eligible_results=1, fixed_results=12),
    rrdk.Procedure(WRITE, "WRITE", write, eligible_args=1, fixed_results=12),
    rrdk.Procedure(SANDWICH, "SANDWICH", sandwich, eligible_args=1, fixed_results=20),
    rrdk.Procedure(READ2, "READ2", read2, eligible_results=2, fixed_results=20),
    rrdk.Procedure(CALLBACK, "CALLBACK", CallingBack, fixed_results=4)])
BACKWARD = rrdk.Program(0x20005667, 1, "perf-cb", [
    rrdk.Procedure(NULL, "NULL"), rrdk.Procedure(1, "ECHO", echo, fixed_results=4)])


class World(Case):
    """A memory and a runtime, which are whole at the end."""
    drivers = ("shm", "iwarp")

    def begin(self, **options):
        self.memory = rrdk.Memory(bytes=128 << 20)
        self.runtime = rrdk.Runtime(self.memory, **options)
        self.addCleanup(self.end)

    def end(self):
        if not self.memory.closed:
            self.runtime.close()
            self.assertTrue(self.memory.whole)
            self.memory.close()
            self.assertEqual((_client._in_flight, _runtime._lent, _serving._services), ({}, {}, {}))

    def address(self, driver):
        return self.uri if driver == "shm" else "iwarp://127.0.0.1:0"

    def serve(self, driver, *programs, **options):
        """Starts a server in this process; returns it and its URI."""
        server = rrdk.Server(self.runtime, **options)
        for program in programs:
            server.add_service(program)
        return server, server.listen(self.address(driver))

    def start_testrpc(self, driver, *arguments):
        """Starts testrpc's server; returns it and its URI."""
        server = self.start("--server", self.address(driver), "--memory", "128M", "--idle", "adaptive", *arguments)
        return server, server.wait_for_line("listening on").split("listening on ")[1].split()[0]

    def until(self, condition, what="it"):
        self.assertTrue(self.runtime.poll_until(condition, PATIENCE), f"{what} does not happen")


def procedure(handler, number=1, **fields):
    return rrdk.Procedure(number, f"P{number}", handler, **fields)


class Both(World):
    """A server and a client in one process, whose program has the procedures that a test needs."""
    driver = "shm"

    def start_both(self, *procedures, server_options=(), client_options=(), **options):
        if "memory" not in self.__dict__:
            self.begin(**options)
        self.program = rrdk.Program(0x20001234, 1, "test", procedures)
        self.server, self.bound = self.serve(self.driver, self.program, **dict(server_options))
        self.client = rrdk.Client(self.runtime, **dict(client_options))
        self.connection = self.client.connect(self.bound)
        self.call = rrdk.Call(self.connection)

    def answer(self, number=1, data=b"", **options):
        self.call.begin(self.program, number, **options).put_fixed(data)
        return self.call.wait()

    def assert_status(self, status, number=1, data=b"", **options):
        with self.assertRaises(rrdk.CallError) as caught:
            self.answer(number, data, **options)
        self.assertEqual(caught.exception.status, status)
        return caught.exception


def serve_until_interrupted(uri):
    """The server's process: serves PROGRAM until Ctrl-C, and says whether anything was left over."""
    with rrdk.Memory(bytes=128 << 20) as memory:
        with rrdk.Runtime(memory) as runtime, rrdk.Server(runtime, backward_credits=4) as server:
            server.add_service(PROGRAM)
            print("listening on", server.listen(uri), flush=True)
            try:
                runtime.poll_until(lambda: False)
            except KeyboardInterrupt:
                server.drain(1000)
        print("pools whole:", "yes" if memory.whole else "no", flush=True)


if __name__ == "__main__":
    serve_until_interrupted(*sys.argv[1:])
