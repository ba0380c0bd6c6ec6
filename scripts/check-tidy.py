#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy has the checks) over lib/, drivers/ and apps/.

    check-tidy.py BUILD_DIRECTORY     a directory that was built with Clang

A file that passed is not looked at again until it, a header of ours that it includes, its compile
command or .clang-tidy changes; the record of that lies in the build directory.
"""
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lib.source import ROOT, Findings

TIDY = "clang-tidy-19"
FOLDERS = ("lib", "drivers", "apps")


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


def tidy(job):
    build, source, mark = job
    run = subprocess.run([TIDY, "--quiet", "-p", str(build), str(source)], capture_output=True, text=True)
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
        source = Path(os.path.normpath(Path(entry["directory"]) / entry["file"]))
        if not any(source.is_relative_to(ROOT / folder) for folder in FOLDERS) or source in seen:
            continue
        seen.add(source)
        mark = marks / fingerprint(entry, behind.get(entry["output"], [source]))
        if not mark.exists():
            jobs.append((build, source, mark))

    findings = Findings()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, (source, run) in enumerate(pool.map(tidy, jobs), 1):
            print(f"[{done}/{len(jobs)}] {source.relative_to(ROOT)}", flush=True)
            if run.returncode != 0:
                findings.add(source.relative_to(ROOT), 1, "clang-tidy has complaints:")
                print(run.stdout, run.stderr, sep="\n")
    findings.finish(f"{len(jobs)} of {len(seen)} files looked at")


main()
