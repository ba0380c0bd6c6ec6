"""testrpc's prompt, as a person at a terminal has it."""
import os
import pty
import queue
import re
import subprocess
import threading
import time

import testrpc_harness as harness


def screen(text):
    """The lines that a VT100 shows after this text, as far as DPDK's line editor makes use of one."""
    text = re.sub(r"\x1b(\[\d*)?$", "", text)  # its end is still to be read
    lines, row, column = [""], 0, 0
    pieces = re.findall(r"\x1b([ME])|\x1b\[(\d*)([CDKP])|([\r\n\x08])|([^\x1b\r\n\x08])", text)
    for move, count, command, control, glyph in pieces:
        if move == "M":
            row -= 1
        elif move == "E" or control == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif control == "\r":
            column = 0
        elif control or command == "D":
            column -= int(count or 1)
        elif command == "C":
            column += int(count or 1)
        elif command == "K":
            lines[row] = lines[row][:column]
        elif command == "P":
            lines[row] = lines[row][:column] + lines[row][column + int(count or 1):]
        else:
            lines[row] = lines[row][:column].ljust(column) + glyph + lines[row][column + 1:]
            column += 1
    return lines


class Terminal:
    """testrpc -i behind a pseudo-terminal."""

    def __init__(self, case, *arguments):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([harness.TESTRPC, *arguments], stdin=slave, stdout=slave,
                                        stderr=slave, close_fds=True)
        os.close(slave)
        self.text = ""
        self.seen = 0
        self._pieces = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        case.addCleanup(self.close)

    def _read(self):
        while True:
            try:
                piece = os.read(self.master, 4096)
            except OSError:  # the other end is closed
                piece = b""
            self._pieces.put(piece.decode(errors="replace"))
            if not piece:
                return

    def wait_for(self, pattern):
        deadline = time.monotonic() + harness.PATIENCE
        while True:
            if match := re.compile(pattern).search(self.text, self.seen):
                self.seen = match.end()
                return match
            try:
                piece = self._pieces.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                piece = ""
            if not piece:
                raise AssertionError(f"{pattern!r} did not come:\n{self.text}")
            self.text += piece

    def type(self, line):
        self.send(line + "\n")

    def send(self, keys):
        os.write(self.master, keys.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(harness.PATIENCE)
        os.close(self.master)
