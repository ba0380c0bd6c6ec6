#!/usr/bin/env python3
"""The check scripts find what they are made to find: each is run on a small tree with one breach, and on the same
tree without."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


class Tree:
    """A made-up checkout."""

    def __init__(self, root, files):
        self.root = Path(root)
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self, script, *arguments):
        return subprocess.run([sys.executable, SCRIPTS / script, *arguments], text=True,
                              capture_output=True, env={**os.environ, "RRDK_ROOT": str(self.root)})


class Checks(unittest.TestCase):
    def tree(self, files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Tree(folder.name, files)

    def assert_passes(self, script, files, *arguments):
        run = self.tree(files).run(script, *arguments)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def assert_finds(self, expected, script, files, *arguments):
        run = self.tree(files).run(script, *arguments)
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertIn(expected, run.stdout)

    def call_path(self, between, *arguments):
        """scripts/call-path.py on a call that passes `between` unnecessary functions of lib/service, as valgrind
        would report it."""
        path = (["rrdk::runtime::PollCore::poll"] + [f"rrdk::service::Table::step{n}" for n in range(between)] +
                ["rrdk::engine::Responder::send_reply"])
        written, sent = "rrdk::shm::QueuePair::write", "rrdk::shm::QueuePair::send_now"
        read = "rrdk::shm::QueuePair::read_now"
        leaf = "rrdk::proto::decode"  # on no way to anywhere
        edges = [*zip(path, path[1:]), (path[0], written), (path[-1], sent), (path[0], read), (path[0], leaf),
                 (sent, "rrdk::shm::QueuePair::send_copy")]  # beyond the end
        told = "".join(f"fn={caller}(int)\ncfn={callee}(int) [clone .part.0]\ncalls=200 0\n0 0\n"
                       for caller, callee in edges)
        tree = self.tree({
            "build/perf/perf_call": "", "told": told,
            "valgrind": '#!/bin/sh\nfor a; do case $a in --callgrind-out-file=*) cat "$RRDK_ROOT/told" '
                        '>"${a#*=}";; esac; done\necho "Collected : 9" >&2\n',
            "lib/runtime/a.cc": "uint32_t PollCore::poll() {\n",
            "lib/engine/a.cc": "void Responder::send_reply(int) {\n",
            "drivers/shm/a.cc": "".join(f"bool QueuePair::{name}(int) {{\n"
                                        for name in ("write", "send_now", "read_now")),
            "lib/service/a.h": "class Table {\n" + "".join(f"  void step{n}(int) {{}}\n" for n in range(between))})
        (tree.root / "valgrind").chmod(0o755)
        return subprocess.run([sys.executable, SCRIPTS / "call-path.py", tree.root / "build", *arguments],
                              text=True, capture_output=True, env={**os.environ, "RRDK_ROOT": str(tree.root),
                                                        "PATH": f"{tree.root}:{os.environ['PATH']}"})

    def test_call_path_counts_what_leads_to_the_driver(self):
        short = self.call_path(between=7)
        self.assertEqual(short.returncode, 0, short.stdout + short.stderr)
        self.assertIn("10 functions of 10, 4 files of 6", short.stdout)
        self.assertNotIn("decode", short.stdout)
        self.assertRegex(short.stdout, r"service::Table::step6 +lib/service/a\.h")
        long = self.call_path(between=8)
        self.assertEqual(long.returncode, 1, long.stdout + long.stderr)
        self.assertIn("11 functions of 10, 4 files of 6", long.stdout)
        self.assertIn("TOO LONG", long.stdout)

    def test_call_path_puts_whole_figures_in_the_place_of_the_last_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            figures.write_text("the last ones")
            with open(figures, encoding="utf-8") as reader:
                run = self.call_path(7, "--json", figures)
                self.assertEqual((run.returncode, reader.read()), (0, "the last ones"), run.stderr)
            self.assertEqual(len(json.loads(figures.read_text())["paths"]), 3)
            self.assertEqual(os.listdir(folder), [figures.name])

    def test_layers_accepts_lower_floors(self):
        self.assert_passes("check-layers.py", {
            "lib/engine/a.cc": '#include "engine/a.h"\n#include "proto/b.h"\n#include "rrdk/xdr.h"\n',
            "drivers/shm/a.cc": '#include "shm/b.h"\n#include "fabric/device.h"\n',
            "apps/tool/a.cc": '#include "a.h"\n#include "rrdk/client.h"\n',
            "lib/runtime/a.cc": "// shm is one of the drivers\n"})

    def test_layers_finds_what_goes_up_or_sideways(self):
        for path, include in [("lib/proto/a.cc", "engine/a.h"), ("lib/proto/a.cc", "rrdk/client.h"),
                              ("lib/client/a.cc", "server/a.h"), ("lib/calls/a.cc", "service/a.h"),
                              ("lib/service/a.cc", "rrdk/client.h"), ("drivers/shm/a.cc", "xdr/a.h"),
                              ("apps/tool/a.cc", "engine/a.h"), ("lib/engine/a.cc", "shm/a.h"),
                              ("lib/include/rrdk/client.h", "client/a.h")]:
            with self.subTest(path=path, include=include):
                self.assert_finds(f"{path}:2:", "check-layers.py", {path: f'\n#include "{include}"\n'})

    def test_layers_finds_unknown_headers_and_driver_names(self):
        self.assert_finds("add it to PUBLIC", "check-layers.py", {"lib/include/rrdk/new.h": ""})
        self.assert_finds("names the driver", "check-layers.py",
                          {"lib/client/a.cc": 'bool b = scheme == "shm";\n'})

    def test_headers_finds_what_does_not_compile_alone(self):
        header = "#pragma once\ninline std::string s;\n"
        for source in ['#include <string>\n#include "engine/a.h"\n', '#define A\n#include "engine/a.h"\n',
                       '// #include "engine/a.h"\n', '#include "engine/b.h"\n']:
            with self.subTest(source=source):
                self.assert_finds("lib/engine/a.h:1: does not compile alone with g++", "check-headers.py",
                                  {"lib/engine/a.h": header, "lib/engine/a.cc": source})
        self.assert_finds("lib/include/rrdk/a.h:1: does not compile alone with clang++-19",
                          "check-headers.py", {"lib/include/rrdk/a.h": header})

    def test_public_headers_say_that_they_need_cpp20(self):
        says = ("#pragma once\n#if __cplusplus < 202002L\n#error \"RRDK's headers need C++20\"\n#endif\n")
        self.assert_passes("check-headers.py", {"lib/include/rrdk/a.h": says})
        self.assert_finds("lib/include/rrdk/a.h:1: does not say in C++17", "check-headers.py",
                          {"lib/include/rrdk/a.h": "#pragma once\n"})

    def test_headers_finds_what_cannot_be_included_twice(self):
        self.assert_finds("lib/engine/a.h:1:", "check-headers.py",
                          {"lib/engine/a.h": "struct A {};\n", "lib/engine/a.cc": '#include "engine/a.h"\n'})

    def test_headers_leaves_what_a_source_file_includes_first_to_its_build(self):
        self.assert_passes("check-headers.py", {
            "lib/engine/a.h": "#pragma once\ninline std::string s;\n",
            "lib/engine/a.cc": '// A comment.\n#include "engine/a.h"\n'})

    def test_datapath_finds_names(self):
        for code in ["auto p = std::make_unique<int>();", "int* p = new int;", "free(p);",
                     "std::mutex m;", "std::string s;", "v.push_back(1);", 'printf("x");',
                     "throw 1;", "::read(fd, b, n);", "std::function<void()> f;"]:
            with self.subTest(code=code):
                self.assert_finds(":1:", "check-datapath.py", {"lib/engine/a_datapath.cc": code + "\n"})
                self.assert_passes("check-datapath.py", {"lib/engine/a.cc": code + "\n"})

    def test_datapath_leaves_the_rest_alone(self):
        self.assert_passes("check-datapath.py", {"lib/engine/a_datapath.h": (
            "// new std::string in a comment\n"
            'std::string_view s = "new malloc(";\n'
            "new (place) Slot;\n"
            "Buffer(const Buffer&) = delete;\n"
            "core.poll(now);\n"
            "// datapath-allow: reserved\n"
            "v.push_back(1);\n")})

    def test_hygiene(self):
        self.assert_passes("check-hygiene.py", {"a.cc": "int a;\n", "test/data/x": "\t\0"})
        for text in ["\tint a;\n", "int a; \n", "int a;", "// TODO\n", "TEST(A, DISABLED_b) {}\n", "a\0b"]:
            with self.subTest(text=text):
                self.assert_finds("a.cc:1:", "check-hygiene.py", {"a.cc": text})

    def test_hygiene_counts_assertions(self):
        code = "int f();\n" * 99
        self.assert_passes("check-hygiene.py", {"lib/mem/a.cc": code + "RRDK_ASSERT(a);\n",
                                                "lib/rpc/a.cc": code})
        self.assert_finds("lib/mem:1: 0 assertions in 100 lines", "check-hygiene.py",
                          {"lib/mem/a.cc": code + "// RRDK_ASSERT(a);\nint a;\n"})

    def test_hygiene_wants_public_results_looked_at(self):
        for declaration in ["Result<void> f();", "  static Result<int> f(", "virtual Result<int> f()"]:
            with self.subTest(declaration=declaration):
                self.assert_finds("lib/include/rrdk/a.h:1:", "check-hygiene.py",
                                  {"lib/include/rrdk/a.h": declaration + "\n"})
                self.assert_passes("check-hygiene.py", {
                    "lib/rpc/a.h": declaration + "\n",
                    "lib/include/rrdk/a.h": "[[nodiscard]] " + declaration + "\n"})
        self.assert_passes("check-hygiene.py", {
            "lib/include/rrdk/a.h": "  Result<void> (*on_open)(Thing& thing, void* argument) = nullptr;\n"})

    def test_conformance(self):
        rows = "id\tsource\tlevel\trole\trequirement\ttest\nV1-A-1\ts\tMUST\tboth\tBe right.\tt\n"
        tree = self.tree({"test/data/requirements.tsv": rows, "doc/x": "", "test/proto/meson.build": "files('a.cc', 'b.cc')",
                     "test/proto/a.cc": "// Shows: V1-A-1\nTEST(Header, IsRight) {}\n"})
        self.assertEqual(tree.run("conformance.py", "--check").returncode, 1)  # no page
        self.assertEqual(tree.run("conformance.py").returncode, 0)
        self.assertEqual(tree.run("conformance.py", "--check").returncode, 0)
        self.assertIn("| V1-A-1 | MUST | Be right. | `proto/a.cc` Header.IsRight |",
                      (tree.root / "doc/conformance.md").read_text())
        (tree.root / "test/proto/b.cc").write_text("// Shows: V1-A-2\nTEST(A, B) {}\n")
        self.assertIn("'V1-A-2' is no row", tree.run("conformance.py", "--check").stdout)

    def test_conformance_wants_a_test_behind_each_tag(self):
        rows = "id\tsource\tlevel\trole\trequirement\ttest\nV1-A-1\ts\tMUST\tboth\tBe right.\tt\n"
        tag = "// Shows: V1-A-1\n"
        good = {"a.cc": tag + "// Why.\nTEST_P(Header, IsRight) {}\n",
                "b.cc": tag + "      again(first(\n          {\"Entry\", {}}));\n",
                "c.cc": tag + "std::vector<ServerScenario> all() {\n  return {\n      {\"One\", 1},\n"
                        "      bad(\"Two\", 2),\n  };\n}\n",
                "d_test.py": "# Shows: V1-A-1\ndef test_it(self):\n", "e_guest.sh": "# Shows: V1-A-1\nsay \"== it\"\n"}
        tree = self.tree({"test/data/requirements.tsv": rows, "doc/x": "",
                          "test/p/meson.build": "'a.cc', 'b.cc', 'c.cc', 'd', 'e', 'f.cc', 'g.cc'",
                          **{f"test/p/{name}": text for name, text in good.items()}})
        self.assertEqual(tree.run("conformance.py").returncode, 0)
        page = (tree.root / "doc/conformance.md").read_text()
        for name in ("Header.IsRight", "Entry", "each entry of all()", "test_it"):
            self.assertIn(name, page)
        results = tree.root / "results.tsv"

        def ran(*lines):
            results.write_text("".join(line + "\t\n" for line in lines))
            return tree.run("conformance.py", "--ran", str(results))

        all_of_them = ["pass\tgcc/p: X/Header.IsRight/0", "pass\tgcc/p: All/P.Plays/Entry", "pass\tgcc/p: All/P.Plays/One",
                       "pass\tgcc/p: All/P.Plays/Two", "pass\tgcc/d: Case.test_it", "pass\tp/e"]
        self.assertEqual(ran(*all_of_them).returncode, 0)
        self.assertIn("'Two', which shows V1-A-1, did not run", ran(*all_of_them[:3], *all_of_them[4:]).stdout)
        self.assertIn("failed", ran(all_of_them[0].replace("pass", "fail"), *all_of_them[1:]).stdout)
        skipped = ran(*(line.replace("pass", "skip") for line in all_of_them))
        self.assertEqual(skipped.returncode, 77)
        self.assertIn("1 rows rest on tests that were skipped: V1-A-1", skipped.stdout)

        for name, text in (("f.cc", tag + "\nint x;\n"), ("g.cc", tag + "/* TEST(A, B) {} */\n")):
            (tree.root / "test/p" / name).write_text(text)
        (tree.root / "test/p/h.cc").write_text(tag + "TEST(A, B) {}\n")
        found = tree.run("conformance.py", "--check").stdout
        for name in ("f.cc", "g.cc"):
            self.assertIn(f"test/p/{name}:1: what follows this tag is no test", found)
        self.assertIn("test/p/h.cc:1: no meson.build and no suite names this file", found)

    def test_conformance_notes(self):
        rows = "id\tsource\tlevel\trole\trequirement\ttest\n" + "".join(
            f"V1-{name}\ts\tMUST\tboth\tBe {name}.\tt\n" for name in ("A-1", "B-1", "B-2"))
        tree = self.tree({"test/data/requirements.tsv": rows, "doc/x": "",
                          "test/proto/meson.build": "files('a.cc')",
                          "test/proto/a.cc": "// Shows: V1-A-1\nTEST(Header, IsRight) {}\n"})
        tree.run("conformance.py")
        self.assertIn("V1-B-2 has neither a test nor", tree.run("conformance.py", "--check").stdout)
        notes = tree.root / "test/data/conformance-notes.tsv"
        notes.write_text("id\tkind\twhy\nV1-B-1\tdifferent\tIt is better.\nV1-B*\topen\tLater.\n")
        tree.run("conformance.py")
        self.assertEqual(tree.run("conformance.py", "--check").returncode, 0)
        page = (tree.root / "doc/conformance.md").read_text()
        self.assertIn("| V1-B-1 | MUST | Be B-1. | *different*: It is better. |", page)
        self.assertIn("3 rows: 1 shown by tests (0 of them partly), 1 different on purpose, 1 open.", page)
        (tree.root / "test/proto/a.cc").write_text(
            '// Shows: V1-A-1\nTEST(Header, IsRight) {\n  if (bare())\n    GTEST_SKIP() << "no header here";\n}\n')
        notes.write_text(notes.read_text() + "V1-A-1\tpartly\tNothing is shown of the footer.\n")
        tree.run("conformance.py")
        self.assertEqual(tree.run("conformance.py", "--check").returncode, 0)
        page = (tree.root / "doc/conformance.md").read_text()
        self.assertIn('Header.IsRight (skips itself with "no header here")<br>*partly*: Nothing is shown of the footer. |', page)
        self.assertIn("3 rows: 1 shown by tests (1 of them partly)", page)
        notes.write_text(notes.read_text() + "V1-A-1\topen\tLater.\nV1-B-1\tpartly\tx\nV1-C\tnever\tx\n")
        found = tree.run("conformance.py", "--check").stdout
        for finding in ("'V1-A-1' is shown by tests", "'V1-B-1' is not shown by any test", "'V1-C' is no row", "'never' is not one of"):
            self.assertIn(finding, found)

    def test_matrix_wants_the_rows_and_procedures_of_the_run(self):
        row = {"kernel": "6.1", "device": "siw", "client": "testrpc", "server": "Linux", "inline": "4096 / 4096",
               "sizes": "1 B", "calls": {"READ": 7, "WRITE": 9}}
        more_calls = {**row, "calls": {"READ": 8, "WRITE": 1, "NULL": 1}}
        fewer_procedures = {**row, "calls": {"READ": 7}}
        tree = self.tree({"rows": json.dumps(row) + "\n", "more": json.dumps(more_calls) + "\n",
                          "fewer": json.dumps(fewer_procedures) + "\n",
                          "other": json.dumps({**row, "device": "rxe"}) + "\n",
                          "page.md": "before\n<!-- matrix: test/interop/run.sh --results, then matrix.py write -->\n"
                                     "<!-- end of matrix -->\nafter\n"})

        def matrix(command, rows):
            return tree.run("../test/interop/matrix.py", command, str(tree.root / rows), str(tree.root / "page.md"))

        self.assertEqual(matrix("write", "rows").returncode, 0)
        page = (tree.root / "page.md").read_text()
        self.assertIn("| 6.1 | siw | testrpc | Linux | 4096 / 4096 | 1 B | READ 7, WRITE 9 |", page)
        self.assertTrue(page.startswith("before\n") and page.endswith("after\n"))
        for rows in ("rows", "more"):
            self.assertEqual(matrix("check", rows).returncode, 0)
        self.assertIn("has WRITE, which were not called", matrix("check", "fewer").stderr)
        self.assertIn("has no row '6.1| rxe", matrix("check", "other").stderr)

    def test_tally_counts_cases(self):
        tests = [
            ("OK", 0, "[ RUN      ] A.a\nnoise[       OK ] A.a (0 ms)\n[ RUN      ] A.b/0\n"
                      "x.cc:1: Skipped\nneeds two cores\n\n[  SKIPPED ] A.b/0 (0 ms)\n"
                      "[  SKIPPED ] A.b/0\n"),
            ("FAIL", 1, "[ RUN      ] A.c\n../d/x.cc:7: Failure\nValue of: n\n  Actual:\t1\n"
                        "Google Test trace:\n../d/x.cc:5: 1\n\n../d/x.cc:9: Failure\nmore\n\n"
                        "[  FAILED  ] A.c, where GetParam() = 3 (0 ms)\n"
                        "[  FAILED  ] A.c, where GetParam() = 3\n"),
            ("FAIL", -11, "[ RUN      ] A.d\nhalf a line"),
            ("FAIL", 1, "[ RUN      ] A.e\n[       OK ] A.e (0 ms)\nfinding at exit"),
            ("TIMEOUT", -9, ""),
            ("OK", 0, ""),
        ]
        log = "".join(json.dumps({"name": "rrdk:p / t", "result": result, "returncode": code,
                                  "stdout": out}) + "\n" for result, code, out in tests)
        tree = self.tree({"log.json": log})
        lines = tree.run("lib/tally.py", "gcc", str(tree.root / "log.json")).stdout.splitlines()
        self.assertEqual(lines, [
            "pass\tgcc/t: A.a\t", "skip\tgcc/t: A.b/0\tneeds two cores",
            "fail\tgcc/t: A.c\tx.cc:7: Failure Value of: n Actual: 1 Google Test trace: ../d/x.cc:5: 1",
            "fail\tgcc/t: A.d\tdid not end", "pass\tgcc/t: A.e\t",
            "fail\tgcc/t: (whole program)\tFAIL, exit status 1",
            "fail\tgcc/t: (whole program)\tTIMEOUT, exit status -9", "pass\tgcc/t\t"])

    def test_each_says_what_a_test_found(self):
        tree = self.tree({"said": "[ RUN      ] A.a\n../d/x.cc:7: Failure\nValue of: n\n  Actual:\t1\n\n"
                                  "[  FAILED  ] A.a, where GetParam() = 3 (0 ms)\n[  FAILED  ] A.a, where\n"})
        run = subprocess.run([SCRIPTS / "vm/guest/each.sh", "results", "9", "good=true", "bad=cat said; false",
                              "other=echo no device; exit 77"], cwd=tree.root, check=False, capture_output=True)
        self.assertEqual(run.returncode, 1)
        self.assertEqual((tree.root / "results").read_text().splitlines(), [
            "pass\tgood\t", "fail\tbad\texit status 1: A.a: ../d/x.cc:7: Failure Value of: n   Actual: 1",
            "skip\tother\tno device"])


if __name__ == "__main__":
    unittest.main()
