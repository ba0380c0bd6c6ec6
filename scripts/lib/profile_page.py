"""The pages of scripts/latency-profile.py: HTML that needs no other file and no network."""
import html
import json
from pathlib import Path

from lib import output, profile_plots
from lib.profile_chart import FORMATS
from lib.profile_runs import (PARTS, causes, findings, groups, interval_text, is_number, knee_doubts, limit, mark,
                              noise, noise_remarks, outliers, run_name, server_text, size_name, spread, stages,
                              text_of, time_text, typical, warnings)

HERE = Path(__file__).resolve().parent
MOST_OUTLIERS = 20
MOST_NOISE = 2000


class Page:
    """Sections in order, and charts with the values of their points."""

    def __init__(self, title, folder):
        self.title, self.folder = title, folder
        self.parts, self.sections, self.charts = [], [], {}

    def section(self, name, title, *parts):
        self.sections.append((name, title))
        self.parts += [f'<h2 id="{name}">{html.escape(title)}</h2>', *parts]

    def figure(self, chart, caption):
        svg, self.charts[chart.name] = chart.save(self.folder)
        links = " ".join(f'<a class="onscreen" href="{chart.name}.{kind}">{kind.upper()}</a>' for kind in FORMATS)
        return f"<figure>{svg}<figcaption>{html.escape(caption)} {links}</figcaption></figure>"

    def write(self, path, head):
        style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("profile.css", "profile.js"))
        links = "".join(f'<a href="#{name}">{html.escape(title)}</a>' for name, title in self.sections)
        data = json.dumps(self.charts).replace("<", "\\u003c")
        with output.file(path) as file:
            file.write("\n".join((
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta name="viewport" content="width=device-width"><title>{html.escape(self.title)}</title>',
            f"<style>{style}</style></head><body><h1>{html.escape(self.title)}</h1>", *head, f"<nav>{links}</nav>",
            *self.parts, f'<script type="application/json" id="charts">{data}</script>',
            f"<script>{script}</script></body></html>\n")))


def table(head, rows, words=(), wide=()):
    """Returns a table. `words`: the columns that are aligned left; `wide`: those that may be long."""
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
    """Returns what was measured, when, where and how."""
    machine, chosen = result["environment"], result["options"]
    host, cpu, cpus, kernel = (text_of(machine[name]) for name in ("host", "cpu", "cpus", "kernel"))
    return [f"{result['time']} on {host}: {cpu}, {cpus} CPUs, {kernel}",
            f"testrpc {result['version']} ({result['revision']}), {result['uri'].split(':')[0]}:, cores "
            f"{chosen.get('idle')}, pinned to CPUs {chosen.get('pinned_cpus')}",
            *([f"Called: {server_text(result)}."] if server_text(result) else [])]


def command_line(words):
    return f"<p><code>{html.escape(' '.join(map(text_of, words)))}</code></p>"


def write_profile(profile, out):
    runs = typical(profile)
    page = Page("Latency profile", out)
    shown, hidden = profile_plots.shown_windows(runs)
    caption = f"Calls in flight: {' and '.join(map(str, shown))}."
    if hidden:
        caption += f" The table of all runs has {', '.join(map(str, hidden))}, too."
    caption += f" {interval_text(profile)} Click a name to hide its curves. Values: percentiles.csv."
    page.section("percentiles", "Percentiles", page.figure(profile_plots.percentiles(runs, groups(profile)), caption))
    page.section("stages", "Where the time goes", *stages_part(page, runs))
    page.section("throughput", "Throughput against latency", *throughput_part(page, profile, runs))
    page.section("time", "Over time", *time_part(page, profile))
    page.section("outliers", "Outliers", *outliers_part(profile["runs"]))
    page.section("disturbances", "What disturbed it", *noise_part(profile["runs"]))
    page.section("host", "The host", *host_part(profile))
    page.section("runs", "All runs", runs_table(runs, list(spread(profile))))
    page.section("how", "How it was measured", command_line(profile["command"]), paragraphs([
        "Closed loops unless a schedule is named: each reply starts the next call. Latency is of calls that came back "
        "right, known to 1 %. Everything on this page is in profile.json and, as tables, in the CSV files beside it."]))
    band = [*warnings(profile["runs"])]
    band += ["Such runs are marked with ! below; What disturbed it has all that is known."] if band else []
    page.write(out / "index.html", [paragraphs(band, ' class="band"'), paragraphs(about(profile), ' class="dim"')])


