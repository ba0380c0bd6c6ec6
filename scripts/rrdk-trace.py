#!/usr/bin/env python3
"""Shows where the time of calls goes in a running process of RRDK, by its static probes and bpftrace.

    scripts/rrdk-trace.py PID stages           how long calls take to each stage: histograms
    scripts/rrdk-trace.py PID slow 500         each call that takes 500 us or more, stage by stage
    scripts/rrdk-trace.py PID switched-out     how long its threads lost their CPUs, and to whom

--seconds N ends it after N seconds (default: Ctrl-C); --print shows bpftrace's program and runs nothing.
Needs root, bpftrace, and a build with probes (systemtap-sdt-dev). The process is not changed and need not be
restarted; without a tool attached, a probe is one comparison. Only calls that the process samples are seen
(Runtime::stamp_every(), testrpc --stages N): one in 16 by default. doc/telemetry.md describes the probes.
"""
import argparse
import os
import shutil
import sys
from pathlib import Path

from lib import output

# The stages that a call has completed when its probe fires, in order; the first one of each end begins the call.
SERVED = ["received", "whole", "decoded", "entered", "answered", "replied"]
MADE = ["submitted", "started", "posted", "seen", "called", "ended"]
# The step that leads to each stage but the first, as testrpc --stages names it; "away" is everything outside
# the client.
STEPS = {"whole": "fetch", "decoded": "decode", "entered": "queue", "answered": "handler", "replied": "reply",
         "started": "wait", "posted": "post", "seen": "away", "called": "complete", "ended": "callback"}

TRACEFS = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]


def fail(message):
    print(f"rrdk-trace: {message}", file=sys.stderr)
    sys.exit(1)


def positive(text):
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not above 0")
    return value


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pid", type=positive, metavar="PID")
    questions = parser.add_subparsers(dest="question", required=True, metavar="stages|slow|switched-out")
    for name in ("stages", "slow", "switched-out"):
        question = questions.add_parser(name)
        if name == "slow":
            question.add_argument("microseconds", type=positive, metavar="MICROSECONDS")
        question.add_argument("--seconds", type=positive, metavar="N")
        question.add_argument("--print", action="store_true", dest="only_print")
    return parser.parse_args()


def has_probes(path):
    return b"rrdk\0stage\0" in path.read_bytes()


def mapped_libraries(process):
    """Returns a mapping of each file that may be our library, by its link in the process's folder: a path may
    contain blanks, be of another mount namespace, or belong to another file by now."""
    found = {}
    for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and "librrdk" in words[5]:
            found.setdefault(words[5], process / "map_files" / words[0])
    return found.values()


def probed_file(pid):
    """Returns the program or shared library of the process that has the probes."""
    process = Path(f"/proc/{pid}")
    try:
        program = os.readlink(process / "exe")
        for file in [process / "exe", *mapped_libraries(process)]:
            if has_probes(file):
                return file
    except FileNotFoundError:
        fail(f"there is no process {pid}")
    except PermissionError:
        fail(f"process {pid} is not ours to look at: run this as root")
    fail(f"process {pid} ({program}) has no probes of RRDK: build it with systemtap-sdt-dev installed")


def each_stage(probe, pid, body):
    """Returns a clause for each stage but the first ones, with the code body(made, name of the step)."""
    clauses = []
    for made, stages in ((0, SERVED), (1, MADE)):
        clauses.append(f"{probe}:stage /pid == {pid} && arg0 == {made} && arg2 == 0/\n"
                       "{ @at[arg0, arg1] = arg3; @began[arg0, arg1] = arg3; }")
        for number, stage in enumerate(stages[1:], 1):
            clauses.append(f"{probe}:stage /pid == {pid} && arg0 == {made} && arg2 == {number} && @at[arg0, arg1]/\n"
                           f"{{ {body(made, STEPS[stage])} @at[arg0, arg1] = arg3; }}")
    return clauses


def forget(probe, pid, before=""):
    return f"{probe}:call /pid == {pid}/\n{{ {before}delete(@at[arg0, arg1]); delete(@began[arg0, arg1]); }}"


