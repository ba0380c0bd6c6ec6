"""Reads the packets of a capture file, and the layers below RDMA.

    file      pcap and pcapng, either byte order; Ethernet, raw IP, Linux cooked
    network   IPv4 and IPv6

Also defines what dump_roce.py and dump_iwarp.py share: the events that both make of packets, the link that
the events belong to, and messages that arrive in pieces.
"""
import contextlib
import gzip
import shutil
import socket
import struct
import sys
import tempfile
import zlib
from dataclasses import dataclass, field

KEPT = 1 << 18  # bytes of a message; Sends are smaller (RFC 8797 section 4: at most 262144)
READS = 256  # that wait for their data, of one direction of a link


class BadFile(Exception):
    """The file is not a capture, or is damaged from here on."""


class CutShort(BadFile):
    """The file ends within its last packet, as when the capturing process was killed."""


@dataclass(slots=True)
class Packet:
    frame: int  # counted from 1, as tcpdump and Wireshark do
    time: int  # nanoseconds
    link_type: int
    data: bytes
    length: int  # on the wire
    section: int = 0  # of a pcapng file
    ours: bool = False  # captured by RRDK itself: messages, each framed as a RoCEv2 packet
    interface: str = ""
    comment: str = ""


@dataclass(slots=True)
class Event:
    link: "Link"
    side: int  # whose it is
    frame: int
    time: int
    data: bytes = b""  # the part that the capture contains
    length: int = 0


@dataclass(slots=True)
class Opened(Event):
    """One end has reported the connection as open."""


@dataclass(slots=True)
class Send(Event):
    invalidates: int | None = None  # a handle


@dataclass(slots=True)
class Write(Event):
    handle: int = 0
    offset: int = 0


@dataclass(slots=True)
class Read(Event):
    """A Request: `length` bytes of the other end's memory."""
    handle: int = 0
    offset: int = 0
    sink: tuple = ()  # iWARP's, by which Responses are matched
    owner: object = None  # for the user of the events


@dataclass(slots=True)
class Response(Event):
    read: Read | None = None
    at: int = 0  # of `read`'s bytes


@dataclass(slots=True)
class Lost(Event):
    """Packets of this side are not in the capture."""


@dataclass(slots=True)
class Damaged(Event):
    """Its CRC is wrong."""


@dataclass(slots=True)
class Closed(Event):
    """The link's last event."""


@dataclass(slots=True)
class Link:
    """A connection. Side 0 is the end that connected, if the capture shows which one did."""
    number: int
    transport: str
    ends: tuple
    frame: int
    client: int | None = None  # a side
    whole: bool = False  # the capture has it from its beginning
    one_sided: bool = False  # the capture contains only one direction
    shows_rdma: bool = True  # RDMA Writes and Reads of both ends
    private: list = field(default_factory=lambda: [None, None])  # by side; None: not seen
    comment: str = ""
    notes: list = field(default_factory=list)

    def note(self, text):
        if text not in self.notes and len(self.notes) < 20:
            self.notes.append(text)


# ---- the file

MOST_BYTES = 1 << 24  # of a packet or a block; a larger length means that the file is damaged
ETHERNET, RAW_IP, COOKED, COOKED_2 = 1, 101, 113, 276
GZIP = b"\x1f\x8b"
LINK_TYPES = (ETHERNET, RAW_IP, COOKED, COOKED_2)
PCAP = {bytes.fromhex(magic): (order, unit) for magic, order, unit in (
    ("a1b2c3d4", ">", 1000), ("d4c3b2a1", "<", 1000), ("a1b23c4d", ">", 1), ("4d3cb2a1", "<", 1))}
SECTION, INTERFACE, SIMPLE_PACKET, STATISTICS, PACKET = 0x0A0D0D0A, 1, 3, 5, 6
BYTE_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
END_OF_OPTIONS, COMMENT, NAME, APPLICATION, DROPPED, RESOLUTION, TIME_OFFSET = 0, 1, 2, 4, 5, 9, 14


def exactly(file, count, where):
    data = file.read(count)
    if len(data) < count:
        raise CutShort(f"the file ends within {where}")
    return data


