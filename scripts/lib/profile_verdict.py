"""Verdicts of a comparison of two sides, and the gate, for scripts/latency-profile.py.

There is a verdict if an interval of the ratio B/A lies entirely on one side of 1. The intervals of one
comparison hold simultaneously: the confidence is that of all intervals together (Bonferroni's correction), so
that at most one of a hundred comparisons of two equal sides has any wrong verdict.
"""
import math
from collections import namedtuple

from lib import profile_runs
from lib.profile_statistics import Interval, median, rank_sum_interval, rounds_needed, signed_rank_interval

CONFIDENCE = 0.99
# Figure, its name, and the power of the ratio B/A that is a loss: a lower rate or a higher latency.
METRICS = {"rate": ("RPC/s", -1), "p50_ns": ("p50", 1), "p99_ns": ("p99", 1)}
GATED = ("rate", "p50_ns")  # p99 is not: see doc/latency-profile.md
NONE = "no difference that can be told"
UNTOLD = "too few runs to tell"
# The gate's results, which are exit statuses of latency-profile.
PASSED, FAILED, UNCERTAIN = 0, 1, 3

# The ratio is B/A as an Interval; a and b are medians.
Line = namedtuple("Line", "name window metric a b ratio verdict")


def of_rounds(rows):
    """Returns lines for rows that were measured in turns, then over all rows if there are several."""
    confidence = corrected((len(rows) + (len(rows) > 1)) * len(METRICS))
    lines, all_logs = [], {metric: [] for metric in METRICS}
    for row in rows:
        for metric in METRICS:
            a, b = ([one[side][metric] for one in row["rounds"]] for side in "AB")
            if None in a + b:
                continue  # too few calls in a round for such a percentile
            logs = [math.log(y / x) for x, y in zip(a, b)]
            all_logs[metric].append(logs)
            lines.append(line(row["name"], row["window"], metric, a, b, signed_rank_interval(logs, confidence)))
    if len(rows) > 1:
        for metric, logs in all_logs.items():
            if not logs:
                continue
            means = [sum(round_) / len(round_) for round_ in zip(*logs)]
            lines.append(line("all", None, metric, [], [], signed_rank_interval(means, confidence)))
    return lines


def of_results(pairs):
    """Returns lines for pairs of lists of runs, where each side was measured by itself."""
    confidence = corrected(len(pairs) * len(METRICS))
    for before, after in pairs:
        sides = [list(profile_runs.samples(runs)) for runs in (before, after)]
        for metric in METRICS:
            a, b = ([one[metric] for one in side] for side in sides)
            if None in a + b or min(a + b) <= 0:
                continue
            logs = [[math.log(value) for value in side] for side in (a, b)]
            yield line(profile_runs.run_name(before[0]), before[0]["window"], metric, a, b,
                       rank_sum_interval(*logs, confidence))


def corrected(how_many):
    return 1 - (1 - CONFIDENCE) / how_many


def needed(rows):
    """Returns the number of rounds that `rows` need for a verdict."""
    return rounds_needed(corrected((rows + (rows > 1)) * len(METRICS)))


def line(name, window, metric, a, b, logs):
    ratio = Interval(*(math.exp(value) if value < 700 else math.inf for value in logs))
    loss = loss_of(metric, ratio)
    verdict = "slower" if loss.low > 1 else "faster" if loss.high < 1 else NONE
    if math.isinf(logs.high):
        verdict = UNTOLD
    return Line(name, window, metric, median(a) if a else None, median(b) if b else None, ratio, verdict)


def loss_of(metric, ratio):
    """Returns how many times as long B takes: 1.1 is 10 % slower."""
    if METRICS[metric][1] > 0:
        return ratio
    return Interval(*(1 / end if end else math.inf for end in reversed(ratio)))


def percent_text(loss):
    return f"{abs(loss - 1) * 100:.1f} %"


def loss_text(loss):
    if math.isinf(loss):
        return "any amount slower"
    return f"{percent_text(loss)} {'slower' if loss >= 1 else 'faster'}"


def where(one):
    return "over all calls" if one.window is None else f"{one.name}, {one.window} in flight"


def sentence(lines):
    """Returns the overall verdict."""
    told = [one for one in lines if one.verdict not in (NONE, UNTOLD)]
    if all(one.verdict == UNTOLD for one in lines):
        return "Too few runs to tell anything: repeat them."
    if not told:
        return "No difference that can be told."
    parts = []
    for word in ("slower", "faster"):
        which = [one for one in told if one.verdict == word]
        parts += [f"B is {word}: " + "; ".join(
            f"{where(one)}: {METRICS[one.metric][0]} by {percent_text(loss_of(one.metric, one.ratio).estimate)}"
            for one in which) + "."] if which else []
    return " ".join(parts)


def gate(lines, percent, gated):
    """Returns the gate's result for B, and sentences. It fails if some interval lies entirely above the allowed
    loss, and passes if all intervals lie within it; otherwise the result is uncertain."""
    limit = 1 + percent / 100
    losses = [(one, loss_of(one.metric, one.ratio)) for one in lines if one.metric in gated]
    failed = [f"SLOWER: {where(one)}: {METRICS[one.metric][0]} {loss_text(loss.estimate)}, at least "
              f"{loss_text(loss.low)}; up to {percent:g} % is allowed"
              for one, loss in losses if loss.low > limit]
    if failed:
        return FAILED, failed
    noisy = [f"{where(one)} ({METRICS[one.metric][0]})" for one, loss in losses if loss.high > limit]
    noisy += [f"{METRICS[metric][0]}, of which there are no figures" for metric in gated
              if not any(one.metric == metric for one, _ in losses)]
    if noisy:
        return UNCERTAIN, [f"GATE: it cannot be told whether B is more than {percent:g} % slower, because the machine is "
                           f"not quiet enough or there are too few rounds: {'; '.join(noisy)}."]
    return PASSED, [f"GATE: nothing is more than {percent:g} % slower."]
