#!/usr/bin/env python3
"""Makes doc/conformance.md: each row of test/data/requirements.tsv, and the tests that show it.

A test names the rows that it shows in a comment above it:

    // Shows: V1-HDR-08, V1-HDR-09
    TEST(Version1, RefusesShortHeaders) { ... }

or above an entry of a table of scenarios, which a parametrised test plays, or above the function
that returns the table, for all of its entries:

    // Shows: V1-ERR-10
    {"LargestType", {say({7, 1, kCredits, 0xffffffff})}, ...

    // Shows: V1-ERR-11
    std::vector<ServerScenario> values() {

Only comments may stand between the two, and a meson.build or a suite must name the file. A shell script
is one case as a whole; there the tag stands above the line that says what follows.

A row without a test needs a line in test/data/conformance-notes.tsv: `open` (not built yet) or
`different` (on purpose), and why. There an id may end in `*`. A row with tests may have a line too:
`partly`, and what they do not show.

Where a case skips itself, the page gives the reason that it prints.

    scripts/conformance.py           writes the page
    scripts/conformance.py --check   fails if the page is stale, if a row has neither test nor note,
                                     if a test or note names an unknown row, or if a tag has no test
    scripts/conformance.py --ran RESULTS
                                     fails unless each test on the page has run and passed, by the
                                     results of a full scripts/run-tests.sh; 77 if some were skipped
"""
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from lib.source import ROOT, Findings, read

REQUIREMENTS = Path("test/data/requirements.tsv")
NOTES = Path("test/data/conformance-notes.tsv")
KINDS = ("open", "different", "partly")
PAGE = Path("doc/conformance.md")
SHOWS = re.compile(r"^\s*(?://|#) Shows: (.*)")
COMMENT = re.compile(r"^\s*(?://|#)\s*(.*)")
CASE = re.compile(r"\s*(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)")
PYTHON_CASE = re.compile(r"\s*def (test_\w+)\(")
# An entry's name is its first string, on its first line or on one that goes on with it.
ENTRY = re.compile(r"\s*(?:\w+\(|\{|\w+ scenario = \{)[^\";]*?\"([A-Z]\w+)\",")
TABLE = re.compile(r"std::vector<\w*Scenario> (\w+)\(\) \{$")
NAMES = re.compile(r"[({]\"([A-Z]\w+)\",")
# Environments that the page names for a test that runs nowhere else.
ONLY = (("test/sim/", "the simulation"), ("_guest.sh", "a virtual machine"),
        ("test/drivers/verbs/", "a machine or virtual machine with RDMA"))
SKIP = re.compile(r'GTEST_SKIP\(\) << "([^"]+)"')

INTRODUCTION = """\
# Conformance

`scripts/conformance.py` generates this page from `test/data/requirements.tsv` and the `Shows:` comments of
the tests; do not edit it. Each row is one requirement of the specifications, in our own words, and the tests
that show it; files of tests are in the folder `test/`. A requirement without a test is *open* (not built yet)
or *different* on purpose; `test/data/conformance-notes.tsv` has the reasons.

"""


def requirements():
    """Returns the rows as dictionaries, in their order."""
    header, *rows = [line.split("\t") for line in read(REQUIREMENTS).splitlines()]
    return [dict(zip(header, row)) for row in rows]


class Test:
    """What a tag marks: a case, or some entries of a table."""

    def __init__(self, path, title, names, skips=()):
        self.path, self.title, self.names, self.skips = path, title, names, skips

    def __str__(self):
        text = f"`{self.path.relative_to('test')}` {self.title}".rstrip()
        return text + "".join(f' (skips itself with "{why}")' for why in self.skips)

    def results(self, ran):
        """Returns the results of each of its names in the run."""
        return [ran.get(name, []) for name in self.names]


def body_of(lines):
    """Returns all lines of the function that begins with the first line."""
    return lines[:lines.index("}")] if "}" in lines else lines[:1]