def packets_of_pcap(file, magic):
    order, unit = PCAP[magic]
    header = struct.Struct(order + "IIII")
    header_of_file = file.read(20)
    if len(header_of_file) < 20:
        raise BadFile("it ends within its first header")
    link_type = struct.unpack(order + "HHiIII", header_of_file)[5] & 0xFFFF
    if link_type not in LINK_TYPES:
        raise BadFile(f"its link type is {link_type}, neither Ethernet nor IP nor Linux's cooked ones")
    frame = 0
    while first := file.read(16):
        frame += 1
        name = f"frame {frame}"
        seconds, part, captured, length = header.unpack(first + exactly(file, 16 - len(first), name))
        if captured > MOST_BYTES:
            raise BadFile(f"{name} would have {captured} bytes")
        yield Packet(frame, seconds * 10**9 + part * unit, link_type, exactly(file, captured, name),
                     max(length, captured))


def blocks(file):
    """Yields (byte order, type, body) of each block of a pcapng file whose first four bytes have been read."""
    order, first = "", struct.pack("<I", SECTION)
    while first:
        head = first + exactly(file, 8 - len(first), "a block")
        magic = b""
        if head[:4] == struct.pack("<I", SECTION):  # the same in either order
            magic = exactly(file, 4, "a section header")
            order = BYTE_ORDERS.get(magic)
            if order is None:
                raise BadFile("a section has neither byte order")
        kind, length = struct.unpack(order + "II", head)
        if length % 4 or not 12 + len(magic) <= length <= MOST_BYTES:
            raise BadFile(f"a block would have {length} bytes")
        body = magic + exactly(file, length - 12 - len(magic), "a block")
        if struct.unpack(order + "I", exactly(file, 4, "a block"))[0] != length:
            raise BadFile("a block ends with another length than it begins with")
        yield order, kind, body
        first = file.read(4)


def options(order, data):
    found = {}
    while len(data) >= 4:
        code, length = struct.unpack_from(order + "HH", data)
        if code == END_OF_OPTIONS:
            break
        found.setdefault(code, data[4:4 + length])
        data = data[4 + (length + 3 & ~3):]
    return found


def text_of(found, code):
    text = found.get(code, b"").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


class Interface:
    def __init__(self, order, body):
        if len(body) < 8:
            raise BadFile("an interface's description is too short")
        self.link_type, _, self.snaplen = struct.unpack_from(order + "HHI", body)
        found = options(order, body[8:])
        self.name = text_of(found, NAME)
        resolution = (found.get(RESOLUTION) or b"\x06")[0]
        self.ticks = 1 << (resolution & 0x7F) if resolution & 0x80 else 10**resolution
        offset = found.get(TIME_OFFSET, bytes(8))
        self.seconds = struct.unpack(order + "q", offset)[0] if len(offset) == 8 else 0

    def time(self, ticks):
        return self.seconds * 10**9 + ticks * 10**9 // self.ticks


class Sections:
    """Decodes the packets of a pcapng file, whose meaning depends on the blocks before them."""

    def __init__(self):
        self.section = self.frame = self.time = 0
        self.ours, self.interfaces = False, []

    def take(self, order, kind, body):
        if kind == SECTION:
            self.section, self.interfaces = self.section + 1, []
            self.ours = text_of(options(order, body[16:]), APPLICATION) == "RRDK"
        elif kind == INTERFACE:
            self.interfaces.append(Interface(order, body))
        elif kind in (PACKET, SIMPLE_PACKET):
            self.frame += 1
            return self.packet(order, kind, body)
        return None

    def packet(self, order, kind, body):
        size = 20 if kind == PACKET else 4
        if len(body) < size:
            raise BadFile(f"frame {self.frame} is shorter than its description")
        number = high = low = 0
        if kind == PACKET:
            number, high, low, captured, length = struct.unpack_from(order + "IIIII", body)
        else:
            captured, length = len(body) - 4, struct.unpack_from(order + "I", body)[0]
        if number >= len(self.interfaces):
            raise BadFile(f"frame {self.frame} is of interface {number}, which is not described")
        interface = self.interfaces[number]
        if kind == PACKET:  # simple ones have no time
            self.time = interface.time(high << 32 | low)
        else:
            captured = min(captured, length, interface.snaplen or captured)
        data = body[size:size + captured]
        if len(data) < captured:
            raise BadFile(f"frame {self.frame} is longer than its block")
        behind = body[size + (captured + 3 & ~3):] if kind == PACKET else b""
        return Packet(self.frame, self.time, interface.link_type, data, max(length, captured), self.section,
                      self.ours, interface.name, text_of(options(order, behind), COMMENT))


