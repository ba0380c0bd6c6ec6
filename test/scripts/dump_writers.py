"""Captures for the tests of scripts/rrdk-dump.py: conversations as RoCEv2 and as iWARP, files that they are
written to, and a base for tests that reads them.
"""
import importlib.util
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "rrdk-dump.py"
CAPTURES = sorted((ROOT / "test" / "data" / "captures").glob("*.pcap"))  # Linux's own
sys.path.insert(0, str(ROOT / "scripts"))
SPEC = importlib.util.spec_from_file_location("rrdk_dump", SCRIPT)
rrdk_dump = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(rrdk_dump)
from lib import dump_iwarp  # noqa: E402: found by the lines above
from lib.dump_rpc import CONNPROP, ERROR, MSG, NFS, NOMSG, PERF  # noqa: E402

BEGIN = 1_700_000_000 * 10**9  # nanoseconds
STEP = 10_000
TCP, UDP = 6, 17
# Private data: 4096 bytes each way, without and with leave to invalidate.
PLAIN, ALLOWED = bytes.fromhex("f6ab0e1801000303"), bytes.fromhex("f6ab0e1801010303")


# ---- frames on the wire

def words(*values):
    return struct.pack(f">{len(values)}I", *values)


def opaque(data):
    return words(len(data)) + data + bytes(-len(data) % 4)


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Wire:
    """The frames of one connection: (time, Ethernet frame). Side 0 is the client."""
    ports = (40000, 20049)

    def __init__(self, private=(ALLOWED, ALLOWED), is_v6=False, crc=False):
        self.frames, self.time, self.private, self.is_v6, self.crc = [], BEGIN, private, is_v6, crc

    def add(self, side, protocol, payload):
        hosts = (b"\x0a\0\0\1", b"\x0a\0\0\2") if not self.is_v6 else (bytes(15) + b"\1", bytes(15) + b"\2")
        ends = hosts[side] + hosts[1 - side]
        if self.is_v6:
            head = b"\x86\xdd" + words(6 << 28) + struct.pack(">HBB", len(payload), protocol, 64) + ends
        else:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0) + ends
            head = b"\x08\0" + ip[:10] + checksum(ip).to_bytes(2, "big") + ip[12:]
        self.frames.append((self.time, bytes(12) + head + payload))
        self.time += STEP


class Roce(Wire):
    """As tcpdump sees it."""
    MTU = 1024
    queue_pairs = (0x11, 0x100022)
    with_management = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.psn = [0xFFFFF0, 0x7FFFFF]  # one wraps around
        if self.with_management:
            self.connect()

    def datagram(self, side, queue_pair, opcode, psn, body, port):
        base = struct.pack(">BBHII", opcode, -len(body) % 4 << 4, 0xFFFF, queue_pair, psn & 0xFFFFFF)
        udp = base + body + bytes(-len(body) % 4) + bytes(4)
        self.add(side, UDP, struct.pack(">HHHH", port, 4791, 8 + len(udp), 0) + udp)

    def management(self, side, attribute, message):
        mad = struct.pack(">BBBBIQHHI", 1, 7, 2, 3, 0, 7, attribute, 0, 0) + message.ljust(232, b"\0")
        self.datagram(side, 1, 0x64, 0, bytes(8) + mad, 50000)

    def connect(self):
        client, server = self.queue_pairs
        service = 0x0000000001060000 | self.ports[1]
        request = words(client, 0) + struct.pack(">QQ", service, 0) + \
            words(0, 0, client << 8, 0, 0, self.psn[1] << 8) + b"\xff\xff\x30" + bytes(125) + self.private[0]
        reply = words(server, client, 0, server << 8, 0, self.psn[0] << 8, 0, 0, 0) + self.private[1]
        self.management(0, 0x10, request)
        self.management(1, 0x13, reply)
        self.management(0, 0x14, words(client, server))

    def disconnect(self):
        client, server = self.queue_pairs
        self.management(0, 0x15, words(client, server, server << 8))

    def packet(self, side, opcode, body):
        self.datagram(side, self.queue_pairs[1 - side], opcode, self.psn[side], body, 0xC000 | side)
        self.psn[side] = (self.psn[side] + 1) & 0xFFFFFF

    def train(self, side, opcodes, data, first=b"", last=b""):
        pieces = [data[at:at + self.MTU] for at in range(0, len(data), self.MTU)] or [b""]
        for i, piece in enumerate(pieces):
            is_first, is_last = i == 0, i == len(pieces) - 1
            opcode = opcodes[3] if len(pieces) == 1 else opcodes[0 if is_first else 2 if is_last else 1]
            self.packet(side, opcode, (first if is_first else b"") + (last if is_last else b"") + piece)
        self.acknowledge(1 - side)

    def acknowledge(self, side):
        self.datagram(side, self.queue_pairs[1 - side], 0x11, self.psn[1 - side] - 1, bytes(4), 0xC000 | side)

    def send(self, side, data, invalidates=None):
        if invalidates is None:
            self.train(side, (0, 1, 2, 4), data)
        else:
            self.train(side, (0, 1, 0x16, 0x17), data, last=words(invalidates))

    def write(self, side, handle, offset, data):
        self.train(side, (6, 7, 8, 10), data, first=struct.pack(">QII", offset, handle, len(data)))

    def read(self, side, handle, offset, data):
        begin, other = self.psn[side], self.psn[1 - side]
        self.packet(side, 0x0C, struct.pack(">QII", offset, handle, len(data)))
        self.psn[1 - side] = begin  # a Response has the numbers of its Request
        pieces = [data[at:at + self.MTU] for at in range(0, len(data), self.MTU)]
        for i, piece in enumerate(pieces):
            is_first, is_last = i == 0, i == len(pieces) - 1
            opcode = 0x10 if is_first and is_last else 0x0D if is_first else 0x0F if is_last else 0x0E
            self.packet(1 - side, opcode, (bytes(4) if is_first or is_last else b"") + piece)
        self.psn[side], self.psn[1 - side] = self.psn[1 - side], other

    def capture(self):
        return pcapng(self.frames)


