"""Statistics of repeated measurements of two sides, using only the standard library.

Both sides' figures are logarithms, so that a difference is a ratio. All methods work on ranks: a disturbed
round counts as one round, however far off its figures are.

Rounds in turns: `signed_rank_interval` inverts Wilcoxon's signed rank test. When each round tosses a coin for
which side goes first, that test's error rate holds for two equal sides whatever the noise is, and however the
rounds depend on one another: equal sides would have given the same figures in either order, so each round's
difference had either sign with probability one half.

Not in turns: `rank_sum_interval` inverts the rank sum test of Wilcoxon, Mann and Whitney. It takes all
measurements as independent, which those of one session are not quite.
"""
import math
from collections import namedtuple
from functools import lru_cache
from statistics import NormalDist

# The estimated difference, and the interval of differences that the test does not reject. The ends are
# infinite if there are too few measurements for this confidence.
Interval = namedtuple("Interval", "low estimate high")
EXACT = 60  # with more measurements, the normal distribution is accurate enough


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


@lru_cache(maxsize=None)
def signed_rank_counts(n):
    """Returns in how many of the 2**n ways to give n ranks signs the positive ranks add up to 0, 1, 2..."""
    counts = [1]
    for rank in range(1, n + 1):
        counts = [(counts[s] if s < len(counts) else 0) + (counts[s - rank] if s >= rank else 0)
                  for s in range(len(counts) + rank)]
    return counts


@lru_cache(maxsize=None)
def rank_sum_counts(m, n):
    """Returns in how many of the ways to choose m of m + n ranks Mann and Whitney's U is 0, 1, 2..."""
    if m == 0 or n == 0:
        return [1]
    counts = [0] * (m * n + 1)
    for u, count in enumerate(rank_sum_counts(m - 1, n)):  # the largest rank is one of the m
        counts[u + n] += count
    for u, count in enumerate(rank_sum_counts(m, n - 1)):
        counts[u] += count
    return counts


def critical(counts, tail):
    """Returns the largest k such that a statistic of at most k has at most probability `tail`, or -1."""
    total, seen = sum(counts), 0
    for k, count in enumerate(counts):
        seen += count
        if seen > tail * total:
            return k - 1
    return len(counts) - 1


def critical_of_normal(mean, variance, tail):
    return max(-1, math.floor(mean + NormalDist().inv_cdf(tail) * math.sqrt(variance) - 0.5))


def interval_of(differences, k):
    """Returns the interval of sorted differences without k at either end."""
    if k < 0 or 2 * k >= len(differences):
        return Interval(-math.inf, median(differences), math.inf)
    return Interval(differences[k], median(differences), differences[-1 - k])


def signed_rank_interval(differences, confidence):
    """Returns the two-sided interval of paired differences. The estimate is that of Hodges and Lehmann: the
    median of the means of all pairs."""
    n, tail = len(differences), (1 - confidence) / 2
    means = sorted((differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n))
    if n <= EXACT:
        return interval_of(means, critical(signed_rank_counts(n), tail))
    return interval_of(means, critical_of_normal(n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24, tail))


def rank_sum_interval(before, after, confidence):
    """Returns the two-sided interval of the amount by which `after` exceeds `before`."""
    differences = sorted(b - a for a in before for b in after)
    m, n, tail = len(before), len(after), (1 - confidence) / 2
    if m + n <= EXACT:
        return interval_of(differences, critical(rank_sum_counts(m, n), tail))
    return interval_of(differences, critical_of_normal(m * n / 2, m * n * (m + n + 1) / 12, tail))


def rounds_needed(confidence):
    """Returns the fewest rounds in turns that can give a verdict at that confidence."""
    return math.ceil(1 - math.log2(1 - confidence))
