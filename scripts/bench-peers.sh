#!/usr/bin/env bash
# Compares RRDK with other software between two processes of one machine: UCX (ucx_perftest), libfabric
# (fi_pingpong) and libtirpc, over shared memory and over TCP on loopback, on the same two CPUs, in turns.
#
#   scripts/bench-peers.sh                 everything, about a minute after the build
#   scripts/bench-peers.sh --rounds 5      turns of each (default 5)
#   scripts/bench-peers.sh --seconds 0.5   length of one measurement of ours (default 0.5)
#   scripts/bench-peers.sh --cpus 0,1      the CPUs of the two processes
#   scripts/bench-peers.sh --json FILE     the figures, for programs
#   scripts/bench-peers.sh --no-install    leaves the machine's packages alone
#
# RRDK makes remote procedure calls: both messages are decoded, checked and matched, by programs that need
# not trust each other. UCX and libfabric exchange bare messages and bare reads between programs that do.
# A round trip is the median of a measurement; libfabric reports only the mean.
# A peer that is missing or does not work here is left out, and the table says so. The build is kept in
# build-bench/.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
cd "$root"

install=yes options=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --no-install) install=no ;;
    *) options+=("$1") ;;
  esac
  shift
done
[ "$install" = no ] || scripts/install-deps.sh --peers
build=build-bench/peers log=build-bench/peers.log
mkdir -p build-bench
say "== building in $build"
scripts/build-release.sh $build -Dbenchmarks=true
if grep -q '^build perf/tirpc_call:' $build/build.ninja; then  # libtirpc is there
  ninja -C $build perf/tirpc_call >$log 2>&1 || die "the build failed: see $log"
fi
exec python3 scripts/lib/bench_peers.py $build "${options[@]}"
