"""Results of testrpc, for scripts/latency-profile.py: whether they can be read, what their runs contain, and
which runs of two results can be compared.

Members that only some builds of testrpc write (stages, outliers, noise, histograms) are used if they are well
formed, and treated as absent otherwise."""
import json
import re
import sys
from collections import Counter
from numbers import Real

SCHEMA = 2  # of testrpc's JSON, see doc/testrpc-json.md

# The members that describe what a run was asked to do.
OF_RUN = ("engine", "nfs_calls", "sizes", "window", "connections", "dispatch", "rate", "verify", "rpcrdma_version")
# Further such members, with their values in older versions of testrpc, which did not have them.
SINCE = {"arrivals": "even", "think_us": 0}
# Options of testrpc in which two runs of one kind may differ: places and labels, and how the server of --self was
# slowed or limited. Differences in these are reported.
NOT_COMPARED = ("pinned_cpus", "seed", "timeout_ms", "server")
LATENCIES = ("min", "mean", "p50", "p90", "p99", "p99.9", "max")
# Members that are null or left out if a run had too few calls.
RARE = ("p90", "p99", "p99.9", "p90_ns", "p99_ns")
KNEE = ("rate", "above", "p99_ns", "light_p99_ns")  # of a knee; null if it was not found
PARTS = ("p50_ns", "p90_ns", "p99_ns", "mean_ns")  # of a stage
MOST_STAGES, MOST_TEXT, MOST_SLICES = 32, 200, 2000  # limits on what a result can put on a page


def is_number(value):
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= value < 1e18


def is_figure(figures, name):
    """Returns whether the figure exists, or may be left out."""
    return is_number(figures.get(name)) or (name in RARE and figures.get(name) is None)


def text_of(value):
    return str(value)[:MOST_TEXT]


# Reading one.

