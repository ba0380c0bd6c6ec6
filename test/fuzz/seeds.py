#!/usr/bin/env python3
"""Makes the first corpora of the fuzz targets: from the captures of Linux peers in test/data/captures,
and from calls and replies that are right.

    seeds.py DIRECTORY     fills DIRECTORY/<target>/
"""
import hashlib
import json
import struct
import sys
from pathlib import Path

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
PERF = 0x20005666


def words(*values):
    return b"".join(struct.pack(">I", v & 0xffffffff) for v in values)


def opaque(data):
    return words(len(data)) + data + b"\0" * (-len(data) % 4)


def rpc_call(procedure, args=b"", credential=words(0, 0)):
    return words(7, 0, 2, PERF, 1, procedure) + credential + words(0, 0) + args


def rpc_seeds():
    auth_sys = opaque(b"client") + words(1000, 1000, 2, 4, 27)
    yield rpc_call(0)
    yield rpc_call(1, opaque(b"hello"))
    yield rpc_call(2, words(0, 4096, 4096, 1, 0), words(1, len(auth_sys) + 4) + words(1) + auth_sys)
    gss = words(1, 0, 9, 2) + opaque(b"0123456789abcdef")
    yield rpc_call(1, opaque(b"hello"), words(6) + opaque(gss))
    yield words(7, 1, 0, 0, 0, 0) + opaque(b"results")  # accepted, success
    yield words(7, 1, 0, 0, 0, 2, 1, 3)  # PROG_MISMATCH
    yield words(7, 1, 1, 0, 2, 2)  # RPC_MISMATCH
    yield words(7, 1, 1, 1, 5)  # AUTH_ERROR


def perf_seeds():
    yield bytes([0, 0])
    yield bytes([1, 4]) + opaque(b"echo this")
    yield bytes([2, 33]) + words(0, 0, 1000, 1, 0)
    yield bytes([3, 0]) + words(0, 0, 1, 0) + opaque(b"x" * 1001)
    yield bytes([4, 0]) + opaque(b"head") + words(1) + opaque(b"data" * 300) + opaque(b"tail")
    yield bytes([5, 35]) + words(0, 0, 700, 300, 1)


def capture_seeds():
    headers, private = set(), set()
    for path in sorted(CAPTURES.glob("*.json")):
        capture = json.loads(path.read_text())
        headers |= {bytes.fromhex(h["bytes"]) for h in capture["headers"]}
        private |= {bytes.fromhex(p["octets"]) for p in capture["private_data"]}
    return headers, private


def version2_seeds(headers):
    """The same headers in both drafts, and what only version 2 has."""
    for header in headers:
        xid, credits, proc = header[0:4], header[8:12], header[12:16]
        yield xid + words(2) + credits + proc + header[16:] + rpc_call(0)
        yield xid + words(2) + credits + proc + words(0, 0) + header[16:] + rpc_call(0)
    for code in (2, 3, 9, 10):
        yield words(7, 2, 4, 4, code)
    for error in ((4, 8), (5, 8), (6, 8), (7, 1, 4096), (8, 4096)):
        yield words(7, 2, 4, 4, *error)
    yield words(7, 2, 4, 5, 77) + opaque(b"option")
    yield words(7, 2, 4, 5, 0, 77) + opaque(b"option") + rpc_call(0)
    rbsiz, brs = words(1, 4, 8192), words(2, 4, 1)
    yield words(7, 2, 4, 6, 2) + rbsiz + brs + words(1, 2)
    yield words(7, 2, 4, 7, 1) + rbsiz
    yield words(7, 2, 4, 8, 1, 1, 0, 1) + rbsiz
    yield words(7, 2, 4, 9, 1) + brs


def main():
    root = Path(sys.argv[1])
    headers, private = capture_seeds()
    corpora = {
        "header": [h + rpc_call(0) for h in headers] + list(version2_seeds(headers)) +
                  [words(1, 1, 32, 4, 2), words(1, 2, 1, 4, 1, 1, 1)],
        "private_data": list(private) + [b"RRDKrej\4not before noon", b"RRDKrej\1"],
        "rpc": [bytes([piece]) + seed for seed in rpc_seeds() for piece in (3, 255)],
        "perf": perf_seeds(),
        "receive": [bytes([role]) + bytes((i * 37 + j * 11) % 256 for j in range(size))
                    for role in (0, 1) for i, size in enumerate((20, 100, 400))],
        "iwarp": [bytes((i * 53 + j * 29) % 256 for j in range(size)) for i, size in enumerate((40, 200, 800))],
        "gss": [bytes((i * 53 + j * 29) % 256 for j in range(size)) for i, size in enumerate((40, 200, 800))],
        "shm": [bytes((i * 53 + j * 29) % 256 for j in range(size)) for i, size in enumerate((40, 200, 800))],
    }
    for target, seeds in corpora.items():
        folder = root / target
        folder.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            (folder / hashlib.sha1(seed).hexdigest()).write_bytes(seed)


main()
