#!/usr/bin/env python3
"""Runs a command and ends everything that it started, however it ends:

    contained.py SECONDS COMMAND...

Ends with the command's status: 124 if it took more than SECONDS, 128 + N if signal N ended it. On
SIGTERM, SIGINT or SIGHUP, or when the process that started this one ends, the command and its
descendants are ended too: they get SIGTERM, and SIGKILL if they have not ended after GRACE_SECONDS.
Descendants that still run when the command has ended by itself are ended in the same way, whatever
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
    """Returns the descendants of this process. Orphans are its children, since it is their subreaper."""
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
    """Signals all descendants; returns whether there were any."""
    there = descendants()
    for pid in there:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    return bool(there)


def reap():
    """Returns the statuses of children that have ended, by process id."""
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
        signal.signal(number, signal.SIG_DFL)  # a shell's background jobs ignore some, and tests would inherit that
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.setsid()  # so the terminal's Ctrl-C reaches it through this process only
    if (niceness := os.nice(0)) > 0:
        try:  # If the kernel groups tasks by session, the group's niceness counts.
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
        signal.signal(number, signal.SIG_DFL)  # an ignored signal would never become pending
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
