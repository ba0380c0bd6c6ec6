"""What must hold for every conversation of RPC over RDMA, versions 1 and 2, over iWARP, as far as a
listener on the wire can tell. Works on the records of wire_dissect.py; knows nothing of who spoke."""
from collections import Counter

import wire_promises
from wire_dissect import header_bytes
from wire_version_two import ERROR, MSG, NOMSG

NFS, READ, WRITE, SYMLINK = 100003, 6, 7, 10
ERROR_CODES = {1: "ERR_VERS", 2: "ERR_CHUNK"}  # the second is BAD_XDR in draft-04


def padded(length):
    return (length + 3) & ~3


def total(segments):
    return sum(length for _, length, _ in segments)


def inside(segments, stag, offset, length):
    return any(h == stag and o <= offset and offset + length <= o + n for h, n, o in segments)


class Call:
    def __init__(self, record, message_bytes):
        header = record["header"]
        self.frame, self.header, self.message_bytes = record["frame"], header, message_bytes
        self.sources = [entry[1:] for entry in header["reads"]]
        self.sinks = [s for chunk in header["writes"] for s in chunk] + (header["reply"] or [])
        self.read, self.written = Counter(), Counter()
        self.error = None  # the code of an RDMA_ERROR that answered it

    def handles(self):
        return {segment[0] for segment in self.sources + self.sinks}


class Direction:
    """The calls of one end and their answers. XIDs and credits are its own (RFC 8167 section 4)."""

    def __init__(self):
        self.waiting, self.answered = {}, {}
        self.granted = 1  # until the first reply
        self.outstanding_most = 0

    def owner(self, stag, kind):
        return next((c for c in self.waiting.values() if any(s[0] == stag for s in getattr(c, kind))), None)


