"""Runs testrpc for scripts/latency-profile.py: sweeps, time slices, and two sides in turns."""
import json
import math
import random
import re
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

from lib import profile_runs

SLICES, SLICE_SECONDS = 40, 0.05
SECONDS_BETWEEN_LINES = 5
# The calls of engine nfs3 that move --size bytes; the others move no data, and get small files to work on.
NFS_SIZED = {"read", "write"}
UNSIZED = {"null"}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
# Options that are used if this version of testrpc has them.
WANTED = {"--stages": ["--stages", "16"], "--interval": ["--interval", f"{SLICE_SECONDS:g}"]}


CAUSES, MOST_CAUSES = ("testrpc: ", "ERRORS in ", "WRONG BYTES in "), 4  # lines of testrpc


class Failed(Exception):
    """Says how a run of testrpc failed."""


# The calls of a run: an engine, for nfs3 the calls that it makes; a size and a window, as words.
Row = namedtuple("Row", "engine nfs_calls size window")


def rows(engines, sizes, windows):
    for name in engines.split(","):
        engine, _, calls = name.partition(":")
        sized = calls in NFS_SIZED if calls else engine not in UNSIZED
        for size in each(sizes) if sized else [None]:
            for window in each(windows):
                yield Row(engine, calls, size, window)


def each(words):
    """Returns the entries of a list; 4K-16K stands for 4K, 8K, 16K, as in testrpc."""
    for word in words.split(","):
        ends = re.fullmatch(r"(\d+)([KM]?)-(\d+)([KM]?)", word)
        if not ends:
            yield word
            continue
        value, last = (int(number) * UNITS[unit] for number, unit in (ends.groups()[:2], ends.groups()[2:]))
        while 0 < value <= last:
            yield profile_runs.size_text(value)
            value *= 2


def row_name(row):
    return " ".join(filter(None, (row.engine, row.nfs_calls, row.size, f"window {row.window}")))


class Side:
    """A testrpc program with a role, and the options of all its runs."""

    def __init__(self, program, client, options):
        self.program = program
        self.command = [program, *(["--client", client] if client else ["--self"]), *options]
        self.extra = []

    def prefer(self, names):
        """Adds the named options of WANTED to all later runs, if this testrpc has them."""
        usage = output([self.program, "--help"])
        self.extra = [word for name in names if f"{name} " in usage for word in WANTED[name]]

    def run(self, row, *more, window=None, duration=None):
        """Runs the row and returns the result, whose runs name their NFS calls and which of them have no data."""
        command = [*self.command, "--engine", row.engine, *self.extra, *more]
        command += ["--window", window or row.window] if window != "" else []
        command += ["--nfs-calls", row.nfs_calls] if row.nfs_calls else []
        size = row.size or ("4K" if row.nfs_calls else None)
        command += ["--size", size] if size else []
        command += ["--duration", f"{duration:g}"] if duration else []
        result = read_result(output([*command, "--json", "-"]), command)
        for run in result["runs"]:
            if row.nfs_calls:
                run["nfs_calls"] = row.nfs_calls
            if not row.size:
                run["unsized"] = True
        return result


def output(command):
    """Runs the command and returns its output; raises Failed with the command's own error messages."""
    words = " ".join(map(str, command))
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise Failed(f"{words}\n  {error}") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        # With --json - the table and its remarks go to stderr, too, after the errors.
        causes = [line for line in lines if line.startswith(CAUSES)] or lines[-1:] or ["no output"]
        raise Failed("\n  ".join([words, f"ended with status {done.returncode}: {causes[0]}", *causes[1:MOST_CAUSES]]))
    return done.stdout


def read_result(text, command):
    words = " ".join(map(str, command))
    try:
        result = json.loads(text)
        wrong = profile_runs.what_is_wrong(result)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise Failed(f"{words}\n  printed no result of testrpc: {error}") from error
    if wrong or not result["runs"]:
        raise Failed(f"{words}\n  printed a result that cannot be used: {wrong or 'no runs'}")
    return result


def examine_host():
    """Returns what rrdk-doctor finds on this host, or nothing if it cannot look: a profile does without."""
    doctor = Path(__file__).resolve().parents[1] / "rrdk-doctor.py"
    try:
        done = subprocess.run([sys.executable, doctor, "--json", "-"], capture_output=True, text=True, errors="replace",
                              check=False)
        return json.loads(done.stdout)["findings"]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def check(side, todo):
    """Makes a call of each kind, so that mistakes are found before anything is measured. Returns a result."""
    return [side.run(row, "--count", "1") for row in first_of(todo, "engine nfs_calls size")][0]


def first_of(todo, names):
    """Returns the first row of each combination of these members."""
    found = {}
    for row in todo:
        found.setdefault(tuple(getattr(row, name) for name in names.split()), row)
    return list(found.values())


