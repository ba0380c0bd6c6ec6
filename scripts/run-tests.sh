#!/usr/bin/env bash
# Runs every check of the project and counts what passed. The last line is always
# "N passed, N failed, N skipped"; the exit status is zero only if nothing failed.
#
#   scripts/run-tests.sh               installs what is missing (scripts/install-deps.sh), runs all
#   scripts/run-tests.sh --only NAME   runs one suite; may be given several times
#   scripts/run-tests.sh --changed     builds and runs what this working copy's changes since it left
#                                      origin/main can affect, with GCC; says what it chose and why.
#                                      --changed=COMMIT: the changes since that commit
#   scripts/run-tests.sh --list        names the suites; with --changed, what that would choose
#   scripts/run-tests.sh --no-install  leaves the machine's packages alone
#
# Build directories and logs are kept under build-tests/, so that a second run is short. Random
# tests print their seed; RRDK_SEED=N replays one.
set -uo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
cd "$root" || exit 1

builds=$root/build-tests
logs=$builds/logs
results=$logs/results.tsv  # pass|fail|skip TAB suite/case TAB reason
. scripts/lib/suites.sh

# record RESULT NAME [REASON]
record() { printf '%s\t%s\t%s\n' "$1" "$2" "${3-}" >>"$results"; }

# logged NAME COMMAND...: runs it with its output in a log and its progress on the screen; shows the
# log's end if it fails, or its last line if it says with status 77 why it could not be tried.
logged() {
  local log=$logs/$1.log
  shift
  "$@" 2>&1 </dev/null 9>&- | python3 scripts/lib/progress.py "$log"
  local status=${PIPESTATUS[0]}
  if [ "$status" -eq 77 ]; then
    say "  $(tail -n 1 "$log")"
  elif [ "$status" -ne 0 ]; then
    say "  failed (exit status $status); the end of $log:"
    tail -n 40 "$log" | sed 's/^/  | /'
  fi
  return "$status"
}

# run_case NAME COMMAND...: one case of the current suite, which passes if the command does.
run_case() {
  local name=$suite/$1
  shift
  if logged "${name//[\/ ]/-}" "$@"; then
    record pass "$name"
  else
    record fail "$name"
    return 1
  fi
}

