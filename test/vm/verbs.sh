#!/usr/bin/env bash
# In the guest: programs of a build talk through the RDMA device of an address (of an interface with
# a link, siw on lo or rxe on veth).
#
#   verbs.sh fabric ADDRESS BUILD           the fabric interface's conformance suite
#   verbs.sh testrpc ADDRESS BUILD          testrpc, every engine, every byte checked
#   verbs.sh from-iwarp ADDRESS BUILD       a client of drivers/iwarp, a server of drivers/verbs
#   verbs.sh to-iwarp ADDRESS BUILD         the other way round
#   verbs.sh other-device ADDRESS BUILD     the way to the address leads through another device than
#                                           the one that has it (rxe on a pair)
#
# For fabric and testrpc, ADDRESS may end in options of verbs: addresses: 10.7.0.1?windows=no.
#
# How connections end: the other side's calls end with an error, its buffers are all there, and it
# ends as it should.
#
#   verbs.sh kill-client ADDRESS BUILD      kill -9 in the midst of calls
#   verbs.sh kill-server ADDRESS BUILD
#   verbs.sh down ADDRESS BUILD INTERFACE   the link of the client's INTERFACE goes down
#   verbs.sh removed ADDRESS BUILD DEVICE   the device is removed
set -euo pipefail
what=$1 address=$2 build=$3 object=${4-}
host=${address%%\?*} options=${address#"${address%%\?*}"}
testrpc=$build/apps/testrpc/testrpc
scratch=$(mktemp -d)
server='' client='' lowered=''
trap clean_up EXIT
ulimit -l unlimited  # siw holds root, too, to the limit

clean_up() {
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  [ -z "$client" ] || kill -KILL "$client" 2>/dev/null || true
  [ -z "$lowered" ] || ip link set "$lowered" up
  rm -rf "$scratch"
}

die() {
  tail -n 40 "$scratch"/*.log
  ps -o pid,stat,time,wchan:20,args -C testrpc,test_fabric || true
  dmesg | tail -n 5
  printf 'verbs.sh %s: %s\n' "$what" "$1"
  exit 1
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local end=$((SECONDS + $1)) seconds=$1 what_for=$2
  shift 2
  until "$@" 2>/dev/null; do
    [ $SECONDS -lt $end ] || die "$what_for: not within $seconds s"
    sleep 0.1
  done
}

ended() { ! kill -0 "$1" 2>/dev/null; }

# Each end keeps to a CPU of its own, and sleeps when it has nothing to do: an emulated CPU that
# polls keeps the other one, and the kernel's threads, from running. It takes long, too, to fill the
# memory of more connections than there are.
start_server() {
  taskset -c 1 "$testrpc" --server "$1" --idle adaptive --max-size 1M --credits 16 >"$scratch/server.log" 2>&1 &
  server=$!
  wait_for 60 "a server at $1" grep -q '^listening on' "$scratch/server.log"
}

# It has ended on request, or does now; its buffers are all there.
stop_server() {
  kill -TERM "$server"
  wait_for 60 "the server's end" ended "$server"
  wait "$server" || die "the server ended with status $?"
  grep -q '^pools whole: yes' "$scratch/server.log" || die "the server lost buffers"
}

call() { timeout 110 taskset -c 0 "$testrpc" --client "$1" --idle adaptive --verify --timeout 30000 "${@:2}"; }

# exchange SERVER CLIENT: all engines, small calls and large, several at a time.
exchange() {
  start_server "$1"
  call "$2" --engine all --size 1,4K,100000,1M --window 4 --count 6 || die "the calls went wrong"
  stop_server
}

# Calls in flight that go on until something happens.
start_client() {
  taskset -c 0 "$testrpc" --client "$1" --idle adaptive --verify --engine mixed --size 100,64K \
    --window 8 --duration 300 --timeout 20000 >"$scratch/client.log" 2>&1 &
  client=$!
  wait_for 60 "calls" grep -q ' [1-9][0-9]* RPC/s' "$scratch/client.log"
}

# The client has seen that its calls fail: it says so, and ends, with nothing missing.
expect_client_to_fail() {
  local status=0
  wait_for 90 "the client's end" ended "$client"
  wait "$client" || status=$?
  [ $status -eq 1 ] || die "the client ended with status $status"
  grep -q '^pools whole: yes' "$scratch/client.log" || die "the client lost buffers"
}

case $what in
  fabric)
    # Windows, or none, are how memory is reached: with options only that is tried again.
    filter='*/verbs'
    [ -z "$options" ] || filter='*Access.*/verbs:*Order.*/verbs:*TwoProcesses.Exchange*/verbs'
    RRDK_VERBS_ADDRESS=$address "$build/test/test_fabric" --gtest_filter="$filter"
    ;;
  testrpc)
    exchange "verbs://$host:20050$options" "verbs://$host:20050$options"
    ;;
  from-iwarp)
    exchange "verbs://$address:20051" "iwarp://$address:20051"
    ;;
  to-iwarp)
    exchange "iwarp://$address:20052" "verbs://$address:20052"
    ;;
  other-device)
    start_server "verbs://$address:20057"
    call "verbs://$address:20057" --engine echo --size 4K --window 4 --count 16 || die "the calls went wrong"
    stop_server
    ;;
  kill-client)
    start_server "verbs://$address:20053"
    start_client "verbs://$address:20053"
    kill -KILL "$client"
    # It is there for others.
    call "verbs://$address:20053" --engine echo --size 64K --window 4 --count 16 ||
      die "the server does not serve any more"
    stop_server
    ;;
  kill-server)
    start_server "verbs://$address:20054"
    start_client "verbs://$address:20054"
    kill -KILL "$server"
    expect_client_to_fail
    ;;
  down)
    start_server "verbs://$address:20055"
    start_client "verbs://$address:20055"
    lowered=$object
    ip link set "$object" down
    expect_client_to_fail
    stop_server
    ;;
  removed)
    start_server "verbs://$address:20056"
    start_client "verbs://$address:20056"
    rdma link delete "$object" &
    removal=$!
    expect_client_to_fail
    stop_server
    # It waited for both to let go.
    wait_for 60 "the removal's end" ended "$removal"
    wait "$removal" || die "$object could not be removed"
    ;;
  *) echo "verbs.sh: unknown '$what'" >&2; exit 2 ;;
esac
