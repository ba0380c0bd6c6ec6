#!/usr/bin/env bash
# Runs a list of commands in one guest and writes down how each ended:
#
#   each.sh RESULTS [SECONDS] <CASES
#
# A line of CASES is NAME<tab>COMMAND; the command, run by bash, has SECONDS (default 60). A line of
# RESULTS, which lies best in a folder given with --share, is pass|fail|skip<tab>NAME<tab>REASON, as
# scripts/run-tests.sh records it: a command that ends with status 77 was skipped, and its last line
# says why. Each line is there as soon as its command has ended, so that what ran is known even if
# the guest dies. Ends with status 0 if nothing failed, 1 otherwise.
set -u
results=${1?usage: each.sh RESULTS [SECONDS] <CASES} seconds=${2-60}
output=$(mktemp)
failed=0
: >"$results"
while IFS=$'\t' read -r name command; do
  [ -n "$name" ] || continue
  printf '== %s\n' "$name"
  timeout --kill-after 5 "$seconds" bash -c "$command" </dev/null > >(tee "$output") 2>&1
  status=$?
  wait $!
  case $status in
    0) result=pass reason= ;;
    77) result=skip reason=$(tail -n 1 "$output") ;;
    124 | 137) result=fail reason="took more than $seconds s" ;;
    *) result=fail reason="exit status $status: $(tail -n 1 "$output" | cut -c -200)" ;;
  esac
  [ $result != fail ] || failed=1
  printf '%s\t%s\t%s\n' "$result" "$name" "${reason//$'\t'/ }" >>"$results"
done
exit "$failed"
