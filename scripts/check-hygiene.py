#!/usr/bin/env python3
"""Checks the files of the repository: uniform text, no leftovers, nothing that belongs to one machine; and
that code asserts its assumptions (lib/base/assert.h).

Data that tests replay (test/data/) is checked for its size only.
"""
import re
from pathlib import Path

from lib.source import ROOT, Findings, cpp_files, read, repository_files, without_comments

MAX_BYTES = 300_000
MAX_DATA_BYTES = 4_000_000
BINARY_OK = {".png"}  # pictures in doc/

LINE_RULES = [(re.compile(pattern), what) for pattern, what in [
    (r"\t", "a tab"),
    (r"[ \t\r]+$", "trailing white space"),
    (r"\b(TODO|FIXME|XXX)\b", "an unfinished place"),
    (r"(?<![\w.])/(work|root|home|Users)/", "a path of one machine"),
    (r"\.\./shared\b", "a path outside the repository"),
    (r"\b(deb\.debian\.org|registry\.npmjs\.org|pypi\.org|proxy\.golang\.org)\b", "a registry's host"),
    (r"['\"]-march=native", "code for one machine"),
    (r"\bDISABLED_\w", "a disabled test"),
]]
# Applies to public headers only.
RESULT = re.compile(r"^\s*(static\s+|virtual\s+)*Result<[^(]*\((?!\*)")  # not of a pointer to a function
# These files contain the forbidden patterns themselves.
EXEMPT = {Path("scripts/check-hygiene.py"), Path("test/scripts/checks_test.py")}

# Folders that need at least LEAST_ASSERTED assertions for each 1000 lines of code.
ASSERTED = ["lib/engine", "lib/runtime", "lib/service", "lib/calls", "lib/mem", "drivers/common", "drivers/shm",
            "drivers/iwarp", "drivers/verbs"]
LEAST_ASSERTED = 10
ASSERTION = re.compile(r"\bRRDK_(ASSERT|ON_CORE)\(")

findings = Findings()


def check_text(path, text):
    if text and not text.endswith("\n"):
        findings.add(path, text.count("\n") + 1, "no newline at the end")
    if path in EXEMPT:
        return
    is_public = path.parts[:2] == ("lib", "include")
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, what in LINE_RULES:
            if pattern.search(line):
                findings.add(path, number, what)
        if is_public and RESULT.match(line):
            findings.add(path, number, "a Result that can be ignored: [[nodiscard]]")


def check(path):
    full = ROOT / path
    is_data = path.parts[:2] == ("test", "data")
    size = full.stat().st_size
    if size > (MAX_DATA_BYTES if is_data else MAX_BYTES):
        findings.add(path, 1, f"{size} bytes is too large")
    if is_data:
        return
    content = full.read_bytes()
    if b"\0" in content:
        if path.suffix not in BINARY_OK:
            findings.add(path, 1, "a binary file")
        return
    is_program = content.startswith(b"#!")
    if is_program != bool(full.stat().st_mode & 0o100):
        findings.add(path, 1, "executable and '#!' go together")
    check_text(path, content.decode("utf-8", "replace"))


def check_assertions(folder):
    texts = [without_comments(read(path)) for path in cpp_files(folder)]
    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    found = sum(len(ASSERTION.findall(text)) for text in texts)
    if found * 1000 < lines * LEAST_ASSERTED:
        findings.add(folder, 1, f"{found} assertions in {lines} lines of code: at least "
                                f"{LEAST_ASSERTED} for each 1000 (CONTRIBUTING.md)")


files = repository_files()
for path in files:
    check(path)
for folder in ASSERTED:
    check_assertions(folder)
findings.finish(f"{len(files)} files")
