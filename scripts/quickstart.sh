#!/usr/bin/env bash
# Installs what is missing, builds, and measures remote procedure calls between two processes on
# this machine, over shared memory. Ends in a table. Needs no RDMA hardware and no settings.
#
#   scripts/quickstart.sh                     the benchmark, about 20 seconds
#   scripts/quickstart.sh -- TESTRPC_OPTIONS  another one (see build/apps/testrpc/testrpc --help)
#   scripts/quickstart.sh --no-install ...    leaves the machine's packages alone
#
# Builds in build/, optimised (scripts/build-release.sh): about two minutes on two cores, and about 1 GB
# of disk with the packages. A second run only measures.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

build=$root/build
benchmark=(--self)  # its standard plan

install=yes
while [ $# -gt 0 ]; do
  case $1 in
    --no-install) install=no ;;
    --help | -h) usage; exit 0 ;;
    --) shift; benchmark=("$@"); break ;;
    *) die "unknown option '$1' (see --help; options of testrpc come after --)" ;;
  esac
  shift
done

testrpc=$build/apps/testrpc/testrpc
took=
[ -x "$testrpc" ] || took=" (about two minutes on two cores)"
say "This installs what is missing, builds testrpc$took, and measures RPC between two processes on this"
say "machine for about 20 seconds. Nothing outside $build changes but installed packages."
if [ "$install" = yes ]; then
  say "1/3  Packages: build tools and DPDK, with apt-get where some are missing (--no-install: leave them)"
  "$root/scripts/install-deps.sh"
else
  say "1/3  Packages: left alone"
fi

say "2/3  Building in $build"
"$root/scripts/build-release.sh" "$build"

say "3/3  Measuring"
hugepages_note
say "testrpc ${benchmark[*]}"
status=0
"$testrpc" "${benchmark[@]}" || status=$?

say "
What to try next, with testrpc=$testrpc:
  \$testrpc --help                                  what there is, with examples
  \$testrpc --self --engine read --size 4K,1M --window 1,16 --verify
  \$testrpc --server shm:/tmp/perf.sock             a server, and in another terminal:
  \$testrpc --client shm:/tmp/perf.sock -i          a prompt, as in dpdk-testpmd
  scripts/latency-profile.py --quick                curves, in latency-profile/index.html
doc/testrpc.md is the manual; README.md says how to embed the library."
exit "$status"
