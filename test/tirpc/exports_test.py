#!/usr/bin/env python3
"""librrdk-tirpc.so exports what its headers declare, with a version, and nothing else.

Usage: exports_test.py LIBRARY
"""
import re
import subprocess
import sys
from pathlib import Path

HEADERS = Path(__file__).parents[2] / "bridge/tirpc/include/rrdk"

declared = set()
for header in HEADERS.glob("*.h"):
    text = re.sub(r"/\*.*?\*/|#.*?(?<!\\)$", "", header.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    declared |= {f"{name}@@RRDK_TIRPC_0" for name in re.findall(r"\b(rrdk_\w+)\(", text)}
lines = subprocess.run(["nm", "-D", "--defined-only", sys.argv[1]], check=True, capture_output=True, text=True).stdout
exported = {fields[2] for fields in map(str.split, lines.splitlines()) if fields[1] != "A"}
assert declared, f"no functions in {HEADERS}"
assert exported == declared, f"missing: {sorted(declared - exported)}; not public: {sorted(exported - declared)}"
print(f"{len(exported)} functions")
