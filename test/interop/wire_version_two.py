"""The header of an RPC-over-RDMA message of version 2, which tshark does not know. Read from the drafts
anew: nothing comes from the code that is being tested.

header_of() has the fields that wire_dissect.header_of() has of version 1, and of draft-04
  direction, inv_handle   of RDMA2_MSG and RDMA2_NOMSG
  set                     [(property, data)] of what the four property messages say
  subsets                 theirs, as sets of indices: of CONNPROP [nochg], of RESPROP [done, rejected]
"""
import struct

MSG, NOMSG, ERROR, CONNPROP, REQPROP, RESPROP, UPDPROP = 0, 1, 4, 6, 7, 8, 9
TYPES = {"v2-04": (MSG, NOMSG, ERROR, CONNPROP, REQPROP, RESPROP, UPDPROP), "v2-00": (MSG, NOMSG, ERROR)}


class Reader:
    """XDR (RFC 4506). Raises struct.error if the message ends too early."""

    def __init__(self, message):
        self.message, self.at = message, 0

    def take(self, form):
        value, = struct.unpack_from(">" + form, self.message, self.at)
        self.at += struct.calcsize(form)
        return value

    def word(self):
        return self.take("I")

    def words(self, count):
        return [self.word() for _ in range(count)]

    def opaque(self):
        length = self.word()
        data = self.take(f"{length}s")
        self.at += -length % 4
        return data

    def segment(self):
        return self.word(), self.word(), self.take("Q")

    def chunk(self):
        return [self.segment() for _ in range(self.word())]

    def list_of(self, entry):
        entries = []
        while self.word():
            entries.append(entry())
        return entries

    def read_entry(self):
        return self.word(), *self.segment()

    def properties(self):
        return [(self.word(), self.opaque()) for _ in range(self.word())]

    def subset(self):
        words = self.words(self.word())
        return {32 * i + bit for i, word in enumerate(words) for bit in range(32) if word >> bit & 1}


def take_body(header, reader, draft):
    kind = header["msg_type"]
    if kind in (MSG, NOMSG):
        if draft == "v2-04":
            header["direction"], header["inv_handle"] = reader.words(2)
        header["reads"], header["writes"] = reader.list_of(reader.read_entry), reader.list_of(reader.chunk)
        header["reply"] = reader.chunk() if reader.word() else None
    elif kind == ERROR:
        header["errcode"] = reader.word()
        if header["errcode"] == 1:  # in both drafts the versions
            header["vers_low"], header["vers_high"] = reader.words(2)
    elif kind == RESPROP:
        header["subsets"] = [reader.subset(), reader.subset()]
        header["set"] = reader.properties()
    else:
        header["set"] = reader.properties()
        header["subsets"] = [reader.subset()] if kind == CONNPROP else []


def header_of(message, draft):
    """Returns None if it is no header of that draft."""
    reader = Reader(message)
    try:
        xid, version, credit, kind = reader.words(4)
        if version != 2 or kind not in TYPES[draft]:
            return None
        header = {"xid": xid, "version": version, "flow_control": credit, "msg_type": kind,
                  "reads": [], "writes": [], "reply": None}
        take_body(header, reader, draft)
    except struct.error:
        return None
    return header
