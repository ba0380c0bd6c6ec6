"""What each end of a connection has promised to take, as far as it was told on the wire: how large a
message, whether calls of the other direction, and with chunks or without.

Version 1: RFC 8797's private data, which do not change. Version 2: 4096 bytes, and in draft-04 what the
transport properties say (its section 5), which may change while calls run."""
import struct

from wire_version_two import CONNPROP, REQPROP, RESPROP, UPDPROP

DEFAULT_1, DEFAULT_2 = 1024, 4096  # bytes
PRIVATE_DATA = bytes.fromhex("f6ab0e1801")  # of RFC 8797, with its version
RECEIVE_SIZE, BACKWARD_SUPPORT = 1, 2  # properties
NONE, INLINE, GENERAL = 0, 1, 2  # RDMA2_BKREQSUP_*
PROPERTIES = (CONNPROP, REQPROP, RESPROP, UPDPROP)


def private_data(record):
    """(may be invalidated remotely, send size, receive size) of an MPA request or reply, or {}."""
    private = bytes.fromhex(record.get("private", ""))
    at = private.find(PRIVATE_DATA)
    if at < 0 or at + 8 > len(private):
        return False, DEFAULT_1, DEFAULT_1
    flags, send, receive = private[at + 5:at + 8]
    return bool(flags & 1), 1024 * (send + 1), 1024 * (receive + 1)


class End:
    def __init__(self):
        self.receive_size, self.backward = DEFAULT_2, INLINE
        self.announced = False  # by CONNPROP
        self.fixed = set()  # properties that it declared fixed
        self.asked = None  # (XID, [property]) of its unanswered REQPROP
        self.speaks_two = False

    def wanted(self):
        """The requested size of the other end's Receives; None if there was no request."""
        sizes = [struct.unpack(">I", data)[0] for name, data in (self.asked or (0, []))[1] if name == RECEIVE_SIZE]
        return sizes[-1] if sizes else None


class Promises:
    """The promises of one connection. `need(record, truth, text)` records a fault."""

    def __init__(self, need, mpa):
        self.need, self.mpa = need, mpa
        self.ends = {True: End(), False: End()}  # by whether it is the client

    def limit(self, record, backward):
        """The largest message that the sender may send, by what it has been told."""
        client = record["client"]
        if record["header"]["version"] == 1:
            _, send, receive = private_data(self.mpa.get("request", {}))
            _, their_send, their_receive = private_data(self.mpa.get("reply", {}))
            there, back = min(send, their_receive), min(their_send, receive)
            if backward:  # BIDIR-09: one size for calls and replies
                return min(there, back)
            return there if client else back
        sender, receiver = self.ends[client], self.ends[not client]
        # Draft-04 section 7: until the server has answered, it may be one of version 1.
        if client and not receiver.speaks_two:
            return DEFAULT_1
        # Section 5.2.1: an end that asks for less keeps to it from then on.
        return min(receiver.receive_size, sender.wanted() or receiver.receive_size)

    def take(self, record, backward):
        header = record["header"]
        most = self.limit(record, backward)
        self.need(record, record["message_bytes"] <= most, f"{record['message_bytes']} bytes to who takes {most}")
        if header["version"] == 2:
            self.ends[record["client"]].speaks_two = True

    def take_property(self, record):
        header = record["header"]
        end, other = self.ends[record["client"]], self.ends[not record["client"]]
        # V2D4-NEG-08: calls come first; a server may be one of version 1 until it has answered.
        self.need(record, other.speaks_two, "properties, to who has not spoken version 2")
        {CONNPROP: self.take_connprop, REQPROP: self.take_reqprop, RESPROP: self.take_resprop,
         UPDPROP: self.take_updprop}[header["msg_type"]](record, header, end, other)

    def take_connprop(self, record, header, end, _):
        self.need(record, not end.announced, "a second CONNPROP")
        end.announced = True
        self.set(record, end, header["set"])
        end.fixed = {name for i, (name, _) in enumerate(header["set"]) if i in header["subsets"][0]}

    # A property that was not in CONNPROP has its default and keeps it (section 5.3.1).
    def take_reqprop(self, record, header, end, other):
        self.need(record, other.announced, "a request to who has not said its properties")
        self.need(record, end.asked is None, "a request before the last one was answered")
        self.need(record, not {name for name, _ in header["set"]} & other.fixed, "a request to change what stays")
        end.asked = header["xid"], header["set"]

    # Section 5.3.3: each requested property is in one of the three.
    def take_resprop(self, record, header, end, other):
        self.need(record, other.asked and other.asked[0] == header["xid"], "an answer to no request")
        asked = other.asked[1] if other.asked else []
        done, rejected = header["subsets"]
        others = {i for i, (name, _) in enumerate(asked) if name in dict(header["set"])}
        self.need(record, sorted([*done, *rejected, *others]) == list(range(len(asked))),
                  "an answer that is not about what was asked for")
        self.set(record, end, [asked[i] for i in done if i < len(asked)] + header["set"])
        other.asked = None

    # Section 5.2.1: Receives shrink only if the other end asks for it.
    def take_updprop(self, record, header, end, _):
        self.need(record, end.announced, "an UPDPROP before CONNPROP")
        before = end.receive_size
        self.set(record, end, header["set"])
        self.need(record, end.receive_size > before, "Receives that shrink unasked, or do not change")

    def set(self, record, end, properties):
        for name, data in properties:
            self.need(record, name not in end.fixed, "a change of what was said to stay")
            self.need(record, name in (RECEIVE_SIZE, BACKWARD_SUPPORT) and len(data) == 4, "an unknown property")
            value = int.from_bytes(data, "big")
            if name == RECEIVE_SIZE:
                self.need(record, value >= DEFAULT_2, "Receives below the default")
                end.receive_size = value
            else:
                self.need(record, value <= GENERAL, "an unknown support of backward calls")
                end.backward = value
