"""Writes the results of scripts/latency-profile.py as CSV files for other programs. Times are nanoseconds."""
import csv

from lib import output
from lib.profile_plots import band, curve
from lib.profile_runs import (LATENCIES, PARTS, call_name, causes, groups, noise, noise_remarks, outliers, run_name,
                              size_name, slice_ends, stages)


def write(path, head, rows):
    with output.file(path, newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def write_profile(profile, runs, out):
    """Writes a profile. `runs`: one run of each kind, as on the page."""
    write(out / "runs.csv", ["call", "size", "window", "rate_asked", "rpc_per_s", "bytes_per_s", *LATENCIES, "errors",
                             "preemptions", "disturbed"],
          [[call_name(run), size_name(run), run["window"], run.get("rate"), run["rpc_per_s"], run["bytes_per_s"],
            *(run["latency_ns"].get(name) for name in LATENCIES), run["errors"], run.get("preemptions"), "; ".join(noise_remarks(run))]
           for run in profile["runs"] + profile["knee_runs"]])
    write(out / "percentiles.csv", ["call", "size", "window", "percentile", "latency", "lowest", "highest"],
          [[call_name(run), size_name(run), run["window"], f"{100 - 100 / x:.9g}", *latencies]
           for run, repeated in zip(runs, groups(profile)) for x, *latencies in with_interval(run, repeated)])
    write(out / "stages.csv", ["procedure", "size", "window", "stage", "side", "calls", "p50", "p90", "p99", "mean"],
          [[procedure, size_name(run), run["window"], part["stage"], part["side"], part.get("calls"),
            *(part.get(name) for name in PARTS)]
           for run in runs for procedure, _, parts in stages(run) for part in parts])
    write(out / "heatmap.csv", ["call", "window", "slice", "seconds", "latency", "calls"],
          [[line["name"], line["window"], number, round(start, 6), value, count] for line in profile["timeline"]
           for number, (start, slice_) in enumerate(zip([0, *slice_ends(line)], line["slices"]))
           for value, count in slice_])
    write(out / "outliers.csv", ["call", "window", "start", "total", "connection", "causes"],
          [[run_name(run), run["window"], call.get("start_ns"), call["total_ns"], call.get("connection"),
            "; ".join(causes(call))] for run in profile["runs"] for call in outliers(run)])
    write(out / "noise.csv", ["call", "window", "what", "value"],
          [[run_name(run), run["window"], name, value] for run in profile["runs"] for name, value in noise(run)])


def with_interval(run, repeated):
    """Returns (1 / share of slower calls, latency, lowest, highest of the repeated runs) of a curve; the last two are
    empty if there are none."""
    intervals = {x: ends for x, *ends in band(repeated)} if len(repeated) > 1 else {}
    return [(x, y, *intervals.get(x, ("", ""))) for x, y in curve(run)]


def write_compare(comparison, lines, out):
    write(out / "compare.csv", ["call", "window", "figure", "a", "b", "ratio", "low", "high", "verdict"],
          [[line.name, line.window, line.metric, line.a, line.b, line.ratio.estimate, line.ratio.low, line.ratio.high,
            line.verdict] for line in lines])
    if "rows" in comparison:
        names = list(comparison["rows"][0]["rounds"][0]["A"])
        write(out / "rounds.csv", ["call", "window", "round", "first", "side", *names],
              [[row["name"], row["window"], number, one["first"], side, *one[side].values()]
               for row in comparison["rows"] for number, one in enumerate(row["rounds"], 1) for side in "AB"])
