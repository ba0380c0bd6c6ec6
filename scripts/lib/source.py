"""What the check scripts share: the checkout's files, C++ without its comments, reporting, and meson's
introspection of a build directory."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

# The checkout; test/scripts/checks_test.py sets another one.
ROOT = Path(os.environ.get("RRDK_ROOT", Path(__file__).resolve().parents[2]))

# A string, a character literal (not a digit separator) or a comment. All three are matched so that a quote
# or a slash inside one does not begin another.
_TOKENS = re.compile(
    r'"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


def cpp_files(*folders):
    """Returns the C++ files under the folders, as sorted paths relative to the root."""
    found = []
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cc"):
                found.append(path.relative_to(ROOT))
    return sorted(found)


def repository_files():
    """Returns all files that are, or would be, under version control."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True)
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
        return sorted(Path(n) for n in set(names) if n and (ROOT / n).is_file())
    # There is no git, or another user owns the checkout.
    def ours(path):
        top = path.parts[0]
        return top != ".git" and not top.startswith("build") and "__pycache__" not in path.parts

    every = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
    return sorted(p for p in every if ours(p))


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def without_comments(text, keep_strings=True):
    """Returns the text with comments blanked, and strings emptied if asked; line numbers stay the same."""

    def blank(match):
        token = match[0]
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return token if keep_strings else token[0] + token[-1]

    return _TOKENS.sub(blank, text)


def introspected(build, what):
    """Returns the result of `meson introspect` for a build directory; `what` is "--tests" or "--targets"."""
    return json.loads(subprocess.run(["meson", "introspect", what, str(build)],
                                     capture_output=True, text=True, check=True).stdout)


class Findings:
    """Collects a check's findings; finish() prints the verdict and exits with it."""

    def __init__(self):
        self.count = 0

    def add(self, path, line, message):
        self.count += 1
        print(f"{path}:{line}: {message}")

    def finish(self, looked_at):
        print(f"{looked_at}: {self.count or 'no'} finding{'' if self.count == 1 else 's'}")
        sys.exit(1 if self.count else 0)
