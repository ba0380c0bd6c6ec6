"""The rules of the specifications that can be checked in a capture, by the ids of test/data/requirements.tsv,
and the state that the checks need: of a call, which becomes a record when it is over, of the calls of one end,
and of what the ends have announced about themselves.

The capture may contain a message that an end has not received yet, so for a while that end acts on earlier
information. A lower limit on credits or on the sizes of Receives is therefore applied only SLACK after it was
captured.
"""
from collections import Counter, OrderedDict, deque

from lib import dump_rpc
from lib.dump_rpc import (ACCEPTED, CONNPROP, DRAFT_00, DRAFT_04, MSG, MSGP, NOMSG, REQPROP, RESPROP, UPDPROP,
                          VERSION_1)

SLACK = 10**9  # nanoseconds
DEFAULT_1, DEFAULT_2 = 1024, 4096  # bytes of a Send
RECEIVE_SIZE, BACKWARD_SUPPORT = 1, 2  # properties
NONE, INLINE, GENERAL = 0, 1, 2  # support of backward calls
REMEMBERED = 256  # answered calls, requests for properties
BOUNDLESS = float("inf")

RULES = {
    "V1-HDR-01": "a header starts with four words",
    "V1-HDR-02": "rdma_xid is the XID of the RPC message",
    "V1-HDR-03": "a version 1 message says version 1",
    "V1-HDR-06": "procedures are 0 to 4",
    "V1-HDR-07": "RDMA_MSG and RDMA_NOMSG have at least 28 bytes",
    "V1-HDR-08": "the Read list is a chain of 24-byte entries",
    "V1-HDR-09": "the Write list is a chain of counted chunks",
    "V1-HDR-10": "the Reply chunk is zero or a counted chunk",
    "V1-HDR-12": "the RPC message follows the header of RDMA_MSG",
    "V1-HDR-13": "nothing follows the header of RDMA_NOMSG",
    "V1-HDR-14": "nothing follows RDMA_DONE and RDMA_ERROR",
    "V1-HDR-17": "lists go on with 1 and end with 0",
    "V1-INLINE-01": "each call, and each reply, is one Send with its XID",
    "V1-INLINE-06": "without private data a Send has at most 1024 bytes",
    "V1-CHUNK-02": "only items that the binding names have chunks",
    "V1-CHUNK-04": "the count in the stream agrees with the length of the chunk",
    "V1-CHUNK-16": "only the responder reads and writes",
    "V1-RL-05": "Positions are multiples of four",
    "V1-RL-08": "Positions lie within the stream, chunks do not overlap",
    "V1-RL-10": "the responder reads every byte of each Read chunk",
    "V1-RL-11": "after the reply the responder does not read",
    "V1-RL-14": "the Read list of a reply is empty",
    "V1-WL-02": "a result whose chunk was offered goes there",
    "V1-WL-03": "the Write list comes back with the lengths that were written, else unchanged",
    "V1-WL-04": "segments are filled in order, each completely",
    "V1-WL-05": "segments that received nothing have length zero",
    "V1-WL-06": "chunks and segments keep their number",
    "V1-WL-07": "a chunk without a result has lengths of zero",
    "V1-WL-14": "Writes come before the reply",
    "V1-WL-17": "Writes stay in the offered segments",
    "V1-RC-03": "RDMA_NOMSG answers only calls with a Reply chunk",
    "V1-RC-09": "RDMA_MSG leaves the Reply chunk empty",
    "V1-RC-10": "an unused Reply chunk is absent, or as it was with lengths of zero",
    "V1-RC-12": "the Reply chunk comes back with the lengths that were written, else unchanged",
    "V1-RC-14": "RDMA_NOMSG as a reply has a Reply chunk with bytes in it",
    "V1-PAD-10": "no pad is written into a Write chunk",
    "V1-PAD-15": "only the bytes of segments are reached",
    "V1-LONG-07": "RDMA_MSG has no chunk at Position zero",
    "V1-LONG-09": "RDMA_NOMSG as a call has a chunk at Position zero",
    "V1-CREDIT-05": "the grant is not zero when nothing is in progress",
    "V1-CREDIT-06": "the grant is not zero while other calls are in progress",
    "V1-CREDIT-08": "no more unanswered calls than granted",
    "V1-CREDIT-11": "one call until the first reply",
    "V1-CREDIT-18": "a call asks for at least one credit",
    "V1-CREDIT-23": "a call is not sent again while it waits",
    "V1-DONE-02": "RDMA_DONE is not sent",
    "V1-MSGP-02": "RDMA_MSGP is not sent",
    "V1-ERR-01": "error codes are ERR_VERS and ERR_CHUNK",
    "V1-ERR-02": "ERR_VERS has the lowest and highest version that are supported",
    "V1-ERR-03": "a call of an unknown version is answered by ERR_VERS",
    "V1-ERR-04": "an error has the version of its call",
    "V1-ERR-07": "a header that cannot be decoded is answered by ERR_CHUNK",
    "V1-ERR-10": "an unknown procedure is answered by ERR_CHUNK",
    "V1-ERR-11": "an RDMA_ERROR is not answered by another",
    "V1-ERR-12": "a reply is not answered by an error",
    "V1-ERR-22": "an RDMA_ERROR answers a call",
    "V1-MEM-15": "Read chunks are only read, others only written",
    "EXP-05": "Positions do not descend",
    "SEC-14": "the link's CRCs are right",
    "PD-03": "reserved bits of the private data are zero",
    "PD-09": "calls fit what the client sends and the server receives",
    "PD-10": "replies fit what the server sends and the client receives",
    "PD-27": "no invalidation unless the caller's private data allow it",
    "PD-28": "the invalidated handle is one of the call's",
    "BIDIR-06": "no more backward calls than the client granted",
    "BIDIR-12": "backward calls have the version of forward calls",
    "BIDIR-13": "no backward call before the client is ready",
    "V2D0-HDR-02": "procedures are 0, 1, 4 and 5",
    "V2D0-HDR-03": "RDMA_MSG and RDMA_NOMSG have at least 28 bytes",
    "V2D0-HDR-04": "lists and chunks are those of version 1",
    "V2D0-HDR-06": "the RPC message follows the header of RDMA_MSG",
    "V2D0-HDR-08": "nothing follows RDMA_NOMSG and RDMA_ERROR",
    "V2D0-INL-02": "a Send has at most 4096 bytes",
    "V2D0-OPT-01": "RDMA_OPTIONAL has a type and data",
    "V2D0-ERR-01": "errors are VERS with two words, BAD_HEADER, INVAL_OPTION",
    "V2D0-ERR-02": "faulty headers are answered by errors",
    "V2D0-NEG-01": "the first message has at most 1024 bytes",
    "V2D0-NEG-02": "one message until the first reply",
    "V2D0-NEG-09": "a reply has the version of its call",
    "V2D0-RINV-01": "replies are plain Sends",
    "V2D4-HDR-02": "procedures are 0, 1 and 4 to 9",
    "V2D4-HDR-03": "RDMA2_MSG and RDMA2_NOMSG have at least 36 bytes",
    "V2D4-HDR-04": "lists and chunks are those of version 1",
    "V2D4-HDR-05": "the direction is call or reply",
    "V2D4-HDR-06": "the RPC message follows the header of RDMA2_MSG",
    "V2D4-HDR-07": "nothing follows RDMA2_ERROR",
    "V2D4-HDR-09": "nothing follows RDMA2_NOMSG",
    "V2D4-INL-02": "a Send has at most 4096 bytes until the peer's Receives are known",
    "V2D4-NEG-01": "the first message has at most 1024 bytes",
    "V2D4-NEG-02": "one message until the first reply",
    "V2D4-NEG-07": "a reply has the version of its call",
    "V2D4-NEG-10": "CONNPROP fits the initial size of Receives",
    "V2D4-DIR-01": "the direction is that of the RPC message",
    "V2D4-RINV-01": "rdma_inv_handle is a handle of the same header",
    "V2D4-RINV-03": "without rdma_inv_handle the reply is a plain Send",
    "V2D4-RINV-04": "rdma_inv_handle is what a reply invalidates",
    "V2D4-OPT-01": "RDMA2_OPTIONAL has a direction, a type and data",
    "V2D4-ERR-01": "error codes are 1 to 10",
    "V2D4-ERR-02": "errors have the words of their code",
    "V2D4-ERR-03": "an error has version and credit as it should",
    "V2D4-ERR-04": "errors go to requesters",
    "V2D4-ERR-05": "ERR_VERS is as in version 1",
    "V2D4-ERR-06": "an unknown procedure is answered by INVAL_PROC",
    "V2D4-ERR-07": "a header that cannot be parsed is answered by BAD_XDR",
    "V2D4-PROP-08": "a property's data do not run past the message",
    "V2D4-PROP-09": "a property's data are of its type",
    "V2D4-PROP-13": "a property's data are no longer than its type",
    "V2D4-PROP-20": "a Send fits the peer's Receives",
    "V2D4-PROP-23": "Receives shrink only on request",
    "V2D4-PROP-24": "an end that asks for smaller Receives keeps to them",
    "V2D4-PROP-25": "Receives have at least 4096 bytes",
    "V2D4-PROP-27": "backward support is 0, 1 or 2",
    "V2D4-PROP-28": "backward calls are of a kind that the client takes",
    "V2D4-POP-01": "CONNPROP is a set and a subset",
    "V2D4-POP-02": "REQPROP, RESPROP and UPDPROP have their sets",
    "V2D4-POP-10": "what was said not to change stays",
    "V2D4-POP-11": "what CONNPROP leaves out stays at its default",
    "V2D4-POP-17": "RESPROP has the XID of its REQPROP",
    "V2D4-POP-21": "RESPROP changes only what was requested",
    "V2D4-POP-23": "RESPROP says one thing of each request",
    "V2D4-POP-31": "nothing follows property messages",
}

