"""The charts of a profile, for scripts/latency-profile.py."""
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from lib.profile_chart import COLORS, GRID, INK, Chart, plt
from lib.profile_runs import (PARTS, call_name, histogram, is_number, knee_doubts, run_name, samples, size_name,
                              slice_ends, stages, time_text, warnings)

STYLES = ["-", "--", ":", "-."]
PERCENTILES = [0, 50, 90, 99, 99.9, 99.99, 99.999, 99.9999]
SIDES = {"client": COLORS[0], "network": COLORS[6], "server": COLORS[1]}
MOST_PANELS = 12
# Without the darkest colours, which are invisible on a dark page.
HEAT = LinearSegmentedColormap.from_list("heat", plt.get_cmap("viridis")([0.2, 0.4, 0.6, 0.8, 1]))


def panels(count, columns, width, height):
    """Makes a figure with `count` axes, in rows of `columns`."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(width * columns + 1, height * rows), squeeze=False,
                                layout="constrained")
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, list(axes.flat[:count])


def legend_above(chart, axis, marks, names):
    chart.legend(axis.legend(marks, names, loc="lower left", bbox_to_anchor=(-0.02, 1.1), ncol=len(names)))


def warn(figure, runs):
    """Puts warnings into the picture itself, which may be shown without its page."""
    lines = warnings(runs)
    if lines:
        figure.suptitle("\n".join(lines), fontsize=8, color=COLORS[1])


def decades(low, high, most):
    """Returns at most `most` round numbers."""
    for multiples in ((1, 1.5, 2, 3, 4, 6, 8), (1, 2, 5), (1,)):
        shown = [t for t in (m * 10.0 ** e for e in range(-3, 13) for m in multiples) if low <= t <= high]
        if len(shown) <= most:
            break
    return shown


def log_scale(axis, which, most, words):
    getattr(axis, f"set_{which}scale")("log")
    low, high = getattr(axis, f"get_{which}lim")()
    along = getattr(axis, f"{which}axis")
    along.set_major_locator(FixedLocator(decades(low, high, most)))
    along.set_minor_locator(NullLocator())
    along.set_major_formatter(FuncFormatter(words))
    axis.grid(True, color=GRID, linewidth=0.7)
    axis.set_axisbelow(True)


def ns_text(ns, _=None):
    return time_text(ns)


def count_text(value, _=None):
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.4g}{suffix}"
    return f"{value:.4g}"


# Percentiles.

def curve(run):
    """Returns (1 / share of calls that are slower, latency in ns), from the fastest call on."""
    buckets = histogram(run)
    if not buckets:
        return [(1 / (1 - p / 100), run["latency_ns"][name])
                for name, p in (("p50", 50), ("p90", 90), ("p99", 99), ("p99.9", 99.9))
                if run["latency_ns"].get(name) is not None]
    total = sum(count for _, count in buckets)
    points, seen = [], 0
    for upper, count in buckets:
        points.append((total / (total - seen), max(upper, 1)))
        seen += count
    return points


def band(runs):
    """Returns (1 / share of slower calls, lowest, highest latency) of the runs, as far as each has calls for it."""
    curves = [curve(run) for run in runs]
    end = min(points[-1][0] for points in curves)
    levels = sorted({x for points in curves for x, _ in points if x <= end})
    rows, at = [], [0] * len(curves)
    for x in levels:
        for number, points in enumerate(curves):
            while at[number] + 1 < len(points) and points[at[number] + 1][0] <= x:
                at[number] += 1
        values = [points[number][1] for points, number in zip(curves, at)]
        rows.append((x, min(values), max(values)))
    return rows


def draw_band(chart, axis, series, runs, color):
    """Draws the interval of repeated runs behind their curve."""
    if len(runs) < 2:
        return
    rows = band(runs)
    chart.add(series, axis.fill_between([x for x, _, _ in rows], [low for _, low, _ in rows],
                                        [high for _, _, high in rows], step="post", color=color, alpha=0.18,
                                        linewidth=0))


def nines_text(nines):
    return f"p{100 - 100 / nines:.6g}"


def percentile_scale(axis, longest):
    axis.set_xscale("log")
    axis.set_xlim(1, longest * 1.05)
    axis.xaxis.set_major_locator(FixedLocator([1 / (1 - p / 100) for p in PERCENTILES
                                               if 1 / (1 - p / 100) <= longest * 1.01]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: "min" if x <= 1 else nines_text(x)))


def draw_curve(chart, axis, series, points, **style):
    drawn, = axis.step([x for x, _ in points], [y for _, y in points], where="post", linewidth=1.5, **style)
    chart.add(series, drawn)
    chart.tell(axis, series, [(x, y, f"{series}: {nines_text(x) if x > 1 else 'fastest'} {time_text(y)}")
                              for x, y in points])
    return drawn


def shown_windows(runs):
    """Returns the windows that have a panel, and those that only the tables have."""
    windows = sorted({run["window"] for run in runs})
    return (windows, []) if len(windows) <= 2 else ([windows[0], windows[-1]], windows[1:-1])


def percentiles(runs, groups):
    """Draws latency by percentile with a stretched tail: each further nine is as wide as the one before. `groups`: all
    runs of the kind of each of `runs`."""
    windows, _ = shown_windows(runs)
    figure, axes = plt.subplots(1, len(windows), figsize=(1.8 + 4.4 * len(windows), 4.6), sharey=True,
                                squeeze=False, layout="constrained")
    chart = Chart("percentiles", "Latency by percentile", figure)
    calls = list(dict.fromkeys(map(call_name, runs)))
    sizes = sorted({tuple(run["sizes"]) for run in runs if size_name(run)})
    lines, longest = {}, 10
    for axis, window in zip(axes[0], windows):
        for run, repeated in ((run, group) for run, group in zip(runs, groups) if run["window"] == window):
            points = curve(run)
            longest = max(longest, points[-1][0])
            style = STYLES[sizes.index(tuple(run["sizes"])) % len(STYLES)] if size_name(run) else "-"
            color = COLORS[calls.index(call_name(run)) % len(COLORS)]
            draw_band(chart, axis, run_name(run), repeated, color)
            lines[run_name(run)] = draw_curve(chart, axis, run_name(run), points, linestyle=style, color=color)
        axis.set_title(f"{window} call{'s' * (window > 1)} in flight")
        axis.set_xlabel("percentile of calls")
    for axis in axes[0]:
        percentile_scale(axis, longest)
        log_scale(axis, "y", 10, ns_text)
    axes[0][0].set_ylabel("latency, log scale")
    warn(figure, [run for run in runs if run["window"] in windows])
    chart.legend(axes[0][-1].legend(lines.values(), lines.keys(), loc="center left", bbox_to_anchor=(1.02, 0.5)))
    return chart


# Throughput against latency.

def knee_of_windows(runs):
    """Returns the window with the most power, which Kleinrock defines as throughput divided by latency. Up to
    there a larger window gains more than it costs."""
    return max(runs, key=lambda run: run["rpc_per_s"] / max(run["latency_ns"]["p50"], 1))


def by_call(runs):
    """Returns {call: {size: its runs}} in the order of the runs."""
    groups = {}
    for run in runs:
        groups.setdefault(call_name(run), {}).setdefault(size_name(run), []).append(run)
    return groups


def open_loop(runs):
    """Returns the runs whose schedule was kept, by rate. Otherwise latency depends on the length of the run."""
    kept = [run for run in runs if is_number(run.get("rate")) and run["rpc_per_s"] > 0 and not run.get("saturated")
            and run["latency_ns"].get("p99") is not None]
    by_rate = {}
    for run in kept:
        by_rate.setdefault(run["rate"], []).append(run)
    # Disturbed runs were repeated; of these the one with the median p99 is taken.
    middle = [sorted(runs, key=lambda run: run["latency_ns"]["p99"])[len(runs) // 2] for runs in by_rate.values()]
    return sorted(middle, key=lambda run: run["rate"])


def throughput(pairs, knee_runs, knees):
    """Draws a panel for each call: closed loops by window, and open loops by rate if their knee was searched.
    `pairs`: of a run and all runs of its kind."""
    runs, of_kind = [run for run, _ in pairs], {id(run): repeated for run, repeated in pairs}
    groups, searched = by_call(runs), by_call(open_loop(knee_runs))
    drawn_runs = runs + open_loop(knee_runs)
    figure, axes = panels(len(groups), 2, 5.2, 3.6)
    chart = Chart("throughput", "Throughput against latency", figure)
    for axis, (call, sizes) in zip(axes, groups.items()):
        drawn = []
        for number, (size, of_size) in enumerate(sizes.items()):
            color, name = COLORS[number % len(COLORS)], f"{call} {size}".strip()
            drawn += closed_loops(chart, axis, name, sorted(of_size, key=lambda run: run["window"]), of_kind, color)
            drawn += open_loops(chart, axis, name, searched.get(call, {}).get(size, []), knees, color)
        axis.set_title(call)
        axis.set_xlabel("calls per second, log scale")
        axis.set_ylabel("latency, log scale")
        axis.margins(0.1)
        log_scale(axis, "x", 7, count_text)
        log_scale(axis, "y", 9, ns_text)
        chart.legend(axis.legend(drawn, [line.get_label() for line in drawn], loc="upper left",
                                 bbox_to_anchor=(1.0, 1.0), fontsize=7.5))
    warn(figure, drawn_runs)
    return chart


def draw_bars(chart, axis, series, at, runs, percentile, color):
    """Draws the intervals of rate and latency of repeated runs through their point."""
    every = list(samples(runs))
    latencies = [one[f"{percentile}_ns"] for one in every if one[f"{percentile}_ns"] is not None]
    if len(latencies) < 2:
        return
    rates = [one["rate"] for one in every]
    chart.add(series, axis.vlines(at[0], max(min(latencies), 1), max(latencies), color=color, linewidth=0.8),
              axis.hlines(at[1], max(min(rates), 1e-3), max(rates), color=color, linewidth=0.8))


def closed_loops(chart, axis, name, runs, of_kind, color):
    lines = []
    knee = knee_of_windows(runs)
    every = runs
    for percentile, style in (("p50", "o-"), ("p99", "s--")):
        series = f"{name}, {percentile}"
        runs = [run for run in every if run["latency_ns"].get(percentile) is not None]
        if not runs:
            continue
        xs = [max(run["rpc_per_s"], 1e-3) for run in runs]
        ys = [max(run["latency_ns"][percentile], 1) for run in runs]
        line, = axis.plot(xs, ys, style, color=color, markersize=3.5, linewidth=1.2, label=series)
        chart.add(series, line)
        for at, run in zip(zip(xs, ys), runs):
            draw_bars(chart, axis, series, at, of_kind[id(run)], percentile, color)
        lines.append(line)
        chart.tell(axis, series, [(x, y, f"{series}, {run['window']} in flight: {count_text(x)} calls/s, "
                                         f"{time_text(y)}") for x, y, run in zip(xs, ys, runs)])
        if percentile == "p50":
            chart.add(series, *(axis.annotate(run["window"], (x, y), textcoords="offset points", xytext=(3, -9),
                                              fontsize=6.5, color=color) for x, y, run in zip(xs, ys, runs)))
            if len(runs) > 2:
                ring, = axis.plot(max(knee["rpc_per_s"], 1e-3), max(knee["latency_ns"]["p50"], 1), "o", markersize=10,
                                  markerfacecolor="none", markeredgecolor=color, markeredgewidth=1.4)
                chart.add(series, ring)
    return lines


def open_loops(chart, axis, name, runs, knees, color):
    if not runs:
        return []
    series = f"{name}, p99, open loop"
    points = [(run["rpc_per_s"], max(run["latency_ns"]["p99"], 1)) for run in runs]
    line, = axis.plot([x for x, _ in points], [y for _, y in points], ":", marker=".", color=color, linewidth=1,
                      label=series)
    chart.add(series, line)
    chart.tell(axis, series, [(x, y, f"{series}: {count_text(run['rate'])} calls/s offered, {count_text(x)} achieved, "
                                     f"{time_text(y)}") for (x, y), run in zip(points, runs)])
    for knee in knees:
        if knee["name"] == name and knee.get("rate") and knee.get("p99_ns"):
            rate, p99, doubts = knee["rate"], knee["p99_ns"], "; ".join(knee_doubts(knee))
            cross, = axis.plot(rate, p99, "X", color="none" if doubts else color, markersize=9,
                               markeredgecolor=color if doubts else INK, markeredgewidth=1.2 if doubts else 0.6)
            chart.add(series, cross)
            if doubts:
                chart.add(series, axis.annotate("?", (rate, p99), textcoords="offset points", xytext=(6, 3),
                                                fontsize=9, color=color))
            chart.tell(axis, series, [(rate, p99, f"{name}: knee at {count_text(rate)} calls/s, p99 {time_text(p99)}"
                                                  + (f" ({doubts})" if doubts else ""))])
    return [line]


# Where the time goes.

def stamped(runs):
    """Returns (title, round trip, stages) of each procedure and size, at the smallest window of its runs."""
    found = {}
    for run in sorted(runs, key=lambda run: run["window"]):
        for procedure, trip, parts in stages(run):
            name = f"{procedure} {size_name(run)}".strip()
            found.setdefault((call_name(run), name), (f"{name}, {run['window']} in flight", trip, parts))
    return list(found.values())


def of_calls(part):
    return f", of {part['calls']:,} calls" if is_number(part.get("calls")) else ""


def calls_text(trip, parts):
    """Returns the numbers of calls: of the round trip, and of the server's stages, which are fewer."""
    counts = [part["calls"] for part in ([trip] if trip else []) + [part for part in parts if part["side"] == "server"]
              if is_number(part.get("calls"))]
    return f"N = {', '.join(f'{n:,}' for n in dict.fromkeys(counts))}" if counts else ""