class Stream:
    """One connection. Its directions are named by whether the client calls."""

    def __init__(self, faults):
        self.faults, self.mpa, self.numbers, self.message = faults, {}, Counter(), Counter()
        self.directions = {True: Direction(), False: Direction()}
        self.promises = wire_promises.Promises(self.need, self.mpa)
        self.version = None  # of all messages, once the first call has announced it
        self.reads = {}

    def fault(self, record, text):
        self.faults.append((record["frame"], text))

    def need(self, record, truth, text):
        if not truth:
            self.fault(record, text)

    def take(self, record):
        if record["kind"] != "segment":
            self.mpa[record["kind"]] = record
            self.need(record, not record["markers"] and not record["rejected"], "markers, or a rejection")
            return
        self.need(record, record["versions"] == (1, 1), "another version of DDP or RDMAP")
        self.check_crc(record)
        if "qn" in record:
            self.check_order(record)
        {"Send": self.take_send, "Send with Invalidate": self.take_send, "Write": self.take_write,
         "Read Request": self.take_read, "Read Response": self.take_response,
         "Terminate": lambda r: self.fault(r, "a Terminate")}.get(
             record["opcode"], lambda r: self.fault(r, "an opcode that has no place here"))(record)

    # RFC 5044 section 5: both ends use CRCs if either asks. Without them Linux and we leave zeros.
    def check_crc(self, record):
        on = any(m["crc_flag"] for m in self.mpa.values())
        self.need(record, record["crc"] != 0 if on else record["crc"] == 0, "a CRC is there or missing")

    # RFC 5041 section 5.1: message numbers of a queue count from 1, offsets within a message from 0.
    def check_order(self, record):
        queue = (record["client"], record["qn"])
        if record["mo"] == 0:
            self.numbers[queue] += 1
        self.need(record, record["msn"] == self.numbers[queue], "a message out of order")
        self.need(record, record["mo"] == self.message[queue], "a segment out of order")
        self.message[queue] = 0 if record["last"] else record["mo"] + record["bytes"]
        record["message_bytes"] = record["mo"] + record["bytes"]

    def take_send(self, record):
        self.need(record, record["qn"] == 0, "a Send on another queue")
        if not record["last"]:
            return
        if "header" not in record:
            self.fault(record, "a Send that is no RPC over RDMA")
            return
        header = record["header"]
        self.version = self.version or header["version"]
        self.need(record, header["version"] == self.version, f"version {header['version']}")
        self.need(record, header["flow_control"] > 0, "no credit is asked for or granted")
        if header["msg_type"] in wire_promises.PROPERTIES and header["version"] == 2:
            self.take_property(record)
        elif header["msg_type"] in (MSG, NOMSG, ERROR):
            self.take_message(record, self.is_call(record))
        else:
            self.fault(record, f"message type {header['msg_type']}")

    # Draft-04 has a word for it (section 6.2.2). Otherwise the RPC message says it, if it is
    # visible; of the others only a client's are calls, as no server sends a call that long.
    def is_call(self, record):
        header, begins = record["header"], record.get("begins")
        if header["msg_type"] == ERROR:
            return False
        if "direction" in header:
            self.need(record, header["direction"] in (0, 1), "an invalid direction")
            self.need(record, not begins or begins[1] == (header["direction"] == 1),
                      "the message has another direction")
            return header["direction"] == 0
        if begins:
            return not begins[1]
        return record["client"] or bool(header["reads"])

    def take_message(self, record, is_call):
        header, begins = record["header"], record.get("begins")
        forward = record["forward"] = record["client"] == is_call
        self.promises.take(record, not forward)
        if not forward:
            self.check_backward(record, is_call)
        if header["msg_type"] == MSG:
            self.need(record, begins and begins[0] == header["xid"], "header and message differ")
        direction = self.directions[forward]
        (self.take_call if is_call else self.take_reply)(record, direction)

    # These messages also carry a server's grant, but take no credit.
    def take_property(self, record):
        self.promises.take(record, False)
        self.promises.take_property(record)
        if not record["client"]:
            self.directions[True].granted = record["header"]["flow_control"]

    # RFC 8167 section 4, draft-04 section 5.2.2: the client calls first, and chunks are only for an
    # end that says that it takes them. An end that takes no calls answers them with errors only.
    def check_backward(self, record, is_call):
        header = record["header"]
        support = self.promises.ends[not record["client"]].backward
        inline = header["msg_type"] != NOMSG and not (header["reads"] or header["writes"] or header["reply"])
        self.need(record, inline or support == wire_promises.GENERAL, "a backward message with chunks")
        if is_call:
            forward = self.directions[True]
            self.need(record, forward.waiting or forward.answered, "a server that calls first")
        elif header["msg_type"] != ERROR:
            self.need(record, self.promises.ends[record["client"]].backward != wire_promises.NONE,
                      "a reply to a call of a kind that is not taken")

    # RFC 8166 section 4.3 for a call's lists, 3.3 for the number of calls.
    def take_call(self, record, direction):
        header = record["header"]
        xid, rpc = header["xid"], record.get("rpc")
        # A client that falls back to version 1 sends its call again.
        before = direction.answered.get(xid)
        self.need(record, xid not in direction.waiting and (not before or before.error == "ERR_VERS"),
                  "an XID comes twice")
        call = Call(record, record["message_bytes"] - header_bytes(header))
        self.need(record, len(call.handles()) == len(call.sources + call.sinks), "a handle comes twice")
        for other in direction.waiting.values():
            self.need(record, not call.handles() & other.handles(), "another call's handle")
        direction.waiting[xid] = call
        self.need(record, len(direction.waiting) <= direction.granted, "more calls than credits")
        direction.outstanding_most = max(direction.outstanding_most, len(direction.waiting))
        if rpc and rpc["xid"] is not None:  # tshark knows the program
            self.need(record, rpc["xid"] == xid and not rpc["reply"], "header and message differ")
        positions = [entry[0] for entry in header["reads"]]
        if header["msg_type"] == MSG:
            self.need(record, 0 not in positions, "RDMA_MSG with a chunk at Position zero")
            self.need(record, all(p % 4 == 0 and p <= call.message_bytes for p in positions), "a bad Position")
        else:
            self.need(record, 0 in positions and call.message_bytes == 0, "RDMA_NOMSG without its message")
        self.need(record, record["opcode"] == "Send", "a call that invalidates")
        named = header.get("inv_handle", 0)
        self.need(record, not named or named in call.handles(), "a handle to invalidate that is not the call's")

    def take_reply(self, record, direction):
        header = record["header"]
        call = direction.waiting.pop(header["xid"], None)
        direction.granted = header["flow_control"]
        if call is None:
            self.fault(record, "a reply to no call that waits")
            return
        direction.answered[header["xid"]] = call
        if record.get("rpc") and record["rpc"]["xid"] is not None:
            self.need(record, record["rpc"]["xid"] == header["xid"] and record["rpc"]["reply"],
                      "header and message differ")
        self.check_invalidation(record, call)
        if header["msg_type"] == ERROR:
            call.error = ERROR_CODES.get(header["errcode"], header["errcode"])
            if call.error == "ERR_VERS":
                self.version = None
            return
        self.need(record, not header["reads"], "a Read list in a reply")
        self.check_returned(record, call)
        for handle, length, _ in call.sources:
            self.need(record, call.read[handle] == length, f"{call.read[handle]} of {length} bytes were read")

    # Only if the caller allows it: in version 1 for all calls (RFC 8797 section 4), in draft-04 for
    # this one, and which handle (section 6.2.3).
    def check_invalidation(self, record, call):
        if record["opcode"] != "Send with Invalidate":
            return
        if "inv_handle" in call.header:
            allowed = record["invalidates"] == call.header["inv_handle"]
        else:
            mpa = self.mpa.get("reply" if record["client"] else "request", {})
            allowed = call.header["version"] == 1 and wire_promises.private_data(mpa)[0]
        self.need(record, allowed, "an invalidation that the caller has not asked for")
        self.need(record, record["invalidates"] in call.handles(), "a foreign handle is invalidated")

    # RFC 8166 section 4.3.2: the lists come back, with the lengths that were written.
    def check_returned(self, record, call):
        header, offered = record["header"], call.header
        self.need(record, len(header["writes"]) == len(offered["writes"]), "another number of Write chunks")
        pairs = list(zip(header["writes"], offered["writes"]))
        long = header["msg_type"] == NOMSG
        self.need(record, not long or header["reply"] is not None, "RDMA_NOMSG without a Reply chunk")
        self.need(record, (record["message_bytes"] == header_bytes(header)) == long,
                  "bytes behind RDMA_NOMSG, or none behind RDMA_MSG")
        if header["reply"] is not None:
            self.need(record, offered["reply"] is not None, "a Reply chunk that was not offered")
            pairs.append((header["reply"], offered["reply"] or []))
        for returned, given in pairs:
            self.need(record, [(h, o) for h, _, o in returned] == [(h, o) for h, _, o in given],
                      "other segments than offered")
            for (handle, length, _), (_, room, _) in zip(returned, given):
                self.need(record, length <= room, "more bytes than were offered")
                self.need(record, call.written[handle] in (length, padded(length)),
                          f"{call.written[handle]} bytes were written, {length} are claimed")

    # The called end makes Writes and Reads, into and from the memory that the other's waiting calls
    # offer.
    def owner(self, record, stag, kind):
        return self.directions[not record["client"]].owner(stag, kind)

    def take_write(self, record):
        # RFC 6581 section 9: this is how a client says that it is ready. It may say it again.
        if record["client"] and record["bytes"] == 0:
            return
        call = self.owner(record, record["stag"], "sinks")
        self.need(record, call and inside(call.sinks, record["stag"], record["offset"], record["bytes"]),
                  "a Write to memory that is not offered")
        if call:
            call.written[record["stag"]] += record["bytes"]

    def take_read(self, record):
        read = record["read"]
        call = self.owner(record, read["srcstag"], "sources")
        self.need(record, record["qn"] == 1, "a Read Request on another queue")
        self.need(record, call and inside(call.sources, read["srcstag"], read["srcto"], read["rdmardsz"]),
                  "a Read of memory that is not offered")
        if call:
            self.reads.setdefault((record["client"], read["sinkstag"]), []).append((read, call))

    def take_response(self, record):
        asked = self.reads.get((not record["client"], record["stag"]), [])
        for read, call in asked:
            if read["sinkto"] <= record["offset"] and \
                    record["offset"] + record["bytes"] <= read["sinkto"] + read["rdmardsz"]:
                call.read[read["srcstag"]] += record["bytes"]
                if record["offset"] + record["bytes"] == read["sinkto"] + read["rdmardsz"]:
                    self.need(record, record["last"], "the end of a Read Response is not marked")
                    asked.remove((read, call))
                return
        self.fault(record, "a Read Response without a request")


