"""What tshark says of a capture of RPC over RDMA over iWARP: a list of records in the order of the
wire, one for each MPA frame. Nothing comes from our own code: what tshark does not know (version 2, the
messages of unknown programs) is read in wire_version_two.py and here.

A record has
  frame, stream   of the capture, for messages
  client          whether the end that connected sent it
  kind            "request", "reply" (of MPA), or "segment"
and a segment
  opcode          of RDMAP, by name
  ulpdu, crc      length, and the field as it is
  last, and either qn, msn, mo or stag, offset; invalidates (a handle); read (a Read Request)
  header          of the RPC-over-RDMA message, in the last segment of a Send: see header_of()
  begins          (XID, is a reply) of the RPC message behind an RDMA_MSG header
  rpc             {"xid", "reply", "program", "procedure", "asks": bytes of a READ or WRITE}
"""
import json
import struct
import subprocess

import wire_frames
import wire_version_two

OPCODES = {0: "Write", 1: "Read Request", 2: "Read Response", 3: "Send", 4: "Send with Invalidate", 7: "Terminate"}
LAYERS = "frame iwarp_mpa iwarp_ddp_rdmap rpcordma rpc nfs _ws.malformed"
# A Send that is one segment has a ULPDU of this many bytes before the message.
UNTAGGED_BYTES, TAGGED_BYTES = 18, 14
LENGTH_BYTES = 2  # MPA's, before the ULPDU
PLAIN_HEADER, READ_ENTRY, SEGMENT = 28, 24, 16
DIRECTION_BYTES = 8  # with the handle to invalidate, in draft-04


def tshark(capture, *options):
    return subprocess.run(["tshark", "-r", str(capture), *options], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True).stdout


def walk(pairs):
    """All (name, value) of a tree, in order."""
    for name, value in pairs:
        yield name, value
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            yield from walk(value)


def first(pairs, name):
    return next((value for n, value in walk(pairs) if n == name), None)


def number(pairs, name):
    text = first(pairs, name)
    return None if text is None else int(text, 0)


def segment(pairs):
    return tuple(number(pairs, "rpcordma.rdma_" + name) for name in ("handle", "length", "offset"))


def chunks(pairs, name):
    return [[segment(one) for n, one in chunk if n.startswith("RDMA segment")]
            for label, chunk in first(pairs, name + "_tree") or [] if label.startswith("Write chunk")]


def header_of(pairs):
    header = {name: number(pairs, "rpcordma." + name)
              for name in ("xid", "version", "flow_control", "msg_type", "errcode", "vers_low", "vers_high")}
    header["reads"] = [(number(entry, "rpcordma.position"), *segment(entry))
                       for label, entry in first(pairs, "rpcordma.reads_count_tree") or []
                       if label.startswith("Read chunk")]
    header["writes"] = chunks(pairs, "rpcordma.writes_count")
    header["reply"] = next(iter(chunks(pairs, "rpcordma.reply_count")), None)
    for name in ("reads", "writes", "reply"):
        if (number(pairs, f"rpcordma.{name}_count") or 0) != \
                (len(header[name]) if name != "reply" else header[name] is not None):
            raise ValueError(f"tshark counts other {name} than it lists: {header}")
    return header


def header_bytes(header):
    """The size of the header of an RDMA_MSG or RDMA_NOMSG."""
    lists = 4 * len(header["writes"]) + 4 * (header["reply"] is not None)  # counts of segments
    segments = sum(map(len, header["writes"])) + len(header["reply"] or [])
    entries = 4 * len(header["writes"])  # "one more"
    plain = PLAIN_HEADER + (DIRECTION_BYTES if "direction" in header else 0)
    return plain + READ_ENTRY * len(header["reads"]) + lists + entries + SEGMENT * segments


def rpc_of(pairs, nfs):
    rpc = {"xid": number(pairs, "rpc.xid"), "reply": first(pairs, "rpc.msgtyp") == "1",
           "program": number(pairs, "rpc.program"), "procedure": number(pairs, "rpc.procedure")}
    if nfs:
        rpc["asks"] = number(nfs, "nfs.count3")
    return rpc


def segment_of(mpa):
    checked = number(mpa, "iwarp_mpa.crc_check")  # where CRCs are in use
    return {"kind": "segment", "ulpdu": number(mpa, "iwarp_mpa.ulpdulength"),
            "crc": checked if checked is not None else number(mpa, "iwarp_mpa.crc")}


def take_ddp(record, pairs):
    record["opcode"] = OPCODES.get(number(pairs, "iwarp_rdma.opcode"), "unknown")
    record["last"] = first(pairs, "iwarp_ddp.last_flag") == "1"
    record["versions"] = (number(pairs, "iwarp_ddp.dv"), number(pairs, "iwarp_rdma.version"))
    if first(pairs, "iwarp_ddp.tagged_flag") == "1":
        record["stag"] = number(pairs, "iwarp_ddp.stag")
        record["offset"] = number(pairs, "iwarp_ddp.tagged_offset")
        record["bytes"] = record["ulpdu"] - TAGGED_BYTES
        return
    for name in ("qn", "msn", "mo"):
        record[name] = number(pairs, "iwarp_ddp." + name)
    record["bytes"] = record["ulpdu"] - UNTAGGED_BYTES
    record["invalidates"] = number(pairs, "iwarp_rdma.inval_stag")
    if record["opcode"] == "Read Request":
        record["read"] = {name: number(pairs, "iwarp_rdma." + name)
                          for name in ("sinkstag", "sinkto", "rdmardsz", "srcstag", "srcto")}