def load(path):
    """Reads a profile.json or a result of testrpc. Raises ValueError, which says what is wrong with it."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        # Half a surrogate pair is valid JSON, but cannot be written as text.
        result = json.loads(json.dumps(result, ensure_ascii=False).encode("utf-8", "replace"))
        schema = result.get("schema", 1)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a result of latency-profile or testrpc: {error}") from error
    if schema != SCHEMA:
        raise ValueError(f"{path} has schema {text_of(schema)}, and this program reads {SCHEMA}: measure again, "
                         "or use the version of latency-profile that belongs to that testrpc")
    if not result.get("runs"):
        raise ValueError(f"{path} has no runs")
    leave_out_silent_runs(path, result)
    wrong = what_is_wrong(result)
    if wrong:
        raise ValueError(f"{path} cannot be used: {wrong}")
    return result


def leave_out_silent_runs(path, result):
    """Removes the runs without a successful call: they have no latency."""
    runs = result["runs"] if isinstance(result["runs"], list) else []
    told = [run for run in runs if not isinstance(run, dict) or not isinstance(run.get("latency_ns"), dict)
            or any(value is not None for value in run["latency_ns"].values())]
    if len(told) == len(runs):
        return
    if not told:
        raise ValueError(f"{path} cannot be used: no call came back right in any of its runs")
    print(f"{path}: {len(runs) - len(told)} of {len(runs)} runs are left out: no call of theirs came back right",
          file=sys.stderr)
    result["runs"] = told


def what_is_wrong(result):
    """Returns the first required member that this result lacks, or None."""
    for name in ("environment", "options"):
        if not isinstance(result.get(name), dict):
            return f"no {name}"
    for name in ("host", "cpu", "cpus", "kernel"):
        if name not in result["environment"]:
            return f"no {name} in its environment"
    for name in ("time", "uri", "version", "revision"):
        if not isinstance(result.get(name), str):
            return f"no {name}"
    if not isinstance(result.get("command"), list):
        return "no command"
    if not isinstance(result["runs"], list):
        return "its runs are no list"
    wrong = ((number, wrong_in_run(run)) for number, run in enumerate(result["runs"], 1))
    return next((f"run {number} has no {what}" for number, what in wrong if what), None)


def wrong_in_run(run):
    if not isinstance(run, dict):
        return "members"
    for name in ("engine", "dispatch"):
        if not isinstance(run.get(name), str):
            return name
    if not isinstance(run.get("sizes"), list) or not all(is_number(size) for size in run["sizes"]):
        return "sizes"
    for name in ("window", "errors", "wrong_bytes", "rpc_per_s", "bytes_per_s"):
        if not is_number(run.get(name)):
            return name
    latency = run.get("latency_ns")
    return next((f"latency_ns {name}" for name in LATENCIES
                 if not isinstance(latency, dict) or not is_figure(latency, name)), None)


# What is in a run.

def size_text(size):
    for unit, suffix in ((1 << 20, "M"), (1 << 10, "K")):
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def call_name(run):
    calls = run.get("nfs_calls")
    return f"{text_of(run['engine'])} {calls}" if calls else text_of(run["engine"])


def size_name(run):
    """Returns the size as text, empty for calls without data."""
    if run.get("unsized"):
        return ""
    return ",".join(size_text(size) for size in run["sizes"][:8])


def run_name(run):
    return f"{call_name(run)} {size_name(run)}".strip()


def limit(run, name):
    """Returns what the machine itself achieved meanwhile, or 0 if that was not measured."""
    limits = run.get("limits")
    value = limits.get(name, 0) if isinstance(limits, dict) else 0
    return value if is_number(value) else 0


def histogram(run):
    """Returns pairs of a latency in nanoseconds and the number of calls that took that long, ascending; empty
    without a histogram."""
    pairs = run.get("histogram")
    if not isinstance(pairs, list):
        return []
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(map(is_number, pair)) and pair[1] > 0):
            return []
    return sorted(pairs)


def stages(run):
    """Returns (procedure, its round trip, [stage with side and figures]) for each procedure that was stamped."""
    member = run.get("stages")
    procedures = member.get("procedures") if isinstance(member, dict) else None
    for procedure in procedures if isinstance(procedures, list) else []:
        if not isinstance(procedure, dict) or not isinstance(procedure.get("stages"), list):
            continue
        parts = [stage for stage in procedure["stages"][:MOST_STAGES] if is_stage(stage)]
        trip = procedure.get("round_trip")
        if parts:
            yield text_of(procedure.get("name", "?")), trip if has_figures(trip) else None, parts


def has_figures(figures):
    return isinstance(figures, dict) and all(is_figure(figures, name) for name in PARTS)


def is_stage(stage):
    return has_figures(stage) and isinstance(stage.get("stage"), str) and isinstance(stage.get("side"), str)


def outliers(run):
    """Returns the slowest calls, slowest first, with all that is known about each."""
    member = run.get("outliers")
    kept = [call for call in (member if isinstance(member, list) else [])
            if isinstance(call, dict) and is_number(call.get("total_ns"))]
    return sorted(kept, key=lambda call: -call["total_ns"])


def causes(call):
    """Returns a text such as "switched out on CPU 1 (client) for 4.99 ms" for each cause."""
    member = call.get("causes")
    for cause in member if isinstance(member, list) else []:
        if not isinstance(cause, dict) or not isinstance(cause.get("cause"), str):
            continue
        cpu = f" CPU {text_of(cause['cpu'])}" if is_number(cause.get("cpu")) else ""
        side = f" ({text_of(cause['side'])})" if isinstance(cause.get("side"), str) else ""
        taken = f" for {time_text(cause['ns'])}" if is_number(cause.get("ns")) else ""
        yield text_of(cause["cause"]) + (f" on{cpu}{side}" if cpu else side) + taken


def time_text(ns):
    """Returns the time as text, "-" if there were too few calls for it."""
    if ns is None:
        return "-"
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= unit:
            return f"{ns / unit:.3g} {name}" if ns < 1000 * unit else f"{ns / unit:.0f} {name}"
    return f"{ns:.0f} ns"


def noise(run):
    """Returns what disturbed the run as (name, value) pairs, from all levels of nesting, without its remarks."""
    member = {name: value for name, value in (run["noise"] if isinstance(run.get("noise"), dict) else {}).items()
              if name != "remarks"}
    taken = run.get("preemptions")
    return ([("preemptions", f"{taken:,}")] if is_number(taken) else []) + list(flat(member, "", 0))


def flat(value, name, depth):
    if isinstance(value, dict) and depth < 4:
        for inner in [inner for inner in list(value)[:64] if inner not in ("side", "cpu")]:
            yield from flat(value[inner], f"{name} {text_of(inner)}".strip(), depth + 1)
    elif isinstance(value, list) and depth < 4:
        for number, item in enumerate(value[:8]):
            yield from flat(item, who(item, f"{name} {number}"), depth + 1)
    elif isinstance(value, (bool, str)) or value is None:
        yield name.replace("_", " "), "not known" if value is None else text_of(value)
    elif is_number(value):
        yield from [(name.removesuffix("_ns").replace("_", " "), time_text(value))] if name.endswith("_ns") else \
            [(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:,.6g}")]


def who(item, otherwise):
    """Returns the name of an entry of a list: "server", "CPU 1"."""
    if isinstance(item, dict) and isinstance(item.get("side"), str):
        return text_of(item["side"])
    return f"CPU {item['cpu']}" if isinstance(item, dict) and is_number(item.get("cpu")) else otherwise


def noise_remarks(run):
    """Returns testrpc's remarks on what disturbed the run."""
    member = run["noise"].get("remarks") if isinstance(run.get("noise"), dict) else None
    return [text_of(remark) for remark in (member if isinstance(member, list) else [])[:8] if isinstance(remark, str)]


