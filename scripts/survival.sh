#!/usr/bin/env bash
# Kills servers, or closes connections, under many calls in flight, and checks that nothing is lost,
# doubled or damaged: calls are sent again under their XIDs on the next connection, and a counter that
# is not idempotent shows whether each was executed exactly once. Builds what it needs in
# build-tests/survival; prints a line per second, then which properties held and which did not.
#
#   scripts/survival.sh [--seconds N]    kills the server at random moments, for N seconds (60)
#   scripts/survival.sh --mode break     the server lives, and closes connections
#   scripts/survival.sh --mode all       the server lives, and once a second (of thousands: when all
#                                        have been back for some seconds) all connections of all
#                                        clients break at once, with replies on their way: one
#                                        client of 16 connections, over shm and then over iwarp
#
# Further options: --seed N (for random choices; the moment of a kill is never exactly the same again),
# and --json FILE (the summary). With --mode break, --server-cache: the Server itself has to recognise
# repeated calls, because the program's own record is not used; --mode all always works so. With
# --mode all: --connections N of each of --processes N, --calls N in flight on each, and
# --transport shm|iwarp for one of the two. The exit status is 0 if everything held.
#
# A storm of ten thousand:
#   scripts/survival.sh --mode all --transport iwarp --connections 10000 --calls 1 --seconds 120
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

case ${1:-} in
  -h | --help) usage; exit 0 ;;
esac
arguments=("$@")
[[ " $* " == *" --seconds "* ]] || arguments+=(--seconds 60)

build_tool survival
program="$root/build-tests/survival/test/survival/survival"
if [[ " $* " != *" --mode all "* ]]; then
  exec "$program" "${arguments[@]}"
fi
[[ " $* " == *" --connections "* ]] || arguments+=(--connections 16)
if [[ " $* " == *" --transport "* ]]; then
  exec "$program" "${arguments[@]}"
fi
status=0
for transport in shm iwarp; do
  "$program" "${arguments[@]}" --transport "$transport" || status=1
done
exit "$status"