def mpa_of(mpa):
    return {"kind": "request" if first(mpa, "iwarp_mpa.req") is not None else "reply",
            "crc_flag": first(mpa, "iwarp_mpa.crc_flag") == "1", "markers": first(mpa, "iwarp_mpa.marker_flag") == "1",
            "rejected": first(mpa, "iwarp_mpa.rej_flag") == "1", "revision": number(mpa, "iwarp_mpa.rev"),
            "private": (first(mpa, "iwarp_mpa.privatedata") or "").replace(":", "")}


def records_of(layers):
    """The records of one captured frame, in order: its layers repeat for each MPA frame in it."""
    records = []
    for index, (name, value) in enumerate(layers):
        if name == "iwarp_mpa":
            is_segment = first(value, "iwarp_mpa.ulpdulength") is not None
            records.append(segment_of(value) if is_segment else mpa_of(value))
        elif name == "_ws.unreassembled":
            records.pop()  # only its beginning; it is in a later frame again
        elif name == "iwarp_ddp_rdmap":
            take_ddp(records[-1], value)
        elif name == "rpcordma":
            if number(value, "rpcordma.version") == 1:  # it takes others for version 1
                records[-1]["header"] = header_of(value)
        elif name == "rpc" and records and "rpc" not in records[-1]:
            following = layers[index + 1] if index + 1 < len(layers) else ("", None)
            records[-1]["rpc"] = rpc_of(value, following[1] if following[0] == "nfs" else None)
    return records


def finish_send(record, message, draft):
    """Adds the fields that tshark leaves out of a whole Send. See RFC 5531 section 9 for the beginning of an RPC
    message."""
    if "header" not in record:
        header = wire_version_two.header_of(message, draft)
        if header is None:
            return
        record["header"] = header
        record.pop("rpc", None)
    if record["header"]["msg_type"] == wire_version_two.MSG:
        at = header_bytes(record["header"])
        if len(message) >= at + 8:
            xid, kind = struct.unpack_from(">II", message, at)
            record["begins"] = (xid, kind == 1)


def dissect(capture, draft="v2-04"):
    """The records of a capture that wire_frames rewrote. `draft` is the meaning of version 2."""
    ends = {}
    payloads = [payload for *_, payload in wire_frames.segments(capture)]
    for line in tshark(capture, "-Y", "iwarp_mpa", "-T", "fields", "-e", "frame.number", "-e", "tcp.stream",
                       "-e", "ip.src", "-e", "tcp.srcport").splitlines():
        frame, stream, address, port = line.split("\t")
        ends[int(frame)] = (int(stream), (address, port))
    connectors, sends, result = {}, {}, []
    for packet in json.loads(tshark(capture, "-Y", "iwarp_mpa", "-T", "json", "-J", LAYERS),
                             object_pairs_hook=list):
        layers = dict(dict(packet)["_source"])["layers"]
        frame = number(layers, "frame.number")
        stream, sender = ends[frame]
        for record in records_of(layers):
            if record["kind"] == "request":
                connectors[stream] = sender
            record.update(frame=frame, stream=stream, client=sender == connectors.get(stream))
            if record.get("opcode", "").startswith("Send"):
                start = LENGTH_BYTES + UNTAGGED_BYTES
                piece = payloads[frame - 1][start:start + record["bytes"]]
                sends[ends[frame]] = sends.get(ends[frame], b"") + piece
                if record["last"]:
                    finish_send(record, sends.pop(ends[frame]), draft)
            result.append(record)
    return result


# tshark knows MPA of RFC 5044 only, and takes the flags of RFC 6581 for reserved ones.
KNOWN_EXPERTS = {"iwarp_mpa.res.not_set0", "iwarp_mpa.rev.not_set1"}
WARNING = 0x00600000  # the lowest severity of interest (epan/proto.h: PI_WARN)


def complaints(capture, versions):
    """tshark's errors, as (frame, text). Those about NFS are ignored: it does not put the data of a chunk back into
    its message, and calls each such READ or READLINK malformed. So are those about RPC-over-RDMA if other versions
    than 1 are spoken."""
    found = []
    unknown = ["nfs"] if versions == [1] else ["nfs", "rpcordma"]
    shown = tshark(capture, *(word for name in unknown for word in ("--disable-protocol", name)), "-Y", "_ws.malformed || _ws.expert.severity >= 6291456",
                   "-T", "json", "-J", "frame iwarp_mpa iwarp_ddp_rdmap rpcordma rpc _ws.malformed tcp")
    for packet in json.loads(shown, object_pairs_hook=list):
        layers = dict(dict(packet)["_source"])["layers"]
        pairs = list(walk(layers))
        frame = number(layers, "frame.number")
        for at, (name, value) in enumerate(pairs):
            if name == "_ws.malformed" and value:
                found.append((frame, f"malformed: {value}"))
            if name == "_ws.expert":
                kind = value[0][0]
                if (number(value, "_ws.expert.severity") or 0) >= WARNING and kind not in KNOWN_EXPERTS:
                    found.append((frame, f"{kind or ''} {first(value, '_ws.expert.message')}"))
    # In words only.
    crcs = [line for line in tshark(capture, "-Y", "iwarp_mpa.crc_check", "-O", "iwarp_mpa").splitlines()
            if "CRC check:" in line and "Good CRC32" not in line]
    return found + [(None, line.strip()) for line in crcs]