class Progress:
    """Shows progress in one line of the terminal, or without a terminal as a line every few seconds."""

    def __init__(self, total):
        self.total, self.done, self.began, self.shown = total, 0, time.monotonic(), -math.inf

    def step(self, what):
        self.show(what)
        self.done += 1

    def show(self, what):
        elapsed = time.monotonic() - self.began
        left = f"{elapsed / self.done * (self.total - self.done):4.0f} s left" if self.done else ""
        text = f"[{self.done:3}/{self.total}] {what:<30} {left}"
        if sys.stderr.isatty():
            print(f"\r{text}\033[K", end="" if self.done < self.total else "\n", file=sys.stderr, flush=True)
        elif elapsed - self.shown >= SECONDS_BETWEEN_LINES or self.done == self.total:
            print(text, file=sys.stderr, flush=True)
            self.shown = elapsed


def profile(side, todo, duration, repeat, deep):
    """Measures all rows, and returns one result as if one testrpc had made all runs; `deep`: with time slices
    and the search for the knee."""
    whole = {**check(side, todo), "runs": [], "timeline": [], "knees": [], "knee_runs": [],
             "tool": "latency-profile", "command": sys.argv, "doctor": examine_host()}
    sliced = first_of(todo, "engine nfs_calls") if deep else []
    searched = first_of(todo, "engine nfs_calls size") if deep else []
    progress = Progress(len(todo) * repeat + len(sliced) + len(searched))
    side.prefer(["--stages"])
    for _ in range(repeat):
        for row in todo:
            progress.step(row_name(row))
            whole["runs"] += side.run(row, "--histogram", duration=duration)["runs"]
    side.prefer(["--interval"])
    for row in sliced:
        progress.step(f"{row_name(row)}, over time")
        whole["timeline"].append(timeline(side, row))
    side.prefer([])
    for row in searched:
        progress.step(f"{row_name(row._replace(window='64'))}, knee")
        result = side.run(row, "--find-knee", window="", duration=duration / 2)
        name = profile_runs.run_name(result["runs"][0])
        whole["knees"] += [{**knee, "name": name} for knee in result.get("knees", [])]
        whole["knee_runs"] += result["runs"]
    progress.show("done")
    return whole


def timeline(side, row):
    """Measures a row over time: in one run, or, for a testrpc without --interval, in short consecutive runs on
    one connection."""
    if side.extra:
        result = side.run(row, duration=SLICES * SLICE_SECONDS)
        line = profile_runs.series_of(result["runs"][0])
        if line:
            return line
    side.extra = []
    runs = side.run(row, "--histogram", window=",".join([row.window] * SLICES), duration=SLICE_SECONDS)["runs"]
    return {"name": profile_runs.run_name(runs[0]), "window": runs[0]["window"], "slice_seconds": SLICE_SECONDS,
            "slices": [profile_runs.histogram(run) for run in runs]}


FIGURES = {"rate": lambda run: run["rpc_per_s"], "p50_ns": lambda run: run["latency_ns"]["p50"],
           "p99_ns": lambda run: run["latency_ns"].get("p99")}


def in_turns(sides, todo, duration, repeat, seed):
    """Measures in rounds: each row on both sides, one right after the other; a coin decides which goes first."""
    coin = random.Random(seed)
    measured = [{"name": None, "window": None, "rounds": [], "histograms": [{}, {}]} for _ in todo]
    results = [None, None]
    progress = Progress(repeat * len(todo) * 2)
    for _ in range(repeat):
        for row, into in zip(todo, measured):
            order = [0, 1] if coin.random() < 0.5 else [1, 0]
            figures = [None, None]
            for which in order:
                progress.step(f"{row_name(row)}, {'AB'[which]}")
                result = sides[which].run(row, "--histogram", duration=duration)
                results[which] = results[which] or {**result, "runs": []}
                figures[which] = take(result["runs"][0], into, into["histograms"][which])
            into["rounds"].append({"first": "AB"[order[0]], "A": figures[0], "B": figures[1]})
    progress.show("done")
    for into in measured:
        into["histograms"] = [sorted(map(list, histogram.items())) for histogram in into["histograms"]]
    return {"tool": "latency-profile", "schema": profile_runs.SCHEMA, "command": sys.argv, "seed": seed,
            "sides": results, "rows": measured}


def take(run, into, histogram):
    """Adds the figures of a run to `into`, and its calls to those of its side."""
    into["name"], into["window"] = profile_runs.run_name(run), run["window"]
    for value, count in profile_runs.histogram(run):
        histogram[value] = histogram.get(value, 0) + count
    if run["errors"] or run["wrong_bytes"] or not run["rpc_per_s"] or not run["latency_ns"]["p50"]:
        raise Failed(f"{profile_runs.run_name(run)}, window {run['window']}: "
                     f"{run['errors']} calls failed, {run['wrong_bytes']} bytes were wrong")
    return {**{name: figure(run) for name, figure in FIGURES.items()}, "preemptions": run.get("preemptions"),
            "cache_line_ns": profile_runs.limit(run, "cache_line_rtt_ns")}