# The size of the first message, until the server has shown which version it speaks.
FIRST_SIZE = {DRAFT_00: "V2D0-NEG-01", DRAFT_04: "V2D4-NEG-01"}


def total(segments):
    return sum(segment[1] for segment in segments)


class Promise:
    """A number that one end has announced to the other. A lower number applies SLACK later."""

    def __init__(self, value):
        self.values = deque([(value, 0)])

    def set(self, value, time):
        while self.values and self.values[-1][0] < value:
            self.values.pop()
        if not self.values or self.values[-1][0] != value:
            self.values.append((value, time))

    def most(self, time):
        while len(self.values) > 1 and self.values[1][1] + SLACK < time:
            self.values.popleft()
        return self.values[0][0]

    def latest(self):
        return self.values[-1][0]


class Sent:
    """A Send and its contents."""

    def __init__(self, event, header):
        self.frame, self.time, self.side, self.size = event.frame, event.time, event.side, event.length
        self.header, self.invalidates = header, event.invalidates
        self.payload = self.rpc = None
        self.payload_size = 0
        if header.kind in (MSG, MSGP) and header.readable and header.seen and header.dialect:
            self.payload, self.payload_size = event.data[header.size:], event.length - header.size
            self.rpc = dump_rpc.rpc_of(self.payload)
        self.breaches = [{"id": rule, "text": text, "frame": event.frame} for rule, text in header.faults]

    def breach(self, rule, text):
        assert rule in RULES, rule
        self.breaches.append({"id": rule, "text": text, "frame": self.frame})

    def need(self, truth, rule, text):
        if not truth:
            self.breach(rule, text)


