# shellcheck shell=bash
# Shared by the scripts; to be sourced. Provides the checkout's root and functions for messages.

root=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
  exit 1
}

# usage: prints the head comment of the calling script, which is its manual.
usage() { awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; }

# build_tool NAME: builds the program build-tests/NAME/test/NAME/NAME; prints only errors.
build_tool() {
  local build=$root/build-tests/$1 log=$root/build-tests/$1.log
  mkdir -p "$root/build-tests"
  {
    [ -f "$build/build.ninja" ] ||
      meson setup "$build" "$root" --buildtype=debugoptimized -Dbenchmarks=false -Dexamples=false
    ninja -C "$build" "test/$1/$1"
  } >"$log" 2>&1 || { tail -n 30 "$log"; die "the build failed; its log is $log"; }
}

# hugepages_note: says which pages the programs will use, and how to get better ones. Never changes the
# setting, because hugepages take memory away from everything else on the machine.
hugepages_note() {
  local free
  free=$(awk '/^HugePages_Free:/ { print $2 }' /proc/meminfo)
  if [ "${free:-0}" -gt 0 ]; then
    say "Hugepages: $free free, used where a program asks for them."
  else
    say "Hugepages: none free; everything runs on ordinary pages. 'sysctl vm.nr_hugepages=512' (as root) gives 1 GiB of them."
  fi
}