def findings(result):
    """Returns (subject, name, state, what was found, what it costs) of each of rrdk-doctor's findings."""
    names = ("subject", "name", "state", "found")
    return [(*(text_of(one[name]) for name in names), text_of(one.get("costs") or "-"))
            for one in listed(result, "doctor")[:64]
            if isinstance(one, dict) and all(isinstance(one.get(name), str) for name in names)]


def went_wrong(run):
    return bool(run["errors"] or run["wrong_bytes"])


def mark(run):
    """Returns the mark before the run's name in tables."""
    return "! " if noise_remarks(run) or went_wrong(run) else ""


def warnings(runs):
    """Returns what a reader must know before anything else."""
    disturbed, wrong = [run for run in runs if noise_remarks(run)], [run for run in runs if went_wrong(run)]
    lines = []
    if disturbed:
        lines.append(f"{len(disturbed)} of {len(runs)} runs were disturbed, for example: {noise_remarks(disturbed[0])[0]}. "
                     "Do not quote their tails, p99 and beyond.")
    if wrong:
        lines.append(f"Calls went wrong in {len(wrong)} of {len(runs)} runs, for example in {run_name(wrong[0])}.")
    return lines


# Two results.

def scheme(uri):
    """Returns shm:, iwarp: or verbs: with the options of the URI, but without its address."""
    return uri.split(":")[0] + (re.search(r"\?.*", uri) or [""])[0]


def kind(result, run):
    """Returns everything that two runs must have in common, by name."""
    every = {name: run.get(name) for name in OF_RUN}
    every.update((name, run.get(name, usual)) for name, usual in SINCE.items())
    every["weights"] = [part["weight"] for part in run.get("mix", [])]
    every["servers"] = max(len(run.get("targets", [])), 1)
    every["transport"] = scheme(result["uri"])
    every.update((name, value) for name, value in result["options"].items() if name not in NOT_COMPARED)
    # An option that was not used may not have existed in the other version.
    return {name: value for name, value in every.items() if value is not None}


def key(values):
    return tuple((name, str(value)) for name, value in sorted(values.items()))


def by_kind(result):
    groups = {}
    for run in result["runs"]:
        groups.setdefault(key(kind(result, run)), []).append(run)
    return groups


