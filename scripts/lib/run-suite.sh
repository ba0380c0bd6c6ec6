#!/usr/bin/env bash
# Runs one suite, one build or the choice of --changed, for scripts/run-tests.sh, which starts this as a
# process of its own and counts the recorded cases:
#
#   run-suite.sh NAME        a function suite_NAME of suites.sh, or a build of its table
#   run-suite.sh changed COMMIT LIST
#
# Each case is a line of build-tests/logs/NAME.tsv, and its output is a log there. The last line is "end";
# if it is missing, the suite did not finish. NAME.times is bash's record of the CPU time.
set -uo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
cd "$root" || exit 1
. scripts/lib/suites.sh

job=$1 suite=$1
results=$logs/$job.tsv  # pass|fail|skip TAB suite/case TAB reason

# record RESULT NAME [REASON]
record() { printf '%s\t%s\t%s\n' "$1" "$2" "${3-}" >>"$results"; }

# logged NAME COMMAND...: runs it with its output in a log, from which progress is shown. Prints the end of
# the log if it fails, or the last line if status 77 says that it was skipped.
logged() {
  local log=$logs/$1.log status
  shift
  ln -sfn "$log" "$logs/$job.current"
  "$@" >"$log" 2>&1 </dev/null
  status=$?
  if [ "$status" -eq 77 ]; then
    say "  $(tail -n 1 "$log")"
  elif [ "$status" -ne 0 ]; then
    say "  failed (exit status $status); the end of $log:"
    tail -n 40 "$log" | sed 's/^/  | /'
  fi
  return "$status"
}

# run_case NAME COMMAND...: runs one case of the current suite; it passes if the command succeeds.
run_case() {
  local name=$suite/$1 log=${suite}-${1//[\/ ]/-}
  shift
  if logged "$log" "$@"; then
    record pass "$name"
  else
    record fail "$name" "$(tail -n 5 "$logs/$log.log" | cut -c -120 | tr '\t' ' ' | paste -sd '|')"
    return 1
  fi
}

# build VARIANT CC CXX MESON_OPTIONS...: builds into build-tests/VARIANT, as one case: everything, or
# $targets ("none": configures only). Test programs are linked by lld if it is installed.
build() {
  local variant=$1 cc=$2 cxx=$3 directory=$builds/$1 cache= linker=
  shift 3
  set -- --werror "$@"
  if ! scripts/lib/configured.py "$directory" "$cc" "$cxx" "$@"; then
    rm -rf "$directory"
    ! command -v ccache >/dev/null || cache="ccache "
    [[ " $* " == *" -Dtests=false "* ]] || ! command -v ld.lld >/dev/null || linker=lld
    if ! CC=$cache$cc CXX=$cache$cxx CC_LD=$linker CXX_LD=$linker logged "setup-$variant" meson setup "$@" "$directory"; then
      record fail "$suite/configure"
      return 1
    fi
  fi
  [ "${targets-}" != none ] || return 0
  # shellcheck disable=SC2086 # several targets
  run_case "$variant" ninja -C "$directory" -k 0 ${targets-}
}

# run_programs VARIANT PROCESSES MESON_OPTIONS...: runs test programs of the variant, at most PROCESSES at a
# time, and records each of their cases.
run_programs() {
  local variant=$1 processes=$2 group=$suite-$2 status before
  local log=$builds/$1/meson-logs/$group.json
  shift 2
  rm -f "$log"
  logged "$group" meson test -C "$builds/$variant" --no-rebuild --print-errorlogs \
    --timeout-multiplier 4 --logbase "$group" --num-processes "$processes" "$@"
  status=$?
  before=$(wc -l <"$results")
  if [ ! -s "$log" ] || ! scripts/lib/tally.py "$variant" "$log" >>"$results"; then
    record fail "$suite/$group" "meson test did not run (exit status $status)"
  elif [ "$status" -ne 0 ] && ! tail -n +$((before + 1)) "$results" | grep '^fail' >/dev/null; then
    record fail "$suite/$group" "meson test ended with status $status"
  fi
}

# run_in_guest NAME OPTIONS... -- NAME=COMMAND...: boots one guest (scripts/vm/run with the options)
# and runs the commands in it, each a case of the current suite. Each has $guest_seconds, or 120.
run_in_guest() {
  local folder=$logs/$suite-$1 name=$1 options=() status reason case result
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  rm -rf "$folder"
  mkdir -p "$folder"
  logged "$suite-$name" lab "${options[@]}" --share "$folder" \
    "scripts/vm/guest/each.sh $(printf '%q ' "$folder/results.tsv" "${guest_seconds-120}" "$@") && exit 42"
  status=$?
  reason=$(grep '^vm: ' "$logs/$suite-$name.log" | tail -n 1)
  for case in "$@"; do
    case=${case%%=*}
    result=$(awk -F'\t' -v c="$case" '$2 == c' "$folder/results.tsv" 2>/dev/null)
    if [ -n "$result" ]; then
      record "${result%%$'\t'*}" "$suite/$case" "${result##*$'\t'}"
    elif [ $status -eq 77 ]; then
      record skip "$suite/$case" "$reason"
    else
      record fail "$suite/$case" "did not run: $reason"
    fi
  done
  case $status in
    0 | 1 | 77) ;;
    *) record fail "$suite/$name" "exit status $status: $reason" ;;
  esac
}