def check_nfs(records, calls, faults):
    """The chunks of NFS version 3 (RFC 8267 section 2): their places and lengths."""
    for record in records:
        rpc = record.get("rpc")
        if not rpc or rpc["program"] != NFS or rpc["reply"] or (record["stream"], rpc["xid"]) not in calls:
            continue
        call = calls[record["stream"], rpc["xid"]]
        header, asks = call.header, rpc.get("asks")
        if rpc["procedure"] == READ and header["writes"] and asks is not None and \
                not asks <= total(header["writes"][0]) <= padded(asks) + 4096:
            faults.append((call.frame, f"READ of {asks} bytes offers {total(header['writes'][0])}"))
        if rpc["procedure"] in (WRITE, SYMLINK) and header["reads"] and header["msg_type"] == MSG:
            if {entry[0] for entry in header["reads"]} != {call.message_bytes}:
                faults.append((call.frame, "the chunk's Position is not where the data were"))
            if asks is not None and total(call.sources) not in (asks, padded(asks)):
                faults.append((call.frame, f"WRITE of {asks} bytes has chunks of {total(call.sources)}"))


def check(records):
    """Returns (faults, summary): faults as (frame, text), and the counts on the way."""
    faults, streams = [], {}
    for record in records:
        streams.setdefault(record["stream"], Stream(faults)).take(record)
    calls = {}
    for number, stream in streams.items():
        for direction in stream.directions.values():
            for call in direction.waiting.values():
                faults.append((call.frame, "a call without a reply"))
        forward = stream.directions[True]
        calls.update({(number, xid): call for xid, call in {**forward.answered, **forward.waiting}.items()})
    check_nfs(records, calls, faults)
    return faults, summarize(records, list(streams.values()), calls)


