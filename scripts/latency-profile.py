#!/usr/bin/python3
"""Profiles latency with testrpc and compares builds and hosts; writes the results as a page.

    scripts/latency-profile.py                       the whole sweep, about three minutes
    scripts/latency-profile.py --quick               a short one, about ten seconds
    scripts/latency-profile.py --client URI          against a server that runs already
    scripts/latency-profile.py --client URI --engines nfs3:getattr,nfs3:read -- --nfs-export /export
                                                     an NFS server (doc/profile-your-server.md)
    scripts/latency-profile.py --against TESTRPC     this build (A) and another (B) in turns
    scripts/latency-profile.py --client URI --against-client URI
                                                     two servers in turns
    scripts/latency-profile.py --against-options '--idle yield'
                                                     one build, without and with an option, in turns
    scripts/latency-profile.py --from FILE           the page of a profile.json, or of testrpc --json
    scripts/latency-profile.py --compare A.json B.json
                                                     two of these, measured at different times

Options after -- go to every run of testrpc. A comparison says for each call whether B is faster or slower,
if that can be told; with --fail-above 5% the exit status is 1 if B is more than 5 % slower, and 3 if that
cannot be told.
Writes to the folder --out: index.html, or compare.html for a comparison, which need no other file; and the
pictures (PNG), the tables (CSV) and everything as JSON. doc/latency-profile.md explains both pages.

Exit status: 0; 1: slower than --fail-above allows; 2: wrong options, or a run failed; 3: whether it is
slower than that cannot be told (--inconclusive pass or fail makes this 0 or 1).
Needs python3-matplotlib.
"""
import argparse
import json
import os
import random
import shlex
import shutil
import sys
from pathlib import Path

try:
    from lib import (output, profile_compare_page, profile_csv, profile_verdict, profile_measure, profile_page,
                     profile_runs)
except ModuleNotFoundError as error:
    print(f"latency-profile: {error.name} is missing: apt-get install python3-matplotlib (it is for /usr/bin/python3)",
          file=sys.stderr)
    sys.exit(2)

ROOT = Path(__file__).resolve().parent.parent
DEFAULTS = {  # of a profile and of a comparison; quick ones
    (False, False): {"engines": "null,echo,read,write", "sizes": "4K,64K,1M", "windows": "1,2,4,8,16,32",
                     "duration": 1.0, "repeat": 1},
    (False, True): {"engines": "null,read", "sizes": "4K,1M", "windows": "1,8,32", "duration": 0.4, "repeat": 1},
    (True, False): {"engines": "null,read,write", "sizes": "4K,64K", "windows": "1,16", "duration": 0.25, "repeat": 32},
    (True, True): {"engines": "null", "sizes": "4K", "windows": "1,16", "duration": 0.25, "repeat": 32},
}
MOST_ROUNDS = 200


def fail(message):
    print(f"latency-profile: {message}", file=sys.stderr)
    sys.exit(2)


def options(words):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add = parser.add_argument
    add("--testrpc", type=Path, metavar="FILE",
        help="the program (default: build/apps/testrpc/testrpc, or else the installed one)")
    add("--out", type=Path, default=Path("latency-profile"), metavar="FOLDER")
    add("--quick", action="store_true", help="fewer and shorter runs")
    add("--client", metavar="URI", help="call this server instead of our own")
    add("--engines", metavar="NAME,...", help="testrpc's engines; nfs3:read is engine nfs3 with only READ")
    add("--sizes", metavar="BYTES,...")
    add("--windows", metavar="N,...")
    add("--duration", type=float, metavar="SECONDS", help="of each run")
    add("--repeat", type=int, metavar="N", help="runs of each kind; in turns: rounds, 32 by default")
    add("--dispatch", choices=["inline", "worker"], default="inline")
    add("--against", type=Path, metavar="TESTRPC", help="B is this program")
    add("--against-client", metavar="URI", help="B is this server")
    add("--against-options", type=shlex.split, metavar="OPTIONS", help="B has these options in addition")
    add("--seed", type=int, metavar="N", help="for the coin that decides which side goes first in a round")
    add("--fail-above", type=percent, metavar="PERCENT", help="exit status 1 if B is slower by more than that")
    add("--gate", type=metrics, default=list(profile_verdict.GATED), metavar="rate,p50,p99",
        help="the figures that --fail-above applies to (default: rate,p50)")
    add("--inconclusive", choices=["pass", "fail"], help="exit status 0 or 1, not 3, if the gate has no result")
    add("--compare", nargs=2, type=Path, metavar=("A.json", "B.json"))
    add("--from", dest="source", type=Path, metavar="FILE", help="measure nothing; write the page of these results")
    cut = words.index("--") if "--" in words else len(words)
    chosen = parser.parse_args(words[:cut])
    chosen.passed_on = words[cut + 1:]
    return chosen


