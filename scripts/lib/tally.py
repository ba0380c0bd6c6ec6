#!/usr/bin/env python3
"""Turns meson's test log (testlog.json) into one line per test case:

    pass|fail|skip <TAB> VARIANT/PROGRAM: CASE <TAB> reason

A GoogleTest program is counted case by case, from its output; a case that began and did not end
(a crash, a time-out) has failed. Any other program is one case, judged by meson.

    tally.py VARIANT TESTLOG.json >> RESULTS
"""
import json
import re
import sys

BEGAN = re.compile(r"\[ RUN      \] (\S+)")
ENDED = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \(\d+ ms\)")
SKIP_REASON = re.compile(r":\d+: Skipped$")


def gtest_cases(output):
    """Yields (result, case, reason) for each case in a GoogleTest program's output."""
    running, reason, reason_follows = None, "", False
    for line in output.splitlines():
        if began := BEGAN.search(line):
            running, reason = began[1], ""
        elif ended := ENDED.search(line):
            result = {"OK": "pass", "FAILED": "fail", "SKIPPED": "skip"}[ended[1]]
            yield result, ended[2], reason if result == "skip" else ""
            running = None
        elif reason_follows:
            reason = line.strip()
        reason_follows = bool(SKIP_REASON.search(line))
    if running:
        yield "fail", running, "did not end"


def cases(test):
    verdict, code = test["result"], test["returncode"]
    found = list(gtest_cases(test.get("stdout") or ""))
    if verdict in ("OK", "EXPECTEDFAIL", "SKIP"):
        return found or [("skip" if verdict == "SKIP" else "pass", "", "")]
    if not any(result == "fail" for result, _, _ in found):
        found.append(("fail", "(whole program)", f"{verdict}, exit status {code}"))
    return found


def main():
    variant, log = sys.argv[1:]
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            test = json.loads(line)
            program = test["name"].split(" / ")[-1]
            for result, case, reason in cases(test):
                name = f"{variant}/{program}" + (f": {case}" if case else "")
                if result == "skip" and not reason:
                    reason = "no reason given"
                print(result, name, reason, sep="\t")


main()
