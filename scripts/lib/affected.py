#!/usr/bin/env python3
"""Finds what a working copy's changes can affect, for scripts/run-tests.sh --changed.

    affected.py BUILD_DIRECTORY [COMMIT]

Compares the working copy, including untracked files, with COMMIT; the default is the merge base of HEAD
and origin/main, or HEAD without origin/main. Prints a line for each choice, separated by tabs:

    since    COMMIT
    suite    NAME     why     a suite of run-tests.sh that takes seconds
    header   FILE     why     to be compiled alone
    target   FILE     why     a program of the build directory, to be built
    test     NAME     why     one of the build directory's tests
    elsewhere NAME    why     a suite that has to be asked for

A test is chosen if it is built from a changed file, or if its own files include a header of the changed
part of the library. The tests client and server are chosen for every change of the library, because they
use all parts together. The build directory need not be built, but which files include a changed header is
known from the last build only; without one, a changed header of test/ chooses the tests of its folder.
"""
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

from source import ROOT, introspected

INCLUDE = re.compile(r'^\s*#\s*include\s+["<](.+?)[">]', re.MULTILINE)
END_TO_END = ("client", "server")
CHECKS = (  # suite, files that matter to it
    ("scripts", r"(scripts|test/scripts|\.ci)/|.*\.(sh|py)$"),
    ("format", r".*\.(h|cc)$"),
    ("layers", r"(lib|drivers|bridge|apps)/.*\.(h|cc)$|scripts/check-layers"),
    ("datapath", r"(lib|drivers)/|scripts/check-datapath"),
    ("conformance", r"test/|doc/conformance|scripts/conformance"),
)
ELSEWHERE = (
    ("verbs", r"drivers/verbs/|test/vm/verbs", "needs a guest with RDMA devices"),
    ("vm", r"scripts/vm/|test/vm/", "needs a guest"),
    ("interop", r"test/interop/.*\.sh$|lib/engine/rfc5666", "needs a guest with Linux's NFS"),
    ("netns", r"test/netns/|drivers/iwarp/", "needs network namespaces"),
    ("path", r"(lib|drivers)/.*_datapath|scripts/call-path", "needs a release build"),
    ("abi", r"lib/include/|lib/rrdk.map|bridge/tirpc/(include|.*map)|debian/.*symbols|test/data/librrdk|"
     r"scripts/check-(abi|symbols)", "needs a build with all debug information"),
    ("docs", r"doc/|lib/include/|scripts/(check-docs|check-api|check-counters|make-docs)", "needs a whole build"),
    ("packages", r"debian/|python/|doc/(man/|tutorial|guide-python)|scripts/(build-packages|package-test)", "needs a clean Debian"),
    ("fuzz", r"test/fuzz/|lib/proto/", "needs a build with fuzzers"),
)


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def base_commit(given):
    if given:
        return run("git", "rev-parse", "--verify", given + "^{commit}").strip()
    try:
        return run("git", "merge-base", "HEAD", "origin/main").strip()
    except subprocess.CalledProcessError:
        return run("git", "rev-parse", "HEAD").strip()


def changed_files(commit):
    names = run("git", "diff", "--name-only", "--no-renames", "-z", commit).split("\0")
    names += run("git", "ls-files", "-z", "--others", "--exclude-standard").split("\0")
    return sorted({name for name in names if name})


class Test:
    """A test of the build directory: its name, its folder in test/, the files it is built from, and the
    headers of the library that its own files include."""

    def __init__(self, test, outputs, files):
        self.outputs = outputs
        self.name = test["name"]
        self.folder = test["suite"][0].split(":")[-1]
        self.files = files
        self.own = {name for name in files if name.startswith(("test/", "doc/examples/"))}
        self.includes = {found for name in self.own if name.endswith((".cc", ".h")) and (ROOT / name).is_file()
                         for found in INCLUDE.findall((ROOT / name).read_text(encoding="utf-8"))}


def in_checkout(path, build):
    path = (build / path).resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) and not path.is_relative_to(build) else None


def headers_of(build):
    """Returns object file -> the headers of the checkout that it was compiled from, as ninja recorded them."""
    known, current = {}, None
    for line in run("ninja", "-C", str(build), "-t", "deps").splitlines():
        if ": #deps" in line:
            current = known.setdefault(line.split(": #deps")[0], set())
        elif line.startswith(" ") and (name := in_checkout(line.strip(), build)):
            current.add(name)
    return known