def summarize(records, streams, calls):
    rpcs = {(r["stream"], r["rpc"]["xid"]): r["rpc"] for r in records
            if r.get("rpc") and r["rpc"]["program"] and not r["rpc"]["reply"]}
    headers = [r["header"] for r in records if r.get("header")]
    # By direction, and whether it comes from the caller.
    of = {(forward, caller): [r["header"] for r in records if r.get("forward") is forward and
                              (r["client"] is forward) is caller]
          for forward in (True, False) for caller in (True, False)}
    asking, replies = of[True, True], of[True, False]
    credit = {kind: sorted({h["flow_control"] for h in some}) for kind, some in of.items()}
    backward = [call for stream in streams for call in stream.directions[False].answered.values()]
    most = {forward: max((s.directions[forward].outstanding_most for s in streams), default=0)
            for forward in (True, False)}
    return {
        "connections": len(streams), "calls": len(calls), "backward_calls": len(backward),
        "versions": sorted({h["version"] for h in headers}),
        "procedures": Counter((rpc["program"], rpc["procedure"]) for rpc in rpcs.values()),
        "asked": credit[True, True], "granted": credit[True, False],
        "backward_asked": credit[False, True], "backward_granted": credit[False, False],
        "outstanding": most[True], "backward_outstanding": most[False],
        "properties": Counter(h["msg_type"] for h in headers if "set" in h),
        "read_chunks": sum(bool(h["reads"]) for h in asking),
        "write_chunks": sum(bool(h["writes"]) for h in asking),
        "reply_chunks": sum(h["reply"] is not None for h in asking),
        "long_calls": sum(h["msg_type"] == NOMSG for h in asking),
        "long_replies": sum(h["msg_type"] == NOMSG for h in replies),
        "errors": Counter(call.error for call in calls.values() if call.error),
        "invalidations": sum(r.get("opcode") == "Send with Invalidate" for r in records),
        "crc": any(r.get("crc_flag") for r in records),
    }
