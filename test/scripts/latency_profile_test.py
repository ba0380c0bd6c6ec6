#!/usr/bin/env python3
"""scripts/latency-profile.py: its comparisons, its pages, and its exit status."""
import copy
import csv
import html.parser
import json
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "scripts"
WHOLE = HERE.parent / "data/profile/whole.json"  # with every member that a result can have
sys.path.insert(0, str(SCRIPTS))
from lib import profile_measure, profile_runs  # noqa: E402: found by the line above

RUN = {"engine": "read", "size": 4096, "sizes": [4096], "window": 1, "connections": 1, "dispatch": "inline",
       "rate": None, "verify": False, "rpcrdma_version": 1, "errors": 0, "wrong_bytes": 0, "preemptions": 0,
       "rpc_per_s": 1e5, "bytes_per_s": 4e8,
       "latency_ns": {"min": 1, "mean": 2, "p50": 2000, "p90": 3000, "p99": 4000, "p99.9": 5000, "max": 6000}}
RESULT = {"tool": "testrpc", "schema": profile_runs.SCHEMA, "version": "0.1.0", "revision": "abc",
          "time": "2024-05-01T12:00:00Z", "uri": "shm:/tmp/a/socket",
          "environment": {"host": "a", "cpu": "CPU", "cpus": 2, "kernel": "Linux 6"}, "command": ["testrpc"],
          "options": {"idle": "busy", "pinned_cpus": [0, 1], "seed": 1, "timeout_ms": 5000, "credits": 64,
                      "faults": None}}

SILENT = {"latency_ns": dict.fromkeys(RUN["latency_ns"])}  # of whose calls none came back right


def result(*changes, **top):
    """A result with a run for each of the changes."""
    return {**copy.deepcopy(RESULT), "runs": [{**copy.deepcopy(RUN), **change} for change in changes], **top}


class Match(unittest.TestCase):
    def test_runs_that_were_asked_for_the_same_are_pairs(self):
        before = result({}, {"window": 8})
        after = result({"window": 8}, {}, uri="shm:/tmp/b/socket")  # another place, another order
        after["options"]["pinned_cpus"] = [2, 3]
        pairs, unmatched = profile_runs.match(before, after)
        self.assertEqual([(a[0]["window"], b[0]["window"]) for a, b in pairs], [(1, 1), (8, 8)])
        self.assertEqual(unmatched, [])

    def test_differing_runs_are_named_and_not_compared(self):
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

    def test_repeated_runs_are_compared_together(self):
        pairs, unmatched = profile_runs.match(result({}, {}, {}), result({}, {}))
        self.assertEqual([(len(a), len(b)) for a, b in pairs], [(3, 2)])
        self.assertEqual(unmatched, [])

    def test_repetitions_of_testrpc_are_samples_as_runs_are(self):
        repeated = {**RUN, "repetitions": [{"rate": rate, "p50_ns": 10, "p99_ns": 20} for rate in (1, 2, 3)]}
        self.assertEqual([one["rate"] for one in profile_runs.samples([RUN, repeated])], [1e5, 1, 2, 3])


class Rows(unittest.TestCase):
    def test_ranges_are_those_of_testrpc(self):
        self.assertEqual([(row.size, row.window) for row in profile_measure.rows("read", "3,512K-2M", "1-4")],
                         [(size, window) for size in ("3", "512K", "1M", "2M") for window in ("1", "2", "4")])

    def test_calls_without_data_have_no_sizes(self):
        rows = list(profile_measure.rows("null,read,nfs3:getattr,nfs3:write", "4K,1M", "1,8"))
        self.assertEqual([(row.engine, row.nfs_calls, row.size) for row in rows if row.window == "8"],
                         [("null", "", None), ("read", "", "4K"), ("read", "", "1M"), ("nfs3", "getattr", None),
                          ("nfs3", "write", "4K"), ("nfs3", "write", "1M")])


class Remarks(unittest.TestCase):
    def remarks(self, before, after):
        return "\n".join(profile_runs.remarks([before, after], profile_runs.match(before, after)[1]))

    def test_other_machines_and_disturbances_are_told(self):
        other = {**RESULT["environment"], "kernel": "Linux 7"}
        text = self.remarks(result({"preemptions": 650}), result({"errors": 3}, environment=other))
        for words in ("kernel differs: Linux 6, Linux 7", "A: other work took a CPU away 650 times",
                      "B: calls went wrong in read 4K"):
            self.assertIn(words, text)
        self.assertNotIn("host differs", text)


