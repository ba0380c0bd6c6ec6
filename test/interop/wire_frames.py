"""Rewrites a capture of iWARP so that each MPA frame is a TCP segment of its own, whole where its length
allows.

tshark 4.0 loses its place in the stream where an MPA frame ends near the end of a TCP segment, and takes
a second Send in a segment for a fragment of the first. This does the framing of RFC 5044 section 4 for
it: nothing but lengths and pads.
"""
import struct

MPA_KEYS = (b"MPA ID Req Frame", b"MPA ID Rep Frame")
MPA_HEADER, LENGTH, CRC = 20, 2, 4
IP_TCP = 40
MOST = 65535 - IP_TCP
ETHERNET, ETHERTYPE_IPV4, TCP = 14, 0x0800, 6
SYN, ACK, PSH = 2, 16, 24


def segments(path):
    """(time, source, destination, sequence, flags, payload) of each TCP segment over IPv4."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] != b"\xd4\xc3\xb2\xa1":
        raise ValueError(f"{path} is no pcap file of this machine's byte order")
    at = 24
    while at + 16 <= len(data):
        seconds, micros, length, _ = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16:at + 16 + length]
        at += 16 + length
        if struct.unpack_from(">H", frame, 12)[0] != ETHERTYPE_IPV4 or frame[ETHERNET + 9] != TCP:
            continue
        header = ETHERNET + 4 * (frame[ETHERNET] & 15)
        ends = struct.unpack_from(">HH", frame, header)
        total = struct.unpack_from(">H", frame, ETHERNET + 2)[0]
        payload = frame[header + 4 * (frame[header + 12] >> 4):ETHERNET + total if total else len(frame)]
        yield ((seconds, micros), (frame[ETHERNET + 12:ETHERNET + 16], ends[0]),
               (frame[ETHERNET + 16:ETHERNET + 20], ends[1]), struct.unpack_from(">I", frame, header + 4)[0],
               frame[header + 13], payload)


class Direction:
    """The bytes of one direction in order, cut into MPA frames."""

    def __init__(self, sequence):
        self.next, self.early, self.bytes, self.started = sequence, {}, b"", False

    def add(self, sequence, payload):
        self.early[sequence] = payload
        while (here := next((s for s in self.early if (s - self.next) & 0xffffffff == 0 or
                             (self.next - s) & 0xffffffff < 1 << 30), None)) is not None:
            payload = self.early.pop(here)[(self.next - here) & 0xffffffff:]
            self.bytes += payload
            self.next = (self.next + len(payload)) & 0xffffffff

    def take(self):
        """The next frame if it is here."""
        if not self.started and self.bytes[:len(MPA_KEYS[0])] in MPA_KEYS and len(self.bytes) >= MPA_HEADER:
            length = MPA_HEADER + struct.unpack_from(">H", self.bytes, MPA_HEADER - 2)[0]
        elif self.started and len(self.bytes) >= LENGTH:
            length = (LENGTH + struct.unpack_from(">H", self.bytes)[0] + 3 & ~3) + CRC
        else:
            return None
        if len(self.bytes) < length:
            return None
        frame, self.bytes, self.started = self.bytes[:length], self.bytes[length:], True
        return frame


class Writer:
    def __init__(self, file):
        self.file, self.sent = file, {}
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 262144, 1))

    def segment(self, time, source, destination, flags, payload=b""):
        sequence = self.sent.get((source, destination), 0)
        acknowledged = self.sent.get((destination, source), 0)
        self.sent[source, destination] = sequence + len(payload) + bool(flags & SYN)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, IP_TCP + len(payload), 0, 0x4000, 64, TCP, 0) + source[0] + destination[0]
        tcp = struct.pack(">HHIIBBHHH", source[1], destination[1], sequence, acknowledged, 5 << 4, flags, 65535, 0, 0)
        frame = bytes(12) + struct.pack(">H", ETHERTYPE_IPV4) + ip + tcp + payload
        self.file.write(struct.pack("<IIII", *time, len(frame), len(frame)) + frame)


def rewrite(path, target):
    """Returns what was left at the end: bytes of each direction that are no whole frame."""
    directions = {}
    with open(target, "wb") as file:
        out = Writer(file)
        for time, source, destination, sequence, flags, payload in segments(path):
            key = (source, destination)
            if flags & SYN:
                directions[key] = Direction(sequence + 1 & 0xffffffff)
                out.sent.pop(key, None)
                out.segment(time, source, destination, flags)
            elif key in directions and payload:
                directions[key].add(sequence, payload)
                while (frame := directions[key].take()) is not None:
                    for at in range(0, len(frame), MOST):
                        out.segment(time, source, destination, PSH, frame[at:at + MOST])
    return sum(len(d.bytes) + sum(map(len, d.early.values())) for d in directions.values() if d.started)
