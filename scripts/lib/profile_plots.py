"""The pictures of scripts/latency-profile.py."""
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

from lib.profile_runs import run_name, size_text  # noqa: E402

COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444"]
STYLES = ["-", "--", ":", "-."]
PERCENTILES = [50, 90, 99, 99.9, 99.99, 99.999]


def time_text(us, _=None):
    if us >= 1e6:
        return f"{us / 1e6:g} s"
    if us >= 1e3:
        return f"{us / 1e3:g} ms"
    if us >= 1:
        return f"{us:g} µs"
    return f"{us * 1e3:g} ns"


def count_text(value, _=None):
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{suffix}"
    return f"{value:g}"


def time_axis(axis):
    """Logarithmic, with a label at 1, 2 and 5 of each decade where there is room."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    ticks = [m * 10.0 ** e for e in range(-3, 8) for m in (1, 2, 5)]
    shown = [t for t in ticks if low <= t <= high]
    if len(shown) > 10:
        shown = [t for t in shown if f"{t:e}".startswith("1")]
    axis.yaxis.set_major_locator(FixedLocator(shown))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(time_text))
    axis.grid(True, color="#dddddd", linewidth=0.7)
    axis.set_axisbelow(True)


def curve(run):
    """(1 / share of calls that are slower, latency in µs): a curve from p0 on."""
    histogram = run.get("histogram")
    if not histogram:
        steps = [("p50", 50), ("p90", 90), ("p99", 99), ("p99.9", 99.9)]
        return [(1 / (1 - p / 100), run["latency_ns"][name] / 1000) for name, p in steps]
    total = sum(count for _, count in histogram)
    points, seen = [(1, histogram[0][0] / 1000)], 0
    for upper, count in histogram:
        points.append((total / (total - seen), upper / 1000))
        seen += count
    return points


def shown_windows(profile):
    """The windows that have a panel, smallest and largest, and those that only the table has."""
    windows = sorted({run["window"] for run in profile["runs"]})
    return (windows, []) if len(windows) <= 2 else ([windows[0], windows[-1]], windows[1:-1])


def percentiles(profile, path):
    """Latency by percentile; one panel for each window of interest."""
    windows, _ = shown_windows(profile)
    figure, axes = plt.subplots(1, len(windows), figsize=(1.5 + 5.2 * len(windows), 5.2),
                                sharey=True, squeeze=False, layout="constrained")
    names = list(dict.fromkeys(run_name(run) for run in profile["runs"]))
    engines = list(dict.fromkeys(run["engine"] for run in profile["runs"]))
    sizes = sorted({run["size"] for run in profile["runs"] if run["size"]})
    lines = {}
    longest = 10
    for axis, window in zip(axes[0], windows):
        for run in (r for r in profile["runs"] if r["window"] == window):
            points = curve(run)
            longest = max(longest, points[-1][0])
            style = STYLES[sizes.index(run["size"]) % len(STYLES)] if run["size"] else "-"
            lines[run_name(run)], = axis.step(
                [x for x, _ in points], [y for _, y in points], where="post", linestyle=style,
                color=COLORS[engines.index(run["engine"]) % len(COLORS)], linewidth=1.6)
        axis.set_title(f"{window} call{'s' * (window > 1)} in flight")
        axis.set_xscale("log")
        axis.set_xlabel("percentile of calls")
    for axis in axes[0]:
        shown = [p for p in PERCENTILES if 1 / (1 - p / 100) <= longest * 1.01]
        axis.set_xlim(1, longest * 1.05)
        axis.xaxis.set_major_locator(FixedLocator([1 / (1 - p / 100) for p in shown]))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(
            lambda x, _: f"p{100 - 100 / x:.6g}"))
        time_axis(axis)
    axes[0][0].set_ylabel("latency, log scale")
    axes[0][-1].legend([lines[n] for n in names if n in lines], [n for n in names if n in lines],
                       loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    figure.suptitle("Latency percentiles")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def throughput(profile, path):
    """Throughput against latency, a panel for each engine; the points are the windows."""
    engines = list(dict.fromkeys(run["engine"] for run in profile["runs"]))
    columns = min(2, len(engines))
    rows = (len(engines) + columns - 1) // columns
    figure, axes = plt.subplots(rows, columns, figsize=(6.2 * columns, 4.4 * rows), squeeze=False,
                                layout="constrained")
    for axis in axes.flat[len(engines):]:
        axis.set_visible(False)
    for axis, engine in zip(axes.flat, engines):
        sizes = sorted({run["size"] for run in profile["runs"] if run["engine"] == engine})
        for i, size in enumerate(sizes):
            runs = sorted((r for r in profile["runs"] if (r["engine"], r["size"]) == (engine, size)),
                          key=lambda r: r["window"])
            color = COLORS[i % len(COLORS)]
            xs = [r["rpc_per_s"] for r in runs]
            p50 = [r["latency_ns"]["p50"] / 1000 for r in runs]
            p99 = [r["latency_ns"]["p99"] / 1000 for r in runs]
            label = size_text(size) if size else engine
            axis.plot(xs, p50, "o-", color=color, markersize=4, label=f"{label} p50")
            axis.plot(xs, p99, "s--", color=color, markersize=3, linewidth=1, label=f"{label} p99")
            for x, y, run in zip(xs, p50, runs):
                axis.annotate(run["window"], (x, y), textcoords="offset points", xytext=(4, -10),
                              fontsize=7, color=color)
        axis.set_title(f"{engine} (numbers: calls in flight)", fontsize=11)
        axis.set_xscale("log")
        axis.set_xlabel("RPC/s (log)")
        axis.set_ylabel("latency, log scale")
        axis.margins(0.08)
        count_axis(axis)
        time_axis(axis)
        axis.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle("Throughput against latency")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def count_axis(axis):
    low, high = axis.get_xlim()
    ticks = [m * 10.0 ** e for e in range(0, 10) for m in (1, 2, 5)]
    shown = [t for t in ticks if low <= t <= high]
    if len(shown) > 7:
        shown = [t for t in shown if f"{t:e}".startswith("1")]
    axis.xaxis.set_major_locator(FixedLocator(shown))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(count_text))


RATIOS = [("p50 latency (less is better)", lambda r: r["latency_ns"]["p50"], "o"),
          ("p99 latency (less is better)", lambda r: r["latency_ns"]["p99"], "s"),
          ("RPC/s (more is better)", lambda r: r["rpc_per_s"], "^")]


def compare(pairs, names, path):
    """The second result as multiples of the first, run by run."""
    figure, axis = plt.subplots(figsize=(8.5, 1.8 + 0.32 * len(pairs)), layout="constrained")
    positions = range(len(pairs))
    values = []
    for i, (label, value, marker) in enumerate(RATIOS):
        ratios = [value(b) / value(a) if value(a) else 1 for a, b in pairs]
        values += ratios
        axis.scatter(ratios, [p + (i - 1) * 0.18 for p in positions], marker=marker, s=30,
                     color=COLORS[i], label=label, zorder=3)
    for position in positions:
        axis.axhspan(position - 0.5, position + 0.5, color="#f4f4f4" if position % 2 else "white",
                     zorder=0)
    axis.axvline(1, color="#444444", linewidth=1)
    axis.set_xscale("log")
    low, high = min(values + [0.8]) / 1.08, max(values + [1.25]) * 1.08
    axis.set_xlim(low, high)
    candidates = [0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2]
    if high / low > 4:
        candidates = [m * 10.0 ** e for e in range(-4, 5) for m in (1, 2, 5)]
    axis.xaxis.set_major_locator(FixedLocator([t for t in candidates if low <= t <= high]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"×{x:g}"))
    axis.grid(True, axis="x", color="#dddddd", linewidth=0.7)
    axis.set_yticks(list(positions), [f"{run_name(a)} w={a['window']}" for a, _ in pairs])
    axis.set_ylim(len(pairs) - 0.5, -0.5)
    axis.set_xlabel(f"{names[1]} as a multiple of {names[0]} (log)")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=len(RATIOS), frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
