"""Reads a capture as events of RDMA connections: events() yields (Link, event) in the order of the file.

    file      dump_capture.py: pcap and pcapng, IPv4 and IPv6; what the events are
    network   UDP port 4791 is RoCEv2 (dump_roce.py), TCP that begins with MPA is iWARP (dump_iwarp.py)
    events    Opened, Send, Write, Read, Response, Lost, Damaged, Closed

If a packet is truncated in the file, only its end is lost: an event's data may be shorter than its length.
This module does not know RPC-over-RDMA, except that a Send's first word is an XID: it pairs the directions
of a connection if nothing else does.
"""
from lib.dump_capture import LINK_TYPES, TCP, UDP, CutShort, datagram, dropped, open_capture, packets_of
from lib.dump_iwarp import Iwarp
from lib.dump_roce import Roce


STEP_BACK = 10**9  # nanoseconds; packets of several queues are out of order by less than that


class Capture:
    def __init__(self, path):
        self.file, self.notes, self.links = open_capture(path), [], 0
        self.dropped = dropped(self.file)
        if self.dropped:
            self.notes.append(f"{self.dropped} messages or packets are missing, according to the capturing program")
        self.frames, self.first, self.last = 0, None, 0
        self.stepped_back = False  # then differences of times mean nothing
        self.roce, self.iwarp = Roce(self.new_number), Iwarp(self.new_number, self.notes)

    def new_number(self):
        self.links += 1
        return self.links

    def packets(self):
        try:
            yield from packets_of(self.file)
        except CutShort as error:
            self.notes.append(str(error))

    def events(self):
        cut, unknown, section, latest = 0, set(), None, 0
        for packet in self.packets():
            self.frames = packet.frame
            self.first = packet.time if self.first is None else self.first
            self.last = max(self.last, packet.time)
            latest = max(latest, packet.time) if packet.section == section else packet.time
            section = packet.section
            if packet.time < latest - STEP_BACK and not self.stepped_back:
                self.stepped_back = True
                self.notes.append(f"frame {packet.frame}: the clock steps back, so latencies are left out")
            cut += len(packet.data) < packet.length
            if packet.link_type not in LINK_TYPES and packet.link_type not in unknown:
                unknown.add(packet.link_type)
                self.notes.append(f"frame {packet.frame}: link type {packet.link_type} is not read")
            found = datagram(packet)
            if found is not None and found.protocol == UDP:
                yield from self.roce.take(found)
            elif found is not None and found.protocol == TCP:
                yield from self.iwarp.take(found)
        if cut:
            self.notes.append(f"{cut} of {self.frames} packets are not whole in the capture")
        yield from self.roce.finish()
        yield from self.iwarp.finish()
