#!/usr/bin/env python3
"""Copies standard input to a log file and shows how it goes: on a terminal the newest line, in place;
elsewhere one line in ten seconds.

    command 2>&1 | progress.py LOG
"""
import shutil
import sys
import time

INTERVAL_S = 10


def main() -> None:
    terminal = sys.stdout.isatty()
    start = shown = time.monotonic()
    with open(sys.argv[1], "w", encoding="utf-8", errors="replace") as log:
        for raw in sys.stdin.buffer:
            line = raw.decode("utf-8", "replace")
            log.write(line)
            now = time.monotonic()
            text = f"  {now - start:5.0f} s  {line.strip()}"
            if terminal:
                width = shutil.get_terminal_size().columns - 1
                print("\r\033[K" + text[:width], end="", flush=True)
            elif now - shown >= INTERVAL_S:
                print(text[:160], flush=True)
                shown = now
    if terminal:
        print("\r\033[K", end="", flush=True)


try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
