#!/usr/bin/env python3
"""Sends an RPC-over-RDMA server over iWARP one NULL call after another whose transport header is wrong in
some way, each on a connection of its own, and prints what comes back; a good call then tells whether
the connection still serves.

    odd_headers.py ADDRESS:PORT [--expect FILE] [--seconds N]

With --expect the answers must be those of FILE, which has the printed form.
"""
import argparse
import socket
import struct
import sys

MPA_REQUEST, MPA_REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
S_FLAG, REVISION = 0x10, 2
PRIVATE_DATA = bytes.fromhex("00800000" "f6ab0e18" "01000303")  # IRD 128; RFC 8797: 4096 bytes each way
XID, GOOD_XID = 0x0dd00001, 0x0dd00002
NFS, NFS_V3 = 100003, 3
ERRORS = {1: "ERR_VERS", 2: "ERR_CHUNK"}


def words(*values):
    return struct.pack(f">{len(values)}I", *values)


def call(xid):
    return words(xid, 0, 2, NFS, NFS_V3, 0, 0, 0, 0, 0)


SEGMENT = (0x1234, 64, 0, 0)
HEADERS = {
    "good": words(XID, 1, 8, 0, 0, 0, 0) + call(XID),
    "version 0": words(XID, 0, 8, 0, 0, 0, 0) + call(XID),
    "version 2": words(XID, 2, 8, 0, 0, 0, 0) + call(XID),
    "version 99": words(XID, 99, 8, 0, 0, 0, 0) + call(XID),
    "no credits asked for": words(XID, 1, 0, 0, 0, 0, 0) + call(XID),
    "type 7": words(XID, 1, 8, 7, 0, 0, 0) + call(XID),
    "RDMA_MSGP": words(XID, 1, 8, 2, 0, 0, 0, 0, 0) + call(XID),
    "RDMA_DONE": words(XID, 1, 8, 3),
    "RDMA_NOMSG without a chunk": words(XID, 1, 8, 1, 0, 0, 0),
    "Read list's discriminator 2": words(XID, 1, 8, 0, 2, 0, 0) + call(XID),
    "Write list's discriminator 2": words(XID, 1, 8, 0, 0, 2, 0) + call(XID),
    "Read list that ends too early": words(XID, 1, 8, 0, 1, 0, 0x1234),
    "Write chunk of 2^32 - 1 segments": words(XID, 1, 8, 0, 0, 1, 0xffffffff, *SEGMENT, 0, 0) + call(XID),
    "Write chunk of no segments": words(XID, 1, 8, 0, 0, 1, 0, 0, 0) + call(XID),
    "Reply chunk beyond the message": words(XID, 1, 8, 0, 0, 0, 1, 4, *SEGMENT),
    "unaligned Position": words(XID, 1, 8, 0, 1, 39, *SEGMENT, 0, 0, 0) + call(XID),
    "three words": words(XID, 1, 8),
    "another XID in the call": words(XID, 1, 8, 0, 0, 0, 0) + call(XID + 16),
}


PATIENCE = 60  # seconds, for answers that are sure to come


class Connection:
    def __init__(self, where, seconds):
        self.socket = socket.create_connection(where, timeout=seconds)
        self.number = 0
        self.socket.sendall(MPA_REQUEST + bytes((S_FLAG, REVISION)) + struct.pack(">H", len(PRIVATE_DATA)) + PRIVATE_DATA)
        reply = self.exactly(20)
        self.exactly(struct.unpack_from(">H", reply, 18)[0])
        if reply[:16] != MPA_REPLY or reply[16] & 0x20:
            raise ConnectionError("the connection was rejected")

    def exactly(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def frame(self, ulpdu):
        data = struct.pack(">H", len(ulpdu)) + ulpdu
        self.socket.sendall(data + bytes(-len(data) % 4) + bytes(4))

    def send(self, message):
        self.number += 1
        self.frame(struct.pack(">BBIIII", 0x41, 0x43, 0, 0, self.number, 0) + message)
        # Data that comes right behind the MPA request stays unread in siw until more comes: an
        # empty Write.
        self.frame(struct.pack(">BBIQ", 0xc1, 0x40, 0, 0))

    def hear(self):
        """The next message. Frames other than Sends are skipped, except a Terminate."""
        while True:
            length = struct.unpack(">H", self.exactly(2))[0]
            ulpdu = self.exactly(length)
            self.exactly(-(length + 2) % 4 + 4)
            if ulpdu[1] & 15 == 7:
                raise ConnectionError("Terminate")
            if ulpdu[1] & 15 in (3, 4):
                return ulpdu[18:]


def describe(message, xid):
    numbers = struct.unpack(f">{len(message) // 4}I", message[:len(message) // 4 * 4])
    if numbers[0] != xid:
        return f"a message about XID {numbers[0]:#x}"
    if numbers[3] == 4:
        error = ERRORS.get(numbers[4], f"error {numbers[4]}")
        versions = f" {numbers[5]} to {numbers[6]}" if numbers[4] == 1 else ""
        return f"{error}{versions}, in version {numbers[1]}, {len(message)} bytes"
    if numbers[3] != 0:
        return f"message type {numbers[3]}"
    reply = numbers[body_at(numbers):]
    if reply[0] != xid:
        return f"a reply to XID {reply[0]:#x}"
    return f"accepted, status {reply[5]}" if reply[2] == 0 else "denied"


def body_at(numbers):
    """The position behind the lists, of which the first is empty in a reply."""
    at = 5
    while numbers[at]:
        at += 2 + 4 * numbers[at + 1]
    at += 1
    return at + 1 if not numbers[at] else at + 2 + 4 * numbers[at + 1]


def answer(connection, seconds):
    """A message, or a description of what came instead."""
    connection.socket.settimeout(seconds)
    try:
        return connection.hear()
    except TimeoutError:
        return "nothing"
    except ConnectionError as error:
        return str(error) if str(error) in ("closed", "Terminate") else "closed"


def is_about(message, xid):
    return isinstance(message, bytes) and message[:4] == words(xid)


def try_header(where, seconds, header):
    connection = Connection(where, PATIENCE)
    connection.send(header)
    said = answer(connection, seconds)
    if said in ("closed", "Terminate"):
        return said
    try:
        connection.send(words(GOOD_XID, 1, 8, 0, 0, 0, 0) + call(GOOD_XID))
        after = answer(connection, PATIENCE)
        if said == "nothing" and is_about(after, XID):  # the answer was late: the machine is busy
            said, after = after, answer(connection, PATIENCE)
    except ConnectionError:
        after = "closed"
    said, after = (describe(message, xid) if isinstance(message, bytes) else message
                   for message, xid in ((said, XID), (after, GOOD_XID)))
    return said + ("; serves on" if after == "accepted, status 0" else f"; then {after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("--expect")
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    host, _, port = options.server.rpartition(":")
    lines = []
    for name, header in HEADERS.items():
        lines.append(f"{name}: {try_header((host, int(port)), options.seconds, header)}")
        print(lines[-1], flush=True)
    if options.expect:
        with open(options.expect, encoding="utf-8") as file:
            expected = file.read().splitlines()
        different = [line for line in lines if line not in expected]
        if different or len(expected) != len(lines):
            sys.exit("not as expected: " + "; ".join(different or ["other headers"]))


main()
