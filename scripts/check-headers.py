#!/usr/bin/env python3
"""Compiles every header alone, twice in a row, as an includer's first lines would.

    check-headers.py            all of lib/, drivers/ and bridge/
    check-headers.py HEADER...  these

Public headers are compiled with GCC and Clang, with only lib/include on the include path: an embedder
needs neither DPDK nor private headers to use them. In C++17 they must say in one line that they need
C++20. Headers for C are compiled as C, too. Those of bridge/ are for C too, and have the library that
they bridge to on their path. Private headers are compiled with GCC, except those that begin with
#pragma once and that some source file includes first: every build of that file compiles them alone.
"""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from lib.source import ROOT, Findings, cpp_files, read, without_comments

WARNINGS = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion",
            "-Wno-sign-conversion", "-Wold-style-cast", "-Werror"]
C_WARNINGS = ["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
PUBLIC = "lib/include/"
BRIDGE = "bridge/tirpc/include/"
C_COMPILERS = ("gcc", "clang-19")
FOR_C = ["lib/include/rrdk/release.h", "lib/include/rrdk/counter_table.h", "lib/include/rrdk/rrdk.h"]
TOO_OLD = "RRDK's headers need C++20"
FIRST_DIRECTIVE = re.compile(r'^\s*#\s*(.*?)\s*$', re.MULTILINE)


def private_flags():
    dpdk = subprocess.run(["pkg-config", "--cflags-only-I", "libdpdk"], capture_output=True,
                          text=True, check=True).stdout.replace("-I", "-isystem").split()
    return ["-I.", "-Ilib", "-I" + PUBLIC, "-march=x86-64-v3", "-DALLOW_EXPERIMENTAL_API", *dpdk,
            "-include", "rte_config.h"]


def bridge_flags():
    tirpc = subprocess.run(["pkg-config", "--cflags-only-I", "libtirpc"], capture_output=True, text=True, check=True)
    return ["-I" + BRIDGE, *tirpc.stdout.replace("-I", "-isystem").split()]


def compile_twice(header, compiler, *flags):
    name = str(header).removeprefix(PUBLIC).removeprefix(BRIDGE)
    return subprocess.run([compiler, "-fsyntax-only", *flags, "-"], cwd=ROOT, capture_output=True, text=True,
                          input=f'#include "{name}"\n#include "{name}"\nextern int a_unit_is_not_empty;\n')


def compile_alone(job):
    """Returns the job's header and compiler, and what the compiler said if it refused."""
    header, compiler, flags = job
    language, warnings = ("c", C_WARNINGS) if compiler in C_COMPILERS else ("c++", WARNINGS)
    run = compile_twice(header, compiler, *warnings, *flags, "-x", language)
    return header, compiler, "" if run.returncode == 0 else run.stderr


def say_what_they_need(headers):
    """Compiles public headers as older C++, and as C."""
    for header in headers:
        if str(header) in FOR_C:
            run = compile_twice(header, "gcc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I" + PUBLIC,
                                "-x", "c")
            if run.returncode != 0:
                findings.add(header, 1, "does not compile as C")
        elif TOO_OLD not in compile_twice(header, "g++", "-std=c++17", "-I" + PUBLIC, "-x", "c++").stderr:
            findings.add(header, 1, "does not say in C++17 what it needs: include rrdk/language.h")


def first_directive(path):
    found = FIRST_DIRECTIVE.search(without_comments(read(path)))
    return found[1] if found else ""


def included_first(files):
    """Returns the headers that source files include first, relative to the root or to lib/."""
    lines = (first_directive(f) for f in files if f.suffix == ".cc")
    return {line.split('"')[1] for line in lines if line.startswith('include "')}


jobs = []
files = cpp_files("lib", "drivers", "bridge")
compiled_anyway = included_first(files)
for header in files:
    if header.suffix != ".h" or (len(sys.argv) > 1 and str(header) not in sys.argv[1:]):
        continue
    if str(header).startswith(PUBLIC):
        jobs += [(header, "g++", ["-I" + PUBLIC]), (header, "clang++-19", ["-I" + PUBLIC])]
    elif str(header).startswith(BRIDGE):
        jobs += [(header, compiler, bridge_flags()) for compiler in (*C_COMPILERS, "g++", "clang++-19")]
    elif str(header).startswith("bridge/"):
        jobs.append((header, "g++", ["-I" + PUBLIC, *bridge_flags()]))
    elif str(header).removeprefix("lib/") not in compiled_anyway or first_directive(header) != "pragma once":
        jobs.append((header, "g++", private_flags()))

findings = Findings()
say_what_they_need(sorted({header for header, _, _ in jobs if str(header).startswith(PUBLIC)}))
with ThreadPoolExecutor(os.cpu_count()) as pool:
    for header, compiler, complaint in pool.map(compile_alone, jobs):
        if complaint:
            findings.add(header, 1, f"does not compile alone with {compiler}")
            print(complaint, file=sys.stderr)
findings.finish(f"{len(jobs)} compilations")
