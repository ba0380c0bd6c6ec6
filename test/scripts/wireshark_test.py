#!/usr/bin/env python3
"""scripts/wireshark/rrdk.lua: tshark's output for small frames that are made here, field by field."""
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/wireshark/rrdk.lua"
SECONDS = 60  # for a tshark that goes through a file of a few kilobytes
PERF, PERF_CB, NFS = 0x20005666, 0x20005667, 100003
CLIENT, SERVER = b"\x0a\0\0\1", b"\x0a\0\0\2"
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, WRITE_ONLY, SEND_ONLY_INVALIDATE = 0, 1, 2, 4, 10, 0x17
CALL, REPLY = 0, 1


def words(*values):
    return struct.pack(f">{len(values)}I", *values)


def opaque(data):
    return words(len(data)) + data + bytes(-len(data) % 4)


def ipv4(protocol, source, destination, body):
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0x4000, 64, protocol, 0)
    return bytes(12) + b"\x08\0" + header + source + destination + body


def roce(message, reply=False, opcode=SEND_ONLY, extended=b""):
    source, destination = (SERVER, CLIENT) if reply else (CLIENT, SERVER)
    pad = -len(message) % 4
    transport = struct.pack(">BBHII", opcode, pad << 4, 0xffff, 17 + reply, 1) + extended
    body = transport + message + bytes(pad + 4)
    return ipv4(17, source, destination, struct.pack(">HHHH", 0xc000, 4791, 8 + len(body), 0) + body)


class Iwarp:
    """Frames of one TCP connection, each with one MPA frame (RFC 5044) or a request or reply of MPA's."""

    def __init__(self):
        self.sent = [1, 1]
        self.frames = [self.segment(b"MPA ID Req Frame\0\1\0\0"),
                       self.segment(b"MPA ID Rep Frame\0\1\0\0", True)]

    def segment(self, data, reply=False):
        ends, ports = ((SERVER, CLIENT), (20049, 40000)) if reply else ((CLIENT, SERVER), (40000, 20049))
        tcp = struct.pack(">HHIIBBHHH", *ports, self.sent[reply], self.sent[not reply], 5 << 4, 24, 65535, 0,
                          0)
        self.sent[reply] += len(data)
        return ipv4(6, *ends, tcp + data)

    def send(self, message, reply=False, opcode=3):
        untagged = struct.pack(">BBIIII", 0x41, 0x40 | opcode, 0, 0, 1, 0)  # RFC 5041 and RFC 5040, section 4
        length = len(untagged + message)
        self.frames.append(self.segment(struct.pack(">H", length) + untagged + message
                                        + bytes(-(2 + length) % 4 + 4), reply))


def rpc_call(xid, procedure, arguments=b"", program=PERF, version=1):
    return words(xid, CALL, 2, program, version, procedure, 0, 0, 0, 0) + arguments


def rpc_reply(xid, results=b"", state=0):
    return words(xid, REPLY, 0, 0, 0, state) + results


def segment(handle, length, offset):
    return struct.pack(">IIQ", handle, length, offset)


def chunk(*segments):
    return words(len(segments)) + b"".join(segments)


def lists(reads=(), writes=(), reply=None):
    """Chunk lists made of (position, segment) and of chunks."""
    return (b"".join(words(1, position) + target for position, target in reads) + words(0)
            + b"".join(words(1) + one for one in writes) + words(0)
            + (words(0) if reply is None else words(1) + reply))


def fixed(xid, kind, version=2):
    return words(xid, version, 32, kind)


def message04(rpc, chunks=lists(), handle=0):
    """An RDMA2_MSG of draft-04."""
    xid, direction = struct.unpack_from(">II", rpc)
    return fixed(xid, 0) + words(direction, handle) + chunks + rpc


def message00(rpc, chunks=lists(), version=2):
    """An RDMA_MSG of draft-00, whose layout is that of version 1."""
    return fixed(*struct.unpack_from(">I", rpc), 0, version) + chunks + rpc


def write_pcap(path, frames):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 262144, 1))
        for i, frame in enumerate(frames):
            file.write(struct.pack("<IIII", i, 0, len(frame), len(frame)) + frame)