def stages_part(page, runs):
    chart = profile_plots.waterfall(runs)
    if chart is None:
        return [paragraphs(["These runs have no stages: this testrpc stamps none, or its server is another program."])]
    rows = []
    for run in runs:
        for procedure, trip, parts in stages(run):
            total = sum(part["p50_ns"] for part in parts)
            trips = [{"stage": "round trip, measured", "side": "", **trip}] if trip else []
            rows += [[mark(run) + f"{procedure} {size_name(run)}".strip(), run["window"], part["stage"], part["side"],
                      f"{part['calls']:,}" if is_number(part.get("calls")) else "-",
                      *(time_text(part.get(name)) for name in PARTS), f"{part['p50_ns'] / total:.0%}" if total else "-"]
                     for part in parts + trips]
    head = ["procedure", "in flight", "stage", "side", "calls", "p50", "p90", "p99", "mean", "of all stages"]
    return [page.figure(chart, "Medians of each stage, one after the other, at the smallest window; the dotted line is "
                               "the median round trip. Medians add up to it only roughly. N: how many calls each panel "
                               "is of, the round trip's and the server's."),
            f"<details><summary>All stages, {len(rows)} lines</summary>{table(head, rows, words=(2, 3))}</details>"]


def throughput_part(page, profile, runs):
    knees = profile["knees"]
    text = "Numbers are calls in flight; a ring marks the window with the most throughput for its latency " \
           "(throughput divided by median latency)."
    if knees:
        text += " Open loop: calls come on a schedule, whether or not earlier ones have been answered; rates " \
                "at which they pile up are not drawn. A cross marks the knee: the highest rate that keeps p99 within " \
                "three times that of a light load. A hollow one with a question mark is doubtful: the table says why."
    pairs = list(zip(runs, groups(profile)))
    pairs = [(run, group) for run, group in pairs if run.get("rate") is None] or pairs
    text += f" {interval_text(profile)}"
    parts = [page.figure(profile_plots.throughput(pairs, profile["knee_runs"], knees), text)]
    if knees:
        rows = [[knee["name"], knee_text(knee), time_text(knee.get("p99_ns")), time_text(knee.get("light_p99_ns")),
                 f"{knee['closed_loop_rate']:,.0f}", "; ".join(knee_doubts(knee)) or "-"] for knee in knees]
        parts.append(table(["call", "knee, calls/s", "p99 there", "p99 at a light load", "closed loop, calls/s",
                            "doubts"], rows, words=(5,), wide=(5,)))
    return parts


def knee_text(knee):
    if not knee.get("rate"):
        return "none found"
    return f"{knee['rate']:,.0f}" + (f" to {knee['above']:,.0f}" if knee.get("above") else "")


def time_part(page, profile):
    chart = profile_plots.heat_map(profile["timeline"])
    if chart is None:
        return [paragraphs(["No time slices were measured: --quick leaves them out, testrpc has --interval."])]
    line = profile["timeline"][0]
    if "ends" in line:
        return [page.figure(chart, f"Each column is a part of one run, of {line['slice_seconds']:.2g} s or a little more; "
                                   "calls are where they ended.")]
    return [page.figure(chart, f"Each column is a run of {line['slice_seconds']:g} s; they follow one another on one "
                               "connection, with short pauses that are not shown.")]


def moments(run):
    """Groups a run's slowest calls whose times overlap: one disturbance delays all calls in progress."""
    found, end = [], None
    for call in sorted(outliers(run), key=lambda call: call["start_ns"] if is_number(call.get("start_ns")) else -1):
        start = call["start_ns"] if is_number(call.get("start_ns")) else None
        if found and start is not None and end is not None and start <= end:
            found[-1].append(call)
        else:
            found.append([call])
            end = None
        if start is not None:
            end = max(end or 0, start + call["total_ns"])
    return found


