#!/usr/bin/env python3
"""Counts turns of phrase that make a reader stop, in what is written here, for each 1000 words.

  scripts/check-words.py                  a table of areas and patterns; fails beyond a limit
  scripts/check-words.py --list PATTERN   where one pattern is found (a name of the table), or `all`
  scripts/check-words.py --files          the files that have most, for each 1000 words
  scripts/check-words.py PATH...          only these files or folders; another project's, too

The limits are twice the rates of Seastar's comments (160,000 words), and at least 0.02.
"""
import argparse
import ast
import io
import re
import sys
import tokenize
from pathlib import Path

from lib import output
from lib.source import ROOT, Findings, repository_files

# Name: pattern, and how many there may be for each 1000 words.
PATTERNS = {
    "of it": (r"\bof (?:it|them)\b", 0.26),
    "nobody": (r"\bnobody\b", 0.02),
    "whoever": (r"\bwho(?:m|se)?ever\b", 0.02),
    "can not": (r"\bcan not\b", 0.06),
    "is none": (r"\b(?:is|are|was|were) none\b", 0.02),
    "so many": (r"\bso (?:many|much|few|long|often) (?!as\b)", 0.02),
    "Of ...": (r"(?:^|[.:;] )Of (?!course\b)", 0.02),
    "False:": (r"(?:^|[.;] )(?:False|True|Null|Whether)[:.] ", 0.02),
    "nor is": (r"\b[Nn]or (?:is|are|was|were|does|do|did|has|have|can|will|may|would)\b", 0.02),
    "house": (r"\b(?:farewell|bury|buried|chores?|bide|nought)\b", 0.02),
    "mend": (r"\bmend(?:s|ed|ing)?\b", 0.02),
}
COMPILED = {name: re.compile(pattern, re.MULTILINE) for name, (pattern, _) in PATTERNS.items()}

CPP = {".h", ".cc", ".cpp", ".hh", ".c"}
_CPP_TOKENS = re.compile(
    r'"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_CODE_BLOCK = re.compile(r"^(```.*?^```|(?: {4}|\t)[^\n]*$)", re.DOTALL | re.MULTILINE)
_TEST_NAME = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\w+,\s*(\w+)\)", re.MULTILINE)


class Piece:
    """One comment, paragraph, message or name, and the line on which it begins."""

    def __init__(self, line, text):
        self.line = line
        self.text = text


def comments_of_cpp(text):
    """Comments, of which those on lines that follow each other are one."""
    pieces = []
    last_end = -1
    for match in _CPP_TOKENS.finditer(text):
        token = match[0]
        if not token.startswith("/"):
            continue
        words = re.sub(r"^//[/!<]*|^/\*\**|\*/$|^\s*\*(?!/)", "", token, flags=re.MULTILINE).strip()
        between = text[last_end:match.start()] if last_end >= 0 else "x"
        if token.startswith("//") and between.strip() == "" and between.count("\n") == 1 and pieces:
            pieces[-1].text += "\n" + words
        else:
            pieces.append(Piece(text.count("\n", 0, match.start()) + 1, words))
        last_end = match.end()
    return pieces


def messages_of_cpp(text):
    """String literals that are sentences, or pieces of such."""
    for match in _CPP_TOKENS.finditer(text):
        if match[0].startswith('"') and len(match[0].split()) >= 4:
            yield Piece(text.count("\n", 0, match.start()) + 1, match[0][1:-1])


def names_of_tests(text):
    for match in _TEST_NAME.finditer(text):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", match[1])
        yield Piece(text.count("\n", 0, match.start()) + 1, words.replace("_", " "))


