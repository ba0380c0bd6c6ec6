"""Draws the picture of scripts/scale.py."""
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

from lib.profile_plots import COLORS, count_text  # noqa: E402
from lib.profile_runs import time_text  # noqa: E402


def time_axis(axis):
    """Makes a logarithmic axis of microseconds, with labels at 1, 2 and 5 of each decade if they fit."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    ticks = [m * 10.0 ** e for e in range(-3, 8) for m in (1, 2, 5)]
    shown = [t for t in ticks if low <= t <= high]
    if len(shown) > 10:
        shown = [t for t in shown if f"{t:e}".startswith("1")]
    axis.yaxis.set_major_locator(FixedLocator(shown))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda us, _=None: time_text(us * 1000)))
    axis.grid(True, color="#dddddd", linewidth=0.7)
    axis.set_axisbelow(True)


def number_axis(axis, numbers):
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(numbers))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(count_text))
    axis.grid(True, color="#dddddd", linewidth=0.7)
    axis.set_axisbelow(True)


def lines(axis, rows, rounds, curves, scale=1.0):
    """Draws medians as lines and each round's figure as a dot."""
    def points(some, figure):
        known = [r for r in some if r[figure] is not None]
        return [r["connections"] for r in known], [r[figure] * scale for r in known]

    for color, (name, figure, style) in zip(COLORS, curves):
        axis.plot(*points(rows, figure), style, color=color, label=name)
        for round_ in rounds:
            axis.plot(*points(round_, figure), ".", color=color, alpha=0.35)
    number_axis(axis, [r["connections"] for r in rows])
    axis.legend(frameon=False, fontsize=8)


def draw(rows, rounds, driver, path):
    figure, panels = plt.subplots(2, 2, figsize=(11, 7.5), constrained_layout=True)
    rate, latency, memory, setup = panels.flat
    lines(rate, rows, rounds, [("all active", "rate", "-"), ("ten active", "few_rate", "--"),
                               *([("bare TCP", "tcp_rate", ":")] if rows[0]["tcp_rate"] else [])])
    rate.set_ylim(bottom=0)
    rate.yaxis.set_major_formatter(FuncFormatter(count_text))
    rate.set_title("null calls a second, window 1")
    lines(latency, rows, rounds, [("all active, p50", "p50_us", "-"), ("all active, p99", "p99_us", "-"),
                                  ("ten active, p50", "few_p50_us", "--"), ("ten active, p99", "few_p99_us", "--")])
    time_axis(latency)
    latency.set_title("latency of a call")
    lines(memory, rows, rounds, [("idle: heap", "idle_heap", "-"), ("idle: buffers of its grant", "idle_buffers", "-."),
                                 ("all, after calls", "used_bytes", "--")], 1 / 1024)
    memory.set_yscale("log")
    memory.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} KiB"))
    memory.set_title("resident memory of the server per connection")
    lines(setup, rows, rounds, [("one after the other", "connects_per_s", "-")])
    setup.set_ylim(bottom=0)
    setup.yaxis.set_major_formatter(FuncFormatter(count_text))
    setup.set_title("connections made a second")
    for axis in panels.flat:
        axis.set_xlabel("connections")
    figure.suptitle(f"One server over {driver}, one client process")
    figure.savefig(path, dpi=130)
    plt.close(figure)
