"""What the check scripts share: the checkout's files, C++ without its comments, reporting, and
what meson says of a build directory."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

# The checkout; elsewhere in test/scripts/checks_test.py.
ROOT = Path(os.environ.get("RRDK_ROOT", Path(__file__).resolve().parents[2]))

# A string, a character literal (not a digit separator) or a comment; the latter two are looked for
# only to know that a quote or a slash inside the former begins nothing.
_TOKENS = re.compile(
    r'"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


def cpp_files(*folders):
    """The C++ files under the folders, as sorted paths relative to the root."""
    found = []
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cc"):
                found.append(path.relative_to(ROOT))
    return sorted(found)


def repository_files():
    """All files that are, or would be, under version control."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True)
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
        return sorted(Path(n) for n in set(names) if n and (ROOT / n).is_file())
    # No git, or a checkout that belongs to someone else.
    def ours(path):
        top = path.parts[0]
        return top != ".git" and not top.startswith("build") and "__pycache__" not in path.parts

    every = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
    return sorted(p for p in every if ours(p))


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def without_comments(text, keep_strings=True):
    """The text with comments blanked (and strings emptied, if asked), its lines where they were."""

    def blank(match):
        token = match[0]
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return token if keep_strings else token[0] + token[-1]

    return _TOKENS.sub(blank, text)


def introspected(build, what):
    """What `meson introspect` says: of a build directory, "--tests" or "--targets"."""
    return json.loads(subprocess.run(["meson", "introspect", what, str(build)],
                                     capture_output=True, text=True, check=True).stdout)


class Findings:
    """Collects what a check finds; finish() prints the verdict and exits with it."""

    def __init__(self):
        self.count = 0

    def add(self, path, line, message):
        self.count += 1
        print(f"{path}:{line}: {message}")

    def finish(self, looked_at):
        print(f"{looked_at}: {self.count or 'no'} finding{'' if self.count == 1 else 's'}")
        sys.exit(1 if self.count else 0)