def percent(text):
    value = float(text.removesuffix("%"))
    if not 0 < value <= 1000:
        raise argparse.ArgumentTypeError(f"'{text}' is no percentage above 0")
    return value


def metrics(text):
    names = {title.lower().replace("rpc/s", "rate"): name for name, (title, _) in profile_verdict.METRICS.items()}
    wrong = [name for name in text.split(",") if name not in names]
    if wrong:
        raise argparse.ArgumentTypeError(f"'{wrong[0]}' is not one of {', '.join(names)}")
    return [names[name] for name in text.split(",")]


def settle(chosen):
    """Sets defaults, and fails for options that do not go together."""
    chosen.in_turns = bool(chosen.against or chosen.against_client or chosen.against_options)
    ways = [name for name, given in (("--compare", chosen.compare), ("--from", chosen.source),
                                     ("a comparison in turns", chosen.in_turns)) if given]
    if len(ways) > 1:
        fail(f"{ways[0]} and {ways[1]} are two things")
    if chosen.fail_above and not (chosen.compare or chosen.in_turns):
        fail("--fail-above is for comparisons: --against, --against-client, --against-options or --compare")
    if chosen.inconclusive and not chosen.fail_above:
        fail("--inconclusive is for a gate: --fail-above")
    if chosen.against_client and not chosen.client:
        fail("--against-client compares two servers: give the other one with --client")
    for name, value in DEFAULTS[chosen.in_turns, chosen.quick].items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    if not 0 < chosen.duration <= 3600:
        fail(f"--duration {chosen.duration:g} is not within 0 and 3600 seconds")
    if not 1 <= chosen.repeat <= MOST_ROUNDS:
        fail(f"--repeat {chosen.repeat} is not within 1 and {MOST_ROUNDS}")
    if chosen.out.exists() and not chosen.out.is_dir():
        fail(f"--out {chosen.out} is not a folder")


def find_testrpc(program):
    if not os.access(program, os.X_OK) or program.is_dir():
        fail(f"{program} is not there: build it (scripts/quickstart.sh does), or give --testrpc")
    return program.resolve()


def default_testrpc():
    built = ROOT / "build/apps/testrpc/testrpc"
    installed = shutil.which("testrpc")
    return Path(installed) if installed and not built.exists() else built


def side(chosen, program, client, *more):
    return profile_measure.Side(find_testrpc(program), client,
                                ["--dispatch", chosen.dispatch, *chosen.passed_on, *more])


def save(result, folder, name):
    with output.folder(folder) as out, output.file(out / name) as file:
        json.dump(result, file)


def show_profile(profile, folder):
    profile = profile_runs.complete(profile)
    with output.folder(folder) as out:
        profile_csv.write_profile(profile, profile_runs.typical(profile), out)
        profile_page.write_profile(profile, out)
    print(folder / "index.html")


def measure_profile(chosen, program, todo):
    ours = side(chosen, program, chosen.client)
    profile = profile_measure.profile(ours, todo, chosen.duration, chosen.repeat, deep=not chosen.quick)
    save(profile, chosen.out, "profile.json")
    show_profile(profile, chosen.out)