def typical(result):
    """Returns a run of each kind, in order; if there are several, the one with the median rate."""
    return [sorted(runs, key=lambda run: run["rpc_per_s"])[len(runs) // 2] for runs in by_kind(result).values()]


def groups(result):
    """Returns all runs of each kind, in the order of typical()."""
    return list(by_kind(result).values())


def interval_text(result):
    """Says what the intervals on the charts are. A run is above the median of all such runs with probability one half,
    so all of n runs are on one side of that median with probability 2 / 2**n."""
    counts = sorted({len(list(samples(runs))) for runs in groups(result)})
    if counts[-1] < 2:
        return "Each run was made once, which gives no interval of confidence: --repeat 6 adds those of 97 %."
    least = next(count for count in counts if count > 1)
    once = " Those that were made once have none." if counts[0] == 1 else ""
    return f"Shades and bars go from the lowest to the highest of {least} or more runs: they contain the median of all " \
           f"such runs with a confidence of {1 - 2 ** (1 - least):.0%} or more.{once}"


def spread(result):
    """Returns for each kind the number of runs, the lowest and the highest rate."""
    for runs in by_kind(result).values():
        rates = [one["rate"] for one in samples(runs)]
        yield len(rates), min(rates), max(rates)


def complete(result):
    """Adds the members of a profile that a result of testrpc lacks, and empties those that cannot be used."""
    runs = result["runs"]
    knee_runs = [run for run in listed(result, "knee_runs") if wrong_in_run(run) is None]
    if "knee_runs" not in result and listed(result, "knees"):  # of testrpc --find-knee itself
        knee_runs = [run for run in runs if is_number(run.get("rate"))]
        runs = [run for run in runs if not is_number(run.get("rate"))] or runs
    knees = [{**knee, "name": text_of(knee.get("name") or knee_name(knee))} for knee in listed(result, "knees")
             if isinstance(knee, dict) and is_number(knee.get("closed_loop_rate"))
             and all(knee.get(name) is None or is_number(knee[name]) for name in KNEE)]
    timeline = [line for line in listed(result, "timeline") if is_timeline(line)]
    return {**result, "runs": runs, "knee_runs": knee_runs, "knees": knees,
            "timeline": timeline or list(filter(None, map(series_of, runs)))}


def series_of(run):
    """Returns a run's series over time as a timeline, or None without a series."""
    series = [slice_ for slice_ in listed(run, "series") if isinstance(slice_, dict)
              and is_number(slice_.get("start")) and is_number(slice_.get("seconds"))]
    ends = [slice_["start"] + slice_["seconds"] for slice_ in series[:MOST_SLICES]]
    if not ends or any(end <= before for before, end in zip([0, *ends], ends)):
        return None
    return {"name": run_name(run), "window": run["window"], "slice_seconds": ends[0], "ends": ends,
            "slices": [histogram(slice_) for slice_ in series[:MOST_SLICES]]}


def slice_ends(line):
    """Returns when each slice of a timeline ends, in seconds of its calls."""
    return line.get("ends") or [(number + 1) * line["slice_seconds"] for number in range(len(line["slices"]))]


def knee_doubts(knee):
    """Returns testrpc's reasons why the knee is doubtful."""
    member = knee.get("doubts")
    return [text_of(doubt) for doubt in (member if isinstance(member, list) else [])[:8] if isinstance(doubt, str)]


def knee_name(knee):
    size = knee.get("size")
    return run_name({"engine": knee.get("engine", "?"), "sizes": [size] if is_number(size) and size else []})


def listed(result, name):
    return result[name] if isinstance(result.get(name), list) else []


def is_timeline(line):
    if not isinstance(line, dict) or not isinstance(line.get("name"), str) or not is_number(line.get("window")):
        return False
    if not is_number(line.get("slice_seconds")) or line["slice_seconds"] == 0:
        return False
    slices = line.get("slices")
    if "ends" in line:
        ends = line["ends"]
        if not isinstance(ends, list) or not isinstance(slices, list) or len(ends) != len(slices) or \
                not all(map(is_number, ends)) or any(end <= before for before, end in zip([0, *ends], ends)):
            return False
    return isinstance(slices, list) and all(slice_ == [] or histogram({"histogram": slice_}) for slice_ in slices)


def match(before, after):
    """Returns pairs of lists of runs of the same kind, in the order of the first result, and a line about each
    kind of run without a partner."""
    ours, theirs = by_kind(before), by_kind(after)
    pairs = [(runs, theirs[name]) for name, runs in ours.items() if name in theirs]
    lines = [about_lonely("A", before, runs[0], after) for name, runs in ours.items() if name not in theirs]
    return pairs, lines + [about_lonely("B", after, runs[0], before) for name, runs in theirs.items()
                           if name not in ours]


def about_lonely(side, result, run, other):
    """Describes a run without a partner, and how it differs from the most similar run of the same call, if any."""
    mine = kind(result, run)
    differences = []
    for candidate in other["runs"]:
        theirs = kind(other, candidate)
        if (mine["engine"], mine["sizes"]) == (theirs["engine"], theirs["sizes"]):
            differences.append([f"{name} {mine.get(name)}, there {theirs.get(name)}"
                                for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)])
    nearest = min(differences, key=len, default=None)
    why = "no such call there" if nearest is None else "; ".join(nearest)
    return f"only in {side}: {run_name(run)} window {run['window']} ({why})"


def samples(runs):
    """Returns the rates, p50s and p99s of a run's repetitions."""
    for run in runs:
        repetitions = run.get("repetitions")
        usable = [one for one in (repetitions if isinstance(repetitions, list) else [])
                  if isinstance(one, dict) and all(is_figure(one, n) for n in ("rate", "p50_ns", "p99_ns"))]
        if len(usable) > 1:
            yield from ({name: one.get(name) for name in ("rate", "p50_ns", "p99_ns")} for one in usable)
        else:
            yield {"rate": run["rpc_per_s"], "p50_ns": run["latency_ns"]["p50"], "p99_ns": run["latency_ns"].get("p99")}


def server_text(result):
    """Describes a server that is not that of --self; older results do not."""
    if result["options"].get("server", {}) is not None:
        return ""
    return f"server {text_of(result['uri'])}, of whose host nothing is known"


def environments(results, names):
    """Returns a line for each side: what it was measured with, and where."""
    lines = []
    for side, name, result in zip("AB", names, results):
        machine = result["environment"]
        lines.append(f"{side}: {name}: {result['time']}, {machine['host']}, {machine['cpu']}, {machine['cpus']} CPUs, "
                     f"{machine['kernel']}, testrpc {result['version']} ({result['revision']}), "
                     f"{result['options'].get('idle')}, CPUs {result['options'].get('pinned_cpus')}"
                     + (f", {server_text(result)}" if server_text(result) else ""))
    return lines


def options_of(result):
    """Returns the options by name, including those of the server."""
    server = result["options"].get("server")
    every = {**result["options"], **{f"server {name}": value for name, value in
                                     (server.items() if isinstance(server, dict) else ())}}
    return {name: text_of(value) for name, value in every.items() if name not in ("server", "nfs")}


def words_of(command):
    """Returns the words of a command line without the options that say where results go."""
    words, skip = [], False
    for word in map(text_of, command):
        if not skip and word.split("=")[0] not in ("--json", "--csv", "--out"):
            words.append(word)
        skip = word in ("--json", "--csv", "--out")
    return words


def differences(results):
    """Returns lines about options in which the sides differ."""
    lines, (a, b) = [], map(options_of, results)
    differ = [f"{name}: {a[name]}, {b[name]}" for name in a if name in b and a[name] != b[name]]
    if differ:
        lines.append(f"The sides' options differ (A, B): {'; '.join(differ)}.")
    words = [words_of(result["command"]) for result in results]
    for side, own, others in (("A", *words), ("B", *reversed(words))):
        only = Counter(own) - Counter(others)
        alone = [word for word in own if word in only]
        if alone:
            lines.append(f"Only in the command of {side}: {' '.join(alone)}")
    return lines


def remarks(results, unmatched):
    """Returns what a reader must know before believing the ratios."""
    lines = []
    for what in ("host", "cpu", "cpus", "kernel"):
        a, b = (result["environment"][what] for result in results)
        if a != b:
            lines.append(f"The {what} differs: {text_of(a)}, {text_of(b)}.")
    for side, result in zip("AB", results):
        taken = sum(run["preemptions"] for run in result["runs"] if is_number(run.get("preemptions")))
        if taken:
            lines.append(f"{side}: other work took a CPU away {taken} times.")
        wrong = [run_name(run) for run in result["runs"] if run["errors"] or run["wrong_bytes"]]
        if wrong:
            lines.append(f"{side}: calls went wrong in {', '.join(dict.fromkeys(wrong))}.")
    if unmatched:
        lines.append(f"{len(unmatched)} runs were not compared:")
        lines += ["  " + line for line in unmatched]
    return lines
