#!/usr/bin/env bash
# Compares the speed of this working copy with that of another commit: builds both in release, runs
# their testrpc in turns, and prints medians, their spread and ratios.
#
#   scripts/bench-against.sh COMMIT                shm and iwarp: null, echo, read, write
#   scripts/bench-against.sh COMMIT --rounds 5     turns of each (default 5)
#   scripts/bench-against.sh COMMIT --seconds 0.5  length of one measurement (default 0.5)
#   scripts/bench-against.sh COMMIT --loss 5       exit status 1 if any is more than 5 % slower (10)
#   scripts/bench-against.sh COMMIT --only shm     only cases whose names contain that
#   scripts/bench-against.sh COMMIT --json FILE    the figures, for programs
#
# Builds are kept in build-bench/. The two programs take turns because the CPUs of a virtual machine
# change their speed and distance from second to second: trust ratios of one run, not rates of two.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
cd "$root"

case ${1-} in
  --help | -h) usage; exit 0 ;;
  "" | -*) die "which commit? (see --help)" ;;
esac
commit=$(git rev-parse --verify --quiet "$1^{commit}") || die "'$1' is no commit of this repository"
shift

# release SOURCE BUILD: builds testrpc of that tree as the tree's own quick start does.
release() {
  if [ -x "$1/scripts/build-release.sh" ]; then
    "$1/scripts/build-release.sh" "$2"
    return
  fi
  local lto=false
  ! grep -q b_lto "$1/scripts/quickstart.sh" || lto=true
  [ -e "$2/build.ninja" ] || meson setup --buildtype=release -Db_lto=$lto -Dtests=false \
    -Dbenchmarks=false -Dexamples=false "$2" "$1" >"$2.log" 2>&1 || die "meson failed: see $2.log"
  ninja -C "$2" apps/testrpc/testrpc >"$2.log" 2>&1 || die "the build failed: see $2.log"
}

mkdir -p build-bench
other=build-bench/$commit
if [ ! -d "$other" ]; then
  say "== source of ${commit:0:12}"
  mkdir "$other"
  git archive "$commit" | tar -x -C "$other"
fi
say "== building ${commit:0:12}"
release "$other" "$other/build"
say "== building the working copy"
release . build-bench/here
exec python3 scripts/lib/bench_against.py "$other/build/apps/testrpc/testrpc" \
  build-bench/here/apps/testrpc/testrpc --names "${commit:0:12}" here "$@"
