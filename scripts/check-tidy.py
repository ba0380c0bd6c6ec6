#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy has the checks) over lib/, drivers/, bridge/ and apps/.

    check-tidy.py BUILD_DIRECTORY     a directory that was built with Clang

The directory's translation units are checked as they are, so most are several files joined by
meson (unity=on); clang-tidy names the file at fault. A unit that passed is not checked again until
a file of ours in it, its compile command or .clang-tidy changes; that record is kept in the build
directory.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lib.source import ROOT, Findings

TIDY = "clang-tidy-19"
FOLDERS = ("lib", "drivers", "bridge", "apps")
JOINED = re.compile(r'^#include *[<"](.*)[>"]$', re.MULTILINE)


def our_files_behind(build):
    """Object file -> the files of the checkout that it was compiled from, as ninja recorded them."""
    listing = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], capture_output=True, text=True,
                             check=True).stdout
    behind, current = {}, []
    for line in listing.splitlines():
        if line.startswith(" "):
            path = Path(os.path.normpath(build / line.strip()))
            if path.is_relative_to(ROOT) and path.is_file():
                current.append(path)
        elif ": #deps" in line:
            current = behind.setdefault(line.split(": #deps")[0], [])
    return behind


def fingerprint(entry, files):
    digest = hashlib.sha256(entry["command"].encode())
    for path in [ROOT / ".clang-tidy", *sorted(files)]:
        digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


def sources_of(unit, build):
    """Returns the files of the checkout in a translation unit: itself, or what meson joined in it."""
    if not unit.is_relative_to(build):
        return [unit]
    if not unit.exists():  # made by the build, as joined tests are
        return []
    return [Path(os.path.normpath(unit.parent / name)) for name in JOINED.findall(unit.read_text(encoding="utf-8"))]


def tidy(job):
    build, source, mark = job
    # Units that meson joins include source files; main() checks that no other file does.
    besides = ["--checks=-bugprone-suspicious-include"] if source.is_relative_to(build) else []
    run = subprocess.run([TIDY, "--quiet", *besides, "-p", str(build), str(source)], capture_output=True, text=True)
    if run.returncode == 0:
        mark.touch()
    return source, run


def main():
    build = Path(sys.argv[1]).resolve()
    marks = build / "tidy-passed"
    marks.mkdir(exist_ok=True)
    behind = our_files_behind(build)
    jobs, seen = [], set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        unit = Path(os.path.normpath(Path(entry["directory"]) / entry["file"]))
        sources = sources_of(unit, build)
        if seen.issuperset(sources) or not all(
                any(source.is_relative_to(ROOT / folder) for folder in FOLDERS) for source in sources):
            continue
        seen.update(sources)
        mark = marks / fingerprint(entry, behind.get(entry["output"], sources))
        if not mark.exists():
            jobs.append((build, unit, mark))

    findings = Findings()
    missing = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.cc")} - seen
    for path in sorted(missing):
        findings.add(path.relative_to(ROOT), 1, f"is not in {build / 'compile_commands.json'}")
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]*")):
            if any(name.endswith(".cc") for name in JOINED.findall(path.read_text(encoding="utf-8"))):
                findings.add(path.relative_to(ROOT), 1, "includes a source file")
    jobs.sort(key=lambda job: job[1].stat().st_size, reverse=True)  # the longest first
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, (unit, run) in enumerate(pool.map(tidy, jobs), 1):
            shown = unit.relative_to(build if unit.is_relative_to(build) else ROOT)
            print(f"[{done}/{len(jobs)}] {shown}", flush=True)
            if run.returncode != 0:
                findings.add(shown, 1, "clang-tidy has complaints:")
                print(run.stdout, run.stderr, sep="\n")
    findings.finish(f"{len(jobs)} translation units looked at, of those that {len(seen)} files are compiled in")


main()
