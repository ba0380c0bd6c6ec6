"""The pages of scripts/latency-profile.py: HTML that needs no other file and no network."""
import html
import json
import math
from pathlib import Path

from lib import profile_compare_plots, profile_plots
from lib.profile_runs import (causes, environments, histogram, limit, noise, outliers, run_name, size_name,
                              spread, stages, text_of, time_text, typical)
from lib.profile_verdict import CONFIDENCE, METRICS, NONE, UNTOLD, loss_of, loss_text, sentence

HERE = Path(__file__).resolve().parent
MOST_OUTLIERS = 20
MOST_NOISE = 14  # columns


class Page:
    """Sections in order, and charts with what they know of their points."""

    def __init__(self, title, folder):
        self.title, self.folder = title, folder
        self.parts, self.sections, self.charts = [], [], {}

    def section(self, name, title, *parts):
        self.sections.append((name, title))
        self.parts += [f'<h2 id="{name}">{html.escape(title)}</h2>', *parts]

    def figure(self, chart, caption):
        svg, self.charts[chart.name] = chart.save(self.folder)
        return f"<figure>{svg}<figcaption>{html.escape(caption)} " \
               f'<a class="onscreen" href="{chart.name}.png">PNG</a></figcaption></figure>'

    def write(self, path, head):
        style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("profile.css", "profile.js"))
        links = "".join(f'<a href="#{name}">{html.escape(title)}</a>' for name, title in self.sections)
        data = json.dumps(self.charts).replace("<", "\\u003c")
        path.write_text("\n".join((
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta name="viewport" content="width=device-width"><title>{html.escape(self.title)}</title>',
            f"<style>{style}</style></head><body><h1>{html.escape(self.title)}</h1>", *head, f"<nav>{links}</nav>",
            *self.parts, f'<script type="application/json" id="charts">{data}</script>',
            f"<script>{script}</script></body></html>\n")), encoding="utf-8")


