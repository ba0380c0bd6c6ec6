#!/usr/bin/env bash
# In a guest: testrpc and Debian's rpcbind. rpcbind_guest.sh BUILD
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1
testrpc=$build/apps/testrpc/testrpc
program=536893030 version=1

# start_server URI [OPTIONS...]: sets $server and $port. An emulated CPU takes long to fill the memory
# that a server has by default.
start_server() {
  : >/tmp/testrpc.log
  "$testrpc" --server "$@" --connections 1 --credits 4 --max-size 4K --idle adaptive >/tmp/testrpc.log 2>&1 &
  server=$!
  wait_for 60 "testrpc's server" grep -q '^listening on' /tmp/testrpc.log
  port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' /tmp/testrpc.log)
}

stop_server() {
  kill -TERM $server
  wait $server || { cat /tmp/testrpc.log; die "the server ended badly"; }
  server=
}

# The address that rpcinfo, an independent tool, shows for the program under a netid.
listed() { rpcinfo 127.0.0.1 | awk -v p=$program -v n="$1" '$1 == p && $2 == 1 && $3 == n { print $4 }'; }

# NETID is HOST.P1.P2, or nothing.
expect_listed() {
  local wanted=
  [ $# -lt 3 ] || wanted=$2.$(($3 / 256)).$(($3 % 256))
  [ "$(listed "$1")" = "$wanted" ] || die "under $1 is listed '$(listed "$1")' instead of '$wanted'"
}

call() {
  timeout --foreground 180 "$testrpc" --client "$@" --idle adaptive --engine null --count 50 >/tmp/client.log 2>&1 || { cat /tmp/client.log; return 1; }
}

pidof rpcbind >/dev/null || rpcbind -w
ip link set lo up
wait_for 30 rpcbind rpcinfo 127.0.0.1

# Shows: BIND-01 BIND-03
say "== entered, found, taken back"
start_server iwarp://127.0.0.1:0 --rpcbind
expect_listed rdma 127.0.0.1 "$port"
expect_listed rdma6
call iwarp://127.0.0.1 --rpcbind
stop_server
expect_listed rdma
! call iwarp://127.0.0.1 --rpcbind >/dev/null || die "a port was found that is not listed"
grep -q "does not list program $program version $version under rdma or rdma6$" /tmp/client.log || { cat /tmp/client.log; die "it does not say so"; }

say "== IPv6"
start_server 'iwarp://[::1]:0' --rpcbind
expect_listed rdma6 ::1 "$port"
expect_listed rdma
call 'iwarp://[::1]' --rpcbind
stop_server
expect_listed rdma6

say "== both at once, of one server each"
start_server iwarp://127.0.0.1:0 --rpcbind
first=$server first_port=$port
start_server 'iwarp://[::1]:0' --rpcbind
expect_listed rdma 127.0.0.1 "$first_port"
expect_listed rdma6 ::1 "$port"
call iwarp://127.0.0.1 --rpcbind
call 'iwarp://[::1]' --rpcbind
stop_server
server=$first
expect_listed rdma 127.0.0.1 "$first_port"
stop_server

say "== the entry of a server that died gives way"
start_server iwarp://127.0.0.1:0 --rpcbind
kill -KILL $server
wait $server || true
expect_listed rdma 127.0.0.1 "$port"
start_server iwarp://127.0.0.1:0 --rpcbind
expect_listed rdma 127.0.0.1 "$port"
call iwarp://127.0.0.1 --rpcbind

# Shows: BIND-05 BIND-08
say "== who knows the port asks nobody"
tcpdump --immediate-mode -U -Z root -i lo -w /tmp/asked.pcap 'port 111' 2>/tmp/tcpdump.log &
capture=$!
wait_for 30 tcpdump grep -q 'listening on' /tmp/tcpdump.log
call "iwarp://127.0.0.1:$port"
"$build/test/interop/nfs-memory-server" --listen iwarp://127.0.0.1:20049 --mount-port 20048 >/tmp/server.log 2>&1 &
nfs=$!
wait_for 60 nfs-memory-server grep -q 'listening on' /tmp/server.log
# NFS has a port of its own, 20049, and is not asked for.
timeout --foreground 180 "$testrpc" --client iwarp://127.0.0.1 --engine nfs3 --nfs-mount 20048 --nfs-calls null --nfs-names 0 --count 20
kill $nfs
wait $nfs || { cat /tmp/server.log; die "nfs-memory-server ended badly"; }
# On the other hand, for the listed program:
[ "$(tcpdump -nr /tmp/asked.pcap 2>/dev/null | wc -l)" = 0 ] || die "rpcbind was asked"
call iwarp://127.0.0.1 --rpcbind
kill -INT $capture
wait $capture || true
[ "$(tcpdump -nr /tmp/asked.pcap 2>/dev/null | wc -l)" -gt 0 ] || die "the capture would not have seen it"
stop_server

say "== without an rpcbind"
kill "$(pidof rpcbind)"
wait_for 30 "rpcbind's end" sh -c '! pidof rpcbind'
start_server iwarp://127.0.0.1:0
call "iwarp://127.0.0.1:$port"
! call iwarp://127.0.0.1 --rpcbind >/dev/null || die "a port was found without rpcbind"
grep '^testrpc: ' /tmp/client.log
stop_server
! timeout --foreground 180 "$testrpc" --server iwarp://127.0.0.1:0 --rpcbind >/tmp/testrpc.log 2>&1 || die "a server was entered into nothing"
grep '^testrpc: ' /tmp/testrpc.log
