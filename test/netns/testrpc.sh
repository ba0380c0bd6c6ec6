#!/usr/bin/env bash
# testrpc over the iwarp driver between two network namespaces that a veth pair joins, with every
# byte checked: over a link as it is, over links that delay, lose and reorder, and over one that is cut.
#
#   test/netns/testrpc.sh BUILD CASE    CASE: plain, delay, loss, reorder or silence
#
# Needs root, and for delay, loss and reorder the kernel's sch_netem. Exit status 77: it could not be tried,
# for the reason on the last line. Takes less than five minutes on the slowest machine, and leaves nothing
# behind.
set -euo pipefail

skip() { printf 'skipped: %s\n' "$1"; exit 77; }

[ $# -eq 2 ] || { printf 'usage: %s BUILD plain|delay|loss|reorder|silence\n' "$0" >&2; exit 2; }
testrpc=$1/apps/testrpc/testrpc
case $2 in
  plain | silence) netem=() ;;
  delay) netem=(delay 3ms 1ms) ;;
  loss) netem=(delay 1ms loss 1%) ;;
  reorder) netem=(delay 2ms reorder 25% 50%) ;;
  *) printf 'no case is called %s\n' "$2" >&2; exit 2 ;;
esac
[ -x "$testrpc" ] || { printf '%s is not there: build it first\n' "$testrpc" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
for tool in ip tc ss; do
  command -v "$tool" >/dev/null || skip "$tool is missing: install iproute2"
done

near=rrdk-near-$$ far=rrdk-far-$$ said=$(mktemp -d) started=()
clean_up() {
  local status=$? pid
  if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
    tail -v -n 40 "$said"/*
  fi
  for pid in "${started[@]}"; do
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  ip netns del "$near" 2>/dev/null || true
  ip netns del "$far" 2>/dev/null || true
  rm -r "$said"
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

# testrpc in a namespace, in the background: its output is in $said/NAME, its process is $pid.
start() { # NAME NAMESPACE ARGUMENT...
  : >"$said/$1"
  ip netns exec "$2" "$testrpc" "${@:3}" --idle adaptive >>"$said/$1" 2>&1 &
  pid=$!
  started+=("$pid")
}
# Waits until a command succeeds, which is soon unless something is wrong.
await() { # WHAT COMMAND...
  local end=$((SECONDS + 20))
  until "${@:2}"; do
    [ "$SECONDS" -lt "$end" ] || { printf 'in vain: %s\n' "$1"; exit 1; }
    sleep 0.1
  done
}
has_said() { [ "$(grep -c -- "$2" "$said/$1")" -ge "${3:-1}" ]; } # NAME WHAT [TIMES]
serve() { # NAME NAMESPACE URI [ARGUMENT...]
  start "$1" "$2" --server "$3" --max-size 1M "${@:4}"
  await "$1 listens" has_said "$1" '^listening on'
}

verify() {
  timeout 130 ip netns exec "$near" "$testrpc" --client "$1" --verify --timeout 60000 --duration 2 \
    --window 8 --engine mixed --size 100,4K,100000,1M
}

# --- the case silence: hosts that are gone, and processes that are only stopped ---

# In both directions more is in flight than TCP takes, and nothing in chunks: a peer that takes no
# more does not keep an answered call from ending.
inline=(--inline 16K --credits 64)
call() { # NAME URI [ARGUMENT...]: without end
  start "$1" "$near" --client "$2" "${inline[@]}" --chunk-threshold 16K --engine echo --size 12K --window 64 \
    --verify --timeout 60000 --warmup 0.001 --duration 600 "${@:3}"
  await "$1 makes calls" has_said "$1" '^echo 12K'
}
# Which of TCP's timers runs for connections (ss(8)): "on": something was not acknowledged;
# "persist": the other end has no space.
timer_runs() { # NAMESPACE PORTS TIMERS
  ip netns exec "$1" ss -tnoH state established "$2" | grep -Eq "timer:.($3),"
}
cpu_ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
has_run_since() { [ "$(cpu_ticks "$1")" -gt "$2" ]; } # PID TICKS
# Runs STOP at a moment at which CONDITION comes true. Until then it runs GO, and tries again after
# process PID has made calls, or answered them.
stop_when() { # STOP GO PID CONDITION
  local attempt
  for attempt in {1..20}; do
    eval "$1"
    for _ in {1..4}; do
      ! eval "$4" || return 0
      sleep 0.1
    done
    eval "$2"
    await "process $3 goes on" has_run_since "$3" "$(cpu_ticks "$3")"
  done
  printf 'in vain, %s times: %s and %s\n' "$attempt" "$1" "$4"
  exit 1
}
# While its peer has more for it than TCP takes.
stop_process() { # PID, PORTS of the peer's connection
  stop_when "kill -STOP $1" "kill -CONT $1" "$1" "timer_runs $near '$2' persist"
}
end_well() { # NAME PID: of a client that makes calls again, all of which come back
  await "$1 goes on" has_said "$1" ' [1-9][0-9]* RPC/s'
  kill -TERM "$2"
  await "$1 ends" eval "! kill -0 $2 2>/dev/null"
  wait "$2" || { printf '%s lost calls\n' "$1"; exit 1; }
}

silence() {
  export RRDK_LOG=debug
  local cut='iwarp://10.77.0.2:20049?silence=3' gone="ended: the peer's host does not answer any more" client server
  for end in "$near" "$far"; do
    ip netns exec "$end" sysctl -q net.ipv4.tcp_rmem='4096 65536 65536' net.ipv4.tcp_wmem='4096 65536 65536'
  done
  serve stopped-server "$near" 'iwarp://127.0.0.1:20050?silence=3' "${inline[@]}"
  server=$pid
  serve server-of-stopped "$near" 'iwarp://127.0.0.1:20051?silence=3' "${inline[@]}"
  serve cut-server "$far" "$cut" "${inline[@]}"
  call client-of-stopped 'iwarp://127.0.0.1:20050?silence=3'
  local waiting=$pid
  stop_process "$server" 'dport = :20050'
  call stopped-client 'iwarp://127.0.0.1:20051?silence=3'
  client=$pid
  stop_process "$client" 'sport = :20051'
  # One connection has calls in flight, the other one is idle.
  call cut-client "$cut" --connections 2 --active 1
  await 'calls of cut-client end' has_said cut-client ' [1-9][0-9]* RPC/s'
  # Both ends wait for acknowledgements then.
  stop_when "ip -n $far link set veth0 down" "ip -n $far link set veth0 up" "$pid" \
    "timer_runs $near 'dport = :20049' 'on|persist' && timer_runs $far 'sport = :20049' 'on|persist'"
  await 'the client gives the host up' has_said cut-client "$gone"
  await 'its calls end' has_said cut-client 'connection lost'
  await 'the server gives the host up, on both connections' has_said cut-server "$gone" 2
  # The processes have been stopped for longer than the hosts were silent.
  : >"$said/client-of-stopped"
  : >"$said/stopped-client"
  kill -CONT "$server" "$client"
  end_well client-of-stopped "$waiting"
  end_well stopped-client "$client"
  printf 'a host that is gone ends its connections, and a process that is stopped does not\n'
}

if [ "$2" = silence ]; then
  silence
else
  serve server "$far" iwarp://10.77.0.2:20049 --connections 1 --credits 8
  verify iwarp://10.77.0.2:20049
  verify 'iwarp://10.77.0.2:20049?crc=1'
  printf 'everything came as it was sent\n'
fi
