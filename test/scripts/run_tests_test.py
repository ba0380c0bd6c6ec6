#!/usr/bin/env python3
"""scripts/run-tests.sh counts its suites' results, however they end, and leaves nothing running: on its own
checkout, whose suites are made up."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MACHINERY = ("run-tests.sh", "lib/common.sh", "lib/contained.py", "lib/run-suite.sh", "lib/configured.py",
             "lib/tally.py", "lib/source.py")
TABLE = """
builds=$root/build-tests
logs=$builds/logs
suites=({names})
declare -A built_by=({built_by})
declare -A lane=({lanes})
suite_seconds={seconds}
declare -A only_in=({only_in})
{functions}
"""
PASSES = "record pass $suite/case"


def gone(pid):
    """Whether a process has ended, perhaps unnoticed by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class RunTests(unittest.TestCase):
    def checkout(self, suites, built_by="", lanes="", seconds=60, functions="", only_in=""):
        """suites: the commands of each; a build-X may be among them."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in MACHINERY:
            (self.root / "scripts" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SCRIPTS / name, self.root / "scripts" / name)
        for name, command in suites.items():
            function = name.replace("-", "_", 1) if name.startswith("build-") else f"suite_{name}"
            functions += f"{function}() {{\n{command}\n}}\n"
        names = " ".join(f"'{name} what it is for'" for name in suites if not name.startswith("build-"))
        (self.root / "scripts/lib/suites.sh").write_text(TABLE.format(
            names=names, built_by=built_by, lanes=lanes, seconds=seconds, functions=functions,
            only_in=only_in), encoding="utf-8")

    def start(self, *arguments):
        if not arguments:
            arguments = [word for name in self.names() for word in ("--only", name)]
        return subprocess.Popen([self.root / "scripts/run-tests.sh", "--no-install", *arguments], text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def list(self, *arguments):
        return subprocess.run([self.root / "scripts/run-tests.sh", "--list", *arguments], text=True,
                              capture_output=True, check=True).stdout.splitlines()

    def names(self):
        return [line[2:].split()[0] for line in self.list()]

    def run_all(self, *arguments):
        process = self.start(*arguments)
        self.output, _ = process.communicate(timeout=100)
        self.status = process.returncode
        return self.output.splitlines()[-1]

    def wait_for(self, name):
        """The content that a suite has written into a file of the checkout."""
        path = self.root / name
        deadline = time.monotonic() + 60
        while not path.exists() or not path.read_text(encoding="ascii").endswith("\n"):
            self.assertLess(time.monotonic(), deadline, f"no {name}")
            time.sleep(0.02)
        return path.read_text(encoding="ascii").strip()

    def test_cases_are_counted_and_the_status_says_whether_one_failed(self):
        self.checkout({"one": PASSES, "two": "record pass two/a; record skip two/b 'not here'"})
        self.assertEqual(self.run_all(), "2 passed, 0 failed, 1 skipped")
        self.assertEqual(self.status, 0)
        self.assertIn("skipped two/b: not here", self.output)
        self.checkout({"one": PASSES, "two": "run_case ends-badly sh -c 'echo so it is; false'"})
        self.assertEqual(self.run_all(), "1 passed, 1 failed, 0 skipped")
        self.assertEqual(self.status, 1)
        self.assertIn("FAILED  two/ends-badly", self.output)
        self.assertIn("  | so it is", self.output)
        self.assertEqual(self.run_all("--only", "one"), "1 passed, 0 failed, 0 skipped")

    def test_the_standard_run_says_what_it_leaves_to_the_full_one(self):
        self.checkout({"both": PASSES, "units": PASSES, "guest": PASSES, "tidy": PASSES},
                      only_in="[units]=standard [guest]=full [tidy]=full")
        self.assertEqual([line.split()[:2] for line in self.list()],
                         [["*", "both"], ["*", "units"], ["guest", "what"], ["tidy", "what"]])
        self.assertEqual([line.split()[0] for line in self.list("--full")], ["both", "guest", "tidy"])
        process = subprocess.run([self.root / "scripts/run-tests.sh", "--no-install"], text=True, capture_output=True)
        self.assertEqual(process.stdout.splitlines()[-2:], [
            "Left out: guest, tidy (scripts/run-tests.sh --full runs these too)", "2 passed, 0 failed, 0 skipped"])
        self.assertEqual(self.run_all("--only", "tidy"), "1 passed, 0 failed, 0 skipped")
        self.assertNotIn("Left out", self.output)
        for wrong in (("--full", "--only", "both"), ("--full", "--changed")):
            refused = subprocess.run([self.root / "scripts/run-tests.sh", *wrong], text=True, capture_output=True)
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertIn("--full runs everything", refused.stderr)

    def test_the_end_says_where_the_time_went(self):
        busy = "import time\nwhile time.process_time() < 2: pass"  # seconds of CPU
        self.checkout({"short": PASSES, "long": f"python3 -c '{busy}'; {PASSES}"})
        self.run_all()
        lines = self.output.splitlines()
        table = lines[lines.index(next(line for line in lines if line.startswith("Where the time went:"))):]
        self.assertEqual([line.split()[0] for line in table[1:4]], ["name", "long", "short"])

    def test_suites_of_two_lanes_run_beside_each_other_and_of_one_in_turn(self):
        meet = "echo here >{0}.here; until [ -e {1}.here ]; do sleep 0.02; done; " + PASSES
        self.checkout({"one": meet.format("one", "two"), "two": meet.format("two", "one"),
                       "three": "[ -e ended ] && " + PASSES + "; rm -f ended",
                       "four": "[ ! -e ended ] && " + PASSES},
                      lanes="[one]=a [two]=b [three]=c [four]=c", functions="")
        (self.root / "ended").touch()
        self.assertEqual(self.run_all(), "4 passed, 0 failed, 0 skipped")

    def test_a_suite_that_fails_beside_another_is_counted(self):
        self.checkout({"long": "until [ -e failed ]; do sleep 0.02; done; sleep 1; " + PASSES,
                       "bad": "record fail bad/case 'was wrong'; touch failed"}, lanes="[long]=a [bad]=b")
        self.assertEqual(self.run_all(), "1 passed, 1 failed, 0 skipped")
        self.assertEqual(self.status, 1)
        self.assertIn("FAILED  bad/case: was wrong", self.output)

    def test_an_unfinished_suite_is_counted(self):
        for command, why in (("record pass $suite/first; exit 0", "did not come to its end (exit status 0)"),
                             ("record pass $suite/first; kill -KILL $$", "did not come to its end (exit status 137)"),
                             ("record pass $suite/first; exit 3", "did not come to its end (exit status 3)"),
                             (":", "has tried nothing")):
            with self.subTest(command=command):
                self.checkout({"good": PASSES, "bad": command}, lanes="[good]=a [bad]=b")
                passed = 2 if "first" in command else 1
                self.assertEqual(self.run_all(), f"{passed} passed, 1 failed, 0 skipped")
                self.assertEqual(self.status, 1)
                self.assertIn(f"FAILED  bad: {why}", self.output)

    def test_a_hanging_suite_is_ended_and_counted(self):
        self.checkout({"good": PASSES, "bad": "setsid sleep 1000 & echo $! >pid; record pass bad/first; wait"},
                      lanes="[good]=a [bad]=b", seconds=2)
        self.assertEqual(self.run_all(), "2 passed, 1 failed, 0 skipped")
        self.assertIn("FAILED  bad: took more than 2 s", self.output)
        self.assertTrue(gone(self.wait_for("pid")))

    def test_a_suite_killed_from_outside_is_counted(self):
        self.checkout({"good": "until [ -e killed ]; do sleep 0.02; done; " + PASSES,
                       "bad": "sleep 1000 & echo $! >inner; echo $PPID >container; wait"}, lanes="[good]=a [bad]=b")
        process = self.start()
        inner, container = int(self.wait_for("inner")), int(self.wait_for("container"))
        os.kill(container, signal.SIGTERM)
        (self.root / "killed").touch()
        output, _ = process.communicate(timeout=60)
        self.assertEqual(output.splitlines()[-1], "1 passed, 1 failed, 0 skipped")
        self.assertIn("FAILED  bad: did not come to its end (exit status 143)", output)
        self.assertTrue(gone(inner))

    def test_a_signal_leaves_nothing_running(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)):
            with self.subTest(number=number):
                stays = "setsid sh -c 'echo $$ >{0}; exec sleep 1000' & sleep 1000"
                self.checkout({"one": stays.format("one.pid"), "two": stays.format("two.pid")}, lanes="[one]=a [two]=b")
                process = self.start()
                pids = [int(self.wait_for(f"{name}.pid")) for name in ("one", "two")]
                process.send_signal(number)
                process.communicate(timeout=60)
                self.assertEqual(process.returncode, status)
                self.assertTrue(all(gone(pid) for pid in pids))
                # The lock is free, and unfinished work is done anew.
                self.assertEqual(self.run_all("--list").split()[:2], ["*", "two"])

    def test_leftovers_of_a_kill_end_too(self):
        self.checkout({"one": "setsid sh -c 'echo $$ >pid; exec sleep 1000' & sleep 1000"})
        process = self.start()
        pid = int(self.wait_for("pid"))
        process.kill()
        # Its output ends when all processes that could write to it have ended.
        process.communicate(timeout=60)
        deadline = time.monotonic() + 60
        while not gone(pid):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_a_suite_waits_for_its_build_and_fails_without_it(self):
        self.checkout({"build-it": "sleep 0.5; touch built; record pass build/it",
                       "one": "[ -e built ] && " + PASSES, "two": "[ -e built ] && " + PASSES, "three": PASSES},
                      built_by="[one]=build-it [two]=build-it", lanes="[build-it]=builds [one]=a [two]=b [three]=c")
        self.assertEqual(self.run_all(), "4 passed, 0 failed, 0 skipped")
        self.assertEqual(self.run_all("--only", "three"), "1 passed, 0 failed, 0 skipped")
        self.checkout({"build-it": "record fail build/it", "one": PASSES, "three": PASSES},
                      built_by="[one]=build-it", lanes="[build-it]=builds")
        self.assertEqual(self.run_all(), "1 passed, 2 failed, 0 skipped")
        self.assertIn("FAILED  one: what it needs could not be built", self.output)

    def test_output_of_suites_side_by_side_is_not_mixed(self):
        talk = "for i in 1 2 3 4 5 6 7 8; do say {0} $i; sleep 0.05; done; " + PASSES
        self.checkout({"one": talk.format("one"), "two": talk.format("two")}, lanes="[one]=a [two]=b")
        self.run_all()
        said = [line.split()[0] for line in self.output.splitlines() if len(line.split()) == 2 and
                line.split()[1].isdigit() and line.split()[0] in ("one", "two")]
        self.assertIn(said, (["one"] * 8 + ["two"] * 8, ["two"] * 8 + ["one"] * 8))

    def fake_meson(self, what):
        """meson test in bin/, which does `what` with its $log."""
        (self.root / "bin").mkdir()
        (self.root / "bin/meson").write_text(f"""#!/bin/sh
