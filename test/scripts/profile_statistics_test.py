#!/usr/bin/env python3
"""scripts/lib/profile_statistics.py and profile_verdict.py: their verdicts on measurements whose truth is known."""
import math
import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from lib import profile_statistics, profile_verdict  # noqa: E402: found by the line above

ROUNDS, TRIALS = 32, 1000


class Machine:
    """A virtual machine with two CPUs: they are near or far for some seconds, load comes and goes, and at times a
    run loses its CPU."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.far, self.load = 1.0, 0.0

    def run(self, cost):
        """Nanoseconds of a call that would take `cost`, if the machine were quiet."""
        if self.random.random() < 0.08:
            self.far = self.random.choice((1.0, 2.5))
        self.load = 0.8 * self.load + self.random.gauss(0, 0.02)
        stolen = 1 + (self.random.expovariate(2) if self.random.random() < 0.05 else 0)
        return cost * self.far * math.exp(abs(self.load)) * stolen * math.exp(self.random.gauss(0, 0.015))

    def rounds(self, times, order_effect=0.01):
        """Like profile_measure.in_turns() returns them; B takes `times` as long. The side that runs second has an
        advantage."""
        for _ in range(ROUNDS):
            costs = {"A": 1000, "B": 1000 * times}
            order = self.random.choice(("AB", "BA"))
            figures = {}
            for place, side in enumerate(order):
                ns = self.run(costs[side]) * (1 - order_effect * place)
                figures[side] = {"rate": 1e9 / ns, "p50_ns": ns, "p99_ns": ns * self.random.lognormvariate(1, 0.7)}
            yield {"first": order[0], **figures}


def lines(seed, times, rows=2):
    machine = Machine(seed)
    measured = [{"name": "null", "window": window, "rounds": list(machine.rounds(times))}
                for window in range(1, rows + 1)]
    return profile_verdict.of_rounds(measured)


def told(found):
    return {line.verdict for line in found}


class Tables(unittest.TestCase):
    def test_critical_values_are_those_of_the_printed_tables(self):
        critical, signed = profile_statistics.critical, profile_statistics.signed_rank_counts
        for n, tail, value in ((5, 0.025, -1), (6, 0.025, 0), (10, 0.025, 8), (20, 0.025, 52), (20, 0.005, 37),
                               (30, 0.025, 137)):
            self.assertEqual(critical(signed(n), tail), value, n)
        for m, n, value in ((3, 4, -1), (4, 4, 0), (5, 5, 2), (8, 10, 17), (12, 12, 37)):
            self.assertEqual(critical(profile_statistics.rank_sum_counts(m, n), 0.025), value, (m, n))

    def test_the_normal_distribution_takes_over_where_it_is_near(self):
        tail = 0.0005
        n = 60
        exact = profile_statistics.critical(profile_statistics.signed_rank_counts(n), tail)
        near = profile_statistics.critical_of_normal(n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24, tail)
        self.assertLess(abs(exact - near), 12)

    def test_intervals_by_hand(self):
        # In 5 of the 2**8 ways to give signs, positive ranks sum to 3 or less, so three of the
        # means of all pairs are left out at either end: 1, 1.5 and one of the two 2.
        interval = profile_statistics.signed_rank_interval([1, 2, 3, 4, 5, 6, 7, 8], 0.95)
        self.assertEqual(interval, (2, 4.5, 7))
        interval = profile_statistics.rank_sum_interval([1, 2, 3, 4, 5], [11, 12, 13, 14, 15], 0.95)
        self.assertEqual(interval, (7, 10, 13))

    def test_few_measurements_tell_nothing(self):
        for interval in (profile_statistics.signed_rank_interval([1.0] * 5, 0.95),
                         profile_statistics.rank_sum_interval([1], [2], 0.95)):
            self.assertEqual((interval.low, interval.high), (-math.inf, math.inf))
        for confidence in (0.9, 0.99, 0.9999):
            needed = profile_statistics.rounds_needed(confidence)
            self.assertTrue(math.isfinite(profile_statistics.signed_rank_interval([1.0] * needed, confidence).low))
            self.assertTrue(math.isinf(profile_statistics.signed_rank_interval([1.0] * (needed - 1), confidence).low))


class Verdicts(unittest.TestCase):
    def test_equal_sides_have_a_wrong_verdict_as_rarely_as_promised(self):
        wrong = sum(told(lines(seed, 1.0)) != {profile_verdict.NONE} for seed in range(TRIALS))
        # 10 in 1000 comparisons may be wrong; more than 20 would be so once in 500 times.
        self.assertLessEqual(wrong, 2 * TRIALS * (1 - profile_verdict.CONFIDENCE))

    def test_the_gate_passes_equal_sides(self):
        said = [profile_verdict.gate(lines(seed, 1.0), 25, profile_verdict.GATED)[0] for seed in range(TRIALS)]
        self.assertEqual(said.count(profile_verdict.FAILED), 0)
        self.assertGreater(said.count(profile_verdict.PASSED), TRIALS // 2)

    def test_ten_percent_are_found_in_noise_of_several_times_as_much(self):
        for times, word in ((1.1, "slower"), (1 / 1.1, "faster")):
            found = sum(told(lines(seed, times)) - {profile_verdict.NONE} == {word} for seed in range(100))
            self.assertGreaterEqual(found, 99, word)

    def test_the_gate_stops_what_is_slower_than_allowed_and_nothing_else(self):
        for times, allowed, least, most in ((1.25, 5, 99, 100), (1.04, 5, 0, 1), (0.8, 5, 0, 0), (1.25, 40, 0, 1)):
            failed = [profile_verdict.gate(lines(seed, times), allowed, profile_verdict.GATED)[0]
                      for seed in range(100)].count(profile_verdict.FAILED)
            self.assertTrue(least <= failed <= most, f"{times} {allowed}: {failed}")

    def test_the_interval_holds_the_truth(self):
        missed = sum(not line.ratio.low <= (1.1 if line.metric == "p50_ns" else 1 / 1.1) <= line.ratio.high
                     for seed in range(200) for line in lines(seed, 1.1) if line.metric != "p99_ns")
        self.assertLessEqual(missed, 200 * 4 * 0.01)

    def test_words(self):
        gone, said = profile_verdict.gate(lines(1, 2), 5, ["p50_ns"])
        self.assertEqual(gone, profile_verdict.FAILED)
        self.assertRegex(said[0], r"^SLOWER: null, 1 in flight: p50 \d+\.\d % slower, at least \d+\.\d % slower; "
                                  "up to 5 % is allowed$")
        self.assertRegex(profile_verdict.sentence(lines(1, 2)),
                         r"^B is slower: null, 1 in flight: RPC/s by \d+\.\d %; ")
        self.assertEqual(profile_verdict.sentence(lines(1, 1.0)), "No difference that can be told.")

    def test_an_undecidable_difference_is_neither_passed_nor_failed(self):
        outcome, said = profile_verdict.gate(lines(1, 1.0), 0.1, ["rate"])
        self.assertEqual(outcome, profile_verdict.UNCERTAIN)
        self.assertRegex(said[0], "^GATE: it cannot be told whether B is more than 0.1 % slower, .*null, 1 in flight")
        few = [one for one in lines(1, 1.0) if one.metric != "p99_ns"]
        outcome, said = profile_verdict.gate(few, 50, ["rate", "p99_ns"])
        self.assertEqual(outcome, profile_verdict.UNCERTAIN)
        self.assertIn("p99, of which there are no figures", said[0])

    def test_results_of_two_sessions_are_compared_by_all_their_runs(self):
        def runs(seed, times):
            draw = random.Random(seed)
            return [{"engine": "null", "sizes": [], "window": 1,
                     "rpc_per_s": 1e6 / times * draw.lognormvariate(0, 0.02),
                     "latency_ns": {"p50": 1000 * times * draw.lognormvariate(0, 0.02),
                                    "p99": 3000 * draw.lognormvariate(0, 0.5)}} for _ in range(10)]

        same = list(profile_verdict.of_results([(runs(1, 1), runs(2, 1))]))
        self.assertEqual(told(same), {profile_verdict.NONE})
        slower = {line.metric: line.verdict for line in profile_verdict.of_results([(runs(1, 1), runs(2, 1.1))])}
        self.assertEqual(slower, {"rate": "slower", "p50_ns": "slower", "p99_ns": profile_verdict.NONE})
        single = list(profile_verdict.of_results([(runs(1, 1)[:1], runs(2, 1.1)[:1])]))
        self.assertEqual(told(single), {profile_verdict.UNTOLD})


if __name__ == "__main__":
    unittest.main()
