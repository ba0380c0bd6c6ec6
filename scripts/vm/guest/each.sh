#!/usr/bin/env bash
# Runs a list of commands in one guest and records how each ended:
#
#   each.sh RESULTS SECONDS NAME=COMMAND...
#
# bash runs each command for at most SECONDS. A line of RESULTS, a file that should be in a folder given
# with --share, is pass|fail|skip<tab>NAME<tab>REASON, as scripts/run-tests.sh records it: a command
# that ends with status 77 was skipped, and its last line says why. The reason of a GoogleTest program
# names the tests that failed and the first failure; that of another program is its last lines. Each
# line is written as soon as its command has ended, so what ran is known even if the guest dies.
# Ends with status 0 if nothing failed, else 1.
set -u
[ $# -ge 2 ] || { echo "usage: each.sh RESULTS SECONDS NAME=COMMAND..." >&2; exit 2; }
results=$1 seconds=$2
shift 2
output=$(mktemp)
failed=0

failed_tests() {
  sed -n 's/^\[  FAILED  \] \([^ ,]*[.][^ ,]*\).*/\1/p' "$output" | sort -u | paste -sd ' '
}

# Prints the message of the first assertion that failed, in one line.
first_failure() {
  awk '/: Failure$/ { found = 1 } found && (/^$/ || /^\[/ || n++ == 8) { exit } found' "$output" | paste -sd ' '
}

: >"$results"
for case in "$@"; do
  name=${case%%=*} command=${case#*=}
  began=$SECONDS
  printf '== %s\n' "$name"
  # Not through a pipe: a daemon that the command leaves behind would hold it open.
  timeout --kill-after 5 "$seconds" bash -c "$command" </dev/null >"$output" 2>&1 &
  tail -n +1 -f -s 0.1 --pid $! "$output"
  wait $!
  status=$?
  why=
  [ $status -eq 0 ] || why=$(failed_tests)
  [ -z "$why" ] || why+=": $(first_failure)"
  case $status in
    0) result=pass reason= ;;
    77) result=skip reason=${why:-$(tail -n 1 "$output")} ;;
    124 | 137) result=fail reason="took more than $seconds s, or was killed" ;;
    *) result=fail reason="exit status $status: ${why:-$(tail -n 8 "$output" | cut -c -120 | paste -sd '|')}" ;;
  esac
  reason=${reason//$'\t'/ } reason=${reason:0:800}
  [ $result != fail ] || failed=1
  printf '%s\t%s\t%s\n' "$result" "$name" "$reason" >>"$results"
  printf '== %s: %s in %d s\n' "$name" "$result" $((SECONDS - began))
done
rm -f "$output"
exit "$failed"
