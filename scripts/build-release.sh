#!/usr/bin/env bash
# Builds testrpc as a release is built: with link-time optimisation and, with GCC, guided by a profile of
# calls that it makes to itself.
#
#   scripts/build-release.sh BUILD [MESON_OPTION...]   e.g. scripts/build-release.sh build -Dbenchmarks=true
#
# GCC builds it twice, the first time to count which branches calls take: some two minutes on two cores.
# If neither the sources, the options nor the compiler have changed, running it again takes a second.
# Other targets of BUILD may be built by hand afterwards (ninja -C BUILD ...): files that have no profile,
# or have changed since, are built without one.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

case ${1-} in
  --help | -h) usage; exit 0 ;;
  "" | -*) die "which folder is to be built in? (see --help)" ;;
esac
mkdir -p "$1"
build=$(cd -- "$1" && pwd)
shift
options=(--buildtype=release -Db_lto=true -Dtests=false -Dbenchmarks=false -Dexamples=false "$@")
testrpc=$build/apps/testrpc/testrpc
done=$build/release.done  # the key of the last complete build

# key: prints a hash of everything that affects the build.
key() {
  {
    printf '%s\n' "${options[@]}" "$build"
    ${CXX:-c++} --version
    cd "$root"
    find meson.build meson_options.txt lib drivers apps scripts/build-release.sh -type f -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum
  } | sha256sum
}

# is_gcc: succeeds if the compiler is GCC; others store profiles differently.
is_gcc() { ! ${CXX:-c++} -dM -E -x c++ /dev/null | grep __clang__ >/dev/null; }

# compile B_PGO: builds testrpc with that value of meson's option; shows the log's end if that fails.
compile() {
  { meson configure "$build" "-Db_pgo=$1" && ninja -C "$build" apps/testrpc/testrpc; } >"$build/release.log" 2>&1 ||
    { tail -n 30 "$build/release.log" >&2; die "the build failed; its log is $build/release.log"; }
}

# call_itself: makes the calls that the profile is taken from. Both ends run on one CPU, so that passes
# that find no work, whose number depends on the machine, do not outweigh the others.
call_itself() {
  local uri cpu
  cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
  for uri in --self --self=iwarp://127.0.0.1:0; do
    record "$cpu" "$uri" --engine null --window 1,32 --sec none
    record "$cpu" "$uri" --engine null --window 32 --sec sys
    record "$cpu" "$uri" --engine echo --size 100,1000,64K --window 1,16
    record "$cpu" "$uri" --engine read,write --size 4K,64K,1M --window 1,8
  done
}

record() {
  timeout --foreground 60 taskset -c "$1" "$testrpc" "${@:2}" --duration 0.3 >>"$build/release.log" 2>&1 ||
    say "   (no profile of: testrpc ${*:2}; see $build/release.log)"
}

# without_profile: removes the instrumented program, which is slow, when the build is interrupted.
without_profile() { meson configure "$build" -Db_pgo=off >/dev/null; rm -f "$testrpc"; }

wanted=$(key)
if [ -x "$testrpc" ] && [ "$(cat "$done" 2>/dev/null)" = "$wanted" ]; then
  say "Nothing has changed."
  exit 0
fi
rm -f "$done"
if [ -e "$build/build.ninja" ]; then
  meson configure "$build" "${options[@]}" >/dev/null
elif ! meson setup "${options[@]}" "$build" "$root" >"$build/release.log" 2>&1; then
  tail -n 30 "$build/release.log" >&2
  die "meson failed; its log is $build/release.log"
fi
if is_gcc; then
  trap without_profile EXIT
  say "   1 of 3: a build that counts"
  find "$build" -name '*.gcda' -delete
  compile generate
  say "   2 of 3: calls, for half a minute"
  call_itself
  say "   3 of 3: the build that is optimised for them"
  compile use
  trap - EXIT
else
  compile off
fi
printf '%s\n' "$wanted" >"$done"
