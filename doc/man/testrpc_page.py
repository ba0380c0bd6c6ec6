#!/usr/bin/env python3
"""Prints testrpc's manual page: testrpc.1.in with the options that `testrpc --help` lists.

    testrpc_page.py TESTRPC TEMPLATE
"""
import re
import subprocess
import sys

GROUP = re.compile(r"^(\w[^:]*):$")
OPTION = re.compile(r"^  (-[\w-]+(?:, --[\w-]+)?)(\[=\w+\])?(?: (\S+))?(?:  +(.*))?$")
TEXT = " " * 26


def escaped(text):
    """As roff wants a text: each sentence on a line of its own."""
    text = text.replace("\\", "\\e").replace("--", "\\-\\-")
    text = re.sub(r"(\w\)?\.) (?=[A-Z])", r"\1\n", text)
    return "\\&" + text if text[:1] in (".", "'") else text


def options_of(help_text):
    """What stands between the group titles: (title, [(option, argument, text)])."""
    groups = []
    for line in help_text.splitlines():
        if group := GROUP.match(line):
            groups.append((group[1], []))
        elif groups and (option := OPTION.match(line)):
            groups[-1][1].append([option[1], option[2] or option[3] or "", option[4] or ""])
        elif groups and groups[-1][1] and line.startswith(TEXT):
            last = groups[-1][1][-1]
            last[2] = f"{last[2]} {line.strip()}".strip()
    return [(title, options) for title, options in groups if options]


def as_mdoc(groups):
    for title, options in groups:
        yield f".Ss {title}"
        yield ".Bl -tag -width Ds"
        for name, argument, text in options:
            flags = " , ".join(f"Fl {flag[1:]}" for flag in name.split(", "))
            if argument.startswith("[="):
                flags += f" Ns Op = Ns Ar {argument[2:-1]}"
            elif argument:
                flags += f" Ar {argument}"
            yield f".It {flags}"
            yield escaped(text)
        yield ".El"


def main(testrpc, template):
    run = subprocess.run([testrpc, "--help"], capture_output=True, text=True, check=True)
    with open(template, encoding="utf-8") as file:
        print(file.read().replace("@OPTIONS@", "\n".join(as_mdoc(options_of(run.stdout)))), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
