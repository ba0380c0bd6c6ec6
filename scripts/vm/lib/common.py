"""What the parts of the lab share: how it speaks, how it ends, where its files lie."""
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GUEST_SCRIPTS = ROOT / "scripts/vm/guest"
CACHE = Path(os.environ.get("RRDK_VM_CACHE") or ROOT / "build-tests/vm").resolve()

# Exit statuses of the lab itself, as opposed to the command's. doc/vm.md explains them to users.
UNAVAILABLE = 77  # what meson and the test suite take as "skipped"
NO_BOOT = 121
PANIC = 122
OUT_OF_MEMORY = 123
TIMED_OUT = 124  # as timeout(1)
LAB_ERROR = 125  # as docker run


class LabError(Exception):
    """Ends the lab with a message for people and an exit status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Steps:
    """Says on standard error what is being done, each step with the time since the start."""

    quiet = False
    began = time.monotonic()

    @classmethod
    def say(cls, text: str) -> None:
        if not cls.quiet:
            print(f"vm: {time.monotonic() - cls.began:5.1f} s  {text}", file=sys.stderr, flush=True)
