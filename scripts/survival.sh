#!/usr/bin/env bash
# Kills servers, or closes connections, under many calls in flight, and shows that nothing is lost,
# doubled or damaged: calls are sent again under their XIDs on the next connection, and a counter
# that is not idempotent tells whether each was executed exactly once. Builds what it needs in
# build-tests/survival; prints a line per second, then what held and what did not.
#
#   scripts/survival.sh [--seconds N]    kills the server at random moments, for N seconds (60)
#   scripts/survival.sh --mode break     the server lives, and closes connections
#   scripts/survival.sh --mode all       the server lives, and once a second (of thousands: when all
#                                        have been back for some seconds) all connections of all
#                                        clients break at once, with replies on their way: one
#                                        client of 16 connections, over shm and then over iwarp
#
# Further: --seed N (of what is drawn; the moment of a kill is never quite the same again),
# --json FILE (the summary); with --mode break, --server-cache (the Server itself has to know
# repeated calls: the program's own record of them is not looked at), as it always has to with
# --mode all; and with that --connections N of each of --processes N, --calls N in flight on each,
# and --transport shm|iwarp for one of the two. The exit status is 0 if everything held.
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