class Call:
    def __init__(self, sent, forward):
        self.sent, self.header, self.rpc, self.forward = sent, sent.header, sent.rpc, forward
        self.breaches = sent.breaches
        self.readable = self.header.readable and self.header.seen and bool(self.header.dialect)
        self.sources = [entry[1:] for entry in self.header.reads] if self.readable else []
        self.sinks = self.header.sinks() if self.readable else []
        self.written, self.fetched = Counter(), Counter()  # bytes, by segment
        self.sure = True  # the capture contains everything that was written and fetched
        self.reply_head = b""  # of a long reply
        self.by_error = False

    def handles(self):
        return {segment[0] for segment in self.sources + self.sinks}

    def first_source(self):
        """Returns where a long call begins."""
        return next((entry[1:] for entry in self.header.reads if entry[0] == 0), None)

    def record(self, connection, result, sent):
        """Returns the call's record; `sent` is its answer, if there was one."""
        header, answer = self.header, sent.header if sent else None
        option = f"{header.kind_name()} type {header.option}" if header.option is not None else ""
        record = {
            "type": "call", "connection": connection, "frame": self.sent.frame,
            "time_ns": self.sent.time, "xid": header.xid, "forward": self.forward,
            "rdma_version": header.version,
            "procedure": option or dump_rpc.procedure_name(self.rpc), "kind": header.kind_name(),
            "inline": self.sent.payload_size, "asked": header.credit,
            "long_call": total(e[1:] for e in header.reads if e[0] == 0) if header.kind == NOMSG else 0,
            "read_chunks": read_chunks(header), "write_chunks": write_chunks(header, answer),
            "reply_chunk": reply_chunk(header, answer), "result": result, "answered": sent is not None,
            "error": sent is not None and result not in (ACCEPTED[0], "answered"),
            "breaches": self.breaches + (sent.breaches if sent else [])}
        if sent:
            latency = sent.time - self.sent.time
            record |= {"granted": answer.credit, "latency_ns": latency if latency >= 0 else None,
                       "reply_frame": sent.frame, "reply_kind": answer.kind_name(),
                       "reply_inline": sent.payload_size}
        return record


