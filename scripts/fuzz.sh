#!/usr/bin/env bash
# Runs libFuzzer targets (test/fuzz): the named ones, or all targets one after the other.
#
#   scripts/fuzz.sh [--seconds N] [TARGET...]   N seconds for each target (default 60)
#   scripts/fuzz.sh --list                      names the targets
#   scripts/fuzz.sh --replay FILE TARGET        runs one input, for instance a finding
#   scripts/fuzz.sh --build DIRECTORY ...       with the targets of that build directory, as they are
#
# Corpora are kept in build-fuzz/corpus/TARGET and grow from run to run; a finding is kept in
# build-fuzz/findings/TARGET. Exit status zero: no finding.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

# Lines of libFuzzer that matter only for tuning.
noise='^#[0-9]+[[:space:]]+(NEW|REDUCE|RELOAD)|^INFO:|# Uses:|ecommended dictionary'
all=(header private_data rpc perf receive iwarp shm gss)
seconds=60
build=
replay=
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds | --build | --replay)
      [ $# -ge 2 ] || die "$1 needs a value (see --help)"
      declare "${1#--}=$2"
      shift
      ;;
    --list) printf '%s\n' "${all[@]}"; exit 0 ;;
    --help | -h) usage; exit 0 ;;
    -*) die "unknown option '$1' (see --help)" ;;
    *)
      [[ " ${all[*]} " == *" $1 "* ]] || die "no target is called '$1' (see --list)"
      targets+=("$1")
      ;;
  esac
  shift
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "--seconds '$seconds': a whole number of seconds is expected"
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")

kept=$root/build-fuzz
if [ -z "$build" ]; then
  build=$kept/build
  if [ ! -e "$build/build.ninja" ]; then
    CC=clang-19 CXX=clang++-19 meson setup --buildtype=debugoptimized \
      '-Db_sanitize=address,undefined' -Dfuzzers=true -Dtests=false -Dbenchmarks=false \
      -Dexamples=false "$build" "$root"
  fi
  ninja -C "$build" "${targets[@]/#/test/fuzz/fuzz_}"
fi

export ASAN_OPTIONS=halt_on_error=1:detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
if [ -n "$replay" ]; then
  [ ${#targets[@]} -eq 1 ] || die "--replay needs one TARGET"
  exec "$build/test/fuzz/fuzz_${targets[0]}" "$replay"
fi

"$root/test/fuzz/seeds.py" "$kept/seeds"
failed=()
for target in "${targets[@]}"; do
  corpus=$kept/corpus/$target findings=$kept/findings/$target
  mkdir -p "$corpus" "$findings"
  say "fuzzing $target for $seconds s, from $(find "$corpus" "$kept/seeds/$target" -type f | wc -l) inputs"
  "$build/test/fuzz/fuzz_$target" -max_total_time="$seconds" -max_len=4096 -timeout=10 \
    -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$findings/" \
    "$corpus" "$kept/seeds/$target" 2>&1 | grep -vE "$noise" ||
    failed+=("$target")
done
if [ ${#failed[@]} -ne 0 ]; then
  die "findings in ${failed[*]}: the inputs are in $kept/findings; scripts/fuzz.sh --replay FILE TARGET"
fi
say "no findings"
