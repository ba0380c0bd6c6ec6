#!/usr/bin/env python3
"""Runs a command and leaves nothing of it behind, whatever it started and however it ends:

    contained.py SECONDS COMMAND...

Ends with the command's status: 124 if it took more than so many seconds, 128 + N if signal N ended
it. On SIGTERM, SIGINT or SIGHUP, or when the process that started this one ends, the command and its
descendants are ended too: they are asked to (SIGTERM), and killed if they have not ended a little later.
The same happens to descendants that are still running when the command has ended by itself, whatever
session they are in.
"""
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_SECONDS = 15
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def descendants():
    """Of this process. Orphans among them are its children, since it is their subreaper."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                # PID (NAME) STATE PARENT ...; a name may have anything in it.
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue  # it has just ended
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found, left = [], [os.getpid()]
    while left:
        mine = children.get(left.pop(), [])
        found += mine
        left += mine
    return found


def signal_all(number):
    """Returns whether there was anybody."""
    there = descendants()
    for pid in there:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    return bool(there)


def reap():
    """The statuses of children that have ended, by process id."""
    ended = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    except ChildProcessError:
        pass
    return ended


def end_all():
    signal_all(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while descendants() and time.monotonic() < deadline:
        reap()
        time.sleep(0.05)
    while signal_all(signal.SIGKILL):
        reap()
        time.sleep(0.05)
    reap()


def start(command):
    child = os.fork()
    if child:
        return child
    for number in (*ASKING, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)  # a shell's background jobs ignore some, and so would the tests
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.setsid()  # so the terminal's Ctrl-C reaches it through this process only
    if (niceness := os.nice(0)) > 0:
        try:  # Where the kernel groups tasks by session, it is the group's that counts.
            Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")
        except OSError:
            pass
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
    os._exit(127)


def main():
    limit, command = float(sys.argv[1]), sys.argv[2:]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, *ASKING])
    for number in ASKING:
        signal.signal(number, signal.SIG_DFL)  # what is ignored does not wait to be looked at
    parent = os.getppid()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return 128 + signal.SIGTERM
    child, deadline = start(command), time.monotonic() + limit
    status = None
    while status is None:
        told = signal.sigtimedwait([signal.SIGCHLD, *ASKING], max(0, deadline - time.monotonic()))
        if told is None:
            status = 124
        elif told.si_signo != signal.SIGCHLD:
            status = -told.si_signo
        else:
            status = reap().get(child)
    end_all()
    return status if status >= 0 else 128 - status


sys.exit(main())
