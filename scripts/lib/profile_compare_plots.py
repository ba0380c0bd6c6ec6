"""The charts of a comparison, for scripts/latency-profile.py."""
import math

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lib.profile_chart import COLORS, GRID, INK, Chart, plt
from lib.profile_plots import MOST_PANELS, curve, draw_curve, legend_above, log_scale, ns_text, panels, percentile_scale
from lib.profile_verdict import METRICS, NONE, UNTOLD

MARKS = {"rate": "^", "p50_ns": "o", "p99_ns": "s"}
VERDICTS = {"slower": COLORS[1], "faster": COLORS[2], NONE: COLORS[6], UNTOLD: COLORS[6]}
STEPS = ([0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25], [0.5, 0.67, 0.8, 1, 1.25, 1.5, 2], [0.1, 0.25, 0.5, 1, 2, 4, 10])


def title_of(line):
    return "all calls" if line.window is None else f"{line.name}, {line.window} in flight"


def forest(lines, limit):
    """Draws each ratio with its interval; `limit`: what the gate allows, 1.05 for 5 %, or None."""
    figure, axes = plt.subplots(1, len(METRICS), figsize=(9.6, 1.3 + 0.3 * len(lines) / len(METRICS)), sharey=True,
                                layout="constrained")
    chart = Chart("ratios", "Ratios of B to A, with intervals", figure)
    for axis, (metric, (title, sign)) in zip(axes, METRICS.items()):
        of_metric = [line for line in lines if line.metric == metric]
        for row, line in enumerate(of_metric):
            draw_interval(chart, axis, row, line)
        axis.axvline(1, color=INK, linewidth=0.8)
        if limit:
            axis.axvline(limit ** sign, color=COLORS[1], linewidth=1, linestyle=":")
        ratio_scale(axis, of_metric, limit)
        axis.set_yticks(range(len(of_metric)), list(map(title_of, of_metric)))
        axis.set_ylim(len(of_metric) - 0.5, -0.5)
        axis.set_title(f"{title} ({'less' if sign > 0 else 'more'} is better)")
        axis.set_xlabel("B / A, log scale")
    return chart


def draw_interval(chart, axis, row, line):
    ends = [min(max(end, 0.05), 20) for end in line.ratio]
    color = VERDICTS[line.verdict]
    whisker, = axis.plot([ends[0], ends[2]], [row, row], color=color, linewidth=2)
    mark, = axis.plot(ends[1], row, MARKS[line.metric], color=color, markersize=5)
    chart.add(line.verdict, whisker, mark)
    low, estimate, high = line.ratio
    words = f"{title_of(line)}: {METRICS[line.metric][0]} ×{estimate:.3f} ({low:.3f} to {high:.3f}): {line.verdict}"
    chart.tell(axis, line.verdict, [(ends[1], row, words)])


def steps(low, high):
    finest = 0 if high / low < 1.8 else 1 if high / low < 5 else 2
    return [step for step in STEPS[finest] if low <= step <= high]


def ratio_scale(axis, lines, limit):
    ends = [min(max(end, 0.05), 20) for line in lines for end in line.ratio] + [1 / (limit or 1.05), limit or 1.05]
    low, high = min(ends) / 1.03, max(ends) * 1.03
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    axis.xaxis.set_major_locator(FixedLocator(steps(low, high)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.grid(True, axis="x", color=GRID, linewidth=0.7)
    axis.set_axisbelow(True)


def overlay(curves):
    """Draws the latencies of both sides. `curves`: a title and both histograms for each row. Returns None without
    histograms."""
    curves = [(title, both) for title, both in curves if all(both)][:MOST_PANELS]
    if not curves:
        return None
    figure, axes = panels(len(curves), 3, 3.6, 2.8)
    chart = Chart("overlay", "Latency by percentile, both sides", figure)
    lines = {}
    for axis, (title, both) in zip(axes, curves):
        for number, (side, buckets) in enumerate(zip("AB", both)):
            lines[side] = draw_curve(chart, axis, side, curve({"histogram": buckets}), color=COLORS[number],
                                     linestyle="-" if side == "A" else "--")
        percentile_scale(axis, max(line.get_xdata()[-1] for line in axis.get_lines()))
        axis.xaxis.set_major_locator(FixedLocator([1, 2, 10, 100, 1000, 1e4, 1e5]))
        log_scale(axis, "y", 7, ns_text)
        axis.tick_params("x", labelsize=7)
        axis.set_title(title)
    legend_above(chart, axes[0], lines.values(), lines.keys())
    return chart


def rounds(rows):
    """Draws the rate's ratio in each round: how steady it was, and whether the order of the sides mattered."""
    rows = rows[:MOST_PANELS]
    figure, axes = panels(len(rows), 3, 3.6, 2.3)
    chart = Chart("rounds", "The rate's ratio, round by round", figure)
    marks = {}
    for axis, row in zip(axes, rows):
        for first, mark in (("A", "o"), ("B", "D")):
            points = [(number, one["B"]["rate"] / one["A"]["rate"]) for number, one in enumerate(row["rounds"], 1)
                      if one["first"] == first]
            series = f"{first} went first"
            marks[series], = axis.plot([x for x, _ in points], [y for _, y in points], mark, markersize=4,
                                       color=COLORS["AB".index(first)], markerfacecolor="none")
            chart.add(series, marks[series])
            chart.tell(axis, series, [(x, y, f"round {x}, {series}: ×{y:.3f}") for x, y in points])
        axis.axhline(1, color=INK, linewidth=0.8)
        reach = max(0.05, *(abs(math.log(one["B"]["rate"] / one["A"]["rate"])) for one in row["rounds"])) * 1.1
        axis.set_ylim(math.exp(-reach), math.exp(reach))
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(FixedLocator(steps(math.exp(-reach), math.exp(reach))))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axis.grid(True, axis="y", color=GRID, linewidth=0.7)
        axis.set_title(f"{row['name']}, {row['window']} in flight")
        axis.set_xlabel("round")
        axis.set_ylabel("rate, B / A")
    legend_above(chart, axes[0], marks.values(), marks.keys())
    return chart