class Case(unittest.TestCase):
    maxDiff = None

    def dissect(self, frames, *fields, draft="draft-04", more=()):
        """The values of each field in each frame, as one string. No frame may cause an error in Lua."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "frames.pcap")
            write_pcap(path, frames)
            command = ["tshark", "-X", f"lua_script:{SCRIPT}", "-o", f"rpcordma2.draft:{draft}", "-n",
                       "-r", path, *more, "-T", "fields"]
            for field in ("_ws.lua.error", *fields):
                command += ["-e", field]
            environment = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder}
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment,
                                  check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Lua", done.stderr)
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        self.assertEqual(len(rows), len(frames))
        self.assertEqual([row[0] for row in rows], [""] * len(rows))
        return [row[1:] for row in rows]

    def headers(self, messages, *names, **more):
        """The version 2 fields of each message."""
        return self.dissect([roce(m) for m in messages], *(f"rpcordma2.{name}" for name in names), **more)

    def infos(self, frames, **more):
        return [row[0] for row in self.dissect(frames, "_ws.col.Info", **more)]


class Draft04(Case):
    def test_a_message_and_its_lists(self):
        chunks = lists([(72, segment(0xa1, 100, 0x1000)), (72, segment(0xa2, 28, 0x2000))],
                       [chunk(segment(0xb1, 50, 0x3000)), chunk()],
                       chunk(segment(0xc1, 10, 1), segment(0xc2, 20, 2)))
        frame = roce(message04(rpc_call(7, 0), chunks, 0xb1))
        names = ("xid", "version", "flow_control", "msg_type", "direction", "inv_handle", "reads_count",
                 "writes_count", "reply_count", "position", "segment_count", "rdma_handle", "rdma_length",
                 "rdma_offset", "malformed", "dubious")
        row, = self.dissect([frame], *(f"rpcordma2.{name}" for name in names), "rpc.xid", "rpc.program",
                            "rpcordma")
        self.assertEqual(row, [
            "0x00000007", "2", "32", "0", "0", "0x000000b1", "2", "2", "1", "72,72", "1,0,2",
            "0x000000a1,0x000000a2,0x000000b1,0x000000c1,0x000000c2", "100,28,50,10,20",
            "0x0000000000001000,0x0000000000002000,0x0000000000003000,0x0000000000000001,0x0000000000000002",
            "", "", "0x00000007", str(PERF), ""])

    def test_a_message_in_chunks(self):
        frame = roce(fixed(9, 1) + words(REPLY, 0) + lists(reply=chunk(segment(1, 2000, 0))), True)
        self.assertEqual(self.infos([frame]), ["RDMA2_NOMSG reply XID 0x9, Reply chunk: 2000 bytes"])

    def test_errors(self):
        expected = {
            1: ("RDMA2_ERR_VERS (1), vers_low 1, vers_high 2", (1, 2)),
            2: ("RDMA2_ERR_BAD_XDR (2)", ()),
            3: ("RDMA2_ERR_INVAL_PROC (3)", ()),
            4: ("RDMA2_ERR_READ_CHUNKS (4), max_chunks 5", (5,)),
            5: ("RDMA2_ERR_WRITE_CHUNKS (5), max_chunks 6", (6,)),
            6: ("RDMA2_ERR_SEGMENTS (6), max_segments 7", (7,)),
            7: ("RDMA2_ERR_WRITE_RESOURCE (7), chunk_index 1, length_needed 4000000000", (1, 4000000000)),
            8: ("RDMA2_ERR_REPLY_RESOURCE (8), length_needed 9", (9,)),
            9: ("RDMA2_ERR_INVAL_OPTION (9)", ()),
            10: ("RDMA2_ERR_SYSTEM (10)", ()),
            11: ("unknown (11)", ()),
        }
        messages = [fixed(3, 4) + words(code, *arguments) for code, (_, arguments) in expected.items()]
        self.assertEqual(self.infos([roce(message, True) for message in messages]),
                         [f"RDMA2_ERROR XID 0x3, {text}" for text, _ in expected.values()])
        rows = self.headers(messages, "errcode", "vers_low", "vers_high", "max_chunks", "max_segments",
                            "chunk_index", "length_needed")
        self.assertEqual(rows[0], ["1", "1", "2", "", "", "", ""])
        self.assertEqual(rows[4], ["5", "", "", "6", "", "", ""])
        self.assertEqual(rows[6], ["7", "", "", "", "", "1", "4000000000"])

    def test_an_option(self):
        rows = self.headers([fixed(3, 5) + words(CALL, 77) + opaque(b"hello")], "direction", "opttype",
                            "optinfo_length", "optinfo", "malformed")
        self.assertEqual(rows, [["0", "77", "5", "68656c6c6f", ""]])

    def test_properties(self):
        some = words(2, 1) + opaque(words(8192)) + words(2) + opaque(words(2))
        rows = self.headers(
            [fixed(1, 6) + some + words(1, 2), fixed(1, 7) + some,
             fixed(1, 8) + words(1, 1, 2, 0, 4, 1, 99) + opaque(b"abc"), fixed(1, 9) + words(1, 1, 0)],
            "msg_type", "array_count", "property", "property_length", "rbsiz", "brs", "nochg", "done",
            "rejected", "malformed")
        self.assertEqual(rows, [
            ["6", "2,1", "1,2", "4,4", "8192", "2", "0x00000002", "", "", ""],
            ["7", "2", "1,2", "4,4", "8192", "2", "", "", "", ""],
            ["8", "1,2,1", "99", "3", "", "", "", "0x00000001", "0x00000000,0x00000004", ""],
            ["9", "1", "1", "0", "", "", "", "", "", ""]])

    def test_breaches_of_the_draft_are_reported(self):
        rows = self.headers([fixed(1, 0) + words(2, 0) + lists() + rpc_call(1, 0),
                             fixed(1, 0) + words(REPLY, 0) + lists() + rpc_call(1, 0),
                             fixed(1, 0) + words(CALL, 0) + lists() + rpc_call(2, 0),
                             fixed(1, 0) + words(CALL, 0) + lists()], "malformed", "dubious")
        self.assertEqual([(malformed, bool(dubious)) for malformed, dubious in rows], [("", True)] * 4)


class Draft00(Case):
    def test_messages(self):
        chunks = lists([(40, segment(0xa1, 8, 0))], [chunk(segment(0xb1, 50, 0))])
        frames = [roce(message00(rpc_call(7, 0), chunks)), roce(message00(rpc_reply(7)), True),
                  roce(fixed(8, 1) + lists(reply=chunk(segment(1, 9, 0)))), roce(fixed(9, 2)),
                  roce(fixed(9, 3)), roce(fixed(9, 5) + words(77) + opaque(b"hello"))]
        rows = self.dissect(frames, "_ws.col.Info", "rpcordma2.inv_handle", "rpcordma2.malformed",
                            draft="draft-00")
        self.assertEqual(rows, [[info, "", ""] for info in (
            "PERF NULL call", "PERF NULL reply", "RDMA2_NOMSG XID 0x8, Reply chunk: 9 bytes",
            "RDMA2_MSGP XID 0x9", "RDMA2_DONE XID 0x9", "RDMA2_OPTIONAL XID 0x9, option 77")])

    def test_errors(self):
        frames = [roce(fixed(3, 4) + words(*body), True) for body in ((1, 1, 2), (2,), (3,), (4,))]
        self.assertEqual(self.infos(frames, draft="draft-00"), [f"RDMA2_ERROR XID 0x3, {text}" for text in (
            "RDMA_ERR_VERS (1), vers_low 1, vers_high 2", "RDMA_ERR_BAD_HEADER (2)",
            "RDMA_ERR_INVAL_OPTION (3)", "unknown (4)")])

    def test_fields_that_the_other_draft_lacks(self):
        for draft, kinds in ("draft-04", (2, 3)), ("draft-00", (6, 7, 8, 9)):
            for row in self.headers([fixed(1, kind) for kind in kinds], "malformed", draft=draft):
                self.assertNotEqual(row, [""])


class Carriers(Case):
    def test_version_one_stays_with_rpcordma(self):
        """In turns: Wireshark first asks the heuristic that took the last message, and rpcordma's takes all of
        these of version 2."""
        two = [roce(message04(rpc_reply(1)), True), roce(fixed(2, 4) + words(2), True),
               roce(fixed(3, 1) + words(CALL, 0) + lists(reply=chunk(segment(1, 9, 0))))]
        one = [roce(message00(rpc_call(1, 0), version=1)), roce(message00(rpc_reply(1), version=1), True)]
        frames = [frame for last in two for frame in (*one, last)] + [*two, *one]
        rows = self.dissect(frames, "rpcordma.version", "rpcordma2.version", "_ws.malformed")
        of_one, of_two = ["1", "", ""], ["", "2", ""]
        self.assertEqual(rows, [of_one, of_one, of_two] * 3 + [of_two] * 3 + [of_one] * 2)

    def test_only_sends_are_taken(self):
        reth = struct.pack(">QII", 0, 1, 64)
        frames = [roce(message04(rpc_call(1, 0)), opcode=WRITE_ONLY, extended=reth),
                  roce(message04(rpc_call(1, 0)), opcode=SEND_ONLY_INVALIDATE, extended=words(5)),
                  roce(words(1, 3, 32, 0) + bytes(40)), roce(words(1, 2, 32, 10) + bytes(40)),
                  roce(words(1, 2, 32))]
        self.assertEqual([row[0] for row in self.dissect(frames, "rpcordma2.version")], ["", "2", "", "", ""])

    def test_a_send_of_several_packets(self):
        message = message04(rpc_call(5, 1, opaque(bytes(range(200)))))
        parts = message[:100], message[100:180], message[180:]
        for order in (0, 1, 2), (0, 2):
            frames = [roce(parts[i], opcode=(SEND_FIRST, SEND_MIDDLE, SEND_LAST)[i]) for i in order]
            frames.append(roce(parts[2], opcode=SEND_LAST))  # of none that began
            rows = self.dissect(frames, "rpcordma2.version", "perf.data_length")
            self.assertEqual([row[0] for row in rows], [""] * (len(order) - 1) + ["2", ""])
            self.assertEqual(rows[-2][1], "200")

    def test_iwarp(self):
        connection = Iwarp()
        connection.send(message04(rpc_call(1, 1, opaque(b"abc"))))
        connection.send(message04(rpc_reply(1, opaque(b"abc"))), True, opcode=4)
        self.assertEqual(self.infos(connection.frames)[2:],
                         ["PERF ECHO call, 3 bytes", "PERF ECHO reply, 3 bytes"])


class Perf(Case):
    ARGUMENTS = {
        0: b"",
        1: opaque(b"abcde"),
        2: struct.pack(">QIII", 1 << 63, 65536, 1, 50),
        3: struct.pack(">QII", 512, 0, 0) + opaque(bytes(7)),
        4: opaque(b"head!") + words(0) + opaque(bytes(9)) + opaque(b"t"),
        5: struct.pack(">QIII", 8, 100, 200, 0),
        6: words(3, 64),
    }
    RESULTS = {
        0: b"",
        1: opaque(b"abcde"),
        2: words(0, 0xcafe) + opaque(bytes(6)),
        3: words(0, 7, 0xcafe),
        4: words(0, 1, 2, 3, 9),
        5: words(0) + opaque(bytes(10)) + words(1) + opaque(bytes(20)) + words(2),
        6: words(3),
    }
    INFOS = [
        "PERF NULL call", "PERF NULL reply",
        "PERF ECHO call, 5 bytes", "PERF ECHO reply, 5 bytes",
        "PERF READ call, 65536 bytes at 9223372036854775808", "PERF READ reply, 6 bytes",
        "PERF WRITE call, 7 bytes at 512", "PERF WRITE reply, 7 bytes",
        "PERF SANDWICH call, 5, 9 and 1 bytes", "PERF SANDWICH reply, 9 bytes",
        "PERF READ2 call, 100 and 200 bytes at 8", "PERF READ2 reply, 10 and 20 bytes",
        "PERF CALLBACK call, 3 calls of 64 bytes", "PERF CALLBACK reply, 3 answered",
    ]

    def exchange(self, of, procedure, arguments, results, chunks=(lists(), lists()), **more):
        """A call and its reply, as frames."""
        return [roce(of(rpc_call(9, procedure, arguments, **more), chunks[0])),
                roce(of(results, chunks[1]), True)]

    def test_all_procedures_behind_either_version(self):
        for of, draft in ((message04, "draft-04"), (message00, "draft-00"),
                          (lambda *rpc: message00(*rpc, version=1), "draft-04")):
            frames = []
            for procedure, arguments in self.ARGUMENTS.items():
                frames += self.exchange(of, procedure, arguments, rpc_reply(9, self.RESULTS[procedure]))
            self.assertEqual(self.infos(frames, draft=draft), self.INFOS)

    def test_fields(self):
        frames = self.exchange(message04, 2, self.ARGUMENTS[2], rpc_reply(9, self.RESULTS[2]))
        names = ("name", "procedure", "offset", "count", "flags", "delay_us", "status", "crc32c",
                 "data_length", "data", "moved")
        rows = self.dissect(frames, *(f"perf.{name}" for name in names))
        self.assertEqual(rows, [
            ["READ", "2", "9223372036854775808", "65536", "0x00000001", "50", "", "", "", "", ""],
            ["READ", "2", "", "", "", "", "0", "0x0000cafe", "6", "000000000000", ""]])

    def test_data_in_chunks(self):
        """A Position counts from the first byte of the RPC message, and each Write chunk is an item's, in order."""
        sandwich = opaque(b"head!") + words(0, 9) + opaque(b"tail")
        reads = lists([(40 + len(opaque(b"head!")) + 8, segment(1, 9, 0))])
        read2 = words(0, 10, 1) + opaque(bytes(20)) + words(2)
        writes = lists(writes=[chunk(segment(1, 10, 0)), chunk(segment(2, 0, 0))])
        frames = [roce(message04(rpc_call(1, 4, sandwich), reads)),
                  *self.exchange(message04, 5, self.ARGUMENTS[5], rpc_reply(9, read2), (lists(), writes))]
        names = ("moved", "head_length", "data_length", "tail", "first_length", "second_length",
                 "crc32c_second")
        rows = self.dissect(frames, "_ws.col.Info", *(f"perf.{name}" for name in names))
        self.assertEqual([rows[0], rows[2]], [
            ["PERF SANDWICH call, 5, 9 and 4 bytes", "data", "5", "9", "7461696c", "", "", ""],
            ["PERF READ2 reply, 10 and 20 bytes", "first", "", "", "", "10", "20", "0x00000002"]])

    def test_in_place_of_results(self):
        instead = {"PERF_ERR_INVAL": rpc_reply(9, words(1)), "PERF_ERR_TOOBIG": rpc_reply(9, words(2)),
                   "77": rpc_reply(9, words(77)), "GARBAGE_ARGS": rpc_reply(9, state=4),
                   "denied": words(9, REPLY, 1, 1, 1), "not whole": rpc_reply(9, words(0))}
        frames = [frame for reply in instead.values()
                  for frame in self.exchange(message04, 2, self.ARGUMENTS[2], reply)]
        infos = [info for info in self.infos(frames) if "reply" in info]
        self.assertEqual(infos, [f"PERF READ reply, {text}" for text in instead])

    def test_other_programs_and_procedures(self):
        frames = [*self.exchange(message04, 1, opaque(b"abc"), rpc_reply(9, opaque(b"abc")), program=PERF_CB),
                  *self.exchange(message04, 7, b"", rpc_reply(9)),
                  *self.exchange(message04, 0, b"", rpc_reply(9), version=2),
                  *self.exchange(message04, 0, b"", rpc_reply(9), program=NFS, version=3)]
        rows = self.dissect(frames, "perf", "_ws.col.Info")
        self.assertEqual([info for _, info in rows[:2]],
                         ["PERF_CB ECHO call, 3 bytes", "PERF_CB ECHO reply, 3 bytes"])
        self.assertEqual([name for name, _ in rows[2:]], [""] * 6)

    def test_a_reply_whose_call_is_not_there(self):
        self.assertEqual(self.dissect([roce(message04(rpc_reply(9, words(0))), True)], "perf"), [[""]])