def read_chunks(header):
    chunks = {}
    for position, _, length, _ in header.reads:
        if position or header.kind != NOMSG:
            chunk = chunks.setdefault(position, {"position": position, "segments": 0, "bytes": 0})
            chunk["segments"] += 1
            chunk["bytes"] += length
    return list(chunks.values())


def write_chunks(header, answer):
    used = [total(chunk) for chunk in answer.writes] if answer else []
    return [{"segments": len(chunk), "bytes": total(chunk), "used": used[i] if i < len(used) else None}
            for i, chunk in enumerate(header.writes)]


def reply_chunk(header, answer):
    if header.reply is None:
        return None
    return {"segments": len(header.reply), "bytes": total(header.reply),
            "used": total(answer.reply) if answer and answer.reply else 0}


class Calls:
    """The calls of one end, which has its own XIDs and credits (RFC 8167 section 4)."""

    def __init__(self, whole):
        self.waiting, self.answered, self.offers = {}, OrderedDict(), {}
        self.unsure = set()  # XIDs of calls whose answers may be missing in the capture
        self.granted = Promise(1 if whole else BOUNDLESS)
        self.largest, self.strangers, self.count, self.replied = 1, 0, 0, False

    def add(self, call):
        self.count += 1
        self.waiting[call.header.xid] = call
        for handle in call.handles():
            self.offers.setdefault(handle, []).append(call)

    def take(self, xid):
        call = self.waiting.pop(xid, None)
        self.unsure.discard(xid)
        for handle in call.handles() if call else ():
            self.offers[handle].remove(call)
            if not self.offers[handle]:
                del self.offers[handle]
        return call

    def remember(self, call):
        self.answered[call.header.xid] = call
        self.answered.move_to_end(call.header.xid)
        if len(self.answered) > REMEMBERED:
            self.answered.popitem(last=False)

    def doubt(self):
        self.unsure.update(self.waiting)
        for call in self.waiting.values():
            call.sure = False

    def grant(self, credits, time):
        self.granted.set(max(1, credits), time)
        self.largest = max(self.largest, credits)


class End:
    """What an end has announced about itself in draft-04."""

    def __init__(self):
        self.receives, self.told_size = Promise(DEFAULT_2), False
        self.backward = Promise(INLINE)
        self.listed = None  # properties of its CONNPROP
        self.fixed = set()  # the listed properties that never change
        self.asked = OrderedDict()  # XID of a REQPROP -> its properties

    def wanted(self):
        """Returns the largest size that this end asked of the other's Receives, or None if it asked for none."""
        sizes = [int.from_bytes(data, "big") for properties in self.asked.values()
                 for name, data in properties if name == RECEIVE_SIZE and len(data) == 4]
        return min(sizes, default=None)


