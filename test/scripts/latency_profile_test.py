#!/usr/bin/env python3
"""scripts/latency-profile.py --compare: what is compared with what, and what is said about it."""
import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from lib import profile_runs  # noqa: E402: found by the line above

RUN = {"engine": "read", "size": 4096, "sizes": [4096], "window": 1, "connections": 1, "dispatch": "inline",
       "rate": None, "verify": False, "rpcrdma_version": 1, "errors": 0, "wrong_bytes": 0, "preemptions": 0,
       "rpc_per_s": 1e5, "bytes_per_s": 4e8,
       "latency_ns": {"min": 1, "mean": 2, "p50": 2000, "p90": 3000, "p99": 4000, "p99.9": 5000, "max": 6000}}
RESULT = {"tool": "testrpc", "schema": profile_runs.SCHEMA, "version": "0.1.0", "revision": "abc",
          "time": "2024-05-01T12:00:00Z", "uri": "shm:/tmp/a/socket",
          "environment": {"host": "a", "cpu": "CPU", "cpus": 2, "kernel": "Linux 6"}, "command": ["testrpc"],
          "options": {"idle": "busy", "pinned_cpus": [0, 1], "seed": 1, "timeout_ms": 5000, "credits": 64,
                      "faults": None}}


def result(*changes, **top):
    """A result with a run for each of the changes."""
    return {**copy.deepcopy(RESULT), "runs": [{**copy.deepcopy(RUN), **change} for change in changes], **top}


class Match(unittest.TestCase):
    def test_runs_that_were_asked_for_the_same_are_pairs(self):
        before = result({}, {"window": 8})
        after = result({"window": 8}, {}, uri="shm:/tmp/b/socket")  # another place, another order
        after["options"]["pinned_cpus"] = [2, 3]
        pairs, unmatched = profile_runs.match(before, after)
        self.assertEqual([(a["window"], b["window"]) for a, b in pairs], [(1, 1), (8, 8)])
        self.assertEqual(unmatched, [])

    def test_what_differs_is_not_compared_and_said(self):
        for name, value in (("dispatch", "worker"), ("rate", 1000.0), ("verify", True), ("connections", 2),
                            ("rpcrdma_version", 2), ("window", 2), ("arrivals", "poisson"), ("think_us", 50), ("engine", "write"), ("sizes", [8192])):
            with self.subTest(name):
                pairs, unmatched = profile_runs.match(result({}), result({name: value}))
                self.assertEqual(pairs, [])
                self.assertEqual(len(unmatched), 2)
                self.assertIn("no such call there" if name in ("engine", "sizes") else name, unmatched[0])

    def test_results_from_before_an_option_was_there_are_compared(self):
        after = result({"arrivals": "even", "think_us": 0}, options={**RESULT["options"], "memory": None})
        self.assertEqual(len(profile_runs.match(result({}), after)[0]), 1)

    def test_so_do_transport_and_options(self):
        for top in ({"uri": "iwarp://10.0.0.1:20049"}, {"options": {**RESULT["options"], "idle": "yield"}},
                    {"options": {**RESULT["options"], "credits": 8}},
                    {"options": {**RESULT["options"], "faults": "rnr=0.1"}}):
            with self.subTest(top):
                pairs, unmatched = profile_runs.match(result({}), result({}, **top))
                self.assertEqual((pairs, len(unmatched)), ([], 2))

    def test_repeated_runs_are_each_compared_once(self):
        pairs, unmatched = profile_runs.match(result({}, {}, {}), result({}, {}))
        self.assertEqual(len(pairs), 2)
        self.assertEqual(len(unmatched), 1)
        self.assertIn("fewer", unmatched[0])


class Remarks(unittest.TestCase):
    def remarks(self, before, after):
        return "\n".join(profile_runs.remarks([before, after], *profile_runs.match(before, after)))

    def test_single_runs_have_no_significance(self):
        self.assertIn("NO VERDICT", self.remarks(result({}), result({})))
        self.assertNotIn("NO VERDICT", self.remarks(result({}, {}), result({}, {})))

    def test_other_machines_and_disturbances_are_told(self):
        other = {**RESULT["environment"], "kernel": "Linux 7"}
        text = self.remarks(result({"preemptions": 650}), result({"errors": 3}, environment=other))
        for words in ("kernel differs: Linux 6, Linux 7", "A: other work took a CPU away 650 times",
                      "B: calls went wrong in read 4K"):
            self.assertIn(words, text)
        self.assertNotIn("host differs", text)


class Program(unittest.TestCase):
    def setUp(self):
        probe = subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], check=False, capture_output=True)
        if probe.returncode != 0:
            self.skipTest("python3-matplotlib is not installed")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, *arguments):
        return subprocess.run([SCRIPTS / "latency-profile.py", *map(str, arguments)], cwd=self.folder, text=True,
                              capture_output=True, check=False)

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def test_mistakes_are_told_before_anything_is_made(self):
        here = self.write("a.json", result({}))
        for arguments, words in (
                (["--testrpc", "nowhere"], "nowhere is not there"), (["--duration", "0"], "--duration 0"),
                (["--out", here], "not a folder"), (["--testrpc", "/bin/false"], "ended with status 1"),
                (["--compare", here, "none.json"], "none.json is not a result"),
                (["--compare", here, self.write("old.json", {"runs": [RUN]})], "schema 1"),
                (["--compare", here, self.write("empty.json", {**RESULT, "runs": []})], "has no runs"),
                (["--compare", here, self.write("b.json", result({"window": 2}))], "window 1, there 2")):
            with self.subTest(arguments):
                before = sorted(self.folder.iterdir())
                run = self.run_program(*arguments)
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn(words, run.stderr)
                self.assertNotIn("Traceback", run.stderr)
                self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_comparison_has_both_machines_and_its_limits(self):
        a = self.write("a.json", result({}, {"window": 8}))
        b = self.write("b.json", result({}, {"dispatch": "worker"},
                                        environment={**RESULT["environment"], "host": "b"}))
        run = self.run_program("--compare", a, b, "--out", "out")
        self.assertEqual(run.returncode, 0, run.stderr)
        page = (self.folder / "out/compare.html").read_text()
        for words in ("NO VERDICT", "A: ", "2024-05-01T12:00:00Z", "host differs", "2 runs were not compared",
                      "only in A: read 4K window 8", "only in B: read 4K window 1"):
            self.assertIn(words, run.stdout)
            self.assertIn(words, page)


if __name__ == "__main__":
    unittest.main()
