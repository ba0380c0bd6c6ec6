#!/usr/bin/env python3
"""Shows the path of a call through a server, as the compiler left it: from the completion of its Receive
until the reply is where the peer can read it. Prints each function and its file, and fails if the path
has more functions or files than the limits below.

  scripts/call-path.py BUILD            a release build with -Dbenchmarks=true (perf/perf_call is run)
  scripts/call-path.py BUILD --json F   the paths, for programs

The calls are those of perf/call_bench.cc, one at a time, over shared memory; callgrind records which
function calls which. A function is on the path if every call runs it, called by the poll core directly
or through others, and if it leads to a handler, a queue of work requests or the driver. Inlined code is
part of the function that contains it. Leaves (decoders, pools, counters), the handler itself, and thunks,
which are not in the source, are not on the path.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from lib import output

ROOT = pathlib.Path(os.environ.get("RRDK_ROOT", pathlib.Path(__file__).resolve().parent.parent))
ROUNDS = 200  # perf/call_bench.cc
START = "rrdk::runtime::PollCore::poll"
# Does nothing but call take(), and is part of a thunk in some builds.
FORWARDS = "rrdk::server::ServerLink::on_call"
# One of these makes a reply that is sent at once visible to the peer; the last two send a reply that is
# too long for the lane's slot.
SENT = re.compile(r"rrdk::shm::QueuePair::(send_now|send_copy|slow_send|name_copy)$")
# These read a call's chunk and write its result. The reply that follows goes into the lane's slot, which
# is part of the function that does it.
READ = re.compile(r"rrdk::shm::QueuePair::(read_now|copy_remote)$")
WRITTEN = re.compile(r"rrdk::shm::QueuePair::(write|local_place)$")  # the former may be a thunk
# Kind of perf/call_bench.cc: its title, where its path leads, the limits on functions and on files.
KINDS = {
    2: ("without chunks (echo of 1000 bytes)", (SENT,), 10, 6),
    4: ("with a Write chunk (READ of 4 KiB)", (WRITTEN,), 10, 6),
    5: ("with a Read chunk (WRITE of 4 KiB)", (READ,), 12, 8),
}


def run_callgrind(program, kind):
    """Returns which function calls which, and how often, in calls of the kind."""
    with tempfile.NamedTemporaryFile() as out:
        run = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=*make_calls*",
                              "--compress-strings=no", f"--callgrind-out-file={out.name}", str(program),
                              f"--benchmark_filter=counted/kind:{kind}/window:1/"],
                             capture_output=True, text=True)
        if run.returncode != 0 or "Collected" not in run.stderr:
            sys.exit(f"call-path: valgrind failed:\n{run.stderr[-2000:]}")
        lines = pathlib.Path(out.name).read_text(errors="replace").splitlines()
    edges = collections.defaultdict(collections.Counter)
    caller = callee = None
    for line in lines:
        if line.startswith("fn="):
            caller = plain_name(line[3:])
        elif line.startswith("cfn="):
            callee = plain_name(line[4:])
        elif line.startswith("calls="):
            edges[caller][callee] += int(line[6:].split()[0])
    return edges


def plain_name(symbol):
    """Returns the symbol without what the compiler and the linker add."""
    symbol = re.sub(r" \[clone [^\]]*\]|\(anonymous namespace\)::", "", symbol)
    symbol = re.sub(r"\.(lto_priv|constprop|isra|part)\.\d+|'\d+$", "", symbol)
    return re.sub(r"\(.*", "", symbol).strip()


def path_of(edges, ends):
    """Returns the functions on the path: those that lead to the first of its ends, then to the next one."""
    always = {caller: [callee for callee, count in callees.items() if count >= ROUNDS // 2]
              for caller, callees in edges.items()}
    path = []
    for end in ends:
        path += [name for name in leading_to(end, START, always) if name not in path]
    return [name for name in path if name.startswith("rrdk::") and name != FORWARDS]


def leading_to(end, start, callees):
    """Returns the functions from `start` to those whose names match `end`, both included."""
    known = {}

    def leads_on(name, above=()):
        if name in above:
            return False
        if name not in known:
            known[name] = bool(end.match(name)) or any(
                [leads_on(callee, (*above, name)) for callee in callees.get(name, [])])
        return known[name]

    found = []

    def follow(name):
        if name not in found and leads_on(name):
            found.append(name)
            for callee in [] if end.match(name) else callees.get(name, []):
                follow(callee)

    follow(start)
    return found


def file_of(function, sources):
    """Returns the file that defines it: as Class::name(, within its class in a header, or as a free function."""
    *floor, owner, name = function.split("::")[1:]
    outside = re.compile(rf"^[^\s/].*\b{owner}::{name}\(", re.MULTILINE)
    inside = re.compile(rf"\b(class|struct) {owner}\b.*^\s+.*\b{name}\(", re.MULTILINE | re.DOTALL)
    for pattern in (outside, inside):
        for file, text in sources.items():
            if set(floor[:1]) <= set(file.parts) and pattern.search(text):
                return str(file.relative_to(ROOT))
    alone = re.compile(rf"^[^\s/].*\b{name}\([^;]*\{{$", re.MULTILINE)
    for file, text in sources.items():
        if owner in file.parts and alone.search(text):
            return str(file.relative_to(ROOT))
    sys.exit(f"call-path: no source defines {function}")


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--json")
    parser.add_argument("-h", "--help", action="store_true")
    args = parser.parse_args()
    if args.help or args.build is None:
        print(__doc__.strip())
        return 0 if args.help else 2
    program = args.build / "perf" / "perf_call"
    if not program.exists():
        sys.exit(f"call-path: {program} is not there: build it with -Dbenchmarks=true")
    sources = {file: file.read_text() for folder in ("lib", "drivers")
               for suffix in ("cc", "h") for file in sorted((ROOT / folder).rglob(f"*.{suffix}"))}
    status = 0
    results = []
    for kind, (what, ends, most_functions, most_files) in KINDS.items():
        path = path_of(run_callgrind(program, kind), ends)
        for end in ends:
            if not any(map(end.match, path)):
                sys.exit(f"call-path: a call {what} does not get to {end.pattern}: is that, or {START}, the "
                         f"name of something else now? Found: {', '.join(path)}")
        files = {name: file_of(name, sources) for name in path}
        count = len(set(files.values()))
        print(f"A call {what}: {len(path)} functions of {most_functions}, {count} files of {most_files}")
        for name, file in files.items():
            print(f"  {name.removeprefix('rrdk::'):45} {file}")
        if len(path) > most_functions or count > most_files:
            print("  TOO LONG")
            status = 1
        results.append({"call": what, "functions": files, "most_functions": most_functions, "most_files": most_files})
    if args.json:
        with output.file(args.json) as file:
            file.write(json.dumps({"paths": results}, indent=2) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(output.run("call-path", main))