def table(head, rows, words=(), wide=()):
    """`words`, `wide`: the columns whose text is read from the left, and those that may be long."""
    def kind(number):
        names = [name for name, columns in (("words", words), ("wide", wide)) if number in columns]
        return f' class="{" ".join(names)}"' if names else ""

    cells = "".join(f"<th{kind(i)}>{html.escape(h)}</th>" for i, h in enumerate(head))
    body = "".join("<tr>" + "".join(f"<td{kind(i)}>{c if isinstance(c, Markup) else html.escape(str(c))}</td>"
                                    for i, c in enumerate(row)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


class Markup(str):
    """HTML already."""


def paragraphs(lines, style=""):
    return "".join(f"<p{style}>{html.escape(line)}</p>" for line in lines)


def about(result):
    """What was measured, when, where and how."""
    machine, chosen = result["environment"], result["options"]
    return [f"{result['time']} on {text_of(machine['host'])}: {text_of(machine['cpu'])}, {text_of(machine['cpus'])} CPUs, "
            f"{text_of(machine['kernel'])}",
            f"testrpc {result['version']} ({result['revision']}), {result['uri'].split(':')[0]}:, cores "
            f"{chosen.get('idle')}, pinned to CPUs {chosen.get('pinned_cpus')}"]


def command_line(words):
    return f"<p><code>{html.escape(' '.join(map(text_of, words)))}</code></p>"


# A profile.

def write_profile(profile, out):
    runs = typical(profile)
    page = Page("Latency profile", out)
    shown, hidden = profile_plots.shown_windows(runs)
    caption = f"Calls in flight: {' and '.join(map(str, shown))}."
    if hidden:
        caption += f" The table of all runs has {', '.join(map(str, hidden))}, too."
    page.section("percentiles", "Percentiles", page.figure(
        profile_plots.percentiles(runs), caption + " Click a name to hide its curves. Values: percentiles.csv."))
    page.section("stages", "Where the time goes", *stages_part(page, runs))
    page.section("throughput", "Throughput against latency", *throughput_part(page, profile, runs))
    page.section("time", "Over time", *time_part(page, profile))
    page.section("outliers", "Outliers", *outliers_part(profile["runs"]))
    page.section("disturbances", "What disturbed it", *noise_part(profile["runs"]))
    page.section("runs", "All runs", runs_table(runs, list(spread(profile))))
    page.section("how", "How it was measured", command_line(profile["command"]), paragraphs([
        "Closed loops unless a schedule is named: each reply starts the next call. Latency is of calls that came back "
        "right, known to 1 %. Everything on this page is in profile.json and, as tables, in the CSV files beside it."]))
    page.write(out / "index.html", [paragraphs(about(profile), ' class="dim"')])


def stages_part(page, runs):
    chart = profile_plots.waterfall(runs)
    if chart is None:
        return [paragraphs(["These runs have no stages: this testrpc stamps none, or its server is another program."])]
    rows = []
    for run in runs:
        for procedure, trip, parts in stages(run):
            total = sum(part["p50_ns"] for part in parts)
            rows += [[f"{procedure} {size_name(run)}".strip(), run["window"], part["stage"], part["side"],
                      *(time_text(part[name]) for name in ("p50_ns", "p90_ns", "p99_ns", "mean_ns")),
                      f"{part['p50_ns'] / total:.0%}" if total else "-"] for part in parts]
            if trip:
                rows.append([f"{procedure} {size_name(run)}".strip(), run["window"], "round trip, measured", "",
                             *(time_text(trip[name]) for name in ("p50_ns", "p90_ns", "p99_ns", "mean_ns")),
                             f"{trip['p50_ns'] / total:.0%}" if total else "-"])
    head = ["procedure", "in flight", "stage", "side", "p50", "p90", "p99", "mean", "of all stages"]
    return [page.figure(chart, "Medians of each stage, one after the other, at the smallest window; the dotted line is "
                               "the median round trip. Medians add up to it only roughly."),
            f"<details><summary>All stages, {len(rows)} lines</summary>{table(head, rows, words=(2, 3))}</details>"]


def throughput_part(page, profile, runs):
    knees = [knee for knee in profile["knees"] if knee["rate"] > 0]
    text = "Numbers are calls in flight; a ring marks the window with the most throughput for its latency (throughput " \
           "divided by median latency)."
    if knees:
        text += " Open loop: calls come on a schedule, whether or not earlier ones have been answered; rates " \
                "at which they pile up are not drawn. A cross marks the knee: the highest rate that keeps p99 within " \
                "three times that of a light load."
    parts = [page.figure(profile_plots.throughput([run for run in runs if run.get("rate") is None] or runs,
                                                  profile["knee_runs"], knees), text)]
    if knees:
        rows = [[knee["name"], f"{knee['rate']:,.0f}", time_text(knee["p99_ns"]), time_text(knee["light_p99_ns"]),
                 f"{knee['closed_loop_rate']:,.0f}"] for knee in knees]
        parts.append(table(["call", "knee, calls/s", "p99 there", "p99 at a light load", "closed loop, calls/s"], rows))
    return parts


def time_part(page, profile):
    chart = profile_plots.heat_map(profile["timeline"])
    if chart is None:
        return [paragraphs(["No time slices were measured: --quick leaves them out."])]
    seconds = profile["timeline"][0]["slice_seconds"]
    return [page.figure(chart, f"Each column is a run of {seconds:g} s; they follow one another on one connection, with "
                               "short pauses that are not shown.")]


def outliers_part(runs):
    calls = sorted(((run, call) for run in runs for call in outliers(run)), key=lambda pair: -pair[1]["total_ns"])
    if not calls:
        return [paragraphs(["These runs kept none of their slowest calls."])]
    rows = []
    for run, call in calls[:MOST_OUTLIERS]:
        start = call.get("start_ns")
        parts = call.get("stages") if isinstance(call.get("stages"), dict) else {}
        longest = max(((ns, name) for name, ns in parts.items() if isinstance(ns, (int, float))), default=None)
        rows.append([run_name(run), run["window"], time_text(call["total_ns"]),
                     f"{start / 1e9:.3f} s" if isinstance(start, (int, float)) else "-", text_of(call.get("connection", "-")),
                     f"{text_of(longest[1])}, {time_text(longest[0])}" if longest else "-",
                     "; ".join(causes(call)) or "not known"])
    head = ["call", "in flight", "took", "into its run", "connection", "longest stage", "causes"]
    return [paragraphs([f"The slowest calls of all runs, {len(rows)} of {len(calls)} that were kept."]),
            table(head, rows, words=(5, 6), wide=(6,))]


def noise_part(runs):
    known = [(run, dict(noise(run))) for run in runs]
    names = list(dict.fromkeys(name for _, pairs in known for name in pairs))
    if not names:
        return [paragraphs(["These runs do not tell."])]
    rows = [[run_name(run), run["window"], *(pairs.get(name, "-") for name in names[:MOST_NOISE])] for run, pairs in known]
    parts = [paragraphs(["Preemptions: how often the kernel took a CPU away from a side that polls. A run that lost its "
                         "CPU for long is about the scheduler, not about RPC."]),
             table(["call", "in flight", *names[:MOST_NOISE]], rows)]
    if len(names) > MOST_NOISE:
        parts.append(paragraphs([f"profile.json has more: {', '.join(names[MOST_NOISE:])}."], ' class="dim"'))
    return parts


def data_text(bytes_per_s):
    for unit, name in ((1e9, "GB/s"), (1e6, "MB/s")):
        if bytes_per_s >= unit:
            return f"{bytes_per_s / unit:.3g} {name}"
    return f"{bytes_per_s / 1e3:.3g} kB/s"


def runs_table(runs, spreads):
    repeated = any(count > 1 for count, *_ in spreads)
    head = ["call", "in flight", "RPC/s", *(["lowest", "highest"] if repeated else []), "data", "p50", "p90", "p99", "p99.9",
            "max", "cache line", "p50 / line", "memcpy", "of memcpy"]
    rows = []
    for run, (_, low, high) in zip(runs, spreads):
        latency, moved = run["latency_ns"], run["sizes"] and not run.get("unsized")
        rows.append([run_name(run), run["window"], f"{run['rpc_per_s']:,.0f}",
                     *([f"{low:,.0f}", f"{high:,.0f}"] if repeated else []),
                     data_text(run["bytes_per_s"]) if moved else "-",
                     *(time_text(latency[p]) for p in ("p50", "p90", "p99", "p99.9", "max")),
                     time_text(limit(run, "cache_line_rtt_ns")) if limit(run, "cache_line_rtt_ns") else "-",
                     f"{limit(run, 'p50_per_cache_line_rtt'):.1f}" if limit(run, "cache_line_rtt_ns") else "-",
                     data_text(limit(run, "memcpy_bytes_per_s")) if moved else "-",
                     f"{limit(run, 'of_memcpy'):.0%}" if moved else "-"])
    return table(head, rows)


# A comparison.

def figure_text(line, value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if line.metric == "rate" else time_text(value)


def end_text(end):
    return "?" if math.isinf(end) or end == 0 else f"{end:.3f}"


COMPARE_HEAD = ["call", "in flight", "figure", "A", "B", "B/A", "from", "to", "verdict"]


def compare_rows(lines):
    for line in lines:
        verdict = line.verdict
        if verdict not in (NONE, UNTOLD):
            verdict += f" by {loss_text(loss_of(line.metric, line.ratio).estimate).rsplit(' ', 1)[0]}"
        yield [line.name if line.window is not None else "all calls", "-" if line.window is None else line.window,
               METRICS[line.metric][0], figure_text(line, line.a), figure_text(line, line.b),
               f"{line.ratio.estimate:.3f}", end_text(line.ratio.low), end_text(line.ratio.high), verdict]


def compare_text(lines):
    rows = [COMPARE_HEAD, *compare_rows(lines)]
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(COMPARE_HEAD))]
    return "\n".join("  ".join(str(cell).ljust(w) if i in (0, 2, 8) else str(cell).rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths))).rstrip() for row in rows)