class Hostile(Case):
    MOST = 0xffffffff

    def test_lengths_and_lists_beyond_the_end(self):
        most, start = self.MOST, words(CALL, 0)
        messages = [
            fixed(1, 0), fixed(1, 0) + words(CALL), fixed(1, 0) + start, fixed(1, 1) + start + words(0, 0),
            fixed(1, 0) + start + words(1), fixed(1, 0) + start + words(1, 0, 1, 2, 3) * 40,
            fixed(1, 0) + start + (words(1, 0) + segment(1, most, most)) * 40,
            fixed(1, 0) + start + words(0, 1, most), fixed(1, 0) + start + words(0) + words(1, 0) * 400,
            fixed(1, 0) + start + words(0, 1, most) + segment(1, most, 0) * 20,
            fixed(1, 1) + start + words(0, 0, 1, most), fixed(1, 1) + start + words(2, 0, 0),
            fixed(1, 1) + start + words(0, most, 0), fixed(1, 1) + start + words(0, 0, 7),
            fixed(1, 4), fixed(1, 4) + words(1), fixed(1, 4) + words(7, 1), fixed(1, 5) + words(0, 1),
            fixed(1, 5) + words(0, 1, most), fixed(1, 5) + words(0, 1, 5, 0), fixed(1, 6),
            fixed(1, 6) + words(most), fixed(1, 6) + words(most) + words(1, 0) * 200,
            fixed(1, 7) + words(1, 1, most) + bytes(40),
            fixed(1, 8) + words(most) + bytes(400), fixed(1, 8) + words(0, most, 1),
            fixed(1, 9) + words(2, 1, 0),
        ]
        for message, (malformed, version) in zip(messages, self.headers(messages, "malformed", "version")):
            self.assertEqual((bool(malformed), version), (True, "2"), message.hex())

    def test_bodies_that_end_early(self):
        whole = [rpc_call(9, procedure, arguments) for procedure, arguments in Perf.ARGUMENTS.items()]
        whole += [rpc_call(9, 2) + rpc_reply(9, results) for results in Perf.RESULTS.values()]
        whole += [rpc_call(9, 1, words(self.MOST)), rpc_call(9, 4, words(4) * 5 + words(self.MOST)),
                  words(9, CALL, 2, PERF, 1, 1, 0, self.MOST, 0, 0)]
        parts = [rpc[:end] for rpc in whole for end in range(8, len(rpc) + 1, 4)]
        frames = [roce(message04(rpc)) for rpc in parts] + [roce(message00(rpc, version=1)) for rpc in parts]
        self.dissect(frames, "perf")

    def test_headers_with_bits_that_changed(self):
        """Also twice over each, as Wireshark does."""
        source = random.Random(1)
        chunks = lists([(40, segment(1, 8, 0))] * 2, [chunk(segment(2, 50, 0))] * 2, chunk(segment(3, 9, 0)))
        whole = [message04(rpc_call(9, 4, Perf.ARGUMENTS[4]), chunks),
                 message00(rpc_reply(9, Perf.RESULTS[5]), chunks),
                 fixed(1, 8) + words(1, 1, 1, 0, 2, 1) + opaque(words(1)) + words(2) + opaque(words(1)),
                 fixed(1, 6) + words(1, 1) + opaque(words(1)) + words(1, 1),
                 fixed(1, 5) + words(0, 1) + opaque(b"hello")]
        frames = []
        for i in range(600):
            message = bytearray(source.choice(whole))
            for _ in range(source.randint(1, 4)):
                message[source.randrange(8, len(message))] = source.choice((0, 1, 2, 4, 0x7f, 0x80, 0xff))
            end = source.choice((len(message), source.randrange(16, len(message))))
            frames.append(roce(bytes(message[:end]), reply=i % 2 == 1))
        for draft in "draft-04", "draft-00":
            self.dissect(frames, "perf", draft=draft, more=["-2"])

    def test_a_long_send_of_nothing_but_lists(self):
        part = words(1, 0) * 500
        frames = [roce(fixed(1, 0) + words(CALL, 0, 0), opcode=SEND_FIRST)]
        frames += [roce(part, opcode=SEND_MIDDLE) for _ in range(30)] + [roce(part, opcode=SEND_LAST)]
        self.assertNotEqual(self.dissect(frames, "rpcordma2.malformed")[-1], [""])


if __name__ == "__main__":
    if shutil.which("tshark") is None:
        print("skipped: there is no tshark (Debian: tshark)")
        sys.exit(0)
    unittest.main()