def programs_of(build):
    """Returns output -> the files of the checkout that it is built from, and target -> its outputs."""
    headers = headers_of(build)
    made_of, outputs = {}, {}
    for target in introspected(build, "--targets"):
        outputs[target["id"]] = [str(Path(name).relative_to(build)) for name in target["filename"]]
        if target["type"] not in ("executable", "shared library"):
            continue
        for output in outputs[target["id"]]:
            files = made_of.setdefault(output, set())
            for name in run("ninja", "-C", str(build), "-t", "inputs", output).splitlines():
                files |= headers.get(name, set())
                if found := in_checkout(name, build):
                    files.add(found)
    return made_of, outputs


def tests_of(build, made_of, outputs):
    for test in introspected(build, "--tests"):
        behind = [output for target in test["depends"] for output in outputs.get(target, [])]
        files = set().union(*(made_of.get(output, set()) for output in behind))
        for word in test["cmd"]:
            if word.endswith(".py") and (name := in_checkout(word, build)):
                files.add(name)
        yield Test(test, behind, files)


def why_affected(test, name):
    """Returns why a change of the file affects the test, or None if it does not."""
    path = PurePosixPath(name)
    top, folder = path.parts[0], path.parts[1] if len(path.parts) > 1 else ""
    if name in ("meson.build", "meson_options.txt", "test/meson.build", "test/unity.py"):
        return "everything is built with it"
    if path.name == "meson.build" and top == "test":
        return "its folder" if folder == test.folder else None
    if top in ("lib", "drivers"):
        return why_of_library(test, path, folder)
    if top == "python":
        return "the module for Python" if test.folder == "python" else None
    if name in test.files:
        return "made of it"
    if top == "test" and folder == test.folder and path.suffix == ".h" and not any(
            known.endswith(".h") for known in test.own):
        return "its folder's header"
    return None


def why_of_library(test, path, folder):
    if folder in (test.folder, test.name):
        return "tests that folder"
    if test.folder == "python" and (folder == "c" or path.name == "rrdk.h"):
        return "the C API, which the module for Python uses"
    part = folder if path.parts[0] == "lib" else path.parent  # a floor and the folders in it are one part
    if path.parts[:2] == ("lib", "include"):
        if "/".join(path.parts[2:]) in test.includes:
            return "includes it"
    elif any(included.startswith(f"{part}/") for included in test.includes):
        return f"includes {part}/"
    if test.name in END_TO_END:
        return "all of the library meets there"
    return None


def main():
    build = Path(sys.argv[1]).resolve()
    commit = base_commit(sys.argv[2] if len(sys.argv) > 2 else "")
    files = changed_files(commit)
    print("since", run("git", "log", "-1", "--format=%h %s", commit).strip(), sep="\t")
    if not files:
        return
    print("suite", "hygiene", "always", sep="\t")
    for suite, pattern in CHECKS:
        if matching := [name for name in files if re.match(pattern, name)]:
            print("suite", suite, summary(matching), sep="\t")
    for name in files:
        if re.match(r"(lib|drivers|bridge)/.*\.h$", name) and (ROOT / name).is_file():
            print("header", name, "changed", sep="\t")
    made_of, outputs = programs_of(build)
    for output, made in made_of.items():
        if matching := [name for name in files if name in made and not name.startswith(("lib/", "drivers/"))]:
            print("target", output, summary(matching), sep="\t")
    for test in tests_of(build, made_of, outputs):
        reasons = {}
        for name in files:
            if reason := why_affected(test, name):
                reasons.setdefault(reason, []).append(name)
        if reasons:
            why = "; ".join(f"{summary(names)}: {reason}" for reason, names in reasons.items())
            for output in test.outputs:
                print("target", output, f"for {test.name}", sep="\t")
            print("test", test.name, why, sep="\t")
    for suite, pattern, why in ELSEWHERE:
        if matching := [name for name in files if re.match(pattern, name)]:
            print("elsewhere", suite, f"{summary(matching)}: {why}", sep="\t")


def summary(names):
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


main()
