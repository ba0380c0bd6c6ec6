#!/usr/bin/env bash
# Installs what is missing, builds, and measures remote procedure calls between two processes on
# this machine, over shared memory. Ends in a table. Needs no RDMA hardware and no settings.
#
#   scripts/quickstart.sh                     the benchmark, about half a minute
#   scripts/quickstart.sh -- TESTRPC_OPTIONS  another one (see build/apps/testrpc/testrpc --help)
#   scripts/quickstart.sh --no-install ...    leaves the machine's packages alone
#
# Builds in build/, optimised; a second run only measures.
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

say "1/3  Packages"
[ "$install" = no ] || "$root/scripts/install-deps.sh"

say "2/3  Building in $build"
if [ ! -e "$build/build.ninja" ]; then
  meson setup --buildtype=release -Dtests=false -Dbenchmarks=false -Dexamples=false "$build" "$root"
fi
ninja -C "$build" apps/testrpc/testrpc

say "3/3  Measuring"
hugepages_note
say "testrpc ${benchmark[*]}"
exec "$build/apps/testrpc/testrpc" "${benchmark[@]}"