class Agreements:
    """The part of a Conversation that tracks what its ends have announced to each other."""

    # ---- sizes

    def check_size(self, sent):
        most, rule = self.limit(sent)
        if sent.size > most:
            sent.breach(rule, f"{sent.size} bytes, and the other end takes {most}")

    def limit(self, sent):
        header, client = sent.header, sent.side == self.client
        if self.client is None or self.old or self.doubtful() or not header.dialect:
            return BOUNDLESS, ""
        if header.dialect == VERSION_1:
            return self.limit_of_private_data(sent.side, client)
        # Draft-04 section 7, draft-00 section 5: until the server has answered, it may be one of version 1.
        if client and not self.spoke_two[1 - sent.side]:
            return DEFAULT_1, "V2D4-NEG-10" if header.kind == CONNPROP else FIRST_SIZE[header.dialect]
        if header.dialect == DRAFT_00:
            return DEFAULT_2, "V2D0-INL-02"
        sender, receiver = self.ends[sent.side], self.ends[1 - sent.side]
        most = receiver.receives.most(sent.time)
        if sender.wanted() is not None and sender.wanted() < most:
            return sender.wanted(), "V2D4-PROP-24"
        return most, "V2D4-PROP-20" if receiver.told_size else "V2D4-INL-02"

    def limit_of_private_data(self, side, client):
        if None in self.link.private:
            return BOUNDLESS, ""
        mine, theirs = (dump_rpc.private_data(self.link.private[s]) for s in (side, 1 - side))
        if mine is None and theirs is None:
            return DEFAULT_1, "V1-INLINE-06"
        most = min(mine.send if mine else DEFAULT_1, theirs.receive if theirs else DEFAULT_1)
        return most, "PD-09" if client else "PD-10"

    # ---- transport properties (draft-04 section 5)

    def take_property(self, sent):
        header, end, other = sent.header, self.ends[sent.side], self.ends[1 - sent.side]
        if self.client is not None:
            self.check_size(sent)
            if sent.side != self.client:  # V2D4-POP-30: this message carries a server's grant, too
                self.calls[self.client].grant(header.credit, sent.time)
                self.calls[self.client].replied = True
        if header.kind != RESPROP:
            end.asked[header.xid] = header.properties if header.kind == REQPROP else []
            while len(end.asked) > REMEMBERED:
                end.asked.popitem(last=False)
        if header.readable and header.seen:
            {CONNPROP: self.take_connprop, REQPROP: self.take_reqprop, RESPROP: self.take_resprop,
             UPDPROP: self.take_updprop}[header.kind](sent, header, end, other)
        names = {RECEIVE_SIZE: "Receives of", BACKWARD_SUPPORT: "backward support"}
        said = ", ".join(f"{names.get(name, f'property {name:#x}')} {int.from_bytes(data[:8], 'big')}"
                         for name, data in header.properties[:16])
        self.emit({"type": "property", "connection": self.link.number, "frame": sent.frame,
                   "time_ns": sent.time, "xid": header.xid, "name": header.kind_name(),
                   "client": sent.side == self.client, "says": said, "breaches": sent.breaches})

    def take_connprop(self, sent, header, end, _):
        self.set(sent, end, header.properties)
        end.listed = {name for name, _ in header.properties}
        end.fixed = {name for i, (name, _) in enumerate(header.properties) if i in header.subsets[0]}

    def take_reqprop(self, sent, header, _, other):
        for name, _ in header.properties:
            sent.need(other.listed is None or name in other.listed, "V2D4-POP-11",
                      f"a request for property {name:#x}, which the other end has not listed")

    # Section 5.3.3: each property that was asked for is in one of the three.
    def take_resprop(self, sent, header, end, other):
        asked = other.asked.pop(header.xid, None)
        if not asked:
            sent.need(self.doubtful(), "V2D4-POP-17", f"a response to no request: XID {header.xid:#010x}")
            return
        done, rejected = header.subsets
        unasked = {name for name, _ in header.properties} - {name for name, _ in asked}
        sent.need(not unasked, "V2D4-POP-21", f"other values of {sorted(unasked)}, which were not requested")
        others = [i for i, (name, _) in enumerate(asked) if name in dict(header.properties)]
        said = sorted([i for i in (*done, *rejected) if i < len(asked)] + others)
        sent.need(said == list(range(len(asked))), "V2D4-POP-23",
                  f"of {len(asked)} requests it says something of {said[:8]}")
        self.set(sent, end, [p for i, p in enumerate(asked) if i in done] +
                 [p for p in header.properties if p[0] not in unasked])

    # Section 5.2.1: Receives shrink only where the other end asks for it.
    def take_updprop(self, sent, header, end, _):
        before = end.receives.latest()
        self.set(sent, end, header.properties)
        if not self.doubtful():
            sent.need(end.receives.latest() >= before, "V2D4-PROP-23",
                      f"Receives of {before} bytes shrink to {end.receives.latest()} unasked")

    def set(self, sent, end, properties):
        for name, data in properties:
            sent.need(name not in end.fixed, "V2D4-POP-10",
                      f"property {name:#x} changes, and was said to stay")
            sent.need(end.listed is None or name in end.listed, "V2D4-POP-11",
                      f"property {name:#x} changes, and CONNPROP left it out")
            if name not in (RECEIVE_SIZE, BACKWARD_SUPPORT) or not data:
                continue
            sent.need(len(data) >= 4, "V2D4-PROP-09", f"{len(data)} bytes of property {name}")
            sent.need(len(data) <= 4, "V2D4-PROP-13", f"{len(data)} bytes of property {name}")
            if len(data) == 4:
                self.set_known(sent, end, name, int.from_bytes(data, "big"))

    def set_known(self, sent, end, name, value):
        if name == RECEIVE_SIZE:
            sent.need(value >= DEFAULT_2, "V2D4-PROP-25", f"Receives of {value} bytes")
            end.told_size = True
            end.receives.set(max(value, DEFAULT_1), sent.time)
        else:
            sent.need(value <= GENERAL, "V2D4-PROP-27", f"backward support {value}")
            end.backward.set(min(value, GENERAL), sent.time)