def prose_of_python(text):
    """Comments and docstrings, and strings that are sentences."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        tree = ast.parse(text)
    except (SyntaxError, tokenize.TokenError):
        return
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield Piece(token.start[0], token.string.lstrip("# "))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= 4:
            yield Piece(node.lineno, node.value)


def prose_of_shell(text):
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*#(?!!)\s*(.*)", line):
            yield Piece(number, match[1])


def prose_of_markdown(text):
    blank = _CODE_BLOCK.sub(lambda match: re.sub(r"[^\n]", "", match[0]), text)
    blank = re.sub(r"`[^`\n]*`", "`x`", blank)
    for match in re.finditer(r"(?:^.+\n?)+", blank, re.MULTILINE):
        yield Piece(blank.count("\n", 0, match.start()) + 1, match[0])


def areas_of(path, text):
    """Pairs of an area's name and its pieces in this file."""
    top = "/".join(path.parts[:2]) if path.parts[0] in ("lib", "drivers") else path.parts[0]
    if path.parts[:2] == ("lib", "include"):
        top = "public headers"
    if path.suffix in CPP:
        yield top, comments_of_cpp(text)
        if path.parts[0] == "test":
            yield "names of tests", names_of_tests(text)
        else:
            yield "messages", messages_of_cpp(text)
    elif path.suffix == ".py" or text.startswith("#!/usr/bin/env python3"):
        yield "scripts" if path.parts[0] == "scripts" else top, prose_of_python(text)
    elif path.suffix == ".sh" or path.name == "meson.build":
        yield "scripts", prose_of_shell(text)
    elif path.suffix == ".md":
        yield "documents", prose_of_markdown(text)


def files_of(paths):
    if not paths:
        skipped = {Path("scripts/check-words.py"), Path("doc/conformance.md")}
        for path in repository_files():
            if path not in skipped and path.parts[:2] != ("test", "data"):
                yield path, ROOT / path
        return
    for given in paths:
        base = Path(given)
        for full in sorted(base.rglob("*") if base.is_dir() else [base]):
            if full.is_file():
                path = full.resolve()
                yield (path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path("elsewhere") / full.name), full


class Count:
    def __init__(self):
        self.words = 0
        self.found = dict.fromkeys(PATTERNS, 0)

    def add(self, piece):
        self.words += len(re.findall(r"[A-Za-z']+", piece.text))

    def rate(self, name):
        return 1000 * self.found[name] / self.words if self.words else 0.0

    def beyond(self, name):
        """Whether it is beyond its limit; one is not, however short the text is."""
        return self.found[name] > max(1, PATTERNS[name][1] * self.words / 1000)


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--list", metavar="PATTERN", choices=[*PATTERNS, "all"])
    parser.add_argument("--files", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    args = parser.parse_args()
    if args.help:
        print(__doc__.strip())
        return
    areas = {}
    by_file = {}
    for path, full in files_of(args.paths):
        if path.suffix not in CPP | {".py", ".sh", ".md", ".build", ""} or full.stat().st_size > 2_000_000:
            continue
        text = full.read_text(encoding="utf-8", errors="replace")
        for area, pieces in areas_of(path, text):
            count = areas.setdefault(area, Count())
            own = by_file.setdefault(path, Count())
            for piece in pieces:
                count.add(piece)
                own.add(piece)
                for name, pattern in COMPILED.items():
                    for match in pattern.finditer(piece.text):
                        count.found[name] += 1
                        own.found[name] += 1
                        if args.list in (name, "all"):
                            line = piece.line + piece.text.count("\n", 0, match.start())
                            begin = max(0, match.start() - 40)
                            shown = " ".join(piece.text[begin:match.end() + 40].split())
                            print(f"{path}:{line}: {name}: ... {shown} ...")
    if args.list:
        return
    if args.files:
        rate = {path: 1000 * sum(count.found.values()) / count.words
                for path, count in by_file.items() if count.words >= 50}
        for path in sorted(rate, key=rate.get, reverse=True)[:40]:
            print(f"{rate[path]:6.1f}  {path}")
        return
    findings = Findings()
    width = max(map(len, areas), default=0)
    print(f"{'for each 1000 words':{width}}    words" + "".join(f"{name:>9}" for name in PATTERNS))
    print(f"{'limit':{width}}         " + "".join(f"{limit:9.2f}" for _, limit in PATTERNS.values()))
    for area in sorted(areas):
        count = areas[area]
        row = "".join(f"{count.rate(name):8.2f}{'*' if count.beyond(name) else ' '}" for name in PATTERNS)
        print(f"{area:{width}} {count.words:8}{row}")
    for area in sorted(areas):
        beyond = [name for name in PATTERNS if areas[area].beyond(name)]
        if beyond:
            findings.add(area, 0, "beyond the limit: " + ", ".join(beyond))
    findings.finish(f"{len(by_file)} files")


if __name__ == "__main__":
    output.run("check-words", main)
