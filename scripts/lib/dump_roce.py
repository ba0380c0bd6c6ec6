"""RoCEv2: InfiniBand's transport over UDP (its specification, volume 1, chapter 9), and the connection
management (chapter 12) that says which packets belong together.

If a capture lacks the management, the directions of a connection are paired by which packet answers which.
"""
import struct
from collections import deque
from dataclasses import dataclass

from lib.dump_capture import (READS, Closed, Link, Lost, Message, Opened, Read, Response, Send, Write,
                              shown)

ROCE_PORT, BASE_HEADER, ICRC, MASK, HALF = 4791, 12, 4, 0xFFFFFF, 0x800000
RRDK_PORT, RRDK_MTU, SMALLEST_MTU, LARGEST_MTU = 0xC000, 4096, 256, 4096
HELD, BACKLOG = 64, 4096  # packets that wait for an earlier one, for their link
UNPAIRED = 256  # flows between two addresses that wait for their link
SEND, WRITE, READ, RESPONSE, ATOMIC = "Send", "Write", "Read", "Response", "Atomic"
# operation, whether it is the first packet, whether it is the last, bytes of headers behind the base header
OPCODES = {
    0x00: (SEND, True, False, 0), 0x01: (SEND, False, False, 0), 0x02: (SEND, False, True, 0),
    0x03: (SEND, False, True, 4), 0x04: (SEND, True, True, 0), 0x05: (SEND, True, True, 4),
    0x16: (SEND, False, True, 4), 0x17: (SEND, True, True, 4),
    0x06: (WRITE, True, False, 16), 0x07: (WRITE, False, False, 0), 0x08: (WRITE, False, True, 0),
    0x09: (WRITE, False, True, 4), 0x0A: (WRITE, True, True, 16), 0x0B: (WRITE, True, True, 20),
    0x0C: (READ, True, True, 16), 0x0D: (RESPONSE, True, False, 4), 0x0E: (RESPONSE, False, False, 0),
    0x0F: (RESPONSE, False, True, 4), 0x10: (RESPONSE, True, True, 4),
    0x13: (ATOMIC, True, True, 28), 0x14: (ATOMIC, True, True, 28)}
ACKNOWLEDGE, INVALIDATING, DATAGRAM = 0x11, (0x16, 0x17), 0x64


@dataclass(slots=True)
class RocePacket:
    frame: int
    time: int
    opcode: int
    psn: int
    body: bytes  # behind the base header, without pad
    length: int
    comment: str