def write_compare(comparison, lines, said, allowed, out):
    """`comparison`: from profile_measure.in_turns(), or {"sides", "pairs"} of two results; `said`: the gate's
    sentences and remarks; `allowed`: the loss that the gate allows in percent, or None."""
    page = Page("Two sides compared", out)
    limit_ = 1 + allowed / 100 if allowed else None
    page.section("verdict", "Verdict", f'<p class="verdict">{html.escape(sentence(lines))}</p>', paragraphs(said),
                 page.figure(profile_compare_plots.forest(lines, limit_),
                             f"Intervals of the ratio B/A; all of them hold together with a confidence of {CONFIDENCE:.0%}."
                             + (" Dotted: what the gate allows." if allowed else "")))
    rows = ([*row[:-1], Markup(f'<span class="{row[-1].split()[0]}">{html.escape(row[-1])}</span>')]
            for row in compare_rows(lines))
    page.section("figures", "All figures", table(COMPARE_HEAD, rows, words=(2, 8)))
    curves = profile_compare_plots.overlay(compared_curves(comparison))
    page.section("percentiles", "Percentiles", page.figure(curves, "All calls of each side.") if curves else paragraphs(
        ["No histograms: testrpc writes them with --histogram."]))
    if "rows" in comparison:
        page.section("rounds", "Round by round", page.figure(
            profile_compare_plots.rounds(comparison["rows"]),
            "Ratios of two runs that came one right after the other. Steps and scatter are the machine's."))
    page.section("disturbances", "What disturbed it", disturbed(comparison))
    page.section("how", "How it was measured", command_line(comparison["command"]), paragraphs(comparison["method"]))
    page.write(out / "compare.html", [paragraphs(environments(comparison["sides"], comparison["names"]), ' class="dim"')])