def waterfall(runs):
    """Draws the medians of the stages, each beginning where the one before ended. Returns None without stages."""
    shown = stamped(runs)[:MOST_PANELS]
    if not shown:
        return None
    figure, axes = panels(len(shown), 3, 3.6, 2.6)
    chart = Chart("waterfall", "Where the time of a call goes", figure)
    for axis, (title, trip, parts) in zip(axes, shown):
        at = 0
        for row, part in enumerate(parts):
            color = SIDES.get(part["side"], COLORS[2])
            chart.add(part["side"], axis.barh(row, part["p50_ns"], left=at, color=color, height=0.7)[0])
            figures = ", ".join(f"{name[:-3]} {time_text(part.get(name))}" for name in PARTS) + of_calls(part)
            chart.tell(axis, part["side"], [(at + part["p50_ns"] / 2, row,
                                             f"{part['stage']} ({part['side']}): {figures}")])
            at += part["p50_ns"]
        if trip:
            axis.axvline(trip["p50_ns"], color=INK, linewidth=1, linestyle=":")
        axis.set_yticks(range(len(parts)), [part["stage"] for part in parts])
        axis.set_ylim(len(parts) - 0.5, -0.5)
        axis.set_xlim(0, max(at, trip["p50_ns"] if trip else 0, 1) * 1.08)
        axis.xaxis.set_major_locator(plt.MaxNLocator(4))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda ns, _: "0" if ns == 0 else time_text(ns)))
        axis.grid(True, axis="x", color=GRID, linewidth=0.7)
        axis.set_axisbelow(True)
        axis.set_title(title)
        axis.set_xlabel(calls_text(trip, parts), fontsize=8)
    warn(figure, [run for run in runs if any(stages(run))])
    sides = [side for side in SIDES if any(part["side"] == side for _, _, parts in shown for part in parts)]
    legend_above(chart, axes[0], [plt.Rectangle((0, 0), 1, 1, color=SIDES[side]) for side in sides], sides)
    return chart


