#!/usr/bin/env python3
"""scripts/run-tests.sh --changed builds and runs what a change can affect, no less and not much more:
scripts/lib/affected.py, on a small checkout of its own that is built like this one."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

AFFECTED = Path(__file__).resolve().parents[2] / "scripts/lib/affected.py"

FILES = {
    "lib/base/clock.h": "inline int now() { return 1; }\n",
    "lib/engine/engine.h": "int engine();\n",
    "lib/engine/engine.cc": '#include "engine/engine.h"\nint engine() { return 0; }\n',
    "lib/include/rrdk/client.h": "int public_function();\n",
    "apps/tool.cc": "int main() { return 0; }\n",
    "test/base/clock_test.cc": '#include "base/clock.h"\nint main() { return now() - 1; }\n',
    "test/engine/engine_test.cc": '#include "engine/engine.h"\n#include "script.h"\nint main() { return engine(); }\n',
    "test/engine/script.h": "// what tests of the engine share\n",
    "test/sim/sim_test.cc": '#include "engine/engine.h"\nint main() { return engine(); }\n',
    "test/client/client_test.cc": '#include "rrdk/client.h"\nint main() { return 0; }\n',
    "test/apps/tool_test.py": "print('a test in Python')\n",
    "README.md": "A made-up project.\n",
    "meson.build": """project('small', 'cpp')
includes = include_directories('lib', 'lib/include')
library = static_library('library', 'lib/engine/engine.cc', include_directories : includes)
foreach test : [['base', 'clock'], ['engine', 'engine'], ['sim', 'sim'], ['client', 'client']]
  program = executable('test_' + test[0], 'test' / test[0] / test[1] + '_test.cc',
    include_directories : includes, link_with : library)
  test(test[0], program, suite : test[0])
endforeach
test('tool', import('python').find_installation('python3'), suite : 'apps',
  args : [files('test/apps/tool_test.py'), executable('tool', 'apps/tool.cc')])
""",
}


class Affected(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name)
        for name, text in FILES.items():
            cls.write(name, text)
        cls.run_in("git", "init", "-q")
        cls.run_in("git", "config", "user.email", "nobody@example.org")
        cls.run_in("git", "config", "user.name", "Nobody")
        cls.write(".gitignore", "/build/\n")
        cls.commit()
        cls.run_in("meson", "setup", "build")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.run_in("git", "reset", "-q", "--hard")
        self.run_in("git", "clean", "-qfd")

    @classmethod
    def write(cls, name, text):
        path = cls.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @classmethod
    def run_in(cls, *command):
        run = subprocess.run(command, cwd=cls.root, text=True, capture_output=True)
        assert run.returncode == 0, f"{command}: {run.stdout}{run.stderr}"
        return run.stdout

    @classmethod
    def commit(cls):
        cls.run_in("git", "add", "-A")
        cls.run_in("git", "commit", "-q", "--allow-empty", "-m", "Something")

    def chosen(self, kind, *arguments):
        run = subprocess.run([sys.executable, AFFECTED, self.root / "build", *arguments], text=True,
                             capture_output=True, env={**os.environ, "RRDK_ROOT": str(self.root)})
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = [line.split("\t") for line in run.stdout.splitlines()]
        self.assertTrue(all(len(row) == 3 and row[2] for row in rows if row[0] != "since"), rows)
        return {row[1] for row in rows if row[0] == kind}

    def change(self, name):
        self.write(name, FILES.get(name, "") + "// changed\n")

    def test_no_change_affects_nothing(self):
        for kind in ("suite", "header", "target", "test"):
            self.assertEqual(self.chosen(kind), set())

    def test_the_library_is_tried_by_its_own_tests_those_that_use_that_part_and_end_to_end(self):
        self.change("lib/engine/engine.cc")
        self.assertEqual(self.chosen("test"), {"engine", "sim", "client"})
        self.assertEqual(self.chosen("target"), {"test_engine", "test_sim", "test_client"})
        self.assertEqual(self.chosen("suite"), {"hygiene", "format", "layers", "datapath"})

    def test_a_changed_header_is_compiled_alone(self):
        self.change("lib/base/clock.h")
        self.assertEqual(self.chosen("header"), {"lib/base/clock.h"})
        self.assertEqual(self.chosen("test"), {"base", "client"})

    def test_a_public_header_is_tried_by_what_includes_it(self):
        self.change("lib/include/rrdk/client.h")
        self.assertEqual(self.chosen("test"), {"client"})

    def test_a_test_is_tried_alone(self):
        self.change("test/base/clock_test.cc")
        self.assertEqual(self.chosen("test"), {"base"})
        self.setUp()
        self.write("test/apps/tool_test.py", "# changed\n")
        self.assertEqual(self.chosen("test"), {"tool"})

    def test_a_header_of_tests_stands_for_its_folder_until_a_build_tells_who_includes_it(self):
        self.change("test/engine/script.h")
        self.assertEqual(self.chosen("test"), {"engine"})
        self.run_in("ninja", "-C", "build")
        self.assertEqual(self.chosen("test"), {"engine"})

    def test_an_application_is_built_and_tried(self):
        self.change("apps/tool.cc")
        self.assertEqual(self.chosen("target"), {"tool"})
        self.assertEqual(self.chosen("test"), {"tool"})

    def test_a_text_has_no_tests(self):
        self.change("README.md")
        self.assertEqual(self.chosen("suite"), {"hygiene"})
        self.assertEqual(self.chosen("test"), set())

    def test_everything_is_tried_if_the_way_of_building_changed(self):
        self.write("meson.build", FILES["meson.build"] + "# changed\n")
        self.assertEqual(self.chosen("test"), {"base", "engine", "sim", "client", "tool"})

    def test_files_that_git_does_not_know_and_files_that_are_gone_count(self):
        self.write("lib/engine/more.cc", "// new\n")
        self.assertEqual(self.chosen("test"), {"engine", "sim", "client"})
        self.setUp()
        (self.root / "lib/base/clock.h").unlink()
        self.assertEqual(self.chosen("header"), set())
        self.assertEqual(self.chosen("test"), {"base", "client"})

    def test_a_commit_may_be_given(self):
        self.change("test/base/clock_test.cc")
        self.commit()
        self.addCleanup(self.run_in, "git", "reset", "-q", "--hard", "HEAD~1")
        self.assertEqual(self.chosen("test"), set())
        self.assertEqual(self.chosen("test", "HEAD~1"), {"base"})

    def test_tests_beyond_this_machine_are_named(self):
        self.write("drivers/verbs/probe.cc", "// new\n")
        self.assertEqual(self.chosen("elsewhere"), {"verbs"})


unittest.main()
