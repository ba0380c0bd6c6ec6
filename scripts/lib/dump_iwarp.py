"""iWARP: MPA (RFC 5044, 6581) over TCP, DDP (RFC 5041), RDMAP (RFC 5040).

A direction of a TCP connection that begins with MPA is read; all others are left alone.
"""
import struct
from collections import deque
from dataclasses import dataclass, field

from lib.dump_capture import (ETHERNET, READS, Closed, Damaged, Link, Lost, Message, Opened, Packet, Read,
                              Response, Send, Write, shown)

TCP_MASK, TCP_HALF = 0xFFFFFFFF, 1 << 31
FIN, SYN, RST, ACK = 1, 2, 4, 16
EARLY_PIECES, EARLY_BYTES, WIDEST_GAP = 1024, 1 << 22, 1 << 20
MPA_KEYS = {b"MPA ID Req Frame": 0, b"MPA ID Rep Frame": 1}
MPA_HEADER, MOST_PRIVATE, MARKERS, CRC, REJECTED, ENHANCED = 20, 512, 0x80, 0x40, 0x20, 0x10
RDMA_WRITE, READ_REQUEST, READ_RESPONSE, SENDS, INVALIDATES, TERMINATE = 0, 1, 2, (3, 4, 5, 6), (4, 6), 7
TAGGED_BYTES, UNTAGGED_BYTES = 14, 18
NFS_PORT = 20049


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


CRC32C = crc32c_table()


def crc32c(data):
    value, table = 0xFFFFFFFF, CRC32C
    for byte in data:
        value = value >> 8 ^ table[(value ^ byte) & 255]
    return value ^ 0xFFFFFFFF


class Stream:
    """One direction's bytes in order. Bytes that the capture lacks are zeros, and recorded as a hole."""

    def __init__(self, sequence):
        self.next, self.begin, self.data = sequence, 0, bytearray()  # `begin`: of data, in the stream
        self.holes, self.early, self.early_bytes, self.gaps = [], {}, 0, 0

    def add(self, sequence, data, length):
        """Adds data. Returns False if too much is missing."""
        if self.early_bytes == 0 and sequence == self.next:
            self.append(data, length)
            return True
        if (sequence - self.next) & TCP_MASK < TCP_HALF or (self.next - sequence) & TCP_MASK < length:
            if length > self.early.get(sequence, (b"", 0))[1]:
                self.early_bytes += length - self.early.get(sequence, (b"", 0))[1]
                self.early[sequence] = data, length
        self.drain()
        while len(self.early) > EARLY_PIECES or self.early_bytes > EARLY_BYTES:
            if not self.skip():
                return False
        return True

    def append(self, data, length):
        if len(data) < length:
            end = self.begin + len(self.data)
            self.holes.append((end + len(data), end + length))
            data += bytes(length - len(data))
        self.data += data
        self.next = (self.next + length) & TCP_MASK

    def drain(self):
        while self.early:
            sequence = min(self.early, key=lambda s: (s - self.next + TCP_HALF) & TCP_MASK)
            ahead = (sequence - self.next + TCP_HALF & TCP_MASK) - TCP_HALF
            if ahead > 0:
                return
            data, length = self.early.pop(sequence)
            self.early_bytes -= length
            if length > -ahead:
                self.append(data[-ahead:], length + ahead)

    def skip(self):
        """Skips to the next bytes that the capture contains."""
        gap = min(((s - self.next) & TCP_MASK for s in self.early), default=TCP_MASK)
        if gap > WIDEST_GAP:
            return False
        self.gaps += 1
        self.append(b"", gap)
        self.drain()
        return True

    def acknowledged(self, sequence):
        """The other end has received everything before `sequence`, so bytes missing there will not follow."""
        if not 0 < (sequence - self.next) & TCP_MASK <= WIDEST_GAP:
            return
        while (left := (sequence - self.next) & TCP_MASK) and left < TCP_HALF:
            self.gaps += 1
            self.append(b"", min([(s - self.next) & TCP_MASK for s in self.early] + [left]))
            self.drain()

    def known(self, count):
        """Returns how many of the next `count` bytes precede the first hole."""
        holes = [max(start - self.begin, 0) for start, end in self.holes if end > self.begin]
        return min(holes + [count, len(self.data)])

    def take(self, count):
        data = bytes(self.data[:count])
        del self.data[:count]
        self.begin += count
        while self.holes and self.holes[0][1] <= self.begin:
            del self.holes[0]
        return data