while [ "$1" != --logbase ]; do shift; done
log={self.root}/build-tests/v/meson-logs/$2.json
mkdir -p ${{log%/*}}
{what}
""", encoding="utf-8")
        (self.root / "bin/meson").chmod(0o755)

    def test_two_suites_may_run_programs_of_one_build_at_once(self):
        run = "PATH=$root/bin:$PATH run_programs v 1 --suite=x"
        self.checkout({"one": run, "two": run}, lanes="[one]=a [two]=b")
        self.fake_meson("""printf '{"name": "p / %s", "result": "OK", "returncode": 0, "stdout": ""}\n' $2 >$log
touch $2.here; until [ -e one-1.here ] && [ -e two-1.here ]; do sleep 0.02; done""")
        self.assertEqual(self.run_all(), "2 passed, 0 failed, 0 skipped")
        results = (self.root / "build-tests/logs/results.tsv").read_text(encoding="ascii")
        self.assertIn("v/one-1", results)
        self.assertIn("v/two-1", results)

    def test_programs_that_do_not_run_to_their_end_are_failures(self):
        passed = '{"name": "p / t", "result": "OK", "returncode": 0, "stdout": ""}'
        for what, line in (("exit 1", "0 passed, 1 failed, 0 skipped"), ("exit 0", "0 passed, 1 failed, 0 skipped"),
                           (f"echo '{passed}' >$log; kill -KILL $$", "1 passed, 1 failed, 0 skipped"),
                           (f"echo '{passed}' >$log", "1 passed, 0 failed, 0 skipped"),
                           ("echo '{\"na' >$log", "0 passed, 1 failed, 0 skipped")):
            with self.subTest(what=what):
                self.checkout({"one": "PATH=$root/bin:$PATH run_programs v 1 --suite=x"})
                self.fake_meson(what)
                self.assertEqual(self.run_all(), line)

    def test_a_build_directory_is_made_anew_only_if_it_was_set_up_in_another_way(self):
        self.checkout({"one": "targets=none build v gcc g++ {0} || exit; " + PASSES})
        (self.root / "meson.build").write_text("project('small', 'c', 'cpp')\n", encoding="utf-8")
        table = self.root / "scripts/lib/suites.sh"
        template = table.read_text(encoding="utf-8")
        directory, kept = self.root / "build-tests/v", self.root / "build-tests/v/kept"

        def set_up(options):
            table.write_text(template.replace("{0}", options), encoding="utf-8")
            self.assertEqual(self.run_all(), "1 passed, 0 failed, 0 skipped", self.output)

        set_up("--buildtype=debugoptimized -Dcpp_args=-g1")
        kept.touch()
        set_up("--buildtype=debugoptimized -Dcpp_args=-g1")
        self.assertTrue(kept.exists())
        (directory / "build.ninja").unlink()
        set_up("--buildtype=debugoptimized -Dcpp_args=-g1")
        self.assertFalse(kept.exists())
        kept.touch()
        set_up("--buildtype=debugoptimized -Dcpp_args=-g3")
        self.assertFalse(kept.exists())


if __name__ == "__main__":
    unittest.main()
