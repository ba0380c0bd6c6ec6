#!/usr/bin/env python3
"""Writes what tshark says of each RPC-over-RDMA header in a capture, as JSON beside it.

    scripts/dissect-capture.py test/data/captures/*.pcap

Needs tshark (4.0 made the files that are there). A header is one line: its bytes, the length of the
whole Send, and the fields of tshark's dissection. Segments are [handle, length, offset], entries of
the Read list [position, handle, length, offset]. The octets of the connection requests and replies
that hold private data (RFC 8797) are kept too. Everything comes from tshark, nothing from our code.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

LAYERS = "frame ip infiniband iwarp_mpa iwarp_ddp_rdmap rpcordma"
# A connection's request, then its reply: iWARP's, and those of InfiniBand's connection manager.
PRIVATE_DATA = ["iwarp_mpa.privatedata", "infiniband.cm.req.ip_cm.private", "infiniband.cm.rep.private"]
INVARIANT_CRC_BYTES = 4


def frames(capture, display_filter, layers=None):
    """Each frame's layers, as a list of (name, value) at every level: names repeat."""
    command = ["tshark", "-r", str(capture), "-Y", display_filter, "-T", "json", "-x"]
    if layers:
        command += ["-J", layers]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    for packet in json.loads(out, object_pairs_hook=list):
        yield dict(dict(packet)["_source"])["layers"]


def walk(pairs):
    """All (name, value) of a tree, in order."""
    for name, value in pairs:
        yield name, value
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            yield from walk(value)


def field(pairs, name):
    return next((value for n, value in walk(pairs) if n == name), None)


def number(pairs, name):
    return int(field(pairs, name), 0)


def segment(pairs):
    return [number(pairs, "rpcordma.rdma_" + name) for name in ("handle", "length", "offset")]


def write_chunks(header, name):
    """The Write list, or the Reply chunk as a list of at most one."""
    tree = field(header, name + "_tree") or []
    return [[segment(one) for n, one in chunk if n.startswith("RDMA segment")]
            for label, chunk in tree if label.startswith("Write chunk")]


def read_list(header):
    tree = field(header, "rpcordma.reads_count_tree") or []
    return [[number(entry, "rpcordma.position")] + segment(entry)
            for label, entry in tree if label.startswith("Read chunk")]


def describe(header, raw, length, layers, client):
    out = {
        "frame": number(layers, "frame.number"),
        "role": "call" if field(layers, "ip.src") == client else "reply",
        "length": length,
        "bytes": raw,
    }
    for name in ("xid", "version", "flow_control", "msg_type", "errcode", "vers_low", "vers_high"):
        if field(header, "rpcordma." + name) is not None:
            out[name] = number(header, "rpcordma." + name)
    if field(header, "rpcordma.reads_count") is not None:
        out["reads"] = read_list(header)
        out["writes"] = write_chunks(header, "rpcordma.writes_count")
        out["reply"] = next(iter(write_chunks(header, "rpcordma.reply_count")), None)
    return out


def headers(capture, client):
    for layers in frames(capture, "rpcordma", LAYERS):
        reassembled = raw = None
        send_end = 0  # of the Send's bytes in the frame, where they lie in one piece
        for name, value in layers:
            if name == "iwarp_mpa":
                ulpdu = field(value, "iwarp_mpa.ulpdulength_raw")[1] + 2
                send_end = ulpdu + number(value, "iwarp_mpa.ulpdulength")
            elif name == "infiniband_raw":
                send_end = value[1] + value[2] - INVARIANT_CRC_BYTES
            elif name == "infiniband":
                send_end -= number(value, "infiniband.bth.padcnt")
            elif re.search(r"fragments_raw$", name):
                reassembled = value
            elif name == "rpcordma_raw":
                raw = value
            elif name == "rpcordma":
                position = raw[1]  # in reassembled data the header comes first
                length = reassembled[2] if position == 0 else send_end - position
                yield describe(value, raw[0], length, layers, client)


def private_data(capture):
    """(address of the sender, frame, octets) of each connection request and reply."""
    for layers in frames(capture, " || ".join(PRIVATE_DATA)):
        octets = next(value for n, value in walk(layers) if n.removesuffix("_raw") in PRIVATE_DATA)[0]
        yield field(layers, "ip.src"), number(layers, "frame.number"), octets


def dissect(capture):
    exchange = list(private_data(capture))
    client = exchange[0][0]
    lines = [json.dumps(h, separators=(",", ":")) for h in headers(capture, client)]
    private = [json.dumps({"frame": frame, "octets": octets}) for _, frame, octets in exchange]
    target = capture.with_suffix(".json")
    target.write_text('{"private_data": [\n' + ",\n".join(private) + '\n],\n"headers": [\n'
                      + ",\n".join(lines) + "\n]}\n")
    print(f"{target}: {len(lines)} headers")


if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
for argument in sys.argv[1:]:
    dissect(Path(argument))
