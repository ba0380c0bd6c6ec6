#!/usr/bin/env bash
# In the guest: tcpdump sees what a command sends through a device, in both directions.
#
#   capture.sh INTERFACE FILTER COMMAND...
set -eu
interface=$1 filter=$2
shift 2
file=$(mktemp) said=$(mktemp)
tcpdump --immediate-mode -U -i "$interface" -w "$file" "$filter" 2>"$said" &
capture=$!
until grep -q '^tcpdump: listening' "$said"; do
  kill -0 $capture || { cat "$said"; exit 1; }
  sleep 0.1
done
"$@"
# On a busy machine it may not have read anything yet, and when it is ended it reads no more.
for _ in {1..100}; do
  talkers=$(tcpdump -nr "$file" 2>/dev/null | awk '{ print $3 }' | sort -u | wc -l)
  [ "$talkers" -lt 2 ] || break
  sleep 0.1
done
kill -INT $capture
wait $capture || true
cat "$said"
rm -f "$file" "$said"
[ "$talkers" -ge 2 ] || { echo "$talkers ends were seen to speak on $interface, not two"; exit 1; }