class Half:
    """One direction of a TCP connection."""
    __slots__ = ("first", "stream", "link", "side", "other", "message", "reads", "fin")

    def __init__(self, sequence):
        self.first, self.stream, self.reads = sequence, Stream(sequence), deque(maxlen=READS)
        self.link = self.other = self.message = self.fin = None
        self.side = 0


@dataclass(slots=True)
class IwarpLink(Link):
    flags: list = field(default_factory=lambda: [None, None])  # of MPA, by side
    broken: bool = False


class Iwarp:
    def __init__(self, new_number, notes):
        self.new_number, self.notes = new_number, notes
        self.halves = {}  # None: a direction that is not iWARP

    def take(self, datagram):
        data = datagram.data
        if len(data) < 20:
            return
        source_port, destination_port, sequence, acknowledged = struct.unpack_from(">HHII", data)
        header, flags = 4 * (data[12] >> 4), data[13]
        key = datagram.source, source_port, datagram.destination, destination_port
        data, length = data[header:], datagram.length - header
        if header < 20 or length < 0:
            return
        half = self.halves.get(key)
        if flags & SYN and not (half and half.first == sequence + 1 & TCP_MASK):
            yield from self.end(key, datagram.packet)
            half = self.halves[key] = Half(sequence + 1 & TCP_MASK)
        elif length and key not in self.halves:
            half = self.halves[key] = Half(sequence)
        if half is None or half.link and half.link.broken:
            return
        if flags & ACK and half.other and half.other.link:
            yield from self.acknowledge(half.other, (*key[2:], *key[:2]), datagram.packet, acknowledged)
        if length and not flags & SYN:
            yield from self.read(key, half, datagram.packet, sequence, data, length)
        if flags & FIN:
            half.fin = sequence + length & TCP_MASK
        if flags & RST or half.fin == half.stream.next:
            yield from self.end(key, datagram.packet)
        if flags & RST:
            yield from self.end((*key[2:], *key[:2]), datagram.packet)

    def acknowledge(self, half, key, packet, sequence):
        gaps = half.stream.gaps
        half.stream.acknowledged(sequence)
        if half.stream.gaps > gaps:
            yield Lost(half.link, half.side, packet.frame, packet.time)
            yield from self.frames(key, half, packet)

    def read(self, key, half, packet, sequence, data, length):
        gaps = half.stream.gaps
        if not half.stream.add(sequence, data, length):
            yield from self.give_up(half, packet, "too many of its packets are missing")
            return
        if half.link and half.stream.gaps > gaps:
            yield Lost(half.link, half.side, packet.frame, packet.time)
        yield from self.frames(key, half, packet)

    def end(self, key, packet):
        half = self.halves.get(key)
        while half and half.link and half.stream.early and half.stream.skip():
            yield Lost(half.link, half.side, packet.frame, packet.time)
            yield from self.frames(key, half, packet)
        self.halves[key] = None
        if half and half.link and self.halves.get((*key[2:], *key[:2])) is not half.other:
            yield Closed(half.link, half.side, packet.frame, packet.time)

    def give_up(self, half, packet, why):
        half.stream = Stream(0)
        if half.link and not half.link.broken:
            half.link.broken = True
            half.link.note(f"not read from frame {packet.frame} on: {why}")
            yield Lost(half.link, half.side, packet.frame, packet.time)

    def frames(self, key, half, packet):
        while self.halves.get(key) is half and not (half.link and half.link.broken):
            if half.link is None:
                if not self.begin(key, half, packet):
                    return
                yield Opened(half.link, half.side, packet.frame, packet.time)
                continue
            stream = half.stream
            if len(stream.data) < 2:
                return
            length = int.from_bytes(stream.data[:2], "big")
            total = (2 + length + 3 & ~3) + 4
            if len(stream.data) < total and stream.known(2) == 2:
                return
            headers = 2 + min(length, UNTAGGED_BYTES)
            if length < TAGGED_BYTES or stream.known(headers) < headers:
                yield from self.give_up(half, packet, "where its frames begin is not in the capture")
                return
            known = stream.known(total)
            yield from self.segment(half, packet, stream.take(total), known, length)

    def begin(self, key, half, packet):
        """Reads MPA's request or reply. Returns False if it is incomplete or this is not iWARP."""
        stream = half.stream
        start = bytes(stream.data[:MPA_HEADER])
        if not any(k.startswith(start[:16]) for k in MPA_KEYS) or stream.known(MPA_HEADER) < len(start):
            if NFS_PORT in (key[1], key[3]):
                self.notes.append(f"frame {packet.frame}: a connection at port {NFS_PORT} is not read, "
                                  "because its beginning (MPA) is not in the capture")
            self.halves[key] = None
            return False
        size = int.from_bytes(start[18:20], "big")
        if len(start) < MPA_HEADER or len(stream.data) < MPA_HEADER + min(size, MOST_PRIVATE):
            return False
        frame = stream.take(MPA_HEADER + min(size, MOST_PRIVATE))
        side = MPA_KEYS[frame[:16]]
        other = self.halves.get((*key[2:], *key[:2]))
        half.other, half.side = other, side
        known = other.link if other and other.link and other.side != side else None
        half.link = known or self.new_link(key, side, packet)
        if other:
            other.other = half
        self.agree(half, frame[16], frame[17], frame[MPA_HEADER:])
        return True

    def new_link(self, key, side, packet):
        ends = shown(key[0], key[1]), shown(key[2], key[3])
        return IwarpLink(self.new_number(), "iWARP", ends if side == 0 else ends[::-1], packet.frame,
                         client=0, whole=side == 0, one_sided=True)

    # RFC 6581 section 4: the first four bytes of an enhanced frame's private data are MPA's own.
    def agree(self, half, flags, revision, private):
        link = half.link
        link.flags[half.side] = flags
        link.one_sided = None in link.flags
        link.private[half.side] = private[4:] if revision >= 2 and flags & ENHANCED else private
        if flags & MARKERS:
            link.broken = True
            link.note("not read: it uses the markers of MPA, which this program does not know")
        if flags & REJECTED and half.side == 1:
            link.note("the server refused it")

    def segment(self, half, packet, frame, known, length):
        link, about = half.link, (half.link, half.side, packet.frame, packet.time)
        # RFC 5044 section 7.1: both ends use CRCs if either asks.
        if None not in link.flags and (link.flags[0] | link.flags[1]) & CRC and known == len(frame) and \
                crc32c(frame[:-4]) != int.from_bytes(frame[-4:], "little"):
            yield Damaged(*about)
        control, opcode = frame[2], frame[3] & 15
        headers = 2 + (TAGGED_BYTES if control & 0x80 else UNTAGGED_BYTES)
        data, size = frame[headers:min(known, 2 + length)], 2 + length - headers
        if size < 0:
            link.note(f"frame {packet.frame}: an MPA frame of {length} bytes is shorter than its headers")
            yield Lost(*about)
        elif control & 0x80:
            yield from self.tagged(half, about, opcode, *struct.unpack_from(">IQ", frame, 4), data, size)
        else:
            yield from self.untagged(half, about, opcode, control, frame, data, size)

    def tagged(self, half, about, opcode, handle, offset, data, length):
        if opcode == RDMA_WRITE:
            yield Write(*about, data, length, handle, offset)
        elif opcode == READ_RESPONSE:
            reads = half.other.reads if half.other else ()
            read = next((r for r in reads if r.sink[0] == handle and
                         r.sink[1] <= offset and offset + length <= r.sink[1] + r.length), None)
            if read is not None:
                yield Response(*about, data, length, read, offset - read.sink[1])
                if offset + length == read.sink[1] + read.length:
                    reads.remove(read)

    def untagged(self, half, about, opcode, control, frame, data, length):
        handle, queue, _, offset = struct.unpack_from(">IIII", frame, 4)
        if opcode in SENDS and queue == 0:
            if offset == 0:
                half.message = Message()
            if half.message is None or half.message.length != offset:
                half.message = None
                yield Lost(*about)
                return
            half.message.add(data, length)
            if control & 0x40:
                yield Send(*about, bytes(half.message.data), half.message.length,
                           handle if opcode in INVALIDATES else None)
                half.message = None
        elif opcode == READ_REQUEST and len(data) >= 28:
            sink, sink_offset, size, source, source_offset = struct.unpack_from(">IQIIQ", data)
            event = Read(*about, b"", size, source, source_offset, (sink, sink_offset))
            half.reads.append(event)
            yield event
        elif opcode == TERMINATE:
            half.link.note(f"frame {about[2]}: a Terminate message")

    def finish(self):
        for key, half in list(self.halves.items()):
            if half and half.link and half.stream.early:
                packet = Packet(half.link.frame, 0, ETHERNET, b"", 0)
                yield from self.end(key, packet)
