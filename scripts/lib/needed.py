#!/usr/bin/env python3
"""Prints the targets for ninja, one a line, when some tests are not run: everything that is built by default
except programs that only those tests use.

    needed.py BUILD_DIRECTORY SUITE...    the suites of meson whose tests are left out

Meson makes `ninja all` depend on the programs of all tests, so it cannot be told to leave some out.
"""
import sys
from pathlib import Path

from source import introspected


def main():
    build, suites = Path(sys.argv[1]).resolve(), set(sys.argv[2:])
    left, wanted = set(), set()
    for test in introspected(build, "--tests"):
        is_left = suites & {suite.split(":")[-1] for suite in test["suite"]}
        (left if is_left else wanted).update(test["depends"])
    for target in introspected(build, "--targets"):
        is_left = target["id"] in left - wanted and target["type"] == "executable"
        if target["id"] in wanted or target["build_by_default"] and not is_left:
            print(*(Path(name).relative_to(build) for name in target["filename"]), sep="\n")


main()