# lab OPTIONS...: runs scripts/vm/run with a command that ends with status 42 on success. No other program
# uses that status, so a lost status is noticed. Runs without nice, since other suites run beside it.
lab() {
  scripts/vm/run --nice 0 "$@"
  local status=$?
  case $status in
    42) return 0 ;;
    0) return 120 ;;
    *) return $status ;;
  esac
}

# part "NAME WHAT" COMMAND...: runs a part of suite "changed" and prints its result.
part() {
  local line=$1 began=$SECONDS before
  before=$(wc -l <"$results")
  shift
  suite=${line%% *}
  say "== $line"
  "$@"
  suite=changed
  tail -n +$((before + 1)) "$results" | awk -F'\t' -v s=$((SECONDS - began)) '
    { n[$1]++ } END { printf "   %d passed, %d failed, %d skipped in %d s\n", n["pass"], n["fail"], n["skip"], s }'
}

# suite_changed COMMIT LIST: builds and runs with GCC what scripts/lib/affected.py chooses.
suite_changed() {
  local chosen=$logs/chosen.tsv kind name why headers=() tests=() programs=() quick=()
  targets=none with_gcc || return
  if ! scripts/lib/affected.py "$builds/gcc" "$1" >"$chosen"; then
    record fail "changed/choice" "scripts/lib/affected.py could not tell"
    return
  fi
  while IFS=$'\t' read -r kind name why; do
    case $kind in
      since) say "Changes since $name" ;;
      suite) quick+=("$name") ;;
      header) headers+=("$name") ;;
      target) programs+=("$name") ;;
      test) tests+=("$name") ;;
    esac
    case $kind in
      suite | header | test) say "  $kind $name: $why" ;;
      elsewhere) say "  not run: --only $name, which $why" ;;
    esac
  done <"$chosen"
  if [ $((${#quick[@]} + ${#headers[@]} + ${#programs[@]} + ${#tests[@]})) -eq 0 ]; then
    say "Nothing has changed."
    return
  fi
  say "Not run: sanitizers, clang-tidy and guests; a run of everything has them."
  [ "$2" = no ] || return
  for name in "${quick[@]}"; do
    part "$name" "suite_$name"
  done
  [ ${#headers[@]} -eq 0 ] || part "headers that changed" run_case headers scripts/check-headers.py "${headers[@]}"
  part "gcc tests" run_affected
}

# run_affected: builds the programs of suite_changed and runs its tests.
run_affected() {
  [ ${#programs[@]} -eq 0 ] || targets="${programs[*]}" with_gcc || return
  # A tenth of the simulation's runs; scripts/sim.sh has more.
  [ ${#tests[@]} -eq 0 ] || RRDK_SIM_SEEDS=${RRDK_SIM_SEEDS-2000} run_programs gcc 1 "${tests[@]}"
}

# In braces, so that bash reads it as a whole before it runs: this file may change meanwhile.
{
  shift
  : >"$results"
  case $job in
    build-*) "${job/-/_}" ;;
    *) "suite_$job" "$@" ;;
  esac
  echo end >>"$results"
  times >"$logs/$job.times"
  exit
}
