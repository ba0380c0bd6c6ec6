#!/usr/bin/env python3
"""Checks the binary interface (ABI) of the shared library.

    check-abi.py LIBRARY           librrdk.so of a build with debug information (-Ddebug=true)
    check-abi.py --renew LIBRARY   makes its ABI the one to compare with, from now on

The library must export exactly what the headers declare (lib/rrdk.map). A program that was linked with
the last release must run with this library: libabigail compares the two, and additions are no
difference. The last release's ABI is test/data/librrdk.abi. It is renewed with each release, and
earlier if a break is intended; a break after version 1 needs a new soname.
"""
import argparse
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from lib import api
from lib.source import ROOT, Findings

KEPT = ROOT / "test/data/librrdk.abi"
ORIGIN = " Made by scripts/check-abi.py with its option renew, with abidw of libabigail. "
REFERENCES = ("type-id", "naming-typedef-id", "underlying-type")


def run(*command, good=(0,)):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is missing: apt-get install abigail-tools binutils")
    if done.returncode not in good:
        sys.exit(f"{command[0]} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done


def exported(library):
    """Returns the names that the library exports, without arguments and versions."""
    names = set()
    for line in run("nm", "-DC", "--defined-only", str(library)).stdout.splitlines():
        address_type_name = line.split(" ", 2)
        if address_type_name[1] != "A":  # the version's own name
            names.add(re.sub(r"(\[abi:\w+\])?(\(.*)?(@@.*)?$", "", address_type_name[2]))
    return names


def check_exports(library, findings):
    declared = {symbol.name: symbol for symbol in api.symbols()
                if symbol.kind == "function" and not symbol.is_inline and
                not re.search(r"= ?(delete|default|0)$", symbol.arguments)}
    present = exported(library)
    if not present:
        sys.exit(f"{library} exports nothing")
    for name in sorted(declared.keys() - present):
        findings.add(declared[name].header, declared[name].line, f"{name} is not exported: lib/rrdk.map")
    for name in sorted(present - declared.keys()):
        findings.add("lib/rrdk.map", 1, f"{name} is exported, but no header declares it")


def is_interface(function):
    return function is not None and function.get("elf-symbol-id") is not None


def leave_out_members(tree):
    """Removes members that are inlined into programs or are private: they are not part of the interface."""
    for of_class in tree.iter("class-decl"):
        private = of_class.get("is-declaration-only") == "yes"
        for member in list(of_class):
            if member.tag == "member-function":
                leave = not is_interface(member.find("function-decl")) and member.get("vtable-offset") is None
            else:
                leave = member.tag == "member-template" or (private and member.tag != "member-type")
            if leave:
                of_class.remove(member)


def reached(tree, parents):
    """Returns the elements that exported functions use: what they take, return and contain."""
    by_id = {}
    for element in tree.iter():
        by_id.setdefault(element.get("id"), []).append(element)
    waiting = [e for e in tree.iter() if e.tag in ("function-decl", "var-decl") and is_interface(e)]
    seen = set()
    while waiting:
        element = waiting.pop()
        if element in seen:
            continue
        seen.add(element)
        outer = parents.get(element)
        while outer is not None:
            if outer.tag in ("class-decl", "union-decl"):
                waiting.append(outer)
            outer = parents.get(outer)
        for part in element.iter():
            for reference in REFERENCES:
                waiting += by_id.get(part.get(reference), []) if part.get(reference) else []
    return seen


def prune(element, kept):
    for child in list(element):
        if child in kept:
            continue
        if child.tag in ("abi-instr", "namespace-decl"):
            prune(child, kept)
            if len(child) == 0:
                element.remove(child)
        elif element.tag in ("abi-instr", "namespace-decl"):
            element.remove(child)


def interface(library, file):
    """Writes the library's ABI to the file: abidw's output without what no program can depend on."""
    run("abidw", "--headers-dir", str(ROOT / "lib/include"), "--drop-private-types", "--drop-undefined-syms",
        "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", "--no-parameter-names",
        "--type-id-style", "hash", "--out-file", str(file), str(library))
    tree = ET.parse(file)
    root = tree.getroot()
    leave_out_members(root)
    prune(root, reached(root, {child: parent for parent in root.iter() for child in parent}))
    root.insert(0, ET.Comment(ORIGIN))
    text = ET.tostring(root, encoding="unicode") + "\n"
    if 'name="ServerOptions"' not in text:
        sys.exit(f"{library} has no debug information: meson setup -Ddebug=true")
    file.write_text(text)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--renew", action="store_true", help="compare with this library from now on")
parser.add_argument("library", type=Path)
arguments = parser.parse_args()
if not arguments.library.exists():
    sys.exit(f"{arguments.library} is not there: ninja -C build librrdk.so.0.1.0")

findings = Findings()
check_exports(arguments.library, findings)
with tempfile.TemporaryDirectory() as folder:
    now = Path(folder, "librrdk.abi")
    interface(arguments.library, now)
    if arguments.renew:
        KEPT.write_text(now.read_text())
    # Status 1 and 2 are failures of abidiff itself; a file that does not parse has no status.
    compared = run("abidiff", "--no-added-syms", str(KEPT), str(now), good=(0, 4, 8, 12))
    if compared.stderr:
        sys.exit(compared.stderr)
if compared.returncode != 0:
    print(compared.stdout)
    findings.add(KEPT.relative_to(ROOT), 1, "programs of the last release do not run with this library; "
                 f"if that is meant: scripts/check-abi.py --renew {arguments.library}")
findings.finish(f"{arguments.library}")
