#!/usr/bin/env bash
# testrpc over the iwarp driver between two network namespaces that a veth pair joins, with every
# byte checked: over a link as it is, and over links that delay, lose and reorder.
#
#   test/netns/testrpc.sh BUILD CASE    CASE: plain, delay, loss or reorder
#
# Needs root, and for all but plain the kernel's sch_netem. Exit status 77: it could not be tried,
# for the reason on the last line. Takes less than five minutes on the slowest machine, and leaves nothing
# behind.
set -euo pipefail

skip() { printf 'skipped: %s\n' "$1"; exit 77; }

[ $# -eq 2 ] || { printf 'usage: %s BUILD plain|delay|loss|reorder\n' "$0" >&2; exit 2; }
testrpc=$1/apps/testrpc/testrpc
case $2 in
  plain) netem=() ;;
  delay) netem=(delay 3ms 1ms) ;;
  loss) netem=(delay 1ms loss 1%) ;;
  reorder) netem=(delay 2ms reorder 25% 50%) ;;
  *) printf 'no case is called %s\n' "$2" >&2; exit 2 ;;
esac
[ -x "$testrpc" ] || { printf '%s is not there: build it first\n' "$testrpc" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
for tool in ip tc; do
  command -v "$tool" >/dev/null || skip "$tool is missing: install iproute2"
done

near=rrdk-near-$$ far=rrdk-far-$$ log=$(mktemp) server=
clean_up() {
  local status=$?
  if [ "$status" -ne 0 ] && [ "$status" -ne 77 ] && [ -s "$log" ]; then
    printf 'what the server said:\n'
    cat "$log"
  fi
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  ip netns del "$near" 2>/dev/null || true
  ip netns del "$far" 2>/dev/null || true
  rm -f "$log"
}
trap clean_up EXIT

ip netns add "$near" 2>/dev/null || skip "network namespaces can not be made here"
ip netns add "$far"
ip -n "$near" link add veth0 type veth peer name veth0 netns "$far" 2>/dev/null ||
  skip "the kernel has no veth"
ip -n "$near" addr add 10.77.0.1/24 dev veth0
ip -n "$far" addr add 10.77.0.2/24 dev veth0
for end in "$near" "$far"; do
  ip -n "$end" link set lo up
  ip -n "$end" link set veth0 up
  [ ${#netem[@]} -eq 0 ] || tc -n "$end" qdisc add dev veth0 root netem "${netem[@]}" 2>/dev/null ||
    skip "the kernel has no sch_netem"
done

timeout 280 ip netns exec "$far" "$testrpc" --server iwarp://10.77.0.2:20049 --connections 1 --credits 8 --max-size 1M >"$log" 2>&1 &
server=$!
for _ in $(seq 100); do
  ! grep -q '^listening on' "$log" || break
  kill -0 "$server" 2>/dev/null || { cat "$log"; exit 1; }
  sleep 0.1
done
run() {
  timeout 130 ip netns exec "$near" "$testrpc" --client "$1" --verify --timeout 60000 --duration 2 \
    --window 8 --engine mixed --size 100,4K,100000,1M
}
run iwarp://10.77.0.2:20049
run 'iwarp://10.77.0.2:20049?crc=1'
printf 'everything came as it was sent\n'