def stages_program(probe, pid):
    ends = {0: "server", 1: "client"}
    clauses = each_stage(probe, pid, lambda made, step:
                         f'@ns["{ends[made]}", "{step}"] = hist(arg3 - @at[arg0, arg1]);')
    return [*clauses, forget(probe, pid), "END { clear(@at); clear(@began); }"]


def slow_program(probe, pid, microseconds):
    clauses = each_stage(probe, pid, lambda made, step:
                         f'@took[arg0, arg1, "{step}"] = (arg3 - @at[arg0, arg1]) / 1000; @last[arg0, arg1] = arg3;')
    for made, stages, title in ((0, SERVED, "served"), (1, MADE, "made")):
        steps = [STEPS[stage] for stage in stages[1:]]
        shown = " ".join(f"{step} %d" for step in steps)
        values = ", ".join(f'@took[arg0, arg1, "{step}"]' for step in steps)
        clauses.append(
            f"{probe}:call /pid == {pid} && arg0 == {made} && "
            f"@last[arg0, arg1] - @began[arg0, arg1] >= {microseconds * 1000}/\n"
            f'{{ printf("{title} %x of connection %d, program %x procedure %d: %d us: {shown}\\n", arg1, arg2, arg3, arg4,\n'
            f"    (@last[arg0, arg1] - @began[arg0, arg1]) / 1000, {values}); }}")
    gone = "".join(f'delete(@took[arg0, arg1, "{STEPS[stage]}"]); ' for stage in SERVED[1:] + MADE[1:])
    return [*clauses, forget(probe, pid, gone + "delete(@last[arg0, arg1]); "),
            "END { clear(@at); clear(@began); clear(@took); clear(@last); }"]


def switched_out_program(pid):
    tids = [int(task) for task in os.listdir(f"/proc/{pid}/task")]
    ours = " || ".join(f"args->prev_pid == {tid}" for tid in tids)
    back = " || ".join(f"args->next_pid == {tid}" for tid in tids)
    return [f"tracepoint:sched:sched_switch /({ours})/\n"
            "{ @out[args->prev_pid] = nsecs; @to[args->prev_pid] = args->next_pid; @to_comm[args->prev_pid] = args->next_comm; }",
            f"tracepoint:sched:sched_switch /({back}) && @out[args->next_pid]/\n"
            "{\n  @us[args->next_pid, args->next_comm] = hist((nsecs - @out[args->next_pid]) / 1000);\n"
            "  @taken_by[@to_comm[args->next_pid], @to[args->next_pid]] = count();\n"
            "  delete(@out[args->next_pid]);\n}",
            "END { clear(@out); clear(@to); clear(@to_comm); }"]


def program_of(chosen):
    if chosen.question == "switched-out":
        if not Path(f"/proc/{chosen.pid}/task").is_dir():
            fail(f"there is no process {chosen.pid}")
        clauses = switched_out_program(chosen.pid)
    else:
        probe = f"usdt:{probed_file(chosen.pid)}:rrdk"
        clauses = (stages_program(probe, chosen.pid) if chosen.question == "stages"
                   else slow_program(probe, chosen.pid, chosen.microseconds))
    if chosen.seconds:
        clauses.append(f"interval:s:{chosen.seconds} {{ exit(); }}")
    return "\n".join(clauses) + "\n"


def main():
    chosen = options()
    text = program_of(chosen)
    if chosen.only_print:
        print(text, end="")
        return
    bpftrace = shutil.which("bpftrace")
    if bpftrace is None:
        fail("bpftrace is missing: apt-get install bpftrace")
    if os.geteuid() != 0:
        fail("the kernel's probes are root's: run this as root")
    if not any(Path(folder, "events").is_dir() for folder in TRACEFS):
        fail(f"the kernel's tracefs is not mounted: mount -t tracefs none {TRACEFS[0]}")
    sys.stdout.flush()
    os.execv(bpftrace, [bpftrace, "-e", text])


if __name__ == "__main__":
    sys.exit(output.run("rrdk-trace", main, failed=1))