def outliers_part(runs):
    every = [(run, calls) for run in runs for calls in moments(run)]
    every.sort(key=lambda pair: -max(call["total_ns"] for call in pair[1]))
    if not every:
        return [paragraphs(["These runs kept none of their slowest calls."])]
    rows = []
    for run, calls in every[:MOST_OUTLIERS]:
        call = max(calls, key=lambda call: call["total_ns"])
        start = call.get("start_ns")
        parts = call.get("stages") if isinstance(call.get("stages"), dict) else {}
        longest = max(((ns, name) for name, ns in parts.items() if is_number(ns)), default=None)
        rows.append([run_name(run), run["window"], len(calls), time_text(call["total_ns"]),
                     f"{start / 1e9:.3f} s" if is_number(start) else "-", text_of(call.get("connection", "-")),
                     f"{text_of(longest[1])}, {time_text(longest[0])}" if longest else "-",
                     "; ".join(causes(call)) or "not known"])
    head = ["call", "in flight", "calls", "slowest took", "into its run", "connection", "longest stage", "causes"]
    kept = sum(len(calls) for _, calls in every)
    return [paragraphs([f"The slowest calls of all runs: {len(rows)} of {len(every)} moments, at which {kept} calls were "
                        "kept. Calls whose times overlap are one moment, and the line is about the slowest."]),
            table(head, rows, words=(6, 7), wide=(7,))]


def noise_part(runs):
    known = [(run, dict(noise(run))) for run in runs]
    if not any(pairs for _, pairs in known):
        return [paragraphs(["These runs do not report it."])]
    rows = [[run_name(run), run["window"], pairs.get("preemptions", "-"), "; ".join(noise_remarks(run)) or "-"]
            for run, pairs in known]
    every = [[run_name(run), run["window"], name, value] for run, pairs in known for name, value in pairs.items()]
    return [paragraphs(["Preemptions: how often the kernel took a CPU away from a side that polls. A run that lost its "
                        "CPU for long is about the scheduler, not about RPC."]),
            table(["call", "in flight", "preemptions", "what matters"], rows, words=(3,), wide=(3,)),
            f"<details><summary>All that is known, {len(every)} lines</summary>"
            f"{table(['call', 'in flight', 'what', 'value'], every[:MOST_NOISE], words=(2,))}</details>"]


def host_part(profile):
    found = findings(profile)
    if not found:
        return [paragraphs(["rrdk-doctor did not look at this host when it was measured."])]
    rows = [[f"{subject}: {name}", what, costs] for subject, name, state, what, costs in found
            if state in ("worse", "bad")]
    said = "rrdk-doctor looked at the client's host when it was measured: " \
           f"{len(rows)} of {len(found)} findings cost speed."
    return [paragraphs([said]),
            *([table(["what", "found", "what it costs"], rows, words=(0, 1, 2), wide=(1, 2))] if rows else [])]


def data_text(bytes_per_s):
    for unit, name in ((1e9, "GB/s"), (1e6, "MB/s")):
        if bytes_per_s >= unit:
            return f"{bytes_per_s / unit:.3g} {name}"
    return f"{bytes_per_s / 1e3:.3g} kB/s"


def runs_table(runs, spreads):
    repeated = any(count > 1 for count, *_ in spreads)
    head = ["call", "in flight", "RPC/s", *(["lowest", "highest"] if repeated else []), "data", "p50", "p90", "p99",
            "p99.9", "max", "cache line", "p50 / line", "memcpy", "of memcpy"]
    rows = []
    for run, (_, low, high) in zip(runs, spreads):
        latency, moved = run["latency_ns"], run["sizes"] and not run.get("unsized")
        rows.append([mark(run) + run_name(run), run["window"], f"{run['rpc_per_s']:,.0f}",
                     *([f"{low:,.0f}", f"{high:,.0f}"] if repeated else []),
                     data_text(run["bytes_per_s"]) if moved else "-",
                     *(time_text(latency.get(p)) for p in ("p50", "p90", "p99", "p99.9", "max")),
                     time_text(limit(run, "cache_line_rtt_ns")) if limit(run, "cache_line_rtt_ns") else "-",
                     f"{limit(run, 'p50_per_cache_line_rtt'):.1f}" if limit(run, "cache_line_rtt_ns") else "-",
                     data_text(limit(run, "memcpy_bytes_per_s")) if moved else "-",
                     f"{limit(run, 'of_memcpy'):.0%}" if moved else "-"])
    return table(head, rows)
