#!/usr/bin/env python3
"""System calls that old kernels do not know and sandboxes refuse. Without some calls testrpc works the same;
without the others it says which one is missing. doc/guide-operating.md lists them."""
import ctypes
import errno
import os
import platform
import struct
import subprocess
import unittest

import testrpc_harness as harness

# System call numbers of x86-64.
NUMBERS = {"madvise": 28, "mincore": 27, "setsockopt": 54, "fcntl": 72, "flock": 73, "prctl": 157,
           "sched_setaffinity": 203, "mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239,
           "timerfd_create": 283, "fallocate": 285, "eventfd2": 290, "epoll_create1": 291,
           "perf_event_open": 298, "getcpu": 309, "getrandom": 318, "memfd_create": 319,
           "membarrier": 324, "statx": 332, "rseq": 334, "clone3": 435, "close_range": 436}
F_ADD_SEALS = 1033

OPTIONAL = ["madvise", "mincore", "setsockopt", "flock", "prctl", "mbind", "set_mempolicy",
            "get_mempolicy", "perf_event_open", "getcpu", "membarrier", "statx", "rseq", "close_range"]
# And the name in the message.
NEEDED = {"sched_setaffinity": "EAL did not start", "timerfd_create": "EAL did not start",
          "fallocate": "fallocate", "eventfd2": "eventfd", "epoll_create1": "epoll_create1",
          "getrandom": "getrandom", "memfd_create": "memfd_create"}


def filter_of(calls, error, second=None):
    """A seccomp filter that makes system calls with this second argument fail."""
    load, equal, answer = 0x20, 0x15, 0x06
    refuse, allow = (answer, 0, 0, 0x00050000 | error), (answer, 0, 0, 0x7fff0000)
    steps = [(load, 0, 0, 0)]
    for call in calls:
        only = [(load, 0, 0, 24), (equal, 0, 1, second)] if second is not None else []
        steps += [(equal, 0, len(only) + 1, NUMBERS[call]), *only, refuse]
    return b"".join(struct.pack("HBBI", *step) for step in [*steps, allow])


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


LIBC = ctypes.CDLL(None, use_errno=True)


def install(steps):
    """Applies it to this process and those that it starts."""
    kept = ctypes.create_string_buffer(steps, len(steps))
    program = Filter(len(steps) // 8, ctypes.addressof(kept))
    LIBC.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if LIBC.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:  # PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "seccomp")


def can_filter():
    if platform.machine() != "x86_64":
        return False
    try:
        subprocess.run(["true"], check=True, preexec_fn=lambda: install(filter_of(["flock"], errno.EPERM)))
        return True
    except (OSError, subprocess.SubprocessError):
        return False


@unittest.skipUnless(can_filter(), "no seccomp filters, or none for this processor, here")
class Refused(harness.Case):
    def run_without(self, calls, error, second=None):
        steps = filter_of(calls, error, second)
        return subprocess.run(
            [harness.TESTRPC, "--self", "--engine", "read", "--size", "4K", "--count", "20"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=harness.PATIENCE,
            preexec_fn=lambda: install(steps), check=False)

    def assert_works_without(self, calls, error):
        ended = self.run_without(calls, error)
        self.assertEqual(ended.returncode, 0, f"{calls} {os.strerror(error)}: {ended.stdout}")
        self.assertIn("pools whole: yes", ended.stdout)

    def test_calls_that_a_sandbox_may_refuse(self):
        for call in OPTIONAL:
            self.assert_works_without([call], errno.EPERM)

    def test_calls_that_an_old_kernel_may_lack(self):
        self.assert_works_without([*OPTIONAL, "clone3"], errno.ENOSYS)
        for call in ("madvise", "membarrier"):  # they know the call, but not this argument
            self.assert_works_without([call], errno.EINVAL)

    def test_missing_calls_are_named(self):
        for call, named in NEEDED.items():
            with self.subTest(call=call):
                ended = self.run_without([call], errno.EPERM)
                self.assertEqual(ended.returncode, 1, f"{call}: {ended.stdout}")
                self.assertIn(named, ended.stdout)

    def test_the_oldest_kernel_is_named(self):
        ended = self.run_without(["fcntl"], errno.EINVAL, F_ADD_SEALS)
        self.assertEqual(ended.returncode, 1, ended.stdout)
        self.assertIn("Linux 5.1", ended.stdout)


if __name__ == "__main__":
    harness.main()
