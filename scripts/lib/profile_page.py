"""The pages of scripts/latency-profile.py: HTML that needs no other file."""
import base64
import html

from lib.profile_plots import shown_windows
from lib.profile_runs import run_name

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em;
       color: #222; background: #fff; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .7em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
.scroll { overflow-x: auto; }
"""


def us(ns):
    return f"{ns / 1000:.2f}" if ns < 100_000 else f"{ns / 1000:.0f}"


def table(head, rows):
    cells = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in row) + "</tr>"
                   for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead>' \
           f"<tbody>{body}</tbody></table></div>"


def picture(path, text):
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<p><img alt="{html.escape(text)}" src="data:image/png;base64,{data}"></p>'


def write(path, title, parts):
    path.write_text(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1>\n"
        + "\n".join(parts) + "\n</body></html>\n", encoding="utf-8")


def about(profile):
    """What was measured, when, where and how."""
    machine, chosen = profile["environment"], profile["options"]
    return [f"{profile['time']} on {machine['host']}: {machine['cpu']}, {machine['cpus']} CPUs, {machine['kernel']}",
            f"testrpc {profile['version']} ({profile['revision']}), {profile['uri'].split(':')[0]}:, cores "
            f"{chosen['idle']}, pinned to CPUs {chosen['pinned_cpus']}",
            " ".join(profile["command"])]


def paragraphs(lines):
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def write_profile(profile, out):
    head = ["call", "in flight", "RPC/s", "GB/s", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "max µs",
            "cache line ns", "p50 / line", "memcpy GB/s", "of memcpy"]
    rows = []
    for run in profile["runs"]:
        latency, limit = run["latency_ns"], run["limits"]
        rows.append([run_name(run), run["window"], f"{run['rpc_per_s']:,.0f}",
                     f"{run['bytes_per_s'] / 1e9:.3f}" if run["sizes"] else "-",
                     *(us(latency[p]) for p in ("p50", "p90", "p99", "p99.9", "max")),
                     f"{limit['cache_line_rtt_ns']:.0f}",
                     f"{limit['p50_per_cache_line_rtt']:.1f}",
                     f"{limit['memcpy_bytes_per_s'] / 1e9:.1f}" if run["sizes"] else "-",
                     f"{limit['of_memcpy']:.0%}" if run["sizes"] else "-"])
    shown, hidden = shown_windows(profile)
    windows = f"Drawn: {' and '.join(map(str, shown))} calls in flight."
    if hidden:
        windows += f" The table below has {', '.join(map(str, hidden))}, too."
    write(out / "index.html", "Latency profile", [
        paragraphs(about(profile)), "<h2>Percentiles</h2>", paragraphs([windows]),
        picture(out / "percentiles.png", "latency by percentile"),
        "<h2>Throughput against latency</h2>",
        picture(out / "throughput.png", "throughput against latency"),
        "<h2>All runs</h2>", table(head, rows)])


COMPARE_HEAD = ["call", "in flight", "p50 A µs", "p50 B µs", "B/A", "p99 A µs", "p99 B µs", "B/A",
                "RPC/s A", "RPC/s B", "B/A"]


def compare_rows(pairs):
    def three(a, b, text):
        return [text(a), text(b), f"{b / a:.2f}" if a else "-"]

    for a, b in pairs:
        yield [run_name(a), a["window"],
               *three(a["latency_ns"]["p50"], b["latency_ns"]["p50"], us),
               *three(a["latency_ns"]["p99"], b["latency_ns"]["p99"], us),
               *three(a["rpc_per_s"], b["rpc_per_s"], lambda v: f"{v:,.0f}")]


def compare_text(pairs):
    rows = [COMPARE_HEAD, *compare_rows(pairs)]
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(COMPARE_HEAD))]
    return "\n".join("  ".join(str(cell).ljust(w) if i == 0 else str(cell).rjust(w)
                               for i, (cell, w) in enumerate(zip(row, widths))) for row in rows)


def write_compare(pairs, environments, remarks, out):
    write(out / "compare.html", "Two latency profiles", [
        paragraphs(environments), paragraphs(remarks),
        picture(out / "compare.png", "ratios of the second result to the first"),
        table(COMPARE_HEAD, compare_rows(pairs))])
