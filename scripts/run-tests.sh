#!/usr/bin/env bash
# Runs every check of the project and counts what passed. The last line is always
# "N passed, N failed, N skipped"; the exit status is zero only if nothing failed.
#
#   scripts/run-tests.sh               installs what is missing (scripts/install-deps.sh), builds once with
#                                      GCC and runs all tests of how the software behaves
#   scripts/run-tests.sh --full        runs everything, as CI does: sanitizers, fuzzers, clang-tidy, virtual
#                                      machines and packages, too
#   scripts/run-tests.sh --only NAME   runs one suite; may be given several times
#   scripts/run-tests.sh --changed     builds and runs what this working copy's changes since it left
#                                      origin/main can affect, with GCC; says what it chose and why.
#                                      --changed=COMMIT: the changes since that commit
#   scripts/run-tests.sh --list        names the suites, * those of the standard run; with --full those of
#                                      the full run, with --changed what that would choose
#   scripts/run-tests.sh --no-install  leaves the machine's packages alone
#
# Suites run side by side where they do not disturb each other, and each builds what it needs.
#
# Build directories and logs are kept under build-tests/, so that a second run is short. Random
# tests print their seed; RRDK_SEED=N replays one.
set -uo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
cd "$root" || exit 1

declare -A only_in=() usual_cpu=()
. scripts/lib/suites.sh
cpus=$(nproc)
results=$logs/results.tsv  # pass|fail|skip TAB suite/case TAB reason

# record RESULT NAME [REASON]
record() { printf '%s\t%s\t%s\n' "$1" "$2" "${3-}" >>"$results"; }

count() { awk -F'\t' -v r="$1" '$1 == r { n++ } END { print n + 0 }' "$results"; }

# Ends the run: prints where the time went, what failed, what was skipped and why, what was left out, and the
# totals.
finish() {
  say_where_the_time_went
  say ""
  awk -F'\t' '$1 == "fail" { print "FAILED  " $2 ($3 == "" ? "" : ": " $3) }
              $1 == "skip" { print "skipped " $2 ": " $3 }' "$results" | sort -u
  [ -z "${left_out-}" ] || say "Left out: $left_out"
  local failed
  failed=$(count fail)
  say "$(count pass) passed, $failed failed, $(count skip) skipped"
  [ "$failed" -eq 0 ]
  exit
}

# The running suites and builds, by name. Each is a process of its own (run-suite.sh) with its output in a
# file, so that parallel suites do not mix theirs; contained.py ends all its descendants with it.
declare -A pid=() began=() took=() state=()  # state: runs, passed, failed
begin() {
  local name=$1 calm=()
  # Builds that are not needed yet run at a lower priority than tests, but not so low that only their own
  # tests are left at the end.
  [ "${lane[$name]-}" != builds ] || [ "$name" = "$first_build" ] || calm=(nice -n 5)
  rm -f "$logs/$name.tsv" "$logs/$name.current"
  scripts/lib/contained.py "$suite_seconds" "${calm[@]}" scripts/lib/run-suite.sh "$name" \
    >"$logs/$name.out" 2>&1 </dev/null 9>&- &
  pid[$name]=$! began[$name]=$SECONDS state[$name]=runs
  show "== $(line_of "$name")"
}

line_of() {
  local line
  for line in "${suites[@]}"; do
    [ "${line%% *}" != "$1" ] || { printf '%s\n' "$line"; return; }
  done
  printf '%s\n' "$1"
}

# collect NAME: adds the cases of a suite that has ended, and a failure if it did not end as it should.
collect() {
  local name=$1 status=0 cases=$logs/$1.tsv
  wait "${pid[$name]}" || status=$?
  unset "pid[$name]"
  touch "$cases"
  if [ "$status" -eq 124 ]; then
    printf 'fail\t%s\ttook more than %d s\n' "$name" "$suite_seconds" >>"$cases"
  elif [ "$status" -ne 0 ] || [ "$(tail -n 1 "$cases")" != end ]; then
    printf 'fail\t%s\tdid not come to its end (exit status %d)\n' "$name" "$status" >>"$cases"
  elif [ "$(wc -l <"$cases")" -eq 1 ] && [ "$name" != changed ]; then
    printf 'fail\t%s\thas tried nothing\n' "$name" >>"$cases"
  fi
  grep -P '^(pass|fail|skip)\t' "$cases" >>"$results"
  state[$name]=passed
  ! grep -q '^fail' "$cases" || state[$name]=failed
  took[$name]=$((SECONDS - began[$name]))
  show "$(cat "$logs/$name.out" 2>/dev/null)" "$(awk -F'\t' -v name="$name" -v s="${took[$name]}" -v cpu="$(cpu_of "$name")" '
    { n[$1]++ } END { printf "   %s: %d passed, %d failed, %d skipped in %d s", name, n["pass"], n["fail"], n["skip"], s
                      if (cpu != "") printf ", %d s of CPU", cpu }' "$cases")"
}