class RrdkOwn(Roce):
    """Frames as RRDK writes them: no handshake, and source ports identify the sender's queue pair."""
    MTU = 4096
    queue_pairs = (14, 15)
    with_management = False

    def packet(self, side, opcode, body):
        port = 0xC000 | self.queue_pairs[side] & 0x3FFF
        self.datagram(side, self.queue_pairs[1 - side], opcode, self.psn[side], body, port)
        self.psn[side] = (self.psn[side] + 1) & 0xFFFFFF

    def acknowledge(self, side):
        pass

    def disconnect(self):
        pass

    def capture(self):
        return pcapng(self.frames, application=b"RRDK", name=b"shm", comment=b"connection 7 shm:/tmp/x.sock")


class Iwarp(Wire):
    MSS, ULPDU = 1448, 1400

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.sequence, self.number, self.sink = [1000, 0xFFFFFF00], [1, 1, 1, 1], 0
        for side in (0, 1):
            self.segment(side, 2)
            self.sequence[side] += 1
        for side, key in enumerate((b"MPA ID Req Frame", b"MPA ID Rep Frame")):
            private = bytes(4) + self.private[side]
            flags = 0x50 if self.crc else 0x10
            self.stream(side, key + struct.pack(">BBH", flags, 2, len(private)) + private)

    def segment(self, side, flags, data=b""):
        header = struct.pack(">HHIIBBHHH", self.ports[side], self.ports[1 - side], self.sequence[side],
                             self.sequence[1 - side], 5 << 4, flags, 65535, 0, 0)
        self.add(side, TCP, header + data)

    def stream(self, side, data):
        for at in range(0, len(data), self.MSS):
            piece = data[at:at + self.MSS]
            self.segment(side, 16, piece)
            self.sequence[side] = (self.sequence[side] + len(piece)) & 0xFFFFFFFF

    def framed(self, side, ulpdu):
        frame = struct.pack(">H", len(ulpdu)) + ulpdu
        frame += bytes(-len(frame) % 4)
        self.stream(side, frame + (dump_iwarp.crc32c(frame).to_bytes(4, "little") if self.crc else bytes(4)))

    def pieces(self, data):
        for at in range(0, max(len(data), 1), self.ULPDU):
            yield at, data[at:at + self.ULPDU], at + self.ULPDU >= len(data)

    def untagged(self, side, opcode, queue, data, first_word=0):
        number = self.number[2 * side + queue]
        self.number[2 * side + queue] += 1
        for at, piece, last in self.pieces(data):
            control = bytes((0x41 if last else 1, 0x40 | opcode))
            self.framed(side, control + words(first_word, queue, number, at) + piece)

    def tagged(self, side, opcode, handle, offset, data):
        for at, piece, last in self.pieces(data):
            self.framed(side, bytes((0xC1 if last else 0x81, 0x40 | opcode)) +
                        struct.pack(">IQ", handle, offset + at) + piece)

    def send(self, side, data, invalidates=None):
        self.untagged(side, 3 if invalidates is None else 4, 0, data, invalidates or 0)

    def write(self, side, handle, offset, data):
        self.tagged(side, 0, handle, offset, data)

    def read(self, side, handle, offset, data):
        self.sink += 1
        self.untagged(side, 1, 1, struct.pack(">IQIIQ", self.sink, 4096, len(data), handle, offset))
        self.tagged(1 - side, 2, self.sink, 4096, data)

    def disconnect(self):
        self.segment(0, 17)
        self.segment(1, 17)

    def capture(self):
        return pcap(self.frames)


