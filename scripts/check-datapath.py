#!/usr/bin/env python3
"""Checks that data-path files (*_datapath.h, *_datapath.cc) name nothing that allocates, locks,
logs, throws or enters the kernel.

If one of these is correct nevertheless, the line or the comment line above it must say why:

    // datapath-allow: the vector was reserved when the queue pair was made
    pending_.push_back(wr);
"""
import re

from lib.source import Findings, cpp_files, read, without_comments

FORBIDDEN = [(re.compile(pattern), what) for pattern, what in [
    (r"\b(malloc|calloc|realloc|aligned_alloc|strdup|rte_z?malloc\w*|free|rte_free)\s*\(", "allocates"),
    (r"\bnew\b(?!\s*\()|\bdelete\b(?!\s*;)", "allocates"),  # placement new is new (place) T
    (r"\bstd::(make_unique|make_shared|shared_ptr)\b", "allocates"),
    (r"\bstd::(string\b(?!\s*&)|stringstream|ostringstream|to_string|format\b)", "allocates"),
    (r"\bstd::(map|set|list|deque|multimap|unordered_\w+|function|any)\b", "allocates"),
    (r"\bstd::vector<[^;()]*>\s+\w+\s*[;({=]", "makes a vector"),
    (r"\.(push_back|emplace_back|resize|insert)\s*\(", "may grow a container"),
    (r"\b(mutex|lock_guard|unique_lock|scoped_lock|condition_variable)\b", "locks"),
    (r"\b(rte_spinlock|rte_rwlock|pthread_(mutex|spin|cond))\w*", "locks"),
    (r"\b(RTE_LOG|rte_log|printf|fprintf|snprintf|puts|syslog)\b", "logs"),
    (r"\bstd::(cout|cerr)\b|\blog(_\w+|::\w+)?\s*\(", "logs"),
    (r"\b(throw|try|catch)\b", "throws"),
    (r"\b(abort|exit)\s*\(|\brte_(panic|exit)\b", "can end the process"),
    (r"(?<!\w)::(read|write|readv|writev|send|recv|poll|ppoll|select|open|close|nanosleep)\s*\(",
     "enters the kernel"),
    (r"\b(read|write)\s*\(\s*\w*fd", "enters the kernel"),
    (r"\b(sendmsg|recvmsg|epoll_\w+|ioctl|mmap|munmap|usleep|sched_yield|syscall|futex)\s*\(",
     "enters the kernel"),
]]
ALLOWED = re.compile(r"//\s*datapath-allow: \S+")
COMMENT_LINE = re.compile(r"^\s*//")

findings = Findings()


def is_allowed(lines, index):
    """Returns whether the line itself, or the comment right above it, allows it."""
    if ALLOWED.search(lines[index]):
        return True
    index -= 1
    while index >= 0 and COMMENT_LINE.match(lines[index]):
        if ALLOWED.search(lines[index]):
            return True
        index -= 1
    return False


def check(path):
    text = read(path)
    lines = text.splitlines()
    for index, code in enumerate(without_comments(text, keep_strings=False).splitlines()):
        if code.lstrip().startswith("#"):
            continue
        for pattern, what in FORBIDDEN:
            match = pattern.search(code)
            if match and not is_allowed(lines, index):
                findings.add(path, index + 1, f"'{match[0].strip()}' {what}")


files = [p for p in cpp_files("lib", "drivers") if p.stem.endswith("_datapath")]
for path in files:
    check(path)
findings.finish(f"{len(files)} data-path files")