# cpu_of NAME: prints the CPU seconds of a suite that has ended.
cpu_of() {
  [ ! -e "$logs/$1.times" ] || tr 'ms' '  ' <"$logs/$1.times" |
    awk '{ s += 60 * ($1 + $3) + $2 + $4 } END { printf "%.0f", s }'
}

say_where_the_time_went() {
  local name
  [ ${#took[@]} -gt 1 ] || return 0
  say ""
  say "Where the time went: $SECONDS s in all."
  printf '%-14s %8s %10s\n' name seconds "CPU seconds"
  for name in "${!took[@]}"; do
    printf '%-14s %8d %10s\n' "$name" "${took[$name]}" "$(cpu_of "$name")"
  done | sort -k 3,3nr -k 2,2nr
}

# show LINES...: prints those that are not empty, and clears a terminal's line of progress first.
show() {
  [ ! -t 1 ] || printf '\r\033[K'
  local lines
  for lines in "$@"; do
    [ -z "$lines" ] || say "$lines"
  done
}

# minutes_left NAME...: prints "about N min left" for the named jobs, which have not begun, and for those that
# run. Estimates from what jobs usually take (usual_cpu, in suites.sh) and from the speed of this run so far.
minutes_left() {
  local name usual ran ahead=0 done_usual=0 done_cpu
  for name in "$@"; do ahead=$((ahead + ${usual_cpu[$name]-10})); done
  for name in "${!pid[@]}"; do
    usual=${usual_cpu[$name]-10} ran=$((SECONDS - began[$name]))
    done_usual=$((done_usual + (ran < usual ? ran : usual)))
    [ $((usual - ran)) -lt 5 ] || ahead=$((ahead + usual - ran))
  done
  for name in "${!took[@]}"; do done_usual=$((done_usual + ${usual_cpu[$name]-10})); done
  # The speed of this run is the CPU seconds so far, relative to the usual ones of the same jobs. Less than a
  # minute is too little for an estimate.
  done_cpu=$((SECONDS * cpus))
  [ "$done_usual" -ge 60 ] || done_cpu=1 done_usual=1
  printf 'about %d min left' $(((ahead * done_cpu / done_usual / cpus + 59) / 60))
}

# Shows the progress of what runs: in place in one line of a terminal, else as a line each every ten seconds.
shown=0
show_progress() {  # NAME...: the jobs that have not begun
  local name line all
  [ -t 1 ] || [ $((SECONDS - shown)) -ge 10 ] || return 0
  shown=$SECONDS
  all="$((SECONDS / 60)) min, $(minutes_left "$@") | "
  [ -t 1 ] || say "  ${all% | }"
  for name in "${!pid[@]}"; do
    line=$(tail -c 300 "$logs/$name.current" 2>/dev/null | tr '\r' '\n' | tail -n 1 | cut -c -120)
    line="$name $((SECONDS - began[$name])) s  $line"
    if [ -t 1 ]; then
      all+="${line:0:$((${COLUMNS:-80} / ${#pid[@]} - 3))} | "
    else
      say "  $line"
    fi
  done
  [ ! -t 1 ] || printf '\r\033[K%s' "${all% | }"
}

# may_begin NAME: succeeds if its lane is free and what it needs is built.
may_begin() {
  local other need=${built_by[$1]-}
  for other in "${!pid[@]}"; do
    [ "${lane[$other]-checks}" != "${lane[$1]-checks}" ] || return 1
  done
  [ -z "$need" ] || [ "${state[$need]-runs}" != runs ]
}

# run_all NAME...: runs each as soon as it may begin, in this order.
run_all() {
  local waiting=("$@") name left
  while [ ${#waiting[@]} -gt 0 ] || [ ${#pid[@]} -gt 0 ]; do
    left=()
    for name in "${waiting[@]}"; do
      if ! may_begin "$name"; then
        left+=("$name")
      elif [ "${state[${built_by[$name]-none}]-}" = failed ]; then
        record fail "$name" "what it needs could not be built"
      else
        begin "$name"
      fi
    done
    waiting=("${left[@]}")
    show_progress "${waiting[@]}"
    sleep 0.2
    for name in "${!pid[@]}"; do
      kill -0 "${pid[$name]}" 2>/dev/null || collect "$name"
    done
  done
}

# end_all: ends everything that still runs, however this script ends.
end_all() {
  [ ${#pid[@]} -eq 0 ] || kill -TERM "${pid[@]}" 2>/dev/null
  wait
}
trap end_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# is_chosen NAME: succeeds if --only names it, or, without --only, if it belongs to the run.
is_chosen() {
  if [ ${#only[@]} -gt 0 ]; then
    [[ " ${only[*]} " == *" $1 "* ]]
  else
    [ "${only_in[$1]-$run}" = "$run" ]
  fi
}

list_suites() {
  local line mark
  for line in "${suites[@]}"; do
    mark='*'
    [ "${only_in[${line%% *}]-}" != full ] || mark=' '
    if [ "$run" = standard ]; then
      say "$mark $line"
    elif is_chosen "${line%% *}"; then
      say "$line"
    fi
  done
}

# In a function, so that bash reads the file as a whole: changing this file does not affect a run in progress.
main() {
  only=()
  install=yes changed='' since='' list=no run=standard
  while [ $# -gt 0 ]; do
    case $1 in
      --only)
        [ $# -ge 2 ] || die "--only needs the name of a suite (see --list)"
        [[ " ${suites[*]%% *} " == *" $2 "* ]] || die "no suite is called '$2' (see --list)"
        only+=("$2")
        shift
        ;;
      --full) run=full ;;
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

  [ -z "$changed" ] || [ ${#only[@]} -eq 0 ] || die "--changed chooses by itself: it takes no --only"
  if [ "$run" = full ] && { [ -n "$changed" ] || [ ${#only[@]} -gt 0 ]; }; then
    die "--full runs everything: it takes neither --only nor --changed"
  fi
  if [ "$list" = yes ] && [ -z "$changed" ]; then
    list_suites
    exit 0
  fi

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
  rm -f "$logs"/*.{log,out,tsv,current,times}
  : >"$results"
  if [ "$install" = yes ] && ! scripts/install-deps.sh --tests; then
    record fail "install-deps"
    finish
  fi
  hugepages_note
  if [ -n "$changed" ]; then
    scripts/lib/contained.py "$suite_seconds" scripts/lib/run-suite.sh changed "$since" "$list" </dev/null 9>&- &
    pid[changed]=$! began[changed]=$SECONDS
    run_all
    finish
  fi
  if [ ${#only[@]} -gt 0 ]; then
    say "Running ${only[*]}."
  elif [ "$run" = full ]; then
    say "Running everything, with several builds: up to 40 minutes on two CPUs."
  else
    say "Running the standard suites, with one build: about a quarter of an hour on two CPUs (--full: everything)."
  fi
  say "Builds and logs are in $builds; --list names the suites, --only NAME runs one."

  # Builds come before the suites, in the order in which suites need them.
  chosen=() wanted=() first_build= left_out=
  for line in "${suites[@]}"; do
    name=${line%% *} need=${built_by[${line%% *}]-}
    if ! is_chosen "$name"; then
      [ "$run" = full ] || [ ${#only[@]} -gt 0 ] || left_out+="${left_out:+, }$name"
      continue
    fi
    chosen+=("$name")
    [ -z "$need" ] || [[ " ${wanted[*]} " == *" $need "* ]] || wanted+=("$need")
  done
  first_build=${wanted[0]-}
  run_all "${wanted[@]}" "${chosen[@]}"

  [ -z "$left_out" ] || left_out+=" (scripts/run-tests.sh --full runs these too)"

  # A full run has run every test that doc/conformance.md names.
  if [ "$run" = full ]; then
    scripts/conformance.py --ran "$results" >"$logs/conformance-ran.log" 2>&1
    case $? in
      0) record pass "conformance/ran" ;;
      77) record skip "conformance/ran" "$(tail -n 1 "$logs/conformance-ran.log")" ;;
      *)
        cat "$logs/conformance-ran.log"
        record fail "conformance/ran"
        ;;
    esac
  fi
  finish
}

main "$@"
