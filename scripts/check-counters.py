#!/usr/bin/env python3
"""Checks that doc/telemetry.md lists each counter as the table of counters does (lib/include/rrdk/counter_table.h).

    check-counters.py           compares
    check-counters.py --write   writes the tables of the page anew
"""
import re
import sys

from lib.source import ROOT, Findings, read

TABLE = "lib/include/rrdk/counter_table.h"
PAGE = "doc/telemetry.md"
ROW = re.compile(r'^RRDK_(\w+)\(\s*(\d+),\s*(.*?)\)\n(?=RRDK_|//|\n|#)', re.MULTILINE | re.DOTALL)
BEGIN, END = "<!-- counters: check-counters.py --write -->\n", "<!-- end of counters -->\n"
OWNERS = {"CONNECTION_COUNTER": "server, client", "DISPATCHER_COUNTER": "server, client", "MISTAKE": "server, client",
          "CALLER_COUNTER": "server, client", "SERVER_COUNTER": "server", "REPLAY_COUNTER": "server",
          "CLIENT_COUNTER": "client", "CORE_COUNTER": "core"}


def rows():
    """Yields (macro, id, columns) of each line; texts come without their quotes."""
    text = read(TABLE)
    for macro, number, rest in ROW.findall(text[text.index("\nRRDK_"):]):
        rest = re.sub(r'"\s*\n\s*"', "", rest)  # adjacent literals are one
        columns = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,"]+)', re.sub(r"\s*\n\s*", " ", rest))
        yield macro, int(number), [quoted.replace('\\"', '"') or plain.strip() for quoted, plain in columns
                                   if quoted or plain.strip()]


def tables():
    counters, refusals = [], []
    for macro, _, columns in rows():
        if macro.endswith("REFUSAL"):
            _, name, breach, title, text = columns
            refusals.append(f"| `{name}` | {title} | {'yes' if breach == 'kBreach' else ''} | {text.rstrip('.')} |")
            continue
        name, text = columns[1], columns[-1].rstrip(".")
        if macro == "MISTAKE":
            name = "mistake_" + name
        owners = OWNERS.get(macro) or ", ".join(owner.strip()[1:].lower() for owner in columns[2].split("|"))
        kind = "gauge" if macro == "GAUGE" else "counter"
        counters.append(f"| `{name}` | {owners} | {kind} | {text} |")
    return "\n".join(["| name | of | type | |", "|---|---|---|---|", *counters, "",
                      "Reasons of `refusals`, and whether they are breaches of the protocol:", "",
                      "| reason | in words | breach | |", "|---|---|---|---|", *refusals, ""])


page = read(PAGE)
begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
wanted = "\n" + tables() + "\n"
if sys.argv[1:] == ["--write"]:
    (ROOT / PAGE).write_text(page[:begin] + wanted + page[end:], encoding="utf-8")
    sys.exit()
findings = Findings()
if page[begin:end] != wanted:
    findings.add(PAGE, page.count("\n", 0, begin) + 1, "does not say what the table of counters does: check-counters.py --write")
ids = sorted(number for _, number, _ in rows())
if ids != list(range(len(ids))):
    findings.add(TABLE, 1, "has an id twice, or leaves one out")
findings.finish(f"{len(ids)} counters")
