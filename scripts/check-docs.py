#!/usr/bin/env python3
"""Follows pages of doc/ as a reader would: writes the files and runs the commands that they show.

    check-docs.py --build BUILD [PAGE...]  against what `meson install` of that build would install
    check-docs.py [PAGE...]                against what is installed
    check-docs.py --script PAGE            prints the page as a shell script instead

A comment right above a code block says what the block is:

    <!-- file: NAME -->  a file of this name
    <!-- run -->         commands; each must succeed
    <!-- start -->       one command that serves until the page is done: run until it says "listening on"
    <!-- output -->      what the commands above print, but for the log's information; "..." stands for anything

Without pages: all that have such blocks. Each page has its own empty folder.
"""
import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from lib.source import ROOT

BLOCK = re.compile(r"^<!-- (file: (?P<name>[\w./-]+)|run|start|output) -->\n```[^\n]*\n(?P<text>.*?)^```$",
                   re.MULTILINE | re.DOTALL)
SECONDS = 300  # for one page
# Programs that the script starts end with it. await() fails if a server ends instead of listening.
HEAD = """set -euo pipefail
started=()
end_all() { [ ${#started[@]} -eq 0 ] || kill "${started[@]}" 2>/dev/null || true; wait; }
trap end_all EXIT
await() {
  until grep -q 'listening on' "$1"; do
    kill -0 "$2" 2>/dev/null || { cat "$1"; echo 'it ended instead of listening' >&2; exit 1; }
    sleep 0.05
  done
}
"""


def blocks_of(page):
    """Yields (line, kind, file name, text) of each marked block."""
    text = page.read_text()
    for match in BLOCK.finditer(text):
        kind = match[1].split(":")[0]
        yield text.count("\n", 0, match.start()) + 2, kind, match["name"], match["text"]


def here(text):
    """Returns the text as a here-document, whatever it contains."""
    return f"<<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n"


def script_of(page):
    script = HEAD
    last = None  # the commands whose output is still to be compared
    for line, kind, name, text in blocks_of(page):
        script += f"\necho {shlex.quote(f'-- {page.name}:{line}')}\n"
        if kind == "file":
            script += f"mkdir -p {shlex.quote(os.path.dirname(name) or '.')}\ncat >{shlex.quote(name)} {here(text)}"
        elif kind == "start":
            command = text.strip()
            script += (f"{command} >started.{line} 2>&1 </dev/null &\nstarted+=($!)\nawait started.{line} $!\n")
        elif kind == "run":
            last = line
            script += f"{{\n{text}}} </dev/null 2>&1 | tee output.{line}\n"
        elif last is None:
            sys.exit(f"{page}:{line}: output of nothing")
        else:
            pattern = ".*".join(re.escape(part) for part in text.split("..."))
            script += (f"python3 - output.{last} <<'END_OF_BLOCK'\nimport re, sys\n"
                       f"found = re.sub('(?m)^(\\S+ )?rrdk: info: .*\\n', '', open(sys.argv[1]).read())\n"
                       f"if not re.fullmatch({pattern!r}, found, re.DOTALL):\n"
                       f"    sys.exit('{page.name}:{line}: the page shows other output')\nEND_OF_BLOCK\n")
    return script


def installed(build, prefix):
    """Installs the build into the folder; returns the environment in which programs find it there."""
    subprocess.run(["meson", "install", "-C", str(build), "--no-rebuild", "--quiet", "--destdir", str(prefix)], check=True,
                   stdout=subprocess.DEVNULL)
    libraries = next(path.parent for path in prefix.rglob("librrdk.so"))
    root = next(path.parent.parent for path in prefix.rglob("bin/testrpc"))
    modules = next(path.parent.parent for path in prefix.rglob("rrdk/_c.py"))
    return {**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(libraries),
            "PYTHONPATH": str(modules),
            "PKG_CONFIG_PATH": str(libraries / "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(prefix)}


def follow(page, environment):
    with tempfile.TemporaryDirectory(prefix="rrdk-docs-") as folder:
        try:
            run = subprocess.run(["bash", "-c", script_of(page)], cwd=folder, env=environment, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        except subprocess.TimeoutExpired as late:
            print((late.stdout or b"").decode(errors="replace"))
            return f"took more than {SECONDS} s"
    print(run.stdout)
    return None if run.returncode == 0 else f"exit status {run.returncode}"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", type=Path)
parser.add_argument("--script", action="store_true")
parser.add_argument("pages", nargs="*", type=Path)
arguments = parser.parse_args()
pages = arguments.pages or sorted(page for page in (ROOT / "doc").glob("*.md") if BLOCK.search(page.read_text()))
if arguments.script:
    for page in pages:
        print(script_of(page), end="")
    sys.exit()
failed = 0
with tempfile.TemporaryDirectory(prefix="rrdk-docs-") as place:
    environment = installed(arguments.build, Path(place)) if arguments.build else dict(os.environ)
    for page in pages:
        wrong = follow(page, environment)
        failed += wrong is not None
        print(f"{page.name}: {wrong or 'works as it stands'}")
sys.exit(1 if failed or not pages else 0)