def open_capture(path):
    """Opens the capture as a file that can be read twice: a pipe's data are stored, and gzip data unpacked. "-"
    is stdin."""
    file = sys.stdin.buffer if str(path) == "-" else open(path, "rb")
    if not file.seekable():
        kept = tempfile.TemporaryFile()
        shutil.copyfileobj(file, kept)
        file = kept
    file.seek(0)
    packed = file.read(2) == GZIP
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if packed else file


def unpacked(read):
    """Wraps a generator that may read gzip data, and reports errors of unpacking as faults of the file."""
    def generator(file):
        try:
            yield from read(file)
        except EOFError:
            raise CutShort("the file ends within what gzip has packed") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BadFile(f"gzip: {error}") from None
    return generator


def packets(path):
    with contextlib.closing(open_capture(path)) as file:
        yield from packets_of(file)


@unpacked
def packets_of(file):
    file.seek(0)
    magic = file.read(4)
    if magic in PCAP:
        yield from packets_of_pcap(file, magic)
    elif magic == struct.pack("<I", SECTION):
        sections = Sections()
        for block in blocks(file):
            packet = sections.take(*block)
            if packet is not None:
                yield packet
    else:
        raise BadFile("it is neither pcap nor pcapng")


@unpacked
def drops(file):
    """Yields the numbers of missing packets that the capturing program reports."""
    file.seek(0)
    if file.read(4) != struct.pack("<I", SECTION):
        return
    for order, kind, body in blocks(file):
        if kind == STATISTICS:
            value = options(order, body[12:]).get(DROPPED, b"")
            yield struct.unpack(order + "Q", value)[0] if len(value) == 8 else 0


def dropped(file):
    """Counts the dropped packets of the whole file, since the final counts are at its end."""
    count = 0
    try:
        for more in drops(file):
            count += more
    except BadFile:
        pass  # packets() reports the fault when it gets there
    return count


# ---- the network

IPV4, IPV6, VLANS = 0x0800, 0x86DD, (0x8100, 0x88A8)
TCP, UDP, IPV6_EXTENSIONS = 6, 17, (0, 43, 60)  # hop by hop, routing, destination


@dataclass(slots=True)
class Datagram:
    packet: Packet
    source: bytes
    destination: bytes
    protocol: int
    data: bytes  # behind the IP header
    length: int


def network_layer(packet):
    """Returns (ethertype, offset of the IP header)."""
    data = packet.data
    if packet.link_type == RAW_IP:
        return (IPV6 if data[:1] and data[0] >> 4 == 6 else IPV4), 0
    at = {ETHERNET: 12, COOKED: 14, COOKED_2: 0}.get(packet.link_type, len(data))
    kind, behind = int.from_bytes(data[at:at + 2], "big"), {COOKED_2: 20}.get(packet.link_type, at + 2)
    while kind in VLANS and len(data) >= behind + 4:
        kind, behind = int.from_bytes(data[behind + 2:behind + 4], "big"), behind + 4
    return kind, behind


def datagram(packet):
    """Returns the packet's datagram, or None if it is not IP or is a fragment."""
    kind, at = network_layer(packet)
    data = packet.data
    if kind == IPV4 and len(data) >= at + 20 and data[at] >> 4 == 4:
        size = 4 * (data[at] & 15)
        total, _, fragment = struct.unpack_from(">HHH", data, at + 2)
        total = total or packet.length - at  # 0 where the device cut it (TSO)
        if size < 20 or total < size or fragment & 0x3FFF:
            return None
        return Datagram(packet, data[at + 12:at + 16], data[at + 16:at + 20], data[at + 9],
                        data[at + size:at + total], total - size)
    if kind == IPV6 and len(data) >= at + 40 and data[at] >> 4 == 6:
        length = int.from_bytes(data[at + 4:at + 6], "big") or packet.length - at - 40
        protocol, body = data[at + 6], data[at + 40:at + 40 + length]
        while protocol in IPV6_EXTENSIONS and len(body) >= 8:
            size = 8 + 8 * body[1]
            protocol, body, length = body[0], body[size:], length - size
        return Datagram(packet, data[at + 8:at + 24], data[at + 24:at + 40], protocol, body, max(length, 0))
    return None


def shown(address, port=None):
    text = socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)
    if port is None:
        return text
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


class Message:
    """Collects a message that arrives in pieces: the bytes before the first hole."""
    __slots__ = ("data", "length")

    def __init__(self):
        self.data, self.length = bytearray(), 0

    def add(self, data, length):
        if len(self.data) == self.length and self.length < KEPT:
            self.data += data[:length]
        self.length += length
