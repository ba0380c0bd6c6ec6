#!/usr/bin/env python3
"""Makes doc/conformance.md: each row of test/data/requirements.tsv, and the tests that show it.

A test names the rows that it shows in a comment above it:

    // Shows: V1-HDR-08, V1-HDR-09
    TEST(Version1, RefusesShortHeaders) { ... }

    scripts/conformance.py           writes the page
    scripts/conformance.py --check   fails if the page is stale or a test names an unknown row
"""
import re
import sys
from pathlib import Path

from lib.source import ROOT, Findings, read

REQUIREMENTS = Path("test/data/requirements.tsv")
PAGE = Path("doc/conformance.md")
SHOWS = re.compile(r"^\s*(?://|#) Shows: (.*)")
COMMENT = re.compile(r"^\s*(?://|#)\s*(.*)")
CASE = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)|^\s*(?:def )?(test_\w+)\s*\(")

INTRODUCTION = """\
# Conformance

Made by `scripts/conformance.py` from `test/data/requirements.tsv` and the `Shows:` comments of the
tests; do not edit. Each row is one requirement of the specifications, in our words. A row that no
test names yet is *open*, whether or not the code follows it.

"""


def requirements():
    """The rows as dictionaries, in their order."""
    header, *rows = [line.split("\t") for line in read(REQUIREMENTS).splitlines()]
    return [dict(zip(header, row)) for row in rows]


def tags(path):
    """Yields (line, ids, test case) for each Shows comment in a file."""
    lines = read(path).splitlines()
    for number, line in enumerate(lines):
        match = SHOWS.match(line)
        if not match:
            continue
        listed, next_line = match[1], number + 1
        while listed.rstrip().endswith(",") and (more := COMMENT.match(lines[next_line])):
            listed += " " + more[1]
            next_line += 1
        case = next((c for l in lines[next_line:] if (c := CASE.match(l))), None)
        name = (case[3] or f"{case[1]}.{case[2]}") if case else ""
        yield number + 1, re.split(r"[,\s]+", listed.strip().rstrip(",.")), name


def collect(known, findings):
    """Requirement id -> the tests that show it."""
    shown = {}
    for path in sorted((ROOT / "test").rglob("*")):
        if path.suffix not in (".cc", ".h", ".py", ".sh"):
            continue
        path = path.relative_to(ROOT)
        for line, ids, case in tags(path):
            for one in ids:
                if one not in known:
                    findings.add(path, line, f"'{one}' is no row of {REQUIREMENTS}")
                test = f"`{path.relative_to('test')}`" + (f" {case}" if case else "")
                if test not in shown.setdefault(one, []):
                    shown[one].append(test)
    return shown


def page(rows, shown):
    text = [INTRODUCTION]
    open_rows = sum(row["id"] not in shown for row in rows)
    text.append(f"{len(rows)} rows, {len(rows) - open_rows} shown by tests, {open_rows} open.\n")
    area = None
    for row in rows:
        if area != (area := row["id"].rsplit("-", 1)[0]):
            text.append(f"\n## {area}\n\n| id | level | requirement | shown by |\n|---|---|---|---|\n")
        requirement = row["requirement"].replace("|", "\\|")
        tests = "<br>".join(shown.get(row["id"], ["*open*"]))
        text.append(f"| {row['id']} | {row['level']} | {requirement} | {tests} |\n")
    return "".join(text)


def main():
    findings = Findings()
    rows = requirements()
    text = page(rows, collect({row["id"] for row in rows}, findings))
    if sys.argv[1:] == ["--check"]:
        if not (ROOT / PAGE).exists() or read(PAGE) != text:
            findings.add(PAGE, 1, "is stale: run scripts/conformance.py")
    elif not sys.argv[1:]:
        (ROOT / PAGE).write_text(text, encoding="utf-8")
    else:
        sys.exit(__doc__)
    findings.finish(f"{len(rows)} requirements")


main()