# build VARIANT CC CXX MESON_OPTIONS...: builds into build-tests/VARIANT; a case of its own. It builds
# everything, or $targets ("none": it only configures). With $ahead it does no more than begin.
build() {
  local variant=$1 cc=$2 cxx=$3 directory=$builds/$1 wanted cache=
  shift 3
  wanted="$root $("$cxx" --version | head -n 1) $*"
  if [ "$(cat "$directory/made-for" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$directory"
    ! command -v ccache >/dev/null || cache="ccache "
    if ! CC=$cache$cc CXX=$cache$cxx logged "setup-$variant" meson setup --werror "$@" "$directory"; then
      record fail "$suite/configure $variant"
      return 1
    fi
    printf '%s\n' "$wanted" >"$directory/made-for"
  fi
  [ "${targets-}" != none ] || return 0
  # shellcheck disable=SC2206 # several targets
  local command=(ninja -C "$directory" -k 0 ${targets-})
  if [ -n "${ahead-}" ]; then
    begin_ahead "$variant" "${command[@]}"
  else
    stop_ahead "$variant"
    run_case "build $variant" "${command[@]}"
  fi
}

# Many tests wait more than they compute. Meanwhile a later suite's work is begun, with the CPU time
# that nobody else wants. begin_ahead NAME COMMAND... starts it and stop_ahead [NAME] stops it, if it is
# that one; the suite then runs the command itself, to the end. So it must be a command that goes on
# where it was stopped, and what it says does not count.
ahead_name= ahead_pid=
begin_ahead() {
  stop_ahead
  ahead_name=$1
  shift
  # A session of its own has a priority of its own where the kernel groups tasks by session.
  setsid sh -c 'echo 19 2>/dev/null >/proc/self/autogroup; exec nice -n 19 "$@"' sh "$@" \
    >"$logs/ahead.log" 2>&1 </dev/null 9>&- &
  ahead_pid=$!
}
stop_ahead() {
  [ -n "$ahead_pid" ] && [ "${1-$ahead_name}" = "$ahead_name" ] || return 0
  kill -TERM -- "-$ahead_pid" 2>/dev/null || kill -TERM "$ahead_pid" 2>/dev/null
  wait "$ahead_pid" 2>/dev/null
  ahead_pid=
}
trap stop_ahead EXIT
trap 'exit 130' INT TERM

# will_run SUITE...: whether this run includes any of them.
will_run() {
  local name
  [ ${#only[@]} -gt 0 ] || return 0
  for name in "$@"; do
    [[ " ${only[*]} " != *" $name "* ]] || return 0
  done
  return 1
}

# run_programs VARIANT PROCESSES MESON_OPTIONS...: runs test programs of the variant, so many at a
# time, and records every case in them.
run_programs() {
  local variant=$1 processes=$2 group=tests-$2 status
  local log=$builds/$1/meson-logs/$group.json
  shift 2
  rm -f "$log"
  logged "$variant-$group" meson test -C "$builds/$variant" --no-rebuild --print-errorlogs \
    --timeout-multiplier 4 --logbase "$group" --num-processes "$processes" "$@"
  status=$?
  if [ -s "$log" ]; then
    scripts/lib/tally.py "$variant" "$log" >>"$results"
  elif [ "$status" -ne 0 ]; then
    record fail "$suite/$group" "meson test did not run"
  fi
}

count() { awk -F'\t' -v r="$1" '$1 == r { n++ } END { print n + 0 }' "$results"; }

# Ends the run: what failed, what was skipped and why, and the tally.
finish() {
  say ""
  awk -F'\t' '$1 == "fail" { print "FAILED  " $2 ($3 == "" ? "" : ": " $3) }
              $1 == "skip" { print "skipped " $2 ": " $3 }' "$results" | sort -u
  local failed
  failed=$(count fail)
  say "$(count pass) passed, $failed failed, $(count skip) skipped"
  [ "$failed" -eq 0 ]
  exit
}

# run_suite "NAME WHAT" [COMMAND...]: by the suite's function, or by the command.
run_suite() {
  local line=$1 began=$SECONDS before
  before=$(wc -l <"$results")
  suite=${line%% *}
  shift
  say "== $line"
  "${@:-suite_$suite}"
  tail -n +$((before + 1)) "$results" | awk -F'\t' -v s=$((SECONDS - began)) '
    { n[$1]++ } END { printf "   %d passed, %d failed, %d skipped in %d s\n", n["pass"], n["fail"], n["skip"], s }'
}

# What scripts/lib/affected.py chooses, with GCC.
run_changed() {
  local chosen=$logs/chosen.tsv kind name why headers=() tests=() programs=() quick=()
  suite=gcc
  targets=none build_gcc || return
  if ! scripts/lib/affected.py "$builds/gcc" "$since" >"$chosen"; then
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
  [ "$list" = no ] || return
  for name in "${quick[@]}"; do
    run_suite "$name"
  done
  [ ${#headers[@]} -eq 0 ] || run_suite "headers that changed" run_case headers scripts/check-headers.py "${headers[@]}"
  run_suite "gcc tests" run_affected
}

# run_affected, of run_changed: builds its programs and runs its tests.
run_affected() {
  [ ${#programs[@]} -eq 0 ] || targets="${programs[*]}" build_gcc || return
  # A tenth of the simulation's runs; scripts/sim.sh has more.
  [ ${#tests[@]} -eq 0 ] || RRDK_SIM_SEEDS=${RRDK_SIM_SEEDS-2000} run_programs gcc 1 "${tests[@]}"
}

only=()
install=yes changed='' since='' list=no
while [ $# -gt 0 ]; do
  case $1 in
    --only)
      [ $# -ge 2 ] || die "--only needs the name of a suite (see --list)"
      printf '%s\n' "${suites[@]}" | grep -q "^$2 " || die "no suite is called '$2' (see --list)"
      only+=("$2")
      shift
      ;;
    --changed) changed=yes ;;
    --changed=*)
      changed=yes since=${1#*=}
      git rev-parse --quiet --verify "$since^{commit}" >/dev/null || die "'$since' is no commit"
      ;;
    --list) list=yes ;;
    --no-install) install=no ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$1' (see --help)" ;;
  esac
  shift
done

if [ "$list" = yes ] && [ -z "$changed" ]; then
  printf '%s\n' "${suites[@]}"
  exit 0
fi
[ -z "$changed" ] || [ ${#only[@]} -eq 0 ] || die "--changed chooses by itself: it takes no --only"

# ccache finds what another checkout has compiled, and a sanitizer's finding fails its test.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
export ASAN_OPTIONS=halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
# Clang's runtime looks for llvm-symbolizer-19 only; without any, its reports have no lines.
ASAN_SYMBOLIZER_PATH=$(command -v llvm-symbolizer-19 llvm-symbolizer addr2line | head -n 1)
export ASAN_SYMBOLIZER_PATH TSAN_SYMBOLIZER_PATH=$ASAN_SYMBOLIZER_PATH
ulimit -c 0

mkdir -p "$logs" || exit 1
exec 9>"$builds/lock"
flock -n 9 || die "another test run is under way in this checkout"
rm -f "$logs"/*.log
: >"$results"
if [ "$install" = yes ] && ! scripts/install-deps.sh --tests; then
  record fail "install-deps"
  finish
fi
hugepages_note
if [ -n "$changed" ]; then
  run_changed
  finish
fi
if [ ${#only[@]} -gt 0 ]; then
  say "Running ${only[*]}."
else
  say "Running all ${#suites[@]} suites; the first time, with several builds, that can take more than an hour on two cores."
fi
say "Builds and logs are in $builds; --list names the suites, --only NAME runs one."

for line in "${suites[@]}"; do
  ! will_run "${line%% *}" || run_suite "$line"
done

# What doc/conformance.md rests on has just run, if everything has.
if [ ${#only[@]} -eq 0 ]; then
  suite=conformance
  logged conformance-ran scripts/conformance.py --ran "$results"
  case $? in
    0) record pass "$suite/ran" ;;
    77) record skip "$suite/ran" "$(tail -n 1 "$logs/conformance-ran.log")" ;;
    *) record fail "$suite/ran" ;;
  esac
fi
finish