# ---- files

def pcap(frames, order="<", nanoseconds=False, link_type=1, snaplen=262144):
    magic, unit = (0xA1B23C4D, 1) if nanoseconds else (0xA1B2C3D4, 1000)
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, link_type)
    for time, frame in frames:
        kept = frame[:snaplen]
        data += struct.pack(order + "IIII", time // 10**9, time % 10**9 // unit, len(kept), len(frame)) + kept
    return data


def block(order, kind, body):
    length = 12 + len(body)
    return struct.pack(order + "II", kind, length) + body + struct.pack(order + "I", length)


def options(order, *pairs):
    data = b"".join(struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)
                    for code, value in pairs if value)
    return data + bytes(4) if data else b""


def section(order, application=b""):
    fixed = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)
    return block(order, 0x0A0D0D0A, fixed + options(order, (4, application)))


def interface(order, link_type=1, name=b"", resolution=b"\x09", snaplen=0):
    return block(order, 1, struct.pack(order + "HHI", link_type, 0, snaplen) +
                 options(order, (2, name), (9, resolution)))


def packet_block(order, number, ticks, frame, comment=b"", kept=None):
    data = frame[:kept]
    fixed = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(frame))
    return block(order, 6, fixed + data + bytes(-len(data) % 4) + options(order, (1, comment)))


def pcapng(frames, order="<", application=b"", name=b"", comment=b"", kept=None):
    return section(order, application) + interface(order, name=name) + \
        b"".join(packet_block(order, 0, time, frame, comment, kept) for time, frame in frames)


def statistics(order, lost):
    dropped = struct.pack(order + "Q", lost)
    return block(order, 5, struct.pack(order + "III", 0, 0, 0) + options(order, (5, dropped)))


# ---- messages

def chunk(segments):
    return words(len(segments)) + b"".join(struct.pack(">IIQ", *segment) for segment in segments)


def lists(reads=(), writes=(), reply=None):
    data = b"".join(words(1) + struct.pack(">IIIQ", *entry) for entry in reads) + words(0)
    data += b"".join(words(1) + chunk(segments) for segments in writes) + words(0)
    return data + (words(0) if reply is None else words(1) + chunk(reply))


def call_body(xid, procedure=0, arguments=b"", program=PERF, version=1):
    return words(xid, 0, 2, program, version, procedure, 0, 0, 0, 0) + arguments


def reply_body(xid, results=b"", status=0):
    return words(xid, 1, 0, 0, 0, status) + results


class Talk:
    """One end calls, the other answers: side 0 and 1, the other way around for backward calls."""

    def __init__(self, wire, version=1, dialect="v1"):
        self.wire, self.version, self.dialect = wire, version, dialect

    def header(self, xid, credit, kind, direction, lists_bytes, version=None, handle=0, between=b""):
        fixed = words(xid, self.version if version is None else version, credit, kind)
        return fixed + (words(direction, handle) if self.dialect == "v2-04" else b"") + between + lists_bytes

    def call(self, xid, procedure=0, arguments=b"", *, side=0, credit=8, kind=MSG, body=None, tail=b"",
             program=PERF, program_version=1, version=None, direction=0, handle=0, between=b"", **chunks):
        if body is None:
            body = call_body(xid, procedure, arguments, program, program_version) if kind != NOMSG else b""
        header = self.header(xid, credit, kind, direction, lists(**chunks), version, handle, between)
        self.wire.send(side, header + body + tail)

    def reply(self, xid, results=b"", *, side=1, credit=8, kind=MSG, body=None, version=None, status=0,
              invalidates=None, **chunks):
        if body is None:
            body = reply_body(xid, results, status) if kind != NOMSG else b""
        self.wire.send(side, self.header(xid, credit, kind, 1, lists(**chunks), version) + body, invalidates)

    def error(self, xid, code, *more, side=1, credit=8, version=None, tail=b""):
        version = self.version if version is None else version
        self.wire.send(side, words(xid, version, credit, ERROR, code, *more) + tail)

    def raw(self, side, *values, tail=b""):
        self.wire.send(side, words(*values) + tail)

    def null(self, xid=1):
        self.call(xid)
        self.reply(xid)

    def property(self, side, kind, xid, *parts, credit=8):
        self.wire.send(side, words(xid, 2, credit, kind) + b"".join(parts))


