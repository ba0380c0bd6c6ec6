"""What must hold for every conversation of RPC over RDMA version 1 over iWARP, as far as a listener on
the wire can tell. Works on the records of wire_dissect.py; knows nothing of who spoke."""
from collections import Counter

MSG, NOMSG, ERROR = 0, 1, 4
NFS, READ, WRITE, SYMLINK = 100003, 6, 7, 10
PLAIN_HEADER, READ_ENTRY, SEGMENT = 28, 24, 16  # bytes
ERROR_CODES = {1: "ERR_VERS", 2: "ERR_CHUNK"}


def padded(length):
    return (length + 3) & ~3


def header_bytes(header):
    lists = 4 * len(header["writes"]) + 4 * (header["reply"] is not None)  # counts of segments
    segments = sum(map(len, header["writes"])) + len(header["reply"] or [])
    entries = 4 * len(header["writes"])  # "one more"
    return PLAIN_HEADER + READ_ENTRY * len(header["reads"]) + lists + entries + SEGMENT * segments


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


class Stream:
    """One connection."""

    def __init__(self, faults):
        self.faults, self.mpa, self.numbers, self.message = faults, {}, Counter(), Counter()
        self.waiting, self.answered, self.reads = {}, {}, {}
        self.grant = None
        self.outstanding_most = 0

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
        self.need(record, header["version"] == 1, f"version {header['version']}")
        self.need(record, header["msg_type"] in (MSG, NOMSG, ERROR), f"message type {header['msg_type']}")
        self.need(record, header["flow_control"] > 0, "no credit is asked for or granted")
        (self.take_call if record["client"] else self.take_reply)(record)

    # RFC 8166 section 4.3 for what a call's lists are, 3.3 for how many calls there may be.
    def take_call(self, record):
        header = record["header"]
        xid, rpc = header["xid"], record.get("rpc")
        self.need(record, xid not in self.waiting and xid not in self.answered, "an XID comes twice")
        call = Call(record, record["message_bytes"] - header_bytes(header))
        self.need(record, len(call.handles()) == len(call.sources + call.sinks), "a handle comes twice")
        for other in self.waiting.values():
            self.need(record, not call.handles() & other.handles(), "another call's handle")
        self.waiting[xid] = call
        self.need(record, len(self.waiting) <= (self.grant or 1), "more calls than credits")
        self.outstanding_most = max(self.outstanding_most, len(self.waiting))
        if rpc and rpc["xid"] is not None:  # tshark knows the program
            self.need(record, rpc["xid"] == xid and not rpc["reply"], "header and message differ")
        positions = [entry[0] for entry in header["reads"]]
        if header["msg_type"] == MSG:
            self.need(record, 0 not in positions, "RDMA_MSG with a chunk at Position zero")
            self.need(record, all(p % 4 == 0 and p <= call.message_bytes for p in positions), "a bad Position")
        else:
            self.need(record, 0 in positions and call.message_bytes == 0, "RDMA_NOMSG without its message")
        self.need(record, record["opcode"] == "Send", "a call that invalidates")

    def take_reply(self, record):
        header = record["header"]
        call = self.waiting.pop(header["xid"], None)
        self.grant = header["flow_control"]
        if call is None:
            self.fault(record, "a reply to no call that waits")
            return
        self.answered[header["xid"]] = call
        if record.get("rpc") and record["rpc"]["xid"] is not None:
            self.need(record, record["rpc"]["xid"] == header["xid"] and record["rpc"]["reply"],
                      "header and message differ")
        self.check_invalidation(record, call)
        if header["msg_type"] == ERROR:
            call.error = ERROR_CODES.get(header["errcode"], header["errcode"])
            return
        self.need(record, not header["reads"], "a Read list in a reply")
        self.check_returned(record, call)
        for handle, length, _ in call.sources:
            self.need(record, call.read[handle] == length, f"{call.read[handle]} of {length} bytes were read")

    # RFC 8797 section 4: only where the client said that it may be.
    def check_invalidation(self, record, call):
        if record["opcode"] != "Send with Invalidate":
            return
        private = self.mpa.get("request", {}).get("private", "")
        at = private.find("f6ab0e18")
        allowed = at >= 0 and int(private[at + 10:at + 12], 16) & 1
        self.need(record, allowed, "an invalidation that the client has not asked for")
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

    def take_write(self, record):
        # RFC 6581 section 9: a client says so that it is ready. It may say it again.
        if record["client"] and record["bytes"] == 0:
            return
        self.need(record, not record["client"], "the client writes")
        call = self.owner(record["stag"], "sinks")
        self.need(record, call and inside(call.sinks, record["stag"], record["offset"], record["bytes"]),
                  "a Write to what nobody offers")
        if call:
            call.written[record["stag"]] += record["bytes"]

    def take_read(self, record):
        read = record["read"]
        call = self.owner(read["srcstag"], "sources")
        self.need(record, not record["client"] and record["qn"] == 1, "a Read Request from or on the wrong end")
        self.need(record, call and inside(call.sources, read["srcstag"], read["srcto"], read["rdmardsz"]),
                  "a Read of what nobody offers")
        if call:
            self.reads.setdefault(read["sinkstag"], []).append((read, call))

    def take_response(self, record):
        for read, call in self.reads.get(record["stag"], []):
            if read["sinkto"] <= record["offset"] and \
                    record["offset"] + record["bytes"] <= read["sinkto"] + read["rdmardsz"]:
                call.read[read["srcstag"]] += record["bytes"]
                if record["offset"] + record["bytes"] == read["sinkto"] + read["rdmardsz"]:
                    self.need(record, record["last"], "the end of a Read Response is not marked")
                    self.reads[record["stag"]].remove((read, call))
                return
        self.fault(record, "a Read Response that nobody asked for")

    def owner(self, stag, kind):
        return next((c for c in self.waiting.values() if any(s[0] == stag for s in getattr(c, kind))), None)


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
    """(faults, summary): faults as (frame, text), and what was counted on the way."""
    faults, streams = [], {}
    for record in records:
        streams.setdefault(record["stream"], Stream(faults)).take(record)
    calls = {}
    for number, stream in streams.items():
        for frame, text in [(call.frame, "a call without a reply") for call in stream.waiting.values()]:
            faults.append((frame, text))
        calls.update({(number, xid): call for xid, call in {**stream.answered, **stream.waiting}.items()})
    check_nfs(records, calls, faults)
    rpcs = {(r["stream"], r["rpc"]["xid"]): r["rpc"] for r in records
            if r.get("rpc") and r["rpc"]["program"] and not r["rpc"]["reply"]}
    headers = [(r["client"], r["header"]) for r in records if r.get("header")]
    summary = {
        "connections": len(streams), "calls": len(calls),
        "procedures": Counter((rpc["program"], rpc["procedure"]) for rpc in rpcs.values()),
        "asked": sorted({h["flow_control"] for client, h in headers if client}),
        "granted": sorted({h["flow_control"] for client, h in headers if not client}),
        "outstanding": max((s.outstanding_most for s in streams.values()), default=0),
        "read_chunks": sum(bool(h["reads"]) for client, h in headers if client),
        "write_chunks": sum(bool(h["writes"]) for client, h in headers if client),
        "reply_chunks": sum(h["reply"] is not None for client, h in headers if client),
        "long_calls": sum(h["msg_type"] == NOMSG for client, h in headers if client),
        "long_replies": sum(h["msg_type"] == NOMSG for client, h in headers if not client),
        "errors": Counter(call.error for call in calls.values() if call.error),
        "invalidations": sum(r.get("opcode") == "Send with Invalidate" for r in records),
        "crc": any(r.get("crc_flag") for r in records),
    }
    return faults, summary