def compared_curves(comparison):
    if "rows" in comparison:
        return [(f"{row['name']}, {row['window']} in flight", row["histograms"]) for row in comparison["rows"]]
    return [(f"{run_name(a[0])}, {a[0]['window']} in flight", [histogram(a[0]), histogram(b[0])])
            for a, b in comparison["pairs"]]


def disturbed(comparison):
    """Preemptions of both sides, and how far the CPUs were from one another."""
    def taken(figures):
        known = [one["preemptions"] for one in figures if isinstance(one["preemptions"], (int, float))]
        return f"{sum(known):,}" if known else "not known"

    def lines_text(figures):
        known = sorted(one["cache_line_ns"] for one in figures if one["cache_line_ns"])
        return f"{known[0]:.0f} to {known[-1]:.0f} ns" if known else "not known"

    if "rows" not in comparison:
        rows = [[side, run_name(run), run["window"], f"{name}: {value}"] for number, side in enumerate("AB")
                for pair in comparison["pairs"] for run in pair[number] for name, value in list(noise(run))[:MOST_NOISE]]
        return table(["side", "call", "in flight", "what"], rows, words=(1, 3)) if rows else paragraphs(["The runs do not tell."])
    rows = [[row["name"], row["window"]] + [text([one[side] for one in row["rounds"]])
                                            for text in (taken, lines_text) for side in "AB"] for row in comparison["rows"]]
    return paragraphs(["Preemptions: how often the kernel took a CPU away from a side that polls, in all rounds. Cache line: its "
                       "way to the other CPU and back, which in a virtual machine changes within seconds."]) + \
        table(["call", "in flight", "preemptions A", "preemptions B", "cache line A", "cache line B"], rows)