def measure_in_turns(chosen, program, todo):
    needed = profile_verdict.needed(len(todo))
    if chosen.repeat < needed:
        fail(f"--repeat {chosen.repeat} is too few for {len(todo)} calls: nothing can be told from fewer than "
             f"{needed} rounds")
    sides = [side(chosen, program, chosen.client),
             side(chosen, chosen.against or program, chosen.against_client or chosen.client,
                  *(chosen.against_options or []))]
    for one in sides:
        profile_measure.check(one, todo)
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 32)
    comparison = profile_measure.in_turns(sides, todo, chosen.duration, chosen.repeat, seed)
    save(comparison, chosen.out, "comparison.json")
    comparison["names"] = [" ".join(map(str, one.command)) for one in sides]
    comparison["method"] = [
        f"{chosen.repeat} rounds. In each, every call ran for {chosen.duration:g} s on both sides, one right after the "
        f"other; a coin (seed {seed}) told which went first. Ratios are of the two runs of a round. Estimate and "
        "interval: Hodges and Lehmann's, of Wilcoxon's signed rank test, corrected for the number of figures "
        "(Bonferroni)."]
    lines = profile_verdict.of_rounds(comparison["rows"])
    return conclude(chosen, comparison, lines, profile_runs.differences(comparison["sides"]))


def compare_files(chosen):
    results = [read(path) for path in chosen.compare]
    pairs, unmatched = profile_runs.match(*results)
    if not pairs:
        fail("no run of one result is of the same kind as one of the other:\n  " + "\n  ".join(unmatched))
    lines = list(profile_verdict.of_results(pairs))
    if not lines:
        fail("no call came back in the runs that can be compared")
    remarks = profile_runs.differences(results) + profile_runs.remarks(results, unmatched)
    if any(line.verdict == profile_verdict.UNTOLD for line in lines):
        remarks.insert(0, "NO VERDICT where there are too few runs on each side (latency-profile --repeat 10): the "
                          "same program measured twice differs, at p99 by a factor of two or more.")
    remarks.insert(0, "Not measured in turns: whatever changed on the machine between the two counts as a difference.")
    comparison = {"sides": results, "names": list(map(str, chosen.compare)), "pairs": pairs, "command": sys.argv,
                  "method": ["Two results, each measured by itself. Estimate and interval: Hodges and Lehmann's, of "
                             "the rank sum test of Wilcoxon, Mann and Whitney, corrected for the number of figures "
                             "(Bonferroni)."]}
    return conclude(chosen, comparison, lines, remarks)


def conclude(chosen, comparison, lines, remarks):
    """Prints and writes the results; returns the exit status."""
    outcome, said = (profile_verdict.gate(lines, chosen.fail_above, chosen.gate) if chosen.fail_above
                     else (profile_verdict.PASSED, []))
    if outcome == profile_verdict.UNCERTAIN and chosen.inconclusive:
        outcome = profile_verdict.PASSED if chosen.inconclusive == "pass" else profile_verdict.FAILED
    print(profile_compare_page.as_text(lines))
    environments = profile_runs.environments(comparison["sides"], comparison["names"])
    print("\n" + "\n".join([*environments, *remarks, "", profile_verdict.sentence(lines), *said]))
    with output.folder(chosen.out) as out:
        profile_csv.write_compare(comparison, lines, out)
        profile_compare_page.write(comparison, lines, said + remarks, chosen.fail_above, out)
    print(chosen.out / "compare.html")
    return outcome


def read(path):
    try:
        return profile_runs.load(path)
    except ValueError as error:
        fail(error)


def main():
    chosen = options(sys.argv[1:])
    settle(chosen)
    if chosen.compare:
        return compare_files(chosen)
    if chosen.source:
        show_profile(read(chosen.source), chosen.out)
        return 0
    program = find_testrpc(chosen.testrpc or default_testrpc())
    todo = list(profile_measure.rows(chosen.engines, chosen.sizes, chosen.windows))
    try:
        return (measure_in_turns if chosen.in_turns else measure_profile)(chosen, program, todo)
    except profile_measure.Failed as failure:
        return fail(failure)


sys.exit(output.run("latency-profile", main))
