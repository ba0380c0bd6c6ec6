#!/usr/bin/env bash
# Kills servers, or closes connections, under many calls in flight, and shows that nothing is lost,
# doubled or damaged: calls are sent again under their XIDs on the next connection, and a counter
# that is not idempotent tells whether each was executed exactly once. Builds what it needs in
# build-tests/survival; prints a line per second, then what held and what did not.
#
#   scripts/survival.sh [--seconds N]    kills the server at random moments, for N seconds (60)
#   scripts/survival.sh --mode break     the server lives, and closes connections
#
# Further: --seed N (of what is drawn; the moment of a kill is never quite the same again),
# --json FILE (the summary) and, with --mode break, --server-cache (the Server itself has to know
# repeated calls: the program's own record of them is not looked at). The exit status is 0 if
# everything held.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

case ${1:-} in
  -h | --help) usage; exit 0 ;;
esac
arguments=("$@")
[[ " $* " == *" --seconds "* ]] || arguments+=(--seconds 60)

build_tool survival
exec "$root/build-tests/survival/test/survival/survival" "${arguments[@]}"
