"""The page of a comparison, for scripts/latency-profile.py."""
import html
import math

from lib import profile_compare_plots
from lib.profile_page import Markup, Page, command_line, paragraphs, table
from lib.profile_runs import environments, histogram, is_number, noise, noise_remarks, run_name, time_text
from lib.profile_verdict import CONFIDENCE, METRICS, NONE, UNTOLD, loss_of, loss_text, sentence

HEAD = ["call", "in flight", "figure", "A", "B", "B/A", "from", "to", "verdict"]


def figure_text(line, value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if line.metric == "rate" else time_text(value)


def end_text(end):
    return "?" if math.isinf(end) or end == 0 else f"{end:.3f}"


def table_rows(lines):
    for line in lines:
        verdict = line.verdict
        if verdict not in (NONE, UNTOLD):
            verdict += f" by {loss_text(loss_of(line.metric, line.ratio).estimate).rsplit(' ', 1)[0]}"
        yield [line.name if line.window is not None else "all calls", "-" if line.window is None else line.window,
               METRICS[line.metric][0], figure_text(line, line.a), figure_text(line, line.b),
               f"{line.ratio.estimate:.3f}", end_text(line.ratio.low), end_text(line.ratio.high), verdict]


def as_text(lines):
    rows = [HEAD, *table_rows(lines)]
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(HEAD))]
    return "\n".join("  ".join(str(cell).ljust(w) if i in (0, 2, 8) else str(cell).rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths))).rstrip() for row in rows)


def write(comparison, lines, said, allowed, out):
    """Writes the page. `comparison`: from profile_measure.in_turns(), or {"sides", "pairs"} of two results;
    `said`: the gate's sentences and remarks; `allowed`: the loss that the gate allows in percent, or None."""
    page = Page("Two sides compared", out)
    limit_ = 1 + allowed / 100 if allowed else None
    page.section("verdict", "Verdict", f'<p class="verdict">{html.escape(sentence(lines))}</p>', paragraphs(said),
                 page.figure(profile_compare_plots.forest(lines, limit_),
                             f"Intervals of the ratio B/A. They hold simultaneously with a confidence of "
                             f"{CONFIDENCE:.0%}." + (" Dotted: what the gate allows." if allowed else "")))
    rows = ([*row[:-1], Markup(f'<span class="{row[-1].split()[0]}">{html.escape(row[-1])}</span>')]
            for row in table_rows(lines))
    page.section("figures", "All figures", table(HEAD, rows, words=(2, 8)))
    curves = profile_compare_plots.overlay(compared_curves(comparison))
    page.section("percentiles", "Percentiles", page.figure(curves, "All calls of each side.") if curves else paragraphs(
        ["No histograms: testrpc writes them with --histogram."]))
    if "rows" in comparison:
        page.section("rounds", "Round by round", page.figure(
            profile_compare_plots.rounds(comparison["rows"]),
            "Ratios of two runs, one right after the other. Steps and scatter come from the machine."))
    page.section("disturbances", "What disturbed it", disturbed(comparison))
    page.section("how", "How it was measured", command_line(comparison["command"]), paragraphs(comparison["method"]))
    about = environments(comparison["sides"], comparison["names"])
    page.write(out / "compare.html", [paragraphs(about, ' class="dim"')])


def compared_curves(comparison):
    if "rows" in comparison:
        return [(f"{row['name']}, {row['window']} in flight", row["histograms"]) for row in comparison["rows"]]
    return [(f"{run_name(a[0])}, {a[0]['window']} in flight", [histogram(a[0]), histogram(b[0])])
            for a, b in comparison["pairs"]]


def disturbed(comparison):
    if "rows" in comparison:
        return disturbed_rounds(comparison["rows"])
    rows = []
    for number, side in enumerate("AB"):
        for run in (run for pair in comparison["pairs"] for run in pair[number]):
            said = noise_remarks(run) + [f"{name}: {value}" for name, value in noise(run)[:1]]
            rows += [[side, run_name(run), run["window"], words] for words in said]
    if not rows:
        return paragraphs(["The runs do not report it."])
    return table(["side", "call", "in flight", "what"], rows, words=(1, 3))


def disturbed_rounds(rows):
    """Returns the preemptions of both sides, and how far the CPUs were from one another."""
    def taken(figures):
        known = [one["preemptions"] for one in figures if is_number(one["preemptions"])]
        return f"{sum(known):,}" if known else "not known"

    def distances(figures):
        known = sorted(one["cache_line_ns"] for one in figures if one["cache_line_ns"])
        return f"{known[0]:.0f} to {known[-1]:.0f} ns" if known else "not known"

    lines = [[row["name"], row["window"]] + [text([one[side] for one in row["rounds"]])
                                             for text in (taken, distances) for side in "AB"] for row in rows]
    return paragraphs(["Preemptions: how often the kernel took a CPU away from a side that polls, in all rounds. Cache "
                       "line: the time of its way to the other CPU and back, which in a virtual machine changes within seconds."]) + \
        table(["call", "in flight", "preemptions A", "preemptions B", "cache line A", "cache line B"], lines)