# Over time.

def heat_map(timelines):
    """Draws how many calls took how long in each time slice. Returns None without slices."""
    timelines = [line for line in timelines if any(line["slices"])][:MOST_PANELS]
    if not timelines:
        return None
    figure, axes = panels(len(timelines), 2, 4.6, 2.9)
    chart = Chart("heatmap", "Latency over time", figure)
    for axis, line in zip(axes, timelines):
        draw_heat(chart, axis, line)
    return chart


def draw_heat(chart, axis, line):
    edges, counts = heat(line["slices"])
    times = [0, *slice_ends(line)]
    columns = [[column[row] or float("nan") for column in counts] for row in range(len(edges) - 1)]
    most = max(max(column) for column in counts)
    mesh = axis.pcolormesh(times, edges, columns, norm=LogNorm(1, max(most, 2)), cmap=HEAT, rasterized=True)
    colors = chart.figure.colorbar(mesh, ax=axis, pad=0.01)
    colors.set_label("calls")
    colors.solids.set_rasterized(True)
    name = f"{line['name']}, {line['window']} in flight"
    cells = []
    for begin, end, column in zip(times, times[1:], counts):
        cells += [((begin + end) / 2, (low * high) ** 0.5,
                   f"{begin:.2f} s, {time_text(low)} to {time_text(high)}: {count} calls")
                  for low, high, count in zip(edges, edges[1:], column) if count]
    chart.tell(axis, name, cells, most=4000)
    axis.set_ylim(edges[0], edges[-1])
    log_scale(axis, "y", 7, ns_text)
    axis.grid(False)
    axis.set_title(name)
    axis.set_xlabel("seconds of calls")
    axis.set_ylabel("latency, log scale")


def heat(slices, per_decade=24):
    """Returns the edges of latency in ns, and the number of calls between them in each slice."""
    step = 10 ** (1 / per_decade)
    values = [max(value, 1) for slice_ in slices for value, _ in slice_]
    edges = [min(values)]
    while edges[-1] <= max(values):
        edges.append(edges[-1] * step)
    counts = [[0] * (len(edges) - 1) for _ in slices]
    for column, slice_ in zip(counts, slices):
        row = 0
        for value, count in slice_:
            while row < len(column) - 1 and value >= edges[row + 1]:
                row += 1
            column[row] += count
    return edges, counts
