#!/usr/bin/env python3
"""Runs the commands of doc/porting-rpcgen.md as they stand on the page, in a copy of the example.

Lines that begin with "$ " are commands; what follows them, up to the next one, is what they print.

    page_test.py BUILD                    with librrdk and librrdk-tirpc of a build directory, as if installed
    page_test.py --installed SITE RUN...  with what is installed where the command RUN... runs `bash -c`; SITE is a
                                          copy of the example, which RUN sees as its folder
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAGE = os.path.join(ROOT, "doc", "porting-rpcgen.md")
EXAMPLE = os.path.join(ROOT, "doc", "examples", "tirpc")
# A command in the background has begun when its output has. `kill $!` is meant for it, not for a shell around it.
BACKGROUND = '{{ exec {command} ; }} >"$begun" 2>&1 &\nuntil [ -s "$begun" ]; do kill -0 $! || exit 1; done\ncat "$begun"'


def commands(text):
    """(command, what it prints) of the page's indented blocks."""
    found = []
    for line in text.splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif line.startswith("    ") and found and found[-1] is not None:
            found[-1][1].append(line[4:])
        elif line:
            found.append(None)
    return [(entry[0], "\n".join(entry[1])) for entry in found if entry]


def script_of(pairs):
    lines = ["set -e", "begun=$(mktemp)", 'trap \'kill $(jobs -p) 2>/dev/null || true\' EXIT']
    for index, (command, _) in enumerate(pairs):
        lines.append(f"echo @@{index}")
        lines.append(BACKGROUND.format(command=command[:-1].strip()) if command.endswith("&") else command)
    return "\n".join([*lines, "wait", "echo @@end", ""])


def check_quoted_code(text):
    """Lines of C on the page are in the example."""
    sources = "".join(open(os.path.join(EXAMPLE, name), encoding="utf-8").read() for name in os.listdir(EXAMPLE))
    for line in re.findall(r"^    ([A-Za-z].*[;{].*)$", text, re.MULTILINE):
        assert line.strip() in sources, f"on the page and not in the example: {line}"


def install(build, prefix):
    """Installs the parts of the build directory with which other programs are built."""
    lib = os.path.join(prefix, "lib")
    os.makedirs(lib)
    for source in ("lib/include/rrdk", "bridge/tirpc/include/rrdk"):
        shutil.copytree(os.path.join(ROOT, source), os.path.join(prefix, "include", "rrdk"), dirs_exist_ok=True)
    for folder in ("", "bridge/tirpc"):
        for name in os.listdir(os.path.join(build, folder)):
            if re.fullmatch(r"librrdk(-tirpc)?\.so(\.[0-9.]+)?", name):
                os.symlink(os.path.join(build, folder, name), os.path.join(lib, name))
    for name in ("rrdk.pc", "rrdk-tirpc.pc"):
        with open(os.path.join(build, "meson-private", name), encoding="utf-8") as file:
            text = re.sub("^prefix=.*", f"prefix={prefix}", file.read(), flags=re.MULTILINE)
        with open(os.path.join(lib, name), "w", encoding="utf-8") as file:
            file.write(re.sub("^libdir=.*", "libdir=${prefix}/lib", text, flags=re.MULTILINE))
    tools = os.path.join(prefix, "bin")
    os.makedirs(tools)
    os.symlink(os.path.join(ROOT, "scripts", "rrdk-bind.py"), os.path.join(tools, "rrdk-bind"))
    return {"PKG_CONFIG_PATH": lib, "LD_LIBRARY_PATH": lib, "PATH": tools + os.pathsep + os.environ["PATH"]}


def follow(pairs, site, run, **how):
    """Runs the commands and compares their output, and the binding file that one command makes."""
    done = subprocess.run([*run, "bash", "-c", script_of(pairs)], timeout=300, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **how)
    parts = re.split(r"^@@(?:\d+|end)\n", done.stdout, flags=re.MULTILINE)
    for (command, expected), printed in zip(pairs, parts[1:]):
        assert printed.strip() == expected, f"$ {command}\nexpected:\n{expected}\nprinted:\n{printed}"
    assert done.returncode == 0 and len(parts) == len(pairs) + 2, done.stdout
    with open(os.path.join(EXAMPLE, "kv.bind"), encoding="utf-8") as kept:
        with open(os.path.join(site, "kv.bind"), encoding="utf-8") as made:
            assert made.read() == kept.read(), "doc/examples/tirpc/kv.bind is not what rrdk-bind makes of kv.x"


def check_uninstalled(build):
    """A program can be compiled with a build directory that is not installed, as pkg-config knows it."""
    where = os.path.join(build, "meson-uninstalled")
    flags = subprocess.run(["pkg-config", "--cflags", "rrdk-tirpc"], check=True, capture_output=True, text=True,
                           env={**os.environ, "PKG_CONFIG_PATH": where}).stdout.split()
    subprocess.run(["cc", *flags, "-xc", "-fsyntax-only", "-"], check=True, text=True,
                   input="#include <rrdk/rrdk.h>\n#include <rrdk/tirpc.h>\n")


def main(build, *installed):
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    check_quoted_code(text)
    pairs = commands(text)
    assert len(pairs) > 10, "the page has lost its commands"
    if build == "--installed":
        site, *run = installed
        follow(pairs, site, run)
    else:
        check_uninstalled(os.path.abspath(build))
        with tempfile.TemporaryDirectory() as folder:
            site = os.path.join(folder, "kv")
            shutil.copytree(EXAMPLE, site)
            os.remove(os.path.join(site, "kv.bind"))  # which a command makes
            prefix = install(os.path.abspath(build), os.path.join(folder, "prefix"))
            follow(pairs, site, [], cwd=site, env={**os.environ, "RRDK_LOG": "warning", **prefix})
    print(f"{len(pairs)} commands do what the page says")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
