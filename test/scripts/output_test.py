#!/usr/bin/python3
"""The output of the tools in scripts/ (scripts/lib/output.py): a reader that goes away, a full disk, an ASCII
terminal, names chosen by others."""
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "scripts"
PROFILE = HERE.parent / "data/profile/whole.json"
CAPTURE = next(iter(sorted((HERE.parent / "data/captures").glob("*.pcap*"))))
RESULT = {"version": "0.1.0", "revision": "abc", "time": "2026-01-02T03:04:05Z", "command": ["testrpc", "\ud800"],
          "runs": [{"engine": "null", "size": 0, "window": 1, "seconds": 2.0, "histogram": [[900, 10]]}]}
sys.path.insert(0, str(SCRIPTS))
from lib import output  # noqa: E402: found by the line above


class Output(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.result = self.folder / "result.json"
        self.result.write_text(json.dumps(RESULT))
        self.out = self.folder / "out"
        self.program = self.folder / "program.x"
        self.program.write_text("program P { version V { int F(int) = 1; } = 1; } = 0x20000001;")
        self.tools = [["hdr-log.py", self.result], ["rrdk-dump.py", CAPTURE], ["rrdk-doctor.py"],
                      ["rrdk-bind.py", self.program],
                      *([tool, "--help"] for tool in ("rrdk-top.py", "rrdk-dump.py", "rrdk-doctor.py", "rrdk-trace.py",
                                                      "rrdk-bind.py")),
                      ["latency-profile.py", "--from", PROFILE, "--out", self.out],
                      ["latency-profile.py", "--compare", PROFILE, PROFILE, "--out", self.out]]

    def run_tool(self, tool, *arguments, **options):
        return subprocess.run([SCRIPTS / tool, *map(str, arguments)], stdin=subprocess.DEVNULL,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options})

    def test_a_full_disk_behind_stdout(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for tool in self.tools:
                with self.subTest(tool):
                    done = self.run_tool(*tool, stdout=full)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertRegex(done.stderr, r"^\S+: cannot write to stdout: No space left on device\n$")

    def test_a_reader_that_goes(self):
        for tool in self.tools:
            with self.subTest(tool):
                reader, writer = os.pipe()
                os.close(reader)
                done = self.run_tool(*tool, stdout=writer)
                os.close(writer)
                self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, ""))

    def test_a_terminal_that_has_ascii_only(self):
        for tool in self.tools:
            with self.subTest(tool):
                done = self.run_tool(*tool, env=os.environ | {"PYTHONIOENCODING": "ascii"})
                self.assertNotIn("Traceback", done.stderr)
                self.assertTrue(done.stdout.isascii() and done.stdout, done.stderr)
        self.assertTrue((self.out / "index.html").exists() and (self.out / "compare.html").exists())

    @staticmethod
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    def test_a_full_disk_behind_a_file(self):
        old = self.folder / "old.json"
        old.write_text("old")
        before = sorted(self.folder.iterdir())
        for tool in (["latency-profile.py", "--from", PROFILE, "--out", self.out / "deep"],
                     ["rrdk-dump.py", "--summary", "--json", old, CAPTURE]):
            with self.subTest(tool):
                done = self.run_tool(*tool, preexec_fn=self.small_files)
                self.assertEqual(done.returncode, 2)
                self.assertIn("File too large", done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertEqual(sorted(self.folder.iterdir()), before)
        self.assertEqual(old.read_text(), "old")

    def test_a_folder_keeps_what_else_is_in_it(self):
        self.out.mkdir()
        (self.out / "notes").write_text("precious")
        done = self.run_tool("latency-profile.py", "--from", PROFILE, "--out", self.out, preexec_fn=self.small_files)
        self.assertEqual(done.returncode, 2)
        self.assertEqual([path.name for path in self.out.iterdir()], ["notes"])
        self.run_tool("latency-profile.py", "--from", PROFILE, "--out", self.out)
        self.assertEqual((self.out / "notes").read_text(), "precious")
        self.assertTrue((self.out / "index.html").exists())
        self.assertEqual(list(self.out.glob(".*")), [])

    def test_a_lone_surrogate_in_a_result(self):
        result = json.loads(PROFILE.read_text())
        result["environment"]["host"] = result["runs"][0]["engine"] = "a\ud800b"
        self.result.write_text(json.dumps(result))
        done = self.run_tool("latency-profile.py", "--from", self.result, "--out", self.out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("a?b", (self.out / "index.html").read_text(encoding="utf-8"))

    def test_links_stay_and_modes_too(self):
        target, link = self.folder / "target", self.folder / "link"
        target.write_text("old")
        target.chmod(0o640)
        link.symlink_to("target")
        with output.file(link) as file:
            file.write("new")
        self.assertTrue(link.is_symlink())
        self.assertEqual((target.read_text(), stat.S_IMODE(target.stat().st_mode)), ("new", 0o640))
        with self.assertRaises(RuntimeError), output.file(link) as file:
            file.write("half")
            raise RuntimeError
        self.assertEqual(target.read_text(), "new")
        self.assertEqual(list(self.folder.glob("*.tmp")), [])

    def in_a_mount_namespace(self, script, *words):
        """What a shell does there that may mount; of the test's folder nothing is left."""
        alone = ["unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid() else []), "sh", "-ec"]
        try:
            subprocess.run([*alone, "mount --bind /dev/null /dev/null"], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"nothing can be mounted here: {getattr(error, 'stderr', '') or error}")
        return subprocess.run([*alone, script, "sh", *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)

    def test_a_file_that_is_a_mount_point(self):
        mounted, source = self.folder / "mounted.json", self.folder / "source.json"
        mounted.touch()
        before = sorted([*self.folder.iterdir(), source])
        for tool in ("rrdk-dump.py", "rrdk-doctor.py"):
            with self.subTest(tool):
                source.write_text("old, and longer than nothing")
                done = self.in_a_mount_namespace(
                    'mount --bind "$1" "$2"; shift 2; "$@" || test $? = 1', source, mounted, SCRIPTS / tool, "--json",
                    mounted, *([CAPTURE] if tool == "rrdk-dump.py" else []))
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                json.loads(source.read_text())
                self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_file_in_a_folder_that_cannot_be_written(self):
        closed = self.folder / "closed"
        closed.mkdir()
        (closed / "open.json").write_text("old")
        done = self.in_a_mount_namespace(
            'mount --bind "$1" "$1"; touch "$2"; mount --bind "$2" "$1/open.json"; mount -o remount,bind,ro "$1";'
            'shift 2; "$@" || test $? = 1', closed, self.result, SCRIPTS / "rrdk-dump.py", "--json",
            closed / "open.json", CAPTURE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("connections", json.loads(self.result.read_text()))


if __name__ == "__main__":
    unittest.main()
