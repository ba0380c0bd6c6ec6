#!/usr/bin/env bash
# Simulates connections: engines, network and time in one process, all determined by a seed
# (doc/simulation.md). Builds what it needs in build-tests/sim.
#
#   scripts/sim.sh SEED                   replays one seed, one line per event: time (us), who, what
#   scripts/sim.sh --seeds N [--from S]   runs N seeds from S on (1)
#   scripts/sim.sh --hours H [--from S]   runs for H hours, from a random seed on if S is not given
#
# With --seeds or --hours: --processes P (default: one per CPU), --failures F (stops after F failures:
# 5) and --json FILE (count, failures, seconds, seeds_per_second). A seed that fails is printed with the
# command that replays it, and the exit status is 1.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

[ $# -gt 0 ] || { usage; exit 2; }
case $1 in
  -h | --help) usage; exit 0 ;;
esac

arguments=("$@")
case " $* " in
  *" --hours "*) [[ " $* " == *" --from "* ]] || arguments+=(--from "$((RANDOM << 30 | RANDOM << 15 | RANDOM))") ;;
esac
case " $* " in
  *" --seeds "* | *" --hours "*)
    [[ " $* " == *" --processes "* ]] || arguments+=(--processes "$(nproc)") ;;
esac

build_tool sim
exec "$root/build-tests/sim/test/sim/sim" "${arguments[@]}"
