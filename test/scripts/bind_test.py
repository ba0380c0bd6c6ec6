#!/usr/bin/env python3
"""scripts/rrdk-bind.py: its output for programs, and its errors for those that it cannot read."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def bind(text, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".x") as file:
        file.write(text)
        file.flush()
        return subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "rrdk-bind.py"), *options, file.name],
                              capture_output=True, text=True)


def program(*procedures):
    return "program P { version V { void NOTHING(void) = 0; " + " ".join(procedures) + " } = 2; } = 0x20000001;"


class Bind(unittest.TestCase):
    def lines(self, text, *options):
        done = bind(text, *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_the_files_in_the_repository(self):
        for folder, name in (("doc/examples/tirpc", "kv"), ("test/tirpc", "perf")):
            path = os.path.join(ROOT, folder, name)
            with open(path + ".x", encoding="utf-8") as source, open(path + ".bind", encoding="utf-8") as kept:
                self.assertEqual(self.lines(source.read()), kept.read().splitlines())

    def test_items_are_found_through_structs_unions_and_typedefs_in_order(self):
        text = """
            const MOST = 100;
            typedef opaque blob<2048>; /* DDP-eligible */
            struct inner { int a; opaque b<MOST>; /* DDP-eligible */ };
            union outer switch (bool is_it) { case TRUE: inner in; case FALSE: blob other; };
        """ + program("outer F(inner) = 1;")
        self.assertEqual(self.lines(text), ["0x20000001 2 1 args inner.b 100", "0x20000001 2 1 results inner.b 100",
                                            "0x20000001 2 1 results blob 2048", "0x20000001 2 1 reply 12"])

    def test_unmarked_opaques_and_comments_elsewhere_are_no_items(self):
        text = """/* Not everything is DDP-eligible. */
            struct s { /* DDP-eligible are others */ opaque a<8>; };""" + program("s F(s) = 1;")
        self.assertEqual(self.lines(text), ["0x20000001 2 1 reply 12"])

    def test_replies_without_a_bound_have_no_line(self):
        text = "typedef struct node *list; struct node { int a; list next; }; typedef string text<>;"
        self.assertEqual(self.lines(text + program("list F(void) = 1;", "text G(void) = 2;", "void H(int) = 3;")), [])

    def test_sizes(self):
        text = """enum e { A, B = 5, C }; typedef unsigned hyper t[C];
            struct s { e one; t many; string name<5>; int *maybe; opaque id[3]; unsigned int list<2>; double d; };"""
        size = 4 + 6 * 8 + (4 + 8) + (4 + 4) + 4 + (4 + 2 * 4) + 8
        self.assertEqual(self.lines(text + program("s F(void) = 1;")), [f"0x20000001 2 1 reply {size}"])

    def test_space_for_unbounded_items(self):
        text = "struct s { opaque a<>; /* DDP-eligible */ };" + program("void F(s) = 1;")
        self.assertEqual(self.lines(text), ["0x20000001 2 1 args s.a 4M"])
        self.assertEqual(self.lines(text, "--largest", "64K"), ["0x20000001 2 1 args s.a 65536"])
        self.assertNotEqual(bind(text, "--largest", "9M").returncode, 0)

    def test_numbers_are_those_of_c(self):
        text = """const MODE = 0170; const NAME = "d4a0"; const HEX = 0x10; const UNUSED = -1;
            %#define SHORT 8 /* bytes */
            %#define LONG (SHORT + \\
            %  010 * 2)
            struct s { opaque a<MODE>; opaque b[HEX]; opaque c<LONG>; };""".replace("\n            ", "\n").replace("%  010", "010")
        size = (4 + 120) + 16 + (4 + 24)
        self.assertEqual(self.lines(text + program("s F(void) = 1;")), [f"0x20000001 2 1 reply {size}"])

    def test_the_preprocessor_is_run(self):
        text = """#define MOST 8
            #ifdef LARGE
            const ROOM = 100;
            #else
            const ROOM = MOST;
            #endif
            struct s { opaque a<ROOM>; };""".replace("\n            #", "\n#") + program("s F(void) = 1;")
        self.assertEqual(self.lines(text), ["0x20000001 2 1 reply 12"])
        self.assertEqual(self.lines(text, "-D", "LARGE"), ["0x20000001 2 1 reply 104"])
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "common.x"), "w", encoding="utf-8") as file:
                file.write("struct s { opaque a<20>; /* DDP-eligible */ };")
            self.assertEqual(self.lines('#include "common.x"\n' + program("void F(s) = 1;"), "-I", folder),
                             ["0x20000001 2 1 args s.a 20"])
        self.assertIn("/nowhere/cpp", bind(text, "-Y", "/nowhere").stderr)

    def test_bounds_of_headers_of_c_count_as_none(self):
        text = "%#include <limits.h>\nstruct s { string name<PATH_MAX>; };" + program("s F(void) = 1;")
        self.assertEqual(self.lines(text), [])

    @unittest.skipUnless(os.path.isdir("/usr/include/rpcsvc"), "no .x files in /usr/include/rpcsvc")
    def test_the_files_of_rpcsvc(self):
        folder = "/usr/include/rpcsvc"
        for name in sorted(one for one in os.listdir(folder) if one.endswith(".x")):
            with self.subTest(name), open(os.path.join(folder, name), encoding="utf-8") as file:
                lines = self.lines(file.read(), "-I", folder)
                if name == "nfs_prot.x":
                    self.assertIn("0x186a3 2 1 reply 72", lines)

    def test_mistakes_are_told_in_one_line(self):
        for text, words in (("struct s { int a; /* DDP-eligible */ };", "a is no opaque<>"),
                            ("struct s { opaque a<089>; };", "'089' is no number"),
                            ("program P { version V { void F(void) = MANY; } = 1; } = 5;", "'MANY' is no number"),
                            ("#include \"nowhere.x\"", "nowhere.x"),
                            ("struct s { int a;", "is missing"), ("nonsense", "no definition begins")):
            done = bind(text)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn(words, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
