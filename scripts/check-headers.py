#!/usr/bin/env python3
"""Compiles every header alone, twice in a row, as an includer's first lines would.

Public headers with GCC and Clang, and nothing on the include path but lib/include: an embedder
needs neither DPDK nor private headers to read them. Private headers with GCC.
"""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from lib.source import ROOT, Findings, cpp_files

WARNINGS = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion",
            "-Wno-sign-conversion", "-Wold-style-cast", "-Werror"]
PUBLIC = "lib/include/"


def private_flags():
    dpdk = subprocess.run(["pkg-config", "--cflags-only-I", "libdpdk"], capture_output=True,
                          text=True, check=True).stdout.replace("-I", "-isystem").split()
    return ["-I.", "-Ilib", "-I" + PUBLIC, "-march=x86-64-v3", "-DALLOW_EXPERIMENTAL_API", *dpdk,
            "-include", "rte_config.h"]


def compile_alone(job):
    """Returns the job's header and compiler, and what the compiler said if it refused."""
    header, compiler, flags = job
    name = str(header).removeprefix(PUBLIC)
    run = subprocess.run([compiler, "-fsyntax-only", *WARNINGS, *flags, "-x", "c++", "-"],
                         input=f'#include "{name}"\n#include "{name}"\n', cwd=ROOT,
                         capture_output=True, text=True)
    return header, compiler, "" if run.returncode == 0 else run.stderr


jobs = []
for header in cpp_files("lib", "drivers"):
    if header.suffix != ".h":
        continue
    if str(header).startswith(PUBLIC):
        jobs += [(header, "g++", ["-I" + PUBLIC]), (header, "clang++-19", ["-I" + PUBLIC])]
    else:
        jobs.append((header, "g++", private_flags()))

findings = Findings()
with ThreadPoolExecutor(os.cpu_count()) as pool:
    for header, compiler, complaint in pool.map(compile_alone, jobs):
        if complaint:
            findings.add(header, 1, f"does not compile alone with {compiler}")
            print(complaint, file=sys.stderr)
findings.finish(f"{len(jobs)} compilations")
