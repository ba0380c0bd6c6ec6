#!/usr/bin/env python3
"""The table of doc/interop.md: which of us called which of Linux's, how, and what.

    matrix.py row RESULTS --device siw --client testrpc --server Linux --inline 4096 --sizes "1 B to 1 MiB" SOURCE
        appends a row to RESULTS, JSON a line. SOURCE of the calls is testrpc's --json, or
        /proc/self/mountstats@FOLDER of Linux's client; --kernel where that is not this machine's
    matrix.py write RESULTS [DOCUMENT]
        puts the table between the document's marks
    matrix.py check RESULTS [DOCUMENT]
        fails unless the table there has these rows with these procedures; numbers may differ
"""
import argparse
import json
import os
import re
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "doc/interop.md"
BEGIN, END = "<!-- matrix: test/interop/run.sh --results, then matrix.py write -->", "<!-- end of matrix -->"
COLUMNS = ("kernel", "device", "client", "server", "inline", "sizes")
HEADS = ("kernel", "device", "client", "server", "inline threshold of ours / Linux's", "sizes",
         "calls, by procedure")


def of_testrpc(path):
    calls = {}
    for run in json.loads(Path(path).read_text(encoding="utf-8"))["runs"]:
        # Only NFS's runs call several procedures.
        for name, number in run.get("procedures", {run["engine"].upper(): run["calls"]}).items():
            calls[name] = calls.get(name, 0) + number
    return calls


# "READ: operations transmissions ..." below "per-op statistics" of the mount.
def of_mount(folder):
    text = Path("/proc/self/mountstats").read_text(encoding="utf-8")
    at = text.index(f" mounted on {folder} with ")
    here = text[at:].split("\ndevice ")[0].split("per-op statistics")[1]
    return {name: int(number) for name, number in re.findall(r"^\s*([A-Z]+): (\d+) ", here, re.M)}


def row(options):
    calls = of_mount(options.source.split("@")[1]) if "@" in options.source else of_testrpc(options.source)
    result = {name: getattr(options, name, "") for name in COLUMNS}
    result["kernel"] = ".".join((options.kernel or os.uname().release).split(".")[:2])
    result["calls"] = {name: number for name, number in calls.items() if number}
    with open(options.results, "a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


def table(results):
    lines = ["| " + " | ".join(HEADS) + " |", "|" + " --- |" * len(HEADS)]
    for line in Path(results).read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        calls = ", ".join(f"{name} {number}" for name, number in sorted(one["calls"].items()))
        lines.append("| " + " | ".join([one[name] for name in COLUMNS] + [calls]) + " |")
    return lines


def split(document):
    text = document.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"matrix.py: {document} has not the lines '{BEGIN}' and '{END}', once each")
    before, rest = text.split(BEGIN)
    inside, after = rest.split(END)
    return before, inside, after


def write(options):
    before, _, after = split(options.document)
    options.document.write_text("\n".join([before + BEGIN, "", *table(options.results), "", END + after]),
                                encoding="utf-8")


def shape(lines):
    """What stays from run to run: all but the last column's numbers."""
    rows = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|\n ").split("|")]
        rows["| ".join(cells[:-1])] = set(re.findall(r"[A-Z]{2,}", cells[-1]))
    return rows


def check(options):
    there = shape(line for line in split(options.document)[1].splitlines() if line.startswith("|"))
    for name, procedures in shape(table(options.results)).items():
        if name not in there:
            sys.exit(f"matrix.py: {options.document} has no row '{name}': write it anew (matrix.py write)")
        if missing := there[name] - procedures:
            sys.exit(f"matrix.py: '{name}' in {options.document} has {', '.join(sorted(missing))}, which were not called")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    add = commands.add_parser("row")
    add.add_argument("results")
    for name in ("device", "client", "server", "inline", "sizes"):
        add.add_argument("--" + name, required=True)
    add.add_argument("--kernel", default="")
    add.add_argument("source")
    add.set_defaults(run=row)
    for name, run in (("write", write), ("check", check)):
        add = commands.add_parser(name)
        add.add_argument("results")
        add.add_argument("document", nargs="?", default=DOCUMENT, type=Path)
        add.set_defaults(run=run)
    options = parser.parse_args()
    options.run(options)


main()
