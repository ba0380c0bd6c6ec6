#!/usr/bin/env python3
"""Checks a host before a measurement or a deployment: what is wrong, what it costs, and how to fix it.

  scripts/rrdk-doctor.py                      what concerns every use
  scripts/rrdk-doctor.py --cpus 2,3 --uri iwarp://0.0.0.0:20049 --connections 10000 --memory 4G
  scripts/rrdk-doctor.py --uri verbs://10.0.0.1?device=mlx5_0 --quiet
  scripts/rrdk-doctor.py --json - >host.json

It changes nothing, and takes less than a second. Run it as the user and in the container that will run
RRDK, since limits and permissions depend on both. The proposed fixes are commands for a root shell, or
comments if there is no command.

Exit status: 0 if nothing is wrong (what could not be determined does not count), 1 if something costs
speed or steadiness ("worse"), 3 if something does not work ("bad"), 2 if an option is at fault.
"""
import argparse
import dataclasses
import json
import os
import re
import sys
import textwrap

from lib import doctor_cpus, doctor_memory, doctor_network, output  # noqa: F401: each adds its checks to CHECKS
from lib.doctor_host import (CHECKS, DEFAULT_PORT, GIB, MIB, Host, Unreadable, Uri, Wanted, parse_cpus,
                             ranges, unknown)

STATUS = {"good": 0, "unknown": 0, "worse": 1, "bad": 3}
SUBJECTS = ["CPUs", "memory", "network", "RDMA", "container", "clock"]  # in the order of the output
WIDTH = 100


def examine(host, wanted):
    findings = []
    for subject, name, look in sorted(CHECKS, key=lambda one: SUBJECTS.index(one[0])):
        try:
            found = look(host, wanted)
        except Unreadable as why:
            found = unknown(str(why))
        for finding in found if isinstance(found, list) else [found]:
            finding.subject, finding.name = subject, finding.name or name
            findings.append(finding)
    return findings


def about(host):
    def told(path):
        try:
            return host.find(path)
        except Unreadable:
            return ""
    model = re.search(r"^model name\s*:\s*(.*)", told("/proc/cpuinfo"), re.M)
    return {"name": told("/proc/sys/kernel/hostname"), "kernel": told("/proc/sys/kernel/osrelease"),
            "cpu": model[1] if model else "", "cpus": ranges(host.online), "user": os.geteuid()}


def summarize(findings):
    counts = {state: sum(f.state == state for f in findings) for state in STATUS}
    return {**counts, "exit_status": max(STATUS[f.state] for f in findings)}


def folded(first, text, rest):
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def mend_lines(mend):
    """Returns the lines; a command stays on one line, however long, so that it can be copied."""
    lines = []
    for line in mend.splitlines():
        first = " " * 10 + ("       " if lines else "mend:  ")
        lines += folded(first, line, " " * 17 + "# ") if line.startswith("#") else [first + line]
    return lines


def table(host, wanted, findings, quiet):
    facts = about(host)
    lines = folded("host: ", ", ".join(filter(None, (facts["name"], facts["kernel"], facts["cpu"],
                                                     f"to poll: {ranges(wanted.cpus)}"))), "      ")
    subject = None
    for f in findings:
        if quiet and f.state == "good":
            continue
        if f.subject != subject:
            subject = f.subject
            lines += ["", subject]
        lines += folded(f"  {f.state:7} {f.name:16} ", f.found, " " * 27)
        if f.costs:
            lines += folded(" " * 10 + "costs: ", f.costs, " " * 17)
        lines += mend_lines(f.mend or "")
    counts = summarize(findings)
    return "\n".join([*lines, "", ", ".join(f"{counts[state]} {state}" for state in STATUS)])


def uri_of(text):
    scheme, _, rest = text.partition(":")
    rest, _, query = rest.partition("?")
    scheme = scheme.lower()
    if scheme == "shm" and rest:
        return Uri(scheme, path=rest)
    parts = re.fullmatch(r"//(?:\[([^\]]+)\]|([^/:\[\]@]+))(?::(\d{1,5}))?/?", rest)
    if scheme not in ("iwarp", "verbs") or not parts or int(parts[3] or 0) > 65535:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not shm:PATH, iwarp://HOST[:PORT] or verbs://HOST[:PORT] (IPv6 in brackets)")
    device = re.search(r"(?:^|&)device=([^&]+)", query)
    return Uri(scheme, parts[1] or parts[2], int(parts[3] or DEFAULT_PORT), device[1] if device else None)


def cpus_of(text):
    if cpus := parse_cpus(text):
        return cpus
    raise argparse.ArgumentTypeError(f"'{text}' is not a list of CPUs, such as 2,3 or 2-5")


def connections_of(text):
    if re.fullmatch(r"\d{1,8}", text) and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to 99999999")


def bytes_of(text):
    parts = re.fullmatch(r"(\d{1,15})([KMG]?)", text)
    if parts and int(parts[1]) > 0:
        return int(parts[1]) * {"": 1, "K": 1 << 10, "M": MIB, "G": GIB}[parts[2]]
    raise argparse.ArgumentTypeError(f"'{text}' is not a number of bytes, such as 512M or 4G")


def fail(message):
    print(f"rrdk-doctor: {message}", file=sys.stderr)
    sys.exit(2)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message.removeprefix("argument ") + " (see --help)")


def options(arguments):
    parser = Parser(prog="rrdk-doctor", description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cpus", type=cpus_of, metavar="N,...",
        help="the CPUs that will poll (default: the isolated ones, or else those of the affinity)")
    add("--uri", type=uri_of,
        help="the URI to serve or call: shm:PATH, iwarp://HOST[:PORT], verbs://HOST[:PORT]")
    add("--connections", type=connections_of, default=1024, metavar="N", help="of the server (default 1024)")
    add("--memory", type=bytes_of, metavar="BYTES", help="for buffers, as testrpc's --memory: 512M, 4G")
    add("--rpcbind", action="store_true", help="rpcbind will be used")
    add("--json", metavar="FILE",
        help="the findings for programs; - is stdout, and the table goes to stderr then")
    add("--quiet", action="store_true", help="show only what is not good")
    return parser.parse_args(arguments)


def main(arguments, host):
    chosen = options(arguments)
    try:
        cpus = sorted(set(host.allowed) & set(host.isolated)) or host.affinity
    except Unreadable as why:
        fail(str(why))
    wanted = Wanted(chosen.cpus or cpus, chosen.connections, chosen.memory, chosen.uri, chosen.rpcbind)
    findings = examine(host, wanted)
    summary = summarize(findings)
    text = json.dumps({"schema": 1, "host": about(host), "to_poll": wanted.cpus,
                       "findings": [dataclasses.asdict(f) for f in findings], "summary": summary}, indent=2)
    if chosen.json == "-":
        print(text)
    elif chosen.json:
        try:
            with output.file(chosen.json) as file:
                file.write(text + "\n")
        except OSError as error:
            fail(f"--json: {chosen.json} cannot be written: {error.strerror}")
    print(table(host, wanted, findings, chosen.quiet), file=sys.stderr if chosen.json == "-" else sys.stdout)
    return summary["exit_status"]


if __name__ == "__main__":
    sys.exit(output.run("rrdk-doctor", lambda: main(sys.argv[1:], Host())))
