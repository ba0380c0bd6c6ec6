#!/usr/bin/env python3
"""Checks the include layering: a floor uses itself and the floors below it, nothing else.

doc/architecture.md has the picture. The rules in full:
  - lib/<floor>/ includes headers of its own and of lower floors. Floors that stand side by side
    (calls and service, client and server) do not include each other.
  - drivers/<name>/ includes its own headers, drivers/common/, and lib/fabric and below;
    drivers/registry.cc, the list of drivers, may include any driver.
  - A public header belongs to a floor too (PUBLIC below) and includes public headers only.
  - apps/, bridge/ and doc/examples/ include public headers and their own; lib/ and drivers/ do not
    include theirs.
  - Above lib/fabric no code names a driver: it asks for the driver's capabilities instead.
"""
import re

from lib.source import Findings, cpp_files, read, without_comments

# Lowest first. Floors in one row stand side by side.
FLOORS = [["base"], ["mem"], ["fabric"], ["observe"], ["xdr"], ["rpc"], ["gss"], ["proto"], ["engine"],
          ["runtime"], ["calls", "service"], ["client", "server"], ["rpcbind", "telemetry"], ["c"]]
HEIGHT = {floor: height for height, row in enumerate(FLOORS) for floor in row}
DRIVER_HEIGHT = HEIGHT["fabric"]
DRIVERS = ["shm", "iwarp", "verbs"]

# Which floor a public header (lib/include/rrdk/) belongs to.
PUBLIC = {
    "language": "base", "release": "base", "error": "base", "log": "base", "eal": "base", "uri": "base",
    "faults": "base", "counters": "base", "counter_table": "base",
    "memory": "mem",
    "connection": "fabric",
    "capture": "observe",
    "xdr": "xdr",
    "rpc": "rpc", "call_status": "rpc", "interceptor": "rpc",
    "rpcbind": "rpcbind", "tcp_call": "rpcbind",
    "version": "proto",
    "binding": "rpc", "nfs3": "rpc", "gss": "gss",
    "version2": "engine", "rfc5666": "engine", "extensions": "engine",
    "stages": "engine", "procedure_stats": "engine",
    "runtime": "runtime", "stats": "runtime", "timer": "runtime",
    "call": "calls", "gss_context": "calls",
    "service": "service", "program": "service",
    "client": "client", "coroutine": "client",
    "server": "server",
    "telemetry": "telemetry",
    "rrdk": "c",
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
DRIVER_NAME = re.compile("(?<!establi)(?:" + "|".join(DRIVERS) + ")", re.IGNORECASE)  # not "establishment"
# Floors that lie above the fabric interface and deal with connections.
DRIVER_BLIND = ["engine", "runtime", "calls", "service", "client", "server"]

findings = Findings()


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def includes(path):
    text = without_comments(read(path))
    for match in INCLUDE.finditer(text):
        yield line_of(text, match.start()), match[1]


def floor_of(header):
    """Returns the floor that an included header belongs to, or None if it is in no floor."""
    folder, _, rest = header.partition("/")
    if folder == "rrdk":
        return PUBLIC.get(rest.removesuffix(".h"))
    return folder if folder in HEIGHT else None


def may_include(user, header_floor):
    return header_floor == user or HEIGHT[header_floor] < HEIGHT[user]


def check_floor(path, floor, public):
    for line, header in includes(path):
        target = floor_of(header)
        if target is None:
            findings.add(path, line, f'"{header}" belongs to no floor of lib/')
        elif public and not header.startswith("rrdk/"):
            findings.add(path, line, f'a public header includes the private "{header}"')
        elif not may_include(floor, target):
            findings.add(path, line, f'{floor} must not include "{header}" of {target}')


def check_public(path):
    floor = PUBLIC.get(path.stem)
    if floor is None:
        findings.add(path, 1, "unknown public header: add it to PUBLIC in scripts/check-layers.py")
    else:
        check_floor(path, floor, public=True)


def check_driver(path):
    is_registry = path.parent.name == "drivers"
    own = "" if is_registry else path.parts[1] + "/"
    for line, header in includes(path):
        if header.startswith((f"drivers/{own}", "drivers/common/")) or (own and header.startswith(own)):
            continue
        target = floor_of(header)
        if target is None or HEIGHT[target] > DRIVER_HEIGHT:
            findings.add(path, line, f'drivers/{own} must not include "{header}"')


def check_user(path):
    """Programs see what an embedder sees."""
    for line, header in includes(path):
        own = header.startswith(f"{path.parent}/") or "/" not in header
        if not own and not header.startswith("rrdk/"):
            findings.add(path, line, f'"{header}" is not public; programs use rrdk/*.h')


def check_driver_blind(path):
    text = without_comments(read(path))
    for match in DRIVER_NAME.finditer(text):
        findings.add(path, line_of(text, match.start()),
                     f"names the driver '{match[0]}'; ask for a capability instead")


library = cpp_files("lib")
programs = cpp_files("apps", "bridge", "doc/examples")
drivers = cpp_files("drivers")
for path in library:
    area = path.parts[1]
    if area == "include":
        check_public(path)
    elif area not in HEIGHT:
        findings.add(path, 1, f"lib/{area} is no floor: add it to FLOORS in this script")
    else:
        check_floor(path, area, public=False)
        if area in DRIVER_BLIND:
            check_driver_blind(path)
for path in drivers:
    check_driver(path)
for path in programs:
    check_user(path)
findings.finish(f"{len(library) + len(drivers) + len(programs)} files")
