"""Attacks over iwarp:, by peers that speak MPA, DDP and RPC-over-RDMA as they like. They come from
addresses of their own (127.0.0.2 and up), so that to the server they are not the honest client's host."""
import itertools
import socket
import struct
import time

from attacks import attack

PROGRAM, VERSION = 0x20005666, 1
READ, WRITE = 2, 3
VERIFY = 1
MIB = 1 << 20


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def fpdu(ulpdu):
    """RFC 5044 section 4.2: length, ULPDU, pad, CRC32C."""
    data = struct.pack(">H", len(ulpdu)) + ulpdu
    data += bytes(-len(data) % 4)
    return data + struct.pack("<I", crc32c(data))


class Peer:
    """One connection. MPA revision 2, so that it can state how many RDMA Reads it serves."""

    def __init__(self, uri, source="127.0.0.2"):
        host, _, port = uri.removeprefix("iwarp://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=2, source_address=(source, 0))
        self.buffer = b""
        self.sent = 0
        self.reads = []  # (sink STag, sink offset, length), not answered
        self.xids = itertools.count(1)
        self.socket.sendall(b"MPA ID Req Frame" + struct.pack(">BBHHH", 0x50, 2, 4, 16, 16))

    def accepted(self):
        """Waits for the MPA reply; returns False if it was a rejection, or the connection was closed."""
        try:
            while len(self.buffer) < 20:
                self._receive()
            flags, _, length = struct.unpack_from(">BBH", self.buffer, 16)
            while len(self.buffer) < 20 + length:
                self._receive()
        except OSError:
            return False
        self.buffer = self.buffer[20 + length:]
        return not flags & 0x20

    def _receive(self):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionResetError
        self.buffer += data

    def send(self, message):
        """An RDMAP Send, in one segment."""
        self.sent += 1
        self.socket.sendall(fpdu(struct.pack(">BBIIII", 0x41, 0x43, 0, 0, self.sent, 0) + message))

    def call(self, procedure, arguments, read_list=()):
        """`read_list`: (handle, length, offset) of each segment of the data behind the arguments."""
        xid = next(self.xids)
        rpc = struct.pack(">10I", xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0) + arguments
        header = struct.pack(">4I", xid, 1, 64, 0)
        for handle, length, offset in read_list:
            header += struct.pack(">4IQ", 1, len(rpc), handle, length, offset)
        self.send(header + struct.pack(">3I", 0, 0, 0) + rpc)

    def write(self, size, tiny=0):
        """A PERF_WRITE whose data is to be read from here, starting with `tiny` segments of four bytes."""
        segments = [(1, 4, 4 * i) for i in range(tiny)] + [(1, size - 4 * tiny, 4 * tiny)]
        self.call(WRITE, struct.pack(">QIII", 0, 0, 0, size), segments)

    def read(self, size, delay_us):
        """A PERF_READ that offers no memory for its result."""
        self.call(READ, struct.pack(">QIII", 0, size, VERIFY, delay_us))

    def take(self):
        """Takes the received data, and records the RDMA Reads. Returns False if the connection is closed."""
        self.socket.setblocking(False)
        try:
            while True:
                self._receive()
        except BlockingIOError:
            pass
        except OSError:
            return False
        finally:
            self.socket.setblocking(True)
        while len(self.buffer) >= 2:
            length = struct.unpack_from(">H", self.buffer)[0]
            whole = (2 + length + 3) // 4 * 4 + 4
            if len(self.buffer) < whole:
                break
            ulpdu = self.buffer[2:2 + length]
            if ulpdu[1] & 0xF == 1:  # Read Request
                self.reads.append(struct.unpack_from(">IQI", ulpdu, 18))
            self.buffer = self.buffer[whole:]
        return True

    def answer_read(self):
        """Answers the oldest RDMA Read if it is for a few bytes; otherwise returns False."""
        if not self.reads or self.reads[0][2] > 64:
            return False
        stag, offset, length = self.reads.pop(0)
        self.socket.sendall(fpdu(struct.pack(">BBIQ", 0xC1, 0x42, stag, offset) + bytes(length)))
        return True

    def close(self):
        self.socket.close()


def try_peer(uri, source="127.0.0.2"):
    """An accepted peer, or None."""
    try:
        peer = Peer(uri, source)
    except OSError:
        return None
    if peer.accepted():
        return peer
    peer.close()
    return None


def hold(uri, until, sources, begin, keep_on=None):
    """Keeps a connection from each of these addresses, begun by begin(peer), and again when it is lost. Returns how
    many were made."""
    peers = dict.fromkeys(range(len(sources)))
    count = 0
    while time.monotonic() < until:
        for slot, peer in peers.items():
            try:
                if peer is not None and peer.take():
                    if keep_on:
                        keep_on(peer)
                    continue
                if peer is not None:
                    peer.close()
                peers[slot] = peer = try_peer(uri, sources[slot])
                if peer is not None:
                    count += 1
                    begin(peer)
            except OSError:
                pass  # the server has closed it: take() will say so
        time.sleep(0.02)
    for peer in peers.values():
        if peer is not None:
            peer.close()
    return count


@attack("iwarp-withheld-reads", "iwarp", "--max-size", "1M")
def withheld_reads(uri, until):
    """Six connections with calls for all large buffers, whose RDMA Reads are never answered."""
    def begin(peer):
        for _ in range(31):
            peer.write(MIB)
    return f"{hold(uri, until, ['127.0.0.2'] * 6, begin)} connections"


@attack("iwarp-dripping-reads", "iwarp", "--max-size", "1M")
def dripping_reads(uri, until):
    """The same, from two hosts, with one Read of four bytes answered now and then."""
    def begin(peer):
        for _ in range(31):
            peer.write(MIB, tiny=30)
        peer.next_drip = time.monotonic()

    def drip(peer):
        if time.monotonic() >= peer.next_drip:
            peer.next_drip = time.monotonic() + 0.4
            peer.answer_read()
    return f"{hold(uri, until, ['127.0.0.2', '127.0.0.3'] * 3, begin, drip)} connections"


@attack("iwarp-greedy-connections", "iwarp", "--max-size", "1M")
def greedy_connections(uri, until):
    """One host with 40 connections, each with calls of all sizes whose RDMA Reads are never answered."""
    def begin(peer):
        for size in (4000, 60000, MIB, 60000, 4000) * 4:
            peer.write(size)
    return f"{hold(uri, until, ['127.0.0.2'] * 40, begin)} connections"


@attack("iwarp-kept-calls", "iwarp")
def kept_calls(uri, until):
    """One host with more calls than a core has objects for, some beyond what it was granted; their RDMA Reads
    are never answered."""
    def begin(peer):
        for _ in range(60):
            peer.write(2048)
    return f"{hold(uri, until, ['127.0.0.2'] * 140, begin)} connections"


@attack("iwarp-delayed-results", "iwarp", "--max-size", "1M")
def delayed_results(uri, until):
    """Reads without memory for their results, which the server makes and keeps for ten seconds."""
    def begin(peer):
        for _ in range(31):
            peer.read(MIB, 10_000_000)
    return f"{hold(uri, until, ['127.0.0.2'] * 4, begin)} connections"


@attack("iwarp-silent-connections", "iwarp")
def silent_connections(uri, until):
    """Hundreds of connections that never make a call, from several hosts."""
    sources = [f"127.0.0.{host}" for host in range(2, 8) for _ in range(40)]
    return f"{hold(uri, until, sources, lambda peer: None)} connections"


@attack("iwarp-half-open", "iwarp")
def half_open(uri, until):
    """TCP connections that never send a request, as fast as they can be made."""
    host, _, port = uri.removeprefix("iwarp://").rpartition(":")
    count = 0
    while time.monotonic() < until:
        batch = []
        for _ in range(200):
            try:
                batch.append(socket.create_connection((host, int(port)), timeout=1, source_address=("127.0.0.9", 0)))
            except OSError:
                break
        count += len(batch)
        time.sleep(0.05)
        for each in batch:
            each.close()
    return f"{count} connections"
