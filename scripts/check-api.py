#!/usr/bin/env python3
"""Checks that every public symbol of lib/include/rrdk/ is documented.

A symbol is documented by a comment of its own; by a comment of its paragraph (the lines around it without
an empty line between), as for counters of one kind; or, if it is the class that its header is about, by
the header's first comment. Copying, moving and comparing, and what only the library can use (Impl), need
no comment.
"""
import re

from lib import api
from lib.source import Findings, read

SPECIAL = re.compile(r"::(?P<name>\w+)::(~?(?P=name)|operator=|operator==|operator bool|operator\[\]|operator\+=)$")
INTERNAL = re.compile(r"::(impl|Impl)\b")
HEAD = re.compile(r"/\*\*.*?\*/", re.DOTALL)


def paragraphs(text):
    """Returns for each line (from 0) its paragraph: the lines around it without an empty line between."""
    lines = text.split("\n")
    runs, start = [], 0
    for number, line in enumerate([*lines, ""]):
        if not line.strip():
            run = "\n".join(lines[start:number])
            runs += [run] * (number - start) + [""]
            start = number + 1
    return runs


def has_comment(paragraph):
    return "*/" in paragraph or "//" in paragraph


findings = Findings()
count = 0
texts = {}
for symbol in (s for s in api.symbols() if not s.is_private):
    count += 1
    if symbol.header not in texts:
        text = read(symbol.header)
        texts[symbol.header] = paragraphs(text), HEAD.search(text)[0]
    runs, head = texts[symbol.header]
    if symbol.documented or SPECIAL.search(symbol.name) or INTERNAL.search(symbol.name):
        continue
    by_head = symbol.kind in ("class", "struct", "enum") and re.search(rf"\b{symbol.name.split('::')[-1]}\b", head)
    if not by_head and not has_comment(runs[symbol.line - 1]):
        findings.add(symbol.header, symbol.line, f"{symbol.name} ({symbol.kind}) is not documented")
findings.finish(f"{count} symbols")