# As testrpc prints a run of a call that takes 1000 ns and its --server-work, to some 1 %. Its n-th
# run draws the same numbers every time: among comparisons of equal sides with other draws, one in a
# hundred finds a difference.
FAKE = f"""#!{sys.executable}
import json, random, sys
options = dict(zip(sys.argv[1:], sys.argv[2:]))
if "--help" in sys.argv:
    sys.exit(print("--json FILE"))
with open(__file__ + ".runs", "a") as runs:
    random.seed(runs.tell())
    runs.write(".")
result = json.loads({json.dumps(json.dumps(result()))})
for window in options.get("--window", "1").split(","):
    ns = (1000 + int(options.get("--server-work", 0))) * random.lognormvariate(0, 0.01)
    run = json.loads({json.dumps(json.dumps(RUN))})
    run.update(engine=options["--engine"], sizes=[4096] if "--size" in options else [], window=int(window),
               rpc_per_s=1e9 / ns, histogram=[[int(ns), 90], [int(2 * ns), 10]])
    run["latency_ns"]["p50"], run["latency_ns"]["p99"] = ns, ns * random.lognormvariate(1, 1)
    result["runs"].append(run)
print(json.dumps(result))
"""


class Reader(html.parser.HTMLParser):
    """The content of a page, the files that it would load, and the ids in it."""

    def __init__(self, text):
        super().__init__()
        self.sections, self.loaded, self.ids, self.scripts, self.words = [], [], [], [], []
        self.within = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.within.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.loaded += [attrs[name] for name in ("src", "xlink:href")
                        if not attrs.get(name, "#").startswith(("#", "data:"))]
        if tag == "link":
            self.loaded.append(attrs.get("href"))

    def handle_data(self, data):
        within = self.within[-1] if self.within else ""
        {"h2": self.sections, "script": self.scripts}.get(within, self.words).append(data)

    def handle_endtag(self, tag):
        while self.within and self.within.pop() != tag:
            pass


