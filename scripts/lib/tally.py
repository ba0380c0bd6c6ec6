#!/usr/bin/env python3
"""Turns meson's test log (testlog.json) into one line per test case:

    pass|fail|skip <TAB> VARIANT/PROGRAM: CASE <TAB> reason

The cases of a GoogleTest program are counted from its output; a case that began and did not end (a
crash, a time-out) has failed. The reason of a failure is the first assertion that failed. Any other
program is one case with meson's result.

    tally.py VARIANT TESTLOG.json >> RESULTS
"""
import itertools
import json
import re
import sys

BEGAN = re.compile(r"\[ RUN      \] (\S+)")
ENDED = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \(\d+ ms\)")
SKIP_REASON = re.compile(r":\d+: Skipped$")
FAILURE = re.compile(r"[^/\s]+:\d+: Failure$")
MOST_LINES = 8  # of an assertion


def first_failure(lines):
    """Returns the message of the first assertion that failed, in one line."""
    for number, line in enumerate(lines):
        if found := FAILURE.search(line):
            says = itertools.takewhile(str.strip, lines[number + 1:number + MOST_LINES])
            return " ".join([found[0], *says])[:500]
    return ""


def skip_reason(lines):
    for line, follows in zip(lines, lines[1:]):
        if SKIP_REASON.search(line):
            return follows.strip()
    return ""


def gtest_cases(output):
    """Yields (result, case, reason) for each case in a GoogleTest program's output."""
    running, said = None, []
    for line in output.splitlines():
        if began := BEGAN.search(line):
            running, said = began[1], []
        elif ended := ENDED.search(line):
            result = {"OK": "pass", "FAILED": "fail", "SKIPPED": "skip"}[ended[1]]
            reason = {"pass": lambda _: "", "fail": first_failure, "skip": skip_reason}[result](said)
            yield result, ended[2], reason
            running = None
        else:
            said.append(line)
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
                print(result, name, " ".join(reason.split()), sep="\t")


main()
