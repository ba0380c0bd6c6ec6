"""What runs of testrpc are, for scripts/latency-profile.py: which of two results can be compared, and
what has to be said about it."""
import re

SCHEMA = 2  # of testrpc's JSON, see doc/testrpc.md

# What a run was asked to do.
OF_RUN = ("engine", "sizes", "window", "connections", "dispatch", "rate", "verify", "rpcrdma_version")
# The same, of what older testrpcs did not have: what it was then.
SINCE = {"arrivals": "even", "think_us": 0}
# The options of its testrpc that make a difference; the others are places and labels.
NOT_COMPARED = ("pinned_cpus", "seed", "timeout_ms")


def size_text(size):
    for unit, suffix in ((1 << 20, "M"), (1 << 10, "K")):
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def run_name(run):
    if not run["sizes"]:
        return run["engine"]
    return f"{run['engine']} {','.join(size_text(size) for size in run['sizes'])}"


def scheme(uri):
    """Of shm:, iwarp: and verbs: with what the URI asks for, but not whom it asks."""
    return uri.split(":")[0] + (re.search(r"\?.*", uri) or [""])[0]


def kind(result, run):
    """All that two runs must have in common, by name."""
    every = {name: run[name] for name in OF_RUN}
    every.update((name, run.get(name, usual)) for name, usual in SINCE.items())
    every["weights"] = [part["weight"] for part in run.get("mix", [])]
    every["servers"] = max(len(run.get("targets", [])), 1)
    every["transport"] = scheme(result["uri"])
    every.update((name, value) for name, value in result["options"].items() if name not in NOT_COMPARED)
    # An option that was not used may not have been there.
    return {name: value for name, value in every.items() if value is not None}


def key(values):
    return tuple((name, str(value)) for name, value in sorted(values.items()))


def match(before, after):
    """Pairs of runs of the same kind, in the order of the first result, each run once; and a line about
    each run without a partner."""
    left = {}
    for run in after["runs"]:
        left.setdefault(key(kind(after, run)), []).append(run)
    pairs, alone = [], []
    for run in before["runs"]:
        partners = left.get(key(kind(before, run)))
        if partners:
            pairs.append((run, partners.pop(0)))
        else:
            alone.append(run)
    rest = [run for runs in left.values() for run in runs]
    lines = [about_lonely("A", before, run, after) for run in alone]
    return pairs, lines + [about_lonely("B", after, run, before) for run in rest]


def about_lonely(side, result, run, other):
    """With the difference to the run of the other result that is nearest to it, if they have a call in common."""
    mine = kind(result, run)
    differences = []
    for candidate in other["runs"]:
        theirs = kind(other, candidate)
        if (mine["engine"], mine["sizes"]) == (theirs["engine"], theirs["sizes"]):
            differences.append([f"{name} {mine.get(name)}, there {theirs.get(name)}"
                                for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)])
    nearest = min(differences, key=len, default=None)
    if nearest is None:
        why = "no such call there"
    else:
        why = "; ".join(nearest) if nearest else "there are fewer of these"
    return f"only in {side}: {run_name(run)} window {run['window']} ({why})"


def environments(results, names):
    """A line for each side: what it was measured with, and where."""
    lines = []
    for side, name, result in zip("AB", names, results):
        machine = result["environment"]
        lines.append(f"{side}: {name}: {result['time']}, {machine['host']}, {machine['cpu']}, {machine['cpus']} CPUs, "
                     f"{machine['kernel']}, testrpc {result['version']} ({result['revision']}), "
                     f"{result['options']['idle']}, CPUs {result['options']['pinned_cpus']}")
    return lines


def repeated(pairs):
    """Whether some kind of run was made more than once on each side."""
    names = [(run_name(a), a["window"]) for a, _ in pairs]
    return len(set(names)) < len(names)


def remarks(results, pairs, unmatched):
    """What a reader must know before believing the ratios."""
    lines = []
    if not repeated(pairs):
        lines.append("NO VERDICT: each run was made once on each side. The same program measured twice differs, "
                     "at p99 by a factor of two or more: not repeated, no significance.")
    for what in ("host", "cpu", "cpus", "kernel"):
        a, b = (result["environment"][what] for result in results)
        if a != b:
            lines.append(f"The {what} differs: {a}, {b}.")
    for side, result in zip("AB", results):
        taken = sum(run.get("preemptions") or 0 for run in result["runs"])
        if taken:
            lines.append(f"{side}: other work took a CPU away {taken} times.")
        wrong = [run_name(run) for run in result["runs"] if run["errors"] or run["wrong_bytes"]]
        if wrong:
            lines.append(f"{side}: calls went wrong in {', '.join(wrong)}.")
    if unmatched:
        lines.append(f"{len(unmatched)} runs were not compared:")
        lines += ["  " + line for line in unmatched]
    return lines