def test_behind(path, lines):
    """Returns the test that the lines begin with, or None."""
    if path.suffix == ".py":
        case = PYTHON_CASE.match(lines[0])
        return case and Test(path, case[1], [f"{path.stem.removesuffix('_test')}: {case[1]}"])
    if path.suffix == ".sh":
        case = path.stem.removesuffix("_guest")
        return lines[0].startswith("say ") and Test(path, "", [f"{path.parent.name}/{case}"])
    if case := CASE.match(lines[0]):
        body = "\n".join(body_of(lines))
        return Test(path, f"{case[1]}.{case[2]}", [f"{case[1]}.{case[2]}"], SKIP.findall(body))
    if table := TABLE.match(lines[0]):
        body = "\n".join(body_of(lines))
        return Test(path, f"each entry of {table[1]}()", NAMES.findall(body))
    entry = ENTRY.match("\n".join(lines[:4]))
    return entry and Test(path, entry[1], [entry[1]])


def tags(path):
    """Yields (line, ids, test) for each Shows comment in a file."""
    lines = read(path).splitlines()
    for number, line in enumerate(lines):
        match = SHOWS.match(line)
        if not match:
            continue
        listed, next_line = match[1], number + 1
        while listed.rstrip().endswith(",") and (more := COMMENT.match(lines[next_line])):
            listed += " " + more[1]
            next_line += 1
        while COMMENT.match(lines[next_line]):
            next_line += 1
        yield number + 1, re.split(r"[,\s]+", listed.strip().rstrip(",.")), test_behind(path, lines[next_line:])


def files_that_run():
    """Returns the text that names every file that a test is built from, or that is run."""
    makers = [p for p in (ROOT / "test").rglob("meson.build")] + [ROOT / "scripts/lib/suites.sh"]
    makers += [p for p in (ROOT / "test").rglob("run.sh")]
    return "\n".join(p.read_text(encoding="utf-8") for p in makers if p.exists())


def is_run(path, makers):
    """Whether a meson.build or a suite names the file, perhaps without what such names share."""
    if path.suffix == ".cc":
        return f"{path.name}'" in makers
    stem = path.stem.removesuffix("_test" if path.suffix == ".py" else "_guest")
    return re.search(rf"\b{stem.removeprefix('testrpc_')}\b", makers) is not None


def collect(known, findings):
    """Returns requirement id -> the tests that show it."""
    shown = {}
    makers = files_that_run()
    for path in sorted((ROOT / "test").rglob("*")):
        if path.suffix not in (".cc", ".h", ".py", ".sh"):
            continue
        path = path.relative_to(ROOT)
        for line, ids, test in tags(path):
            if not test:
                findings.add(path, line, "what follows this tag is no test")
                continue
            if not is_run(path, makers):
                findings.add(path, line, "no meson.build and no suite names this file: the test never runs")
            for one in ids:
                if one not in known:
                    findings.add(path, line, f"'{one}' is no row of {REQUIREMENTS}")
                shown.setdefault(one, []).append(test)
    return shown


def read_notes(rows, shown, findings):
    """Returns requirement id -> (kind, why). `partly` is for rows with tests, the other kinds for rows without."""
    notes = {}
    if not (ROOT / NOTES).exists():
        return notes
    for number, line in enumerate(read(NOTES).splitlines()[1:], 2):
        pattern, kind, why = line.split("\t")
        named = [row["id"] for row in rows if fnmatchcase(row["id"], pattern)]
        for one in named:
            if (one in shown) == (kind == "partly"):
                notes.setdefault(one, (kind, why))  # the first line that names it
        if kind not in KINDS:
            findings.add(NOTES, number, f"'{kind}' is not one of {', '.join(KINDS)}")
        if not named:
            findings.add(NOTES, number, f"'{pattern}' is no row of {REQUIREMENTS}")
        elif kind == "partly" and not all(one in shown for one in named):
            findings.add(NOTES, number, f"'{pattern}' is not shown by any test, not even partly")
        elif kind != "partly" and all(one in shown for one in named):
            findings.add(NOTES, number, f"'{pattern}' is shown by tests: delete the note")
    return notes


