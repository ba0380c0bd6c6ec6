#!/usr/bin/env python3
"""Stands between a client and a server of RPC over RDMA over iWARP, and changes transport headers of
calls on their way, so that each end gets the other's true answer to what its own peer never said.

    meddler.py --listen ADDRESS:PORT --to ADDRESS:PORT [--break KIND@CALL,...] [--orders FILE] [--hold]

    --break KIND@CALL  changes the so-manieth call of the run: a KIND of those below
    --orders FILE      whenever FILE appears, the KIND in it is done to the next call; FILE goes
    --hold             the first MPA frame of each client waits until another one comes, as Linux's siw
                       may let it

KINDs: version (99), type (7, which there is not), discriminator (the Read list's is 2), truncated (a
Write chunk goes on beyond the message), nomessage (RDMA_NOMSG without a chunk). An answer in the
version that no client spoke gets back the one that it did: Linux's client knows no other.

Serves until SIGTERM, and says on standard output what it did. CRCs must be off.
"""
import argparse
import os
import selectors
import socket
import struct
import sys

MPA_HEADER, LENGTH, UNTAGGED, CRC = 20, 2, 18, 4
SEND_OPCODES = (3, 4)
VERSION, ODD_VERSION = 1, 99


def word(number):
    return lambda header, value: header[:4 * number] + struct.pack(">I", value) + header[4 * number + 4:]


KINDS = {
    "version": lambda header: word(1)(header, ODD_VERSION),
    "type": lambda header: word(3)(header, 7),
    "discriminator": lambda header: word(4)(header, 2),
    "truncated": lambda header: word(6)(word(5)(header, 1), 0xffffffff),
    "nomessage": lambda header: word(3)(header, 1),
}


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def whole_frame(data, started):
    """Length of the MPA frame at the front, or None if it is incomplete."""
    if not started:
        length = MPA_HEADER + struct.unpack_from(">H", data, 18)[0] if len(data) >= MPA_HEADER else None
    else:
        length = (LENGTH + struct.unpack_from(">H", data)[0] + 3 & ~3) + CRC if len(data) >= LENGTH else None
    return length if length is not None and length <= len(data) else None


def header_word(frame, number):
    """A word of the transport header of a Send that is whole, otherwise None."""
    if len(frame) < LENGTH + UNTAGGED + 28 or frame[2] & 0xc0 != 0x40 or frame[3] & 0x0f not in SEND_OPCODES:
        return None
    return struct.unpack_from(">I", frame, LENGTH + UNTAGGED + 4 * number)[0]


class Frames:
    """One direction of a connection, cut into its MPA frames."""

    def __init__(self):
        self.unread, self.started = b"", False

    def take(self, data):
        """Yields the whole frames, each with whether the connection had one before."""
        self.unread += data
        while (length := whole_frame(self.unread, self.started)) is not None:
            frame, self.unread = self.unread[:length], self.unread[length:]
            yield self.started, frame
            self.started = True


class Meddler:
    def __init__(self, options):
        self.options = options
        self.calls = 0
        self.wanted = {int(at): kind for kind, _, at in
                       (part.partition("@") for part in options.breaks.split(",") if part)}

    def order(self):
        """The KIND for this call, or None."""
        kind = self.wanted.pop(self.calls, None)
        if kind is None and self.options.orders and os.path.exists(self.options.orders):
            with open(self.options.orders, encoding="ascii") as file:
                kind = file.read().strip()
            os.unlink(self.options.orders)
        return kind

    def change(self, frame):
        if header_word(frame, 3) != 0:  # no RDMA_MSG: the changed word stays within its length
            return frame
        self.calls += 1
        kind = self.order()
        if kind is None:
            return frame
        at = LENGTH + UNTAGGED
        end = LENGTH + struct.unpack_from(">H", frame)[0]
        changed = KINDS[kind](frame[at:end])
        print(f"call {self.calls}, XID {frame[at:at + 4].hex()}: {kind}", flush=True)
        return frame[:at] + changed + frame[end:]


class Pair:
    """A client's connection and ours to the server."""

    def __init__(self, meddler, client, server):
        self.meddler, self.sockets = meddler, {client: server, server: client}
        self.client, self.calls, self.answers, self.held = client, Frames(), Frames(), b""
        self.hold = meddler.options.hold

    def forward(self, source):
        try:
            data = source.recv(1 << 18)
            if data:
                self.sockets[source].sendall(self.of_client(data) if source is self.client else self.of_server(data))
        except ConnectionError:
            data = b""
        return bool(data)

    def of_client(self, data):
        out = b""
        for is_segment, frame in self.calls.take(data):
            if not is_segment:
                out += frame
            elif self.hold and not self.held:
                self.held = self.meddler.change(frame)
                print("the first frame is held", flush=True)
            else:
                if self.hold:
                    print("the first frame goes on", flush=True)
                    out, self.hold = out + self.held, False
                out += self.meddler.change(frame)
        return out

    def of_server(self, data):
        out = b""
        for is_segment, frame in self.answers.take(data):
            if is_segment and header_word(frame, 1) == ODD_VERSION:
                at = LENGTH + UNTAGGED
                frame = frame[:at] + word(1)(frame[at:], VERSION)
            out += frame
        return out

    def close(self):
        for one in self.sockets:
            one.close()


def serve(options):
    meddler, pairs = Meddler(options), {}
    listener = socket.create_server(address(options.listen))
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    print("listening on {}:{}".format(*listener.getsockname()[:2]), flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                client = listener.accept()[0]
                try:
                    server = socket.create_connection(address(options.to))
                except OSError as error:
                    print(f"the server: {error}", flush=True)
                    client.close()
                    continue
                pair = Pair(meddler, client, server)
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    pairs[one] = pair
                    selector.register(one, selectors.EVENT_READ)
            elif key.fileobj in pairs and not pairs[key.fileobj].forward(key.fileobj):
                pair = pairs[key.fileobj]
                for one in pair.sockets:
                    selector.unregister(one)
                    del pairs[one]
                pair.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--break", dest="breaks", default="")
    parser.add_argument("--orders", default="")
    parser.add_argument("--hold", action="store_true")
    options = parser.parse_args()
    for part in options.breaks.split(","):
        if part and part.partition("@")[0] not in KINDS:
            sys.exit(f"meddler.py: --break: there is no kind '{part.partition('@')[0]}'")
    try:
        serve(options)
    except KeyboardInterrupt:
        pass


main()