class Program(unittest.TestCase):
    def setUp(self):
        probe = subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], check=False, capture_output=True)
        if probe.returncode != 0:
            self.skipTest("python3-matplotlib is not installed")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, *arguments, status=0):
        run = subprocess.run([SCRIPTS / "latency-profile.py", *map(str, arguments)], cwd=self.folder, text=True,
                             capture_output=True, check=False)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        self.assertNotIn("Traceback", run.stderr)
        return run

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def fake(self):
        path = self.write("testrpc", FAKE)
        self.write("testrpc.runs", "")
        path.chmod(0o755)
        return path

    def page(self, name):
        """Parses a page whose ids are its own, which loads nothing, and whose charts know their points."""
        text = (self.folder / "out" / name).read_text()
        page = Reader(text)
        self.assertEqual(page.loaded, [])
        self.assertEqual(sorted(page.ids), sorted(set(page.ids)))
        self.assertNotRegex(text, r"url\((?!#)|@import|https?://(?!www\.w3\.org/)")
        for name_, chart in json.loads(page.scripts[0]).items():
            self.assertIn(f"{name_}-chart", page.ids)
            self.assertTrue(chart["points"], name_)
            for kind, begin in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
                self.assertTrue((self.folder / "out" / f"{name_}.{kind}").read_bytes().startswith(begin))
        return page

    def table(self, name):
        with open(self.folder / "out" / name, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def test_mistakes_are_told_before_anything_is_made(self):
        here = self.write("a.json", result({}))
        for arguments, words in (
                (["--testrpc", "nowhere"], "nowhere is not there"), (["--duration", "0"], "--duration 0"),
                (["--out", here], "not a folder"), (["--testrpc", "/bin/false"], "ended with status 1"),
                (["--testrpc", "/bin/echo"], "no result of testrpc"), (["--repeat", "0"], "--repeat 0"),
                (["--fail-above", "5%"], "--fail-above is for comparisons"),
                (["--fail-above", "0", "--compare", here, here], "no percentage"),
                (["--gate", "p90", "--compare", here, here], "'p90' is not one of"),
                (["--inconclusive", "pass", "--compare", here, here], "--inconclusive is for a gate"),
                (["--against-client", "shm:/b"], "give the other one with --client"),
                (["--against", "/bin/true", "--compare", here, here], "two things"),
                (["--testrpc", self.fake(), "--against", "/bin/false"], "/bin/false"),
                (["--testrpc", self.fake(), "--against", "/bin/true", "--repeat", "3"], "--repeat 3 is too few"),
                (["--compare", here, "none.json"], "none.json is not a result"),
                (["--compare", here, self.write("old.json", {"runs": [RUN]})], "schema 1"),
                (["--compare", here, self.write("empty.json", {**RESULT, "runs": []})], "has no runs"),
                (["--compare", here, self.write("silent.json", result(SILENT))], "no call came back right"),
                (["--compare", here, self.write("b.json", result({"window": 2}))], "window 1, there 2")):
            with self.subTest(arguments):
                before = sorted(self.folder.iterdir())
                run = self.run_program(*arguments, status=2)
                self.assertIn(words, run.stderr)
                self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_page_has_all_that_a_result_has(self):
        self.run_program("--from", WHOLE, "--out", "out")
        page = self.page("index.html")
        self.assertEqual(page.sections, ["Percentiles", "Where the time goes", "Throughput against latency",
                                         "Over time", "Outliers", "What disturbed it", "The host",
                                         "All runs", "How it was measured"])
        charts = json.loads(page.scripts[0])
        self.assertEqual(list(charts), ["percentiles", "waterfall", "throughput", "heatmap"])
        told = "\n".join(point[3] for chart in charts.values() for point in chart["points"])
        for words in ("null: p72.2 1.21 µs", "handler (server): p50 ", "null: knee at 900k calls/s",
                      "null, p99, open loop"):
            self.assertIn(words, told)
        words = "\n".join(page.words)
        for text in ("switched out on CPU 1 (server) for 2.99 ms", "server had 93.1% of CPU 1; CPU 0: 2.4% stolen",
                     "server obtained", "TCP retransmission on CPU 0 (client)", "round trip, measured", "900,000"):
            self.assertIn(text, words)
        self.assertEqual({row["stage"] for row in self.table("stages.csv") if row["procedure"] == "READ"},
                         {"wait", "request", "decode", "fetch", "queue", "handler", "reply", "response", "complete"})
        self.assertEqual(len(self.table("runs.csv")), 10)
        self.assertTrue(self.table("heatmap.csv") and self.table("outliers.csv") and self.table("percentiles.csv"))

    def test_a_result_of_any_testrpc_has_a_page(self):
        plain = self.write("a.json", result({}, {"window": 8}, {"engine": "null", "sizes": []}))
        self.run_program("--from", plain, "--out", "out")
        page = self.page("index.html")
        words = "\n".join(page.words)
        for text in ("These runs have no stages", "No time slices were measured", "kept none of their slowest calls"):
            self.assertIn(text, words)

    def test_repeated_runs_have_intervals(self):
        runs = [{"histogram": [[100 + i, 90], [200 + 10 * i, 10]], "rpc_per_s": 1e5 + i} for i in range(6)]
        self.run_program("--from", self.write("a.json", result(*runs)), "--out", "out")
        self.assertIn("the lowest to the highest of 6 or more runs: they contain the median of all such runs with a "
                      "confidence of 97% or more.", "\n".join(self.page("index.html").words))
        self.assertEqual([(row["percentile"], row["latency"], row["lowest"], row["highest"])
                          for row in self.table("percentiles.csv")],
                         [("0", "103", "100", "105"), ("90", "230", "200", "250")])
        self.run_program("--from", self.write("a.json", result(runs[0])), "--out", "out")
        self.assertIn("--repeat 6 adds those of 97 %", "\n".join(self.page("index.html").words))
        self.assertEqual({row["lowest"] for row in self.table("percentiles.csv")}, {""})

    def test_a_page_says_what_the_doctor_found_on_the_host(self):
        doctor = [{"subject": "CPUs", "name": "tick", "state": "worse", "found": "1000 a second", "costs": "microseconds"},
                  {"subject": "CPUs", "name": "NUMA", "state": "good", "found": "there is one node", "costs": None}]
        self.run_program("--from", self.write("a.json", result({}, doctor=doctor)), "--out", "out")
        words = "\n".join(self.page("index.html").words)
        self.assertIn("1 of 2 findings cost speed", words)
        self.assertIn("CPUs: tick\n1000 a second\nmicroseconds", words)
        self.assertNotIn("there is one node", words)

    def test_too_few_calls_for_a_percentile_show_none_and_their_number(self):
        few = {"p90": None, "p99": None, "p99.9": None}
        stage = {"calls": 7, "p50_ns": 44, "p90_ns": None, "p99_ns": None, "mean_ns": 48, "max_ns": 90}
        stages = {"every": 1, "procedures": [{"name": "READ", "calls": 9, "round_trip": {**stage, "calls": 9},
                                              "stages": [{"stage": "decode", "side": "server", **stage}]}]}
        run = {"latency_ns": {**RUN["latency_ns"], **few}, "stages": stages}
        path = self.write("a.json", result(run, {**run, "window": 8}))
        self.run_program("--from", path, "--out", "out")
        charts = json.loads(self.page("index.html").scripts[0])
        self.assertIn("decode (server): p50 44 ns, p90 -, p99 -, mean 48 ns, of 7 calls",
                      [point[3] for point in charts["waterfall"]["points"]])
        self.assertFalse([point for point in charts["throughput"]["points"] if "p99" in point[3]])
        self.assertEqual([(row["calls"], row["p99"]) for row in self.table("stages.csv")], [("7", "")] * 2)
        self.run_program("--compare", path, path, "--out", "out")
        self.assertEqual({row["figure"] for row in self.table("compare.csv")}, {"rate", "p50_ns"})

    def test_a_page_of_disturbed_runs_says_so_first(self):
        noise = {"remarks": ["client had 9.0% of CPU 0"]}
        outliers = [{"start_ns": start * 1000, "total_ns": total * 1000} for start, total in
                    ((100, 50), (120, 60), (179, 5), (500, 40))]
        runs = result({"noise": noise, "outliers": outliers}, {"window": 8}, {"window": 16, "errors": 3})
        self.run_program("--from", self.write("a.json", runs), "--out", "out")
        page = self.page("index.html")
        words = "".join(page.words)
        band = "1 of 3 runs were disturbed, for example: client had 9.0% of CPU 0. Do not quote their tails"
        self.assertLess(words.index(band), words.index("2024-05-01"))
        self.assertIn("Calls went wrong in 1 of 3 runs, for example in read 4K.", words)
        marked = [word for word in page.words if word.endswith("read 4K")]
        self.assertEqual((marked.count("! read 4K"), marked.count("read 4K") > 0), (2, True))
        self.assertIn("2 of 2 moments, at which 4 calls", words)
        self.assertEqual([row["disturbed"] for row in self.table("runs.csv")], ["client had 9.0% of CPU 0", "", ""])
        self.assertEqual(words.count(band), 2)  # the band, and the throughput's chart
        quiet = self.write("b.json", result({}, {"window": 8}))
        self.run_program("--from", quiet, "--out", "out")
        self.assertNotIn("disturbed, for example", "".join(self.page("index.html").words))

    def test_a_run_with_intervals_is_shown_over_time(self):
        series = [{"start": 0.0, "seconds": 0.1, "calls": 2, "histogram": [[900, 2]]},
                  {"start": 0.1, "seconds": 0.3, "calls": 1, "histogram": [[300_000_000, 1]]},
                  {"start": 0.4, "seconds": 0.1, "calls": 3, "histogram": [[1100, 3]]}]
        self.run_program("--from", self.write("a.json", result({"series": series})), "--out", "out")
        page = self.page("index.html")
        told = [point[3] for point in json.loads(page.scripts[0])["heatmap"]["points"]]
        self.assertEqual(len([text for text in told if text.startswith("0.10 s, ") and text.endswith(": 1 calls")]), 1)
        self.assertEqual([(row["seconds"], row["calls"]) for row in self.table("heatmap.csv")],
                         [("0", "2"), ("0.1", "1"), ("0.4", "3")])
        self.assertIn("a part of one run", "".join(page.words))
        wrong = [{**series[0], "seconds": -1}, series[1]]
        self.run_program("--from", self.write("a.json", result({"series": wrong})), "--out", "out")

    def test_a_page_of_another_server_names_it(self):
        other = result({}, uri="iwarp://10.6.0.1:20049", options={**RESULT["options"], "server": None})
        self.run_program("--from", self.write("a.json", other), "--out", "out")
        words = "".join(self.page("index.html").words)
        self.assertIn("Called: server iwarp://10.6.0.1:20049, of whose host nothing is known.", words)
        run = self.run_program("--compare", "a.json", "a.json", "--out", "out")
        self.assertEqual(run.stdout.count("server iwarp://10.6.0.1:20049, of whose host nothing is known"), 2)

    def test_a_knee_carries_its_doubts(self):
        whole = json.loads(WHOLE.read_text())
        [knee] = whole["knees"]
        knee.update(above=950000.0, doubts=["not settled: 3 of 7 steps were disturbed"])
        none = {**knee, "rate": None, "p99_ns": None, "name": "read 4K", "doubts": ["p99 at each rate was too high"]}
        whole["knees"].append(none)
        self.run_program("--from", self.write("a.json", whole), "--out", "out")
        page = self.page("index.html")
        words = "\n".join(page.words)
        for text in ("900,000 to 950,000", "not settled: 3 of 7", "none found", "p99 at each rate was too high"):
            self.assertIn(text, words)
        points = [point[3] for point in json.loads(page.scripts[0])["throughput"]["points"] if "knee" in point[3]]
        self.assertEqual(points, ["null: knee at 900k calls/s, p99 4 µs (not settled: 3 of 7 steps were disturbed)"])

    def test_members_of_a_wrong_kind_are_as_if_absent_or_told(self):
        whole = json.loads(WHOLE.read_text())
        draw = random.Random(5)
        values = [None, True, -1, 1e400, float("nan"), 10 ** 400, "<script>alert(1)</script>", "x" * 9999, [], {},
                  [[]], [{}], {"procedures": 3}, {"procedures": [{"stages": [{"stage": [], "side": 1}]}]}]
        for number in range(8):
            spoilt = copy.deepcopy(whole)
            for _ in range(6):
                at = draw.choice([spoilt, *spoilt["runs"], *spoilt["knees"], *spoilt["timeline"]])
                name = draw.choice(["stages", "outliers", "noise", "histogram", "limits", "knees", "timeline",
                                    "knee_runs", "slices", "name", "preemptions", "rate", "unsized", "nfs_calls"])
                at[name] = draw.choice(values)
                if not all(isinstance(spoilt[n], list) for n in ("knees", "timeline")):
                    break
            self.run_program("--from", self.write("spoilt.json", spoilt), "--out", "out")
            self.assertNotIn("<script>alert", (self.folder / "out/index.html").read_text(), number)
        for name, value in (("runs", 5), ("runs", [5]), ("environment", []), ("time", 3), ("options", None),
                            ("command", "x")):
            path = self.write("spoilt.json", {**whole, name: value})
            run = self.run_program("--from", path, "--out", "out", status=2)
            self.assertIn("cannot be used", run.stderr)

    def test_a_run_without_a_right_call_is_left_out_and_said(self):
        run = self.run_program("--from", self.write("a.json", result({"window": 2}, SILENT)), "--out", "out")
        self.assertIn("1 of 2 runs are left out", run.stderr)
        self.assertEqual(len(self.table("runs.csv")), 1)

    def test_two_results_of_one_run_each_have_no_verdict(self):
        a = self.write("a.json", result({}, {"window": 8}))
        b = self.write("b.json", result({}, {"dispatch": "worker"},
                                        environment={**RESULT["environment"], "host": "b"}))
        arguments = ["--compare", a, b, "--fail-above", "5%", "--out", "out"]
        run = self.run_program(*arguments, status=3)
        self.assertIn("GATE: it cannot be told whether B is more than 5 % slower", run.stdout)
        for inconclusive, status in (("pass", 0), ("fail", 1)):
            self.run_program(*arguments, "--inconclusive", inconclusive, status=status)
        page = (self.folder / "out/compare.html").read_text()
        for words in ("NO VERDICT", "A: ", "2024-05-01T12:00:00Z", "host differs", "2 runs were not compared",
                      "only in A: read 4K window 8", "only in B: read 4K window 1", "too few runs",
                      "Not measured in turns"):
            self.assertIn(words, run.stdout)
            self.assertIn(words, page)

    def test_differences_of_the_sides_are_named(self):
        server = {"work_ns": 0, "send_timeout_ms": 60000}
        a = result({}, options={**RESULT["options"], "server": server}, command=["testrpc", "--self", "--json", "a.json"])
        b = result({}, options={**RESULT["options"], "server": {**server, "work_ns": 1000}},
                   command=["testrpc", "--self", "--server-work", "1000", "--json", "b.json"])
        run = self.run_program("--compare", self.write("a.json", a), self.write("b.json", b), "--out", "out")
        page = "".join(self.page("compare.html").words)
        for words in ("The sides' options differ (A, B): server work_ns: 0, 1000.",
                      "Only in the command of B: --server-work 1000"):
            self.assertIn(words, run.stdout)
            self.assertIn(words, page)
        self.assertNotIn("Only in the command of A", run.stdout)

    def test_a_run_that_failed_says_why_not_what_came_last(self):
        program = self.write("failing", "#!/bin/sh\n"
                             "echo 'testrpc: no answer within 5000 ms' >&2\necho 'pools whole: yes' >&2\nexit 1\n")
        program.chmod(0o755)
        run = self.run_program("--testrpc", program, status=2)
        self.assertIn("ended with status 1: testrpc: no answer within 5000 ms", run.stderr)
        self.assertNotIn("pools whole", run.stderr)

    def test_two_results_of_many_runs_have_one(self):
        def many(name, ns):
            runs = [{"rpc_per_s": 1e9 / each, "latency_ns": {**RUN["latency_ns"], "p50": each}}
                    for each in range(ns, ns + 10)]
            return self.write(name, result(*runs))

        a, b = many("a.json", 1000), many("b.json", 1120)
        run = self.run_program("--compare", a, b, "--fail-above", "5%", "--out", "out", status=1)
        self.assertIn("SLOWER: read 4K, 1 in flight: p50 ", run.stdout)
        self.assertIn("B is slower", "".join(self.page("compare.html").words))
        self.run_program("--compare", b, a, "--fail-above", "5%", "--out", "out")
        self.assertEqual({row["figure"]: row["verdict"] for row in self.table("compare.csv")},
                         {"rate": "faster", "p50_ns": "faster", "p99_ns": "no difference that can be told"})

    def test_a_slower_side_is_found_in_turns(self):
        arguments = ["--testrpc", self.fake(), "--quick", "--fail-above", "5%", "--repeat", "16", "--seed", "3",
                     "--out", "out"]
        run = self.run_program(*arguments, "--against-options", "--server-work 150", status=1)
        self.assertIn("SLOWER: null, 1 in flight: p50 1", run.stdout)
        page = self.page("compare.html")
        self.assertEqual(page.sections, ["Verdict", "All figures", "Percentiles", "Round by round", "What disturbed it",
                                         "How it was measured"])
        self.assertEqual({row["first"] for row in self.table("rounds.csv")}, {"A", "B"})
        saved = json.loads((self.folder / "out/comparison.json").read_text())
        self.assertEqual([len(row["rounds"]) for row in saved["rows"]], [16, 16])
        run = self.run_program(*arguments, "--against", self.folder / "testrpc")
        self.assertIn("No difference that can be told", run.stdout)
        self.assertIn("GATE: nothing is more than 5 % slower", run.stdout)

    def test_a_profile_of_all_that_was_asked_for(self):
        self.run_program("--testrpc", self.fake(), "--engines", "null,read", "--sizes", "4K", "--windows", "1,8",
                         "--repeat", "2", "--out", "out", "--", "--touch")
        self.page("index.html")
        saved = json.loads((self.folder / "out/profile.json").read_text())
        self.assertEqual([(run["engine"], run["window"]) for run in saved["runs"]],
                         2 * [("null", 1), ("null", 8), ("read", 1), ("read", 8)])
        self.assertEqual([line["name"] for line in saved["timeline"]], ["null", "read 4K"])
        self.assertEqual(len(self.table("runs.csv")), 8 + 2)


if __name__ == "__main__":
    unittest.main()