def state(row, shown, notes):
    if row["id"] in shown:
        tests = list(dict.fromkeys(map(str, shown[row["id"]])))
        for part, where in ONLY:
            if all(part in str(test.path) for test in shown[row["id"]]):
                tests.append(f"(only in {where})")
        if row["id"] in notes:
            tests.append(f"*partly*: {notes[row['id']][1]}")
        return "<br>".join(tests)
    kind, why = notes.get(row["id"], ("open", ""))
    return f"*{kind}*: {why}" if why else f"*{kind}*"


def page(rows, shown, notes):
    text = [INTRODUCTION]
    different = sum(kind == "different" for kind, _ in notes.values())
    partly = sum(kind == "partly" for kind, _ in notes.values())
    open_rows = len(rows) - different - sum(row["id"] in shown for row in rows)
    text.append(f"{len(rows)} rows: {len(rows) - open_rows - different} shown by tests ({partly} of them "
                f"partly), {different} different on purpose, {open_rows} open.\n")
    area = None
    for row in rows:
        if area != (area := row["id"].rsplit("-", 1)[0]):
            text.append(f"\n## {area}\n\n| id | level | requirement | shown by |\n|---|---|---|---|\n")
        requirement = row["requirement"].replace("|", "\\|")
        text.append(f"| {row['id']} | {row['level']} | {requirement} | {state(row, shown, notes)} |\n")
    return "".join(text)


def read_results(path):
    """Returns case name -> its results in all builds and with all parameters."""
    ran = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        result, name, *_ = line.split("\t")
        keys = {name}
        if ": " in name:  # VARIANT/PROGRAM: [PREFIX/]SUITE.CASE[/PARAMETER]
            program, case = name.split(": ", 1)
            parts = case.split("/")
            keys |= {part for part in parts if "." in part} | {parts[-1]}
            keys.add(parts[-1].split("_", 1)[-1])  # FABRIC_ENTRY
            keys.add(f"{program.split('/')[-1]}: {parts[0].rsplit('.', 1)[-1]}")
            keys |= {f"{m[1]}.{m[2]}" for m in [re.search(r"(\w+)/\d+\.(\w+)$", case)] if m}  # typed
        for key in keys:
            ran.setdefault(key, []).append(result)
    return ran


def check_run(shown, ran, findings):
    """Checks that each test on the page has passed somewhere. Returns the rows whose tests were all skipped."""
    skipped = {}
    for one, tests in shown.items():
        passed = 0
        for test in tests:
            for name, results in zip(test.names, test.results(ran)):
                if not results:
                    findings.add(test.path, 1, f"'{name}', which shows {one}, did not run")
                elif "pass" in results:
                    passed += 1
                elif "fail" in results:
                    findings.add(test.path, 1, f"'{name}', which shows {one}, failed")
        if not passed:
            skipped[one] = ", ".join(map(str, tests))
    return skipped


def main():
    findings = Findings()
    rows = requirements()
    shown = collect({row["id"] for row in rows}, findings)
    notes = read_notes(rows, shown, findings)
    for row in rows:
        if row["id"] not in shown and row["id"] not in notes:
            findings.add(REQUIREMENTS, 1, f"{row['id']} has neither a test nor a line in {NOTES}")
    text = page(rows, shown, notes)
    if len(sys.argv) == 3 and sys.argv[1] == "--ran":
        skipped = check_run(shown, read_results(sys.argv[2]), findings)
        if skipped and not findings.count:
            print(f"{len(skipped)} rows rest on tests that were skipped: {', '.join(skipped)}")
            sys.exit(77)
    elif sys.argv[1:] == ["--check"]:
        if not (ROOT / PAGE).exists() or read(PAGE) != text:
            findings.add(PAGE, 1, "is stale: run scripts/conformance.py")
    elif not sys.argv[1:]:
        (ROOT / PAGE).write_text(text, encoding="utf-8")
    else:
        sys.exit(__doc__)
    findings.finish(f"{len(rows)} requirements")


main()