def propset(*pairs):
    return words(len(pairs)) + b"".join(words(name) + opaque(data) for name, data in pairs)


def subset(*indices):
    return words(1, sum(1 << i for i in indices)) if indices else words(0)


def receives(size):
    return 1, words(size)


def backward(support):
    return 2, words(support)


def connprop(t, side, *pairs, stay=()):
    t.property(side, CONNPROP, 900 + side, propset(*pairs), subset(*stay))


# ---- conversations that several tests hold

SINK, SOURCE = (0x51, 8000, 0x10000), (0x61, 8000, 0x20000)
DATA = bytes(range(250)) * 32  # 8000 bytes
PERF_READ, PERF_WRITE, NFS_READ, NFS_WRITE = 2, 3, 6, 7


def read_call(t, xid=5, sinks=(SINK,), **more):
    t.call(xid, PERF_READ, bytes(20), writes=[list(sinks)], **more)


def read_results(count):
    return words(0, 0, count)


def write_call(t, xid=5, source=SOURCE, count=8000, position=None, **more):
    arguments = bytes(16) + words(count)
    position = 40 + len(arguments) if position is None else position
    t.call(xid, PERF_WRITE, arguments, reads=[(position, *source)], **more)


def read_back(t, xid=5, length=8000, count=None, segment=SINK, written=None, **more):
    """The reply to read_call(): the data are written first."""
    data = DATA[:length if written is None else written]
    if data:
        t.wire.write(1, SINK[0], SINK[2], data)
    t.reply(xid, read_results(length if count is None else count),
            writes=[[(segment[0], length, segment[2])]], **more)


def mixed(t):
    """Calls of all kinds, both ways, two at a time, errors too."""
    t.null()
    read_call(t, 2)
    write_call(t, 3)
    t.wire.read(1, SOURCE[0], SOURCE[2], DATA)
    t.reply(3)
    read_back(t, 2, length=7001)
    body = call_body(4, 1, opaque(bytes(5000)))
    t.call(4, kind=NOMSG, reads=[(0, 0x61, 3000, 0), (0, 0x62, len(body) - 3000, 64)], reply=[SINK])
    t.wire.read(1, 0x61, 0, body[:3000])
    t.wire.read(1, 0x62, 64, body[3000:])
    reply = reply_body(4, opaque(bytes(5000)))
    t.wire.write(1, SINK[0], SINK[2], reply)
    t.reply(4, kind=NOMSG, reply=[(SINK[0], len(reply), SINK[2])])
    t.call(5, program=NFS, program_version=3, reply=[SINK])
    t.reply(5)  # inline after all
    t.call(6, side=1)
    t.reply(6, side=0)
    t.call(7, side=1)
    t.call(8)
    t.error(8, 2)
    t.reply(7, side=0, status=3)
    t.wire.disconnect()


# ---- tests

def breaches_in(cases):
    """A decorator that puts conversations into `cases`: each program has its own."""
    def breaks(*rules, version=1, dialect="v2-04", **wire):
        """The rules that a conversation breaks, its version, the meaning of version 2, and options of its wire."""
        def keep(function):
            cases.append((rules, function, version, dialect, wire))
            return function
        return keep
    return breaks


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "capture"

    def report(self, data, dialect="v2-04"):
        self.path.write_bytes(data)
        report = rrdk_dump.Report(self.path, dialect)
        self.addCleanup(report.spool.file.close)
        report.read()
        return report

    def text(self, *arguments):
        """(status, standard output, standard error) of the program."""
        done = subprocess.run([SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def said(self, report):
        return [breach["id"] + ": " + breach["text"] for number in report.connections
                for record in report.spool.of(number) for breach in rrdk_dump.breaches_of(record)]

    def talk(self, wire, function, version=1, dialect="v2-04"):
        function(Talk(wire, version, dialect if version == 2 else "v1"))
        return wire

    def assert_right(self, report, calls=None):
        self.assertEqual(self.said(report), [])
        self.assertEqual(report.fault, "")
        if calls is not None:
            self.assertEqual((report.whole.calls, report.whole.unanswered), (calls, 0))

    def assert_found(self, cases):
        """Each of their breaches, and nothing else."""
        for rules, function, version, dialect, options_of_wire in cases:
            for kind in (Roce, Iwarp):
                with self.subTest(function.__name__, over=kind.__name__):
                    wire = self.talk(kind(**options_of_wire), function, version, dialect)
                    report = self.report(wire.capture(), dialect)
                    self.assertEqual(report.whole.breaches, dict.fromkeys(rules, 1), self.said(report))
