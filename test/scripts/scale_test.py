#!/usr/bin/python3
"""scripts/scale.py: how it evaluates its measurements, and what it refuses."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
SPEC = importlib.util.spec_from_file_location("scale", SCRIPTS / "scale.py")
scale = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(scale)


def run(rate, p99=20_000, errors=0, least=90):
    return {"rpc_per_s": rate, "errors": errors, "latency_ns": {"p50": 10_000, "p99": p99},
            "calls_per_connection": {"min": least, "mean": 100, "max": 110}}


def measured(connections, rate, few_rate, grown, few_p99=20_000, errors=0):
    return {"connections": connections, "runs": [run(rate, errors=errors), run(few_rate, few_p99)],
            "connect_seconds": 0.5,
            "resident": {when: {"all": (1 << 20) + 2 * times * grown, "heap": (1 << 20) + times * grown,
                                "buffers": times * grown}
                         for when, times in (("alone", 0), ("idle", 1), ("active", 2))}}


def round_of(rate, few_rate, few_p99=20_000, errors=0):
    return [measured(10, 50_000, 50_000, 1 << 20), measured(100, 100_000, 49_000, 1 << 21),
            measured(1000, rate, few_rate, (1 << 20) + 990 * 8192, few_p99, errors)]


class Figures(unittest.TestCase):
    def test_memory_is_what_connections_took_beyond_the_first_ones(self):
        rows = scale.figures(round_of(90_000, 50_000))
        self.assertIsNone(rows[0]["idle_heap"])
        self.assertEqual(rows[2]["idle_heap"], 8192)
        self.assertEqual(rows[2]["used_bytes"], 4 * 8192)
        self.assertEqual(rows[2]["slowest"], 0.9)
        self.assertEqual(rows[2]["connects_per_s"], 2000)

    def test_ratios_are_of_one_round_and_medians_of_all(self):
        rounds = [scale.figures(round_of(rate, 50_000)) for rate in (90_000, 50_000, 85_000)]
        self.assertAlmostEqual(scale.ratios(rounds)["rate, of 100 connections'"], 0.85)
        self.assertEqual(scale.medians(rounds)[2]["rate"], 85_000)

    def test_each_verdict_can_fail(self):
        def failed(*measurements, **more):
            rounds = [scale.figures(round_of(*measurements, **more))]
            return [what for what, holds in scale.verdicts(scale.medians(rounds), scale.ratios(rounds)) if not holds]

        self.assertEqual(failed(90_000, 50_000), [])
        self.assertEqual(len(failed(70_000, 50_000)), 1)
        self.assertEqual(len(failed(90_000, 45_000)), 1)
        self.assertEqual(len(failed(90_000, 50_000, few_p99=30_000)), 1)
        self.assertEqual(len(failed(90_000, 50_000, errors=1)), 1)

    def test_a_rate_that_tcp_itself_loses_is_not_asked_for(self):
        def holds(rate, tcp_rate):
            measurements = round_of(rate, 50_000)
            for m, bare in zip(measurements, (200_000, 200_000, tcp_rate)):
                m["tcp_rate"] = bare
            rows = scale.figures(measurements)
            return next(holds for what, holds in scale.verdicts(rows, scale.ratios([rows])) if "rate" in what)

        self.assertTrue(holds(64_000, 140_000))
        self.assertFalse(holds(62_000, 140_000))
        self.assertTrue(holds(81_000, 200_000))
        self.assertFalse(holds(79_000, 200_000))

    def test_no_verdict_of_numbers_that_were_not_measured(self):
        self.assertEqual(scale.ratios([scale.figures([measured(1, 1, 1, 1), measured(2, 1, 1, 1)])]), {})


class Program(unittest.TestCase):
    def refused(self, *words):
        done = subprocess.run([SCRIPTS / "scale.py", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, "scale: |usage:")
        return done.stderr

    def test_bad_options_are_refused_before_anything_runs(self):
        self.refused("--connections", "ten")
        self.refused("--connections", "0,1")
        self.refused("--rounds", "0")
        self.refused("--testrpc", "/nowhere")
        self.refused("--testrpc", "/bin/false", "--limits", "/nowhere")
        self.refused("--testrpc", "/bin/false", "--connections", "1,9000", "--require")

    def test_a_server_that_does_not_start_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            self.refused("--testrpc", "/bin/false", "--connections", "1", "--out", os.path.join(folder, "out"))
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
