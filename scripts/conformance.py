#!/usr/bin/env python3
"""Makes doc/conformance.md: each row of test/data/requirements.tsv, and the tests that show it.

A test names the rows that it shows in a comment above it:

    // Shows: V1-HDR-08, V1-HDR-09
    TEST(Version1, RefusesShortHeaders) { ... }

or above an entry of a table of scenarios, which a parametrised test plays:

    // Shows: V1-ERR-10
    {"LargestType", {say({7, 1, kCredits, 0xffffffff})}, ...

A row that no test shows needs a line in test/data/conformance-notes.tsv: `open` (not built yet) or
`different` (on purpose), and why. There an id may end in `*`.

    scripts/conformance.py           writes the page
    scripts/conformance.py --check   fails if the page is stale, if a row has neither test nor note,
                                     or if a test or note names an unknown row
"""
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from lib.source import ROOT, Findings, read

REQUIREMENTS = Path("test/data/requirements.tsv")
NOTES = Path("test/data/conformance-notes.tsv")
KINDS = ("open", "different")
PAGE = Path("doc/conformance.md")
SHOWS = re.compile(r"^\s*(?://|#) Shows: (.*)")
COMMENT = re.compile(r"^\s*(?://|#)\s*(.*)")
CASE = re.compile(r"^\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)|^\s*(?:def )?(test_\w+)\s*\("
                  r"|^\s*(?:\w+ \w+ = )?(?:\w+\()*\{?\"([A-Z]\w+)\",")

INTRODUCTION = """\
# Conformance

Made by `scripts/conformance.py` from `test/data/requirements.tsv` and the `Shows:` comments of the
tests; do not edit. Each row is one requirement of the specifications, in our words. What no test
shows is *open*, not built yet, or *different* on purpose; the reasons are those of
`test/data/conformance-notes.tsv`.

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
        name = (case[3] or case[4] or f"{case[1]}.{case[2]}") if case else ""
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


def read_notes(rows, shown, findings):
    """Requirement id -> (kind, why), of the rows that no test shows."""
    notes = {}
    if not (ROOT / NOTES).exists():
        return notes
    for number, line in enumerate(read(NOTES).splitlines()[1:], 2):
        pattern, kind, why = line.split("\t")
        named = [row["id"] for row in rows if fnmatchcase(row["id"], pattern)]
        for one in named:
            if one not in shown:
                notes.setdefault(one, (kind, why))  # the first line that names it
        if kind not in KINDS:
            findings.add(NOTES, number, f"'{kind}' is none of {', '.join(KINDS)}")
        if not named:
            findings.add(NOTES, number, f"'{pattern}' is no row of {REQUIREMENTS}")
        elif all(one in shown for one in named):
            findings.add(NOTES, number, f"'{pattern}' is shown by tests: delete the note")
    return notes


def state(row, shown, notes):
    if row["id"] in shown:
        return "<br>".join(shown[row["id"]])
    kind, why = notes.get(row["id"], ("open", ""))
    return f"*{kind}*: {why}" if why else f"*{kind}*"


def page(rows, shown, notes):
    text = [INTRODUCTION]
    different = sum(kind == "different" for kind, _ in notes.values())
    open_rows = len(rows) - different - sum(row["id"] in shown for row in rows)
    text.append(f"{len(rows)} rows: {len(rows) - open_rows - different} shown by tests, {different} "
                f"different on purpose, {open_rows} open.\n")
    area = None
    for row in rows:
        if area != (area := row["id"].rsplit("-", 1)[0]):
            text.append(f"\n## {area}\n\n| id | level | requirement | shown by |\n|---|---|---|---|\n")
        requirement = row["requirement"].replace("|", "\\|")
        text.append(f"| {row['id']} | {row['level']} | {requirement} | {state(row, shown, notes)} |\n")
    return "".join(text)


def main():
    findings = Findings()
    rows = requirements()
    shown = collect({row["id"] for row in rows}, findings)
    notes = read_notes(rows, shown, findings)
    for row in rows:
        if row["id"] not in shown and row["id"] not in notes:
            findings.add(REQUIREMENTS, 1, f"{row['id']} has neither a test nor a line in {NOTES}")
    text = page(rows, shown, notes)
    if sys.argv[1:] == ["--check"]:
        if not (ROOT / PAGE).exists() or read(PAGE) != text:
            findings.add(PAGE, 1, "is stale: run scripts/conformance.py")
    elif not sys.argv[1:]:
        (ROOT / PAGE).write_text(text, encoding="utf-8")
    else:
        sys.exit(__doc__)
    findings.finish(f"{len(rows)} requirements")


main()