class Flow:
    """The packets from one address to one queue pair."""
    __slots__ = ("section", "source", "destination", "queue_pair", "port", "frame", "interface", "link",
                 "side", "partner", "expected", "slack", "held", "message", "write", "reads", "backlog",
                 "seen")

    def __init__(self, packet, source, destination, queue_pair, port):
        self.section, self.source, self.destination = packet.section, source, destination
        self.queue_pair, self.port, self.frame = queue_pair, port, packet.frame
        self.interface = packet.interface if packet.ours else ""
        self.link = self.partner = self.expected = self.message = self.write = None
        self.side = self.slack = 0
        self.held, self.reads, self.backlog, self.seen = {}, deque(maxlen=READS), [], set()

    def answers(self, other, packet):
        """Returns whether this flow's packet answers one of the other flow."""
        if packet.opcode == ACKNOWLEDGE or OPCODES.get(packet.opcode, ("",))[0] == RESPONSE:
            return packet.psn in other.seen
        return xid_of(packet) in other.seen

    def remember(self, packet):
        if OPCODES[packet.opcode][0] != RESPONSE:
            self.seen.update((packet.psn, xid_of(packet)))

    def in_order(self, packet=None, most=HELD):
        """Yields the next requests in order and drops duplicates; None stands for missing ones."""
        if packet is not None:
            self.expected = packet.psn if self.expected is None else self.expected
            self.held.setdefault(packet.psn, packet)
        while self.held:
            ahead = {psn: (psn - self.expected) & MASK for psn in self.held}
            for psn in [psn for psn, distance in ahead.items() if distance >= HALF]:
                del self.held[psn], ahead[psn]
            if not ahead:
                return
            psn = min(ahead, key=ahead.get)
            if ahead[psn] > self.slack:
                if len(self.held) < most:
                    return
                yield None
            found = self.held.pop(psn)
            self.pass_over(found)
            yield found

    # A Read Request takes as many numbers as its Response has packets (9.7.4.1); this is an estimate while
    # the size of a packet is not known.
    def pass_over(self, packet):
        count = most = 1
        if packet.opcode == 0x0C and len(packet.body) >= 16:
            length, mtu = int.from_bytes(packet.body[12:16], "big"), self.link.mtu
            count, most = (max(1, -(-length // size)) for size in (mtu or LARGEST_MTU, mtu or SMALLEST_MTU))
        self.expected, self.slack = (packet.psn + count) & MASK, most - count


def xid_of(packet):
    """Returns the XID at the beginning of a Send, or for other packets a value that nothing answers."""
    is_send = OPCODES.get(packet.opcode, ("", False))[:2] == (SEND, True)
    return ("xid", bytes(packet.body[:4])) if is_send and len(packet.body) >= 16 else ("none", id(packet))


@dataclass(slots=True)
class RoceLink(Link):
    mtu: int | None = None
    flows: tuple = ()


@dataclass(slots=True)
class Outstanding:
    """A Read whose data have not arrived yet."""
    event: Read
    psn: int
    packets: int
    next: int = 0  # packet of its Response
    at: int = 0


class Roce:
    def __init__(self, new_number):
        self.new_number, self.flows, self.unpaired, self.asked = new_number, {}, {}, {}

    def take(self, datagram):
        data, length = datagram.data, datagram.length
        if len(data) < 8 + BASE_HEADER or int.from_bytes(data[2:4], "big") != ROCE_PORT:
            return
        length = min(length, int.from_bytes(data[4:6], "big")) - 8 - BASE_HEADER - ICRC - (data[9] >> 4 & 3)
        if length < 0:
            return
        packet, base = datagram.packet, data[8:8 + BASE_HEADER]
        body = data[8 + BASE_HEADER:8 + BASE_HEADER + length]
        queue_pair, psn = int.from_bytes(base[5:8], "big"), int.from_bytes(base[9:12], "big")
        if queue_pair == 1:
            if base[0] == DATAGRAM:
                yield from self.manage(datagram, body[8:])
            return
        key = packet.section, datagram.source, datagram.destination, queue_pair
        flow = self.flows.get(key)
        if flow is None:
            if base[0] not in OPCODES:
                return
            waiting = self.unpaired.setdefault(key[:3], [])
            if len(waiting) >= UNPAIRED:
                yield from self.join(waiting[0], None)
            flow = self.flows[key] = Flow(packet, *key[1:], int.from_bytes(data[:2], "big"))
            waiting.append(flow)
        one = RocePacket(packet.frame, packet.time, base[0], psn, body, length, packet.comment)
        yield from self.deliver(flow, one) if flow.link else self.wait(flow, one)

    # Without connection management nothing names the other direction. RRDK's own captures show the sender's
    # queue pair in the source port; in others the flows are paired by which packets and calls are answered.
    def wait(self, flow, packet):
        if packet.opcode in OPCODES:
            flow.backlog.append(packet)
            flow.remember(packet)
        others = self.unpaired.get((flow.section, flow.destination, flow.source), [])
        fitting = [other for other in others if flow.interface and other.interface and
                   flow.port == RRDK_PORT | other.queue_pair & 0x3FFF and
                   other.port == RRDK_PORT | flow.queue_pair & 0x3FFF]
        if len(fitting) != 1:
            fitting = [other for other in fitting or others if flow.answers(other, packet)]
        if len(fitting) == 1:
            yield from self.join(flow, fitting[0])
        elif len(flow.backlog) >= BACKLOG:
            yield from self.join(flow, None)

    def join(self, *flows):
        flows = sorted((flow for flow in flows if flow), key=lambda flow: flow.frame)
        self.link(flows)
        for flow, packet in sorted(((f, p) for f in flows for p in f.backlog), key=lambda one: one[1].frame):
            yield from self.deliver(flow, packet)
        for flow in flows:
            flow.backlog, flow.seen = [], set()

    def link(self, flows, **more):
        first, other = flows[0], flows[1] if len(flows) > 1 else None
        ends = shown(first.source) + (f" (queue pair {other.queue_pair})" if other else ""), \
            f"{shown(first.destination)} (queue pair {first.queue_pair})"
        transport = f"{first.interface}, captured by RRDK" if first.interface else "RoCEv2"
        link = RoceLink(self.new_number(), transport, ends, first.frame, one_sided=other is None,
                        shows_rdma=not first.interface, flows=tuple(flows), **more)
        if first.interface:
            link.mtu = RRDK_MTU
        for side, flow in enumerate(flows):
            flow.link, flow.side = link, side
            flow.partner = flows[1 - side] if other else None
            waiting = self.unpaired.get((flow.section, flow.source, flow.destination), [])
            if flow in waiting:
                waiting.remove(flow)
        return link

    def deliver(self, flow, packet):
        if packet.comment and not flow.link.comment:
            flow.link.comment = packet.comment
        what = OPCODES.get(packet.opcode, ("",))
        if packet.opcode == ACKNOWLEDGE or what[0] == RESPONSE:
            yield from self.acknowledge(flow.partner, packet)
        if what[0] == RESPONSE:
            yield from self.response(flow, packet, what)
        elif what[0]:
            yield from self.requests(flow, flow.in_order(packet), packet)

    # Packets that the other end has received and the capture lacks will not follow.
    def acknowledge(self, flow, packet):
        if flow is None or flow.expected is None:
            return
        refused = packet.opcode == ACKNOWLEDGE and packet.body[:1] and packet.body[0] & 0x60
        last = packet.psn - 1 if refused else packet.psn
        if flow.slack <= (last - flow.expected) & MASK < HALF:
            yield from self.requests(flow, flow.in_order(most=1), packet)
        if flow.slack <= (last - flow.expected) & MASK < HALF:
            flow.expected, flow.slack, flow.message, flow.write = (last + 1) & MASK, 0, None, None
            yield Lost(flow.link, flow.side, packet.frame, packet.time)

    def requests(self, flow, packets_in_order, latest):
        for one in packets_in_order:
            if one is None:
                flow.message = flow.write = None
                yield Lost(flow.link, flow.side, latest.frame, latest.time)
            else:
                yield from self.request(flow, one)

    def request(self, flow, packet):
        what, first, last, headers = OPCODES[packet.opcode]
        head, data, length = packet.body[:headers], packet.body[headers:], packet.length - headers
        about = flow.link, flow.side, packet.frame, packet.time
        if length < 0 or len(head) < headers:
            yield Lost(*about)
            return
        if first and not last and what in (SEND, WRITE):
            flow.link.mtu = flow.link.mtu or length
        if what == SEND:
            flow.message = Message() if first else flow.message
            if flow.message is not None:
                flow.message.add(data, length)
                if last:
                    handle = int.from_bytes(head, "big") if packet.opcode in INVALIDATING else None
                    yield Send(*about, bytes(flow.message.data), flow.message.length, handle)
                    flow.message = None
        elif what == WRITE:
            if first:
                flow.write = struct.unpack_from(">QI", head)
            if flow.write is not None:
                offset, handle = flow.write
                yield Write(*about, data, length, handle, offset)
                flow.write = None if last else (offset + length, handle)
        elif what == READ:
            offset, handle, size = struct.unpack_from(">QII", head)
            event = Read(*about, b"", size, handle, offset)
            count = (flow.expected - packet.psn & MASK) + flow.slack
            flow.reads.append(Outstanding(event, packet.psn, count))
            yield event

    def response(self, flow, packet, what):
        _, first, last, headers = what
        reads = flow.partner.reads if flow.partner else ()
        read = next((r for r in reads if (packet.psn - r.psn) & MASK < r.packets), None)
        if read is None or packet.length < headers or len(packet.body) < headers:
            return
        number, length = (packet.psn - read.psn) & MASK, packet.length - headers
        if number < read.next:
            return  # a second time
        about = flow.link, flow.side, packet.frame, packet.time
        if first and not last:
            flow.link.mtu = flow.link.mtu or length
        if number > read.next:
            read.at = number * (flow.link.mtu or 0)
            yield Lost(*about)
        yield Response(*about, packet.body[headers:], length, read.event, read.at)
        read.next, read.at = number + 1, read.at + length
        if last:
            reads.remove(read)

    # Connection management (volume 1, chapter 12): who connects, both queue pairs, private data.
    def manage(self, datagram, mad):
        if len(mad) < 24 + 12 or mad[1] != 7:
            return
        kind, message = int.from_bytes(mad[16:18], "big"), mad[24:]
        local, remote = message[:4], message[4:8]
        if kind == 0x10 and len(message) >= 232:  # REQ
            while len(self.asked) >= BACKLOG:
                del self.asked[next(iter(self.asked))]
            self.asked[datagram.source, datagram.destination, local] = message
        elif kind == 0x13 and len(message) >= 232:  # REP
            request = self.asked.pop((datagram.destination, datagram.source, remote), None)
            if request is not None:
                yield from self.connect(datagram, request, message)
        elif kind == 0x15:  # DREQ
            number = int.from_bytes(message[8:11], "big")
            flow = self.flows.get((datagram.packet.section, datagram.source, datagram.destination, number))
            if flow is not None and flow.link is not None:
                yield from self.close(flow.link, datagram.packet)

    def connect(self, datagram, request, reply):
        packet, client, server = datagram.packet, datagram.destination, datagram.source
        # Each end names the queue pair that the other shall send to, and the first sequence number.
        to_server = yield from self.flow_of(packet, client, server, reply[12:15], reply[20:23])
        to_client = yield from self.flow_of(packet, server, client, request[32:35], request[44:47])
        flows = [to_server, to_client]
        link = self.link(flows, client=0, whole=not packet.ours)
        if not packet.ours:  # in our captures they are written for tshark, possibly only when the capture begins
            link.private = [request[140:232], reply[36:232]]
            code = request[50] >> 4  # of the path's packet size: 1 is 256 bytes, 5 is 4096
            link.mtu = 128 << code if 1 <= code <= 5 else None
            if request[8:13] == bytes.fromhex("0000000001"):  # an IP service: protocol, port
                port = int.from_bytes(request[14:16], "big")
                link.ends = link.ends[0], f"{shown(server, port)} (queue pair {to_server.queue_pair})"
        yield Opened(link, 0, packet.frame, packet.time)

    def flow_of(self, packet, source, destination, number, first_psn):
        """Makes a new flow to a queue pair that may have had another connection before."""
        key = packet.section, source, destination, int.from_bytes(number, "big")
        old = self.flows.get(key)
        if old is not None and old.link is None:
            yield from self.join(old, None)
        if old is not None:
            yield from self.close(old.link, packet)
        flow = self.flows[key] = Flow(packet, *key[1:], 0)
        flow.expected = int.from_bytes(first_psn, "big")
        return flow

    def close(self, link, packet):
        for flow in link.flows:
            yield from self.requests(flow, flow.in_order(most=1), packet)
            self.flows.pop((flow.section, flow.source, flow.destination, flow.queue_pair), None)
        yield Closed(link, 0, packet.frame, packet.time)

    def finish(self):
        for (section, source, destination), flows in list(self.unpaired.items()):
            others = self.unpaired.get((section, destination, source), [])
            while flows:
                yield from self.join(flows[0], others[0] if len(flows) == len(others) == 1 else None)
        for flow in list(self.flows.values()):
            if flow.held:
                latest = max(flow.held.values(), key=lambda packet: packet.frame)
                yield from self.requests(flow, flow.in_order(most=1), latest)
