#!/usr/bin/env python3
"""Makes the manual pages of the C API from its header: a page for each part, and for each function one
that leads there, so that `man rrdk_call_submit` finds it.

    c_pages.py HEADER --list     the names of the pages
    c_pages.py HEADER FOLDER     writes them
"""
import pathlib
import re
import sys

# By the first words of a part's title: its page, and what is in it.
PARTS = {
    "Errors": ("rrdk_errors", "errors of RRDK's C functions, and how calls end"),
    "Counters": ("rrdk_counter", "what is counted, by id and by name"),
    "EAL": ("rrdk_eal", "start DPDK's environment, and take the lines of the log"),
    "Memory": ("rrdk_memory", "memory and buffers for RDMA"),
    "Cores": ("rrdk_runtime", "poll cores, workers and timers"),
    "XDR": ("rrdk_xdr", "write and read XDR"),
    "Programs": ("rrdk_program", "RPC programs and their procedures"),
    "Who may call": ("rrdk_auth_sys", "credentials and connections"),
    "Calls": ("rrdk_call", "make calls"),
    "Interceptors": ("rrdk_interceptor", "functions before and after each call"),
    "Clients": ("rrdk_client", "connect to servers"),
    "Kerberos": ("rrdk_gss_acceptor", "verify Kerberos at a server"),
    "Servers": ("rrdk_server", "serve RPC programs"),
    "Answering": ("rrdk_server_call", "answer calls"),
    "The other direction": ("rrdk_backward_client", "calls of a server to its clients"),
    "Metrics": ("rrdk_telemetry", "metrics in the format of OpenMetrics"),
}
INTRODUCTION = "rrdk.h"
TITLE = re.compile(r"^/\* ---- (.*?) ---- \*/$", re.MULTILINE)
COMMENT = re.compile(r"/\*\*.*?\*/[ \t]*\n", re.DOTALL)
ANY_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
FUNCTION = re.compile(r"^(?!typedef|  )[\w* ]*?\b(rrdk_\w+)\(", re.MULTILINE)


def plain(comment):
    """The text of a comment, without its markers."""
    text = re.sub(r"^\s*/\*\*\s?|\s*\*/\s*$", "", comment)
    return "\n".join(re.sub(r"^\s*\*? ?", "", line, count=1) if line.lstrip().startswith("*") else line.strip()
                     for line in text.split("\n")).strip()


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def literal(text):
    yield ".Bd -literal"
    yield from (escaped(line) for line in text.strip("\n").split("\n"))
    yield ".Ed"


def prose(text):
    """Paragraphs; what is indented stands as it is."""
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith("  "):
            yield from literal(paragraph)
            continue
        yield ".Pp"
        words = " ".join(line.strip() for line in paragraph.split("\n"))
        yield from (escaped(sentence) for sentence in re.sub(r"(\w\)?[.:]) (?=[A-Z])", r"\1\n", words).split("\n"))


def described(part):
    """Declarations, and what the comments above them say."""
    at = 0
    while at < len(part):
        comment = COMMENT.match(part, at)
        text = ""
        if comment:
            text, at = plain(comment[0]), comment.end()
        following = re.search(r"\n\n|^/\*\*", part[at:], re.MULTILINE)
        end = at + following.start() if following else len(part)
        if part[at:end].strip():
            yield from literal(part[at:end])
        if text:
            yield from prose(text)
        at = end if end > at else end + 1
        while at < len(part) and part[at] == "\n":
            at += 1


def page(name, functions, about, body):
    names = [name, *(function for function in functions if function != name)]
    body = list(body)
    return "\n".join([".Dd November 26, 2026", f".Dt {name.upper()} 3", ".Os RRDK", ".Sh NAME",
                      *(f".Nm {each} ," for each in names[:-1]), f".Nm {names[-1]}", f".Nd {about}",
                      ".Sh SYNOPSIS", ".In rrdk/rrdk.h", ".Sh DESCRIPTION", *body[body[0] == ".Pp":],
                      ".Sh SEE ALSO", *see_also(name), ""])


def see_also(name):
    others = sorted({INTRODUCTION, *(part for part, _ in PARTS.values())} - {name})
    return [*(f".Xr {other} 3 ," for other in others), ".Xr rrdk 7"]


def pages(header):
    text = pathlib.Path(header).read_text(encoding="utf-8")
    introduction, *parts = TITLE.split(text[:text.index("/* NOLINTEND")])
    head = COMMENT.search(introduction)[0]
    made = {INTRODUCTION: page(INTRODUCTION, [], "RRDK from C", prose(plain(head)))}
    for title, part in zip(parts[::2], parts[1::2]):
        name, about = next(value for words, value in PARTS.items() if title.startswith(words))
        functions = FUNCTION.findall(ANY_COMMENT.sub("", part))
        made[name] = page(name, functions, about, described(part.strip("\n")))
        made.update({function: f".so man3/{name}.3\n" for function in functions if function != name})
    return made


def main(header, folder):
    made = pages(header)
    if folder == "--list":
        print("\n".join(f"{name}.3" for name in sorted(made)))
        return
    for name, text in made.items():
        pathlib.Path(folder, f"{name}.3").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
