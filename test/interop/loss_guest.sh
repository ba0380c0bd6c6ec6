#!/usr/bin/env bash
# In a guest with siw on lo: connections between ours and Linux's that are lost, and made again.
#
#   loss_guest.sh BUILD [CASE...]     client-nfsd client-link server-kill server-link
#
# client-X: testrpc's calls at Linux's server go on, all checked, through nfsd stopped and started, its
# interface down and up. server-X: Linux's client at nfs-memory-server likewise, and when the server is
# killed. There are two more. server-device: siw's device is removed under Linux's client, and made
# again. Once, on a busy machine, the kernel did not let go of the device: the case is skipped then,
# and RDMA is no longer used in that guest. client-device, which does not end: siw's device is
# removed under nfsd.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1
shift
[ $# -gt 0 ] || set -- client-nfsd client-link server-kill server-link
mnt=/mnt/loss
nfsd_runs=no

link_down() { ip link set lo down; }
link_up() { ip link set lo up; }
device_gone() {
  rdma link delete siw_lo &
  local removal=$!
  if ! (wait_for 90 "siw_lo's removal" sh -c "! kill -0 $removal"); then
    cat /proc/$removal/stack
    touch /tmp/siw-is-lost
    say "Linux does not let go of a device that is removed: 'rdma link delete' waits in the kernel"
    exit 77
  fi
  wait $removal
}
device_back() { rdma link add siw_lo type siw netdev lo; }
nfsd_listens() { echo 'rdma 20049' >/proc/fs/nfsd/portlist 2>/dev/null || grep -q '^rdma 20049' /proc/fs/nfsd/portlist; }
nfsd_stops() { rpc.nfsd 0; }
nfsd_goes_on() {
  rpc.nfsd --no-udp -V 3 -V 4.1 4
  wait_for 30 "nfsd over RDMA" nfsd_listens
}

# lose_and_recover LOSS RECOVERY [COMMAND...]: recovers when COMMAND succeeds; without one, after two
# seconds.
lose_and_recover() {
  local loss=$1 recovery=$2
  shift 2
  say "   $loss"
  "$loss"
  if [ $# -gt 0 ]; then wait_for 60 "the end of the connection" "$@"; else sleep 2; fi
  say "   $recovery"
  "$recovery"
}

# go_on_through LOSS RECOVERY: testrpc calls Linux's server all the time.
go_on_through() {
  [ $nfsd_runs = yes ] || start_nfsd
  nfsd_runs=yes
  # The shell empties the log in the background: until then that of an earlier case would be read.
  rm -f /tmp/loss.log /tmp/loss.json
  timeout --foreground 260 "$build/apps/testrpc/testrpc" --client "iwarp://$siw_address:20049?timeout=5" --engine nfs3 --verify \
    --nfs-export /export --nfs-mount 20048 --nfs-names 20 --size 1,5000,100000 --window 4 --duration 12 \
    --reconnect --retransmit --keepalive-ms 1000 --timeout 120000 --json /tmp/loss.json >/tmp/loss.log 2>&1 &
  local client=$!
  local end=$((SECONDS + 120))
  until grep -qs 'RPC/s' /tmp/loss.log; do
    [ $SECONDS -lt $end ] || { cat /tmp/loss.log; kernel_says; die "testrpc's first calls: not within 120 s"; }
    sleep 0.1
  done
  lose_and_recover "$1" "$2" grep -q 'connecting again' /tmp/loss.log
  local status=0
  wait $client || status=$?
  [ $status -eq 0 ] || { cat /tmp/loss.log; die "testrpc ended with status $status"; }
  grep -E '^(CALLS|ERRORS|nfs3)' /tmp/loss.log
  python3 - <<'EOF' || die "calls were lost, or no connection was"
import json, sys
run = json.load(open("/tmp/loss.json"))["runs"][0]
print("  ", {name: run[name] for name in ("calls", "errors", "wrong_bytes", "reconnects", "retransmissions")})
sys.exit(run["errors"] or run["wrong_bytes"] or not run["reconnects"] or not run["calls"])
EOF
  [ -z "$(ls -A /export)" ] || die "left behind in /export: $(ls -A /export)"
}

client-nfsd() { go_on_through nfsd_stops nfsd_goes_on; }
client-link() { go_on_through link_down link_up; }
# The device is removed when nfsd no longer uses it.
device_leaves_nfsd() {
  rdma link delete siw_lo &
  removal=$!
}
device_and_nfsd_back() {
  nfsd_stops
  wait $removal
  device_back
  nfsd_goes_on
}
client-device() { go_on_through device_leaves_nfsd device_and_nfsd_back; }

end_nfsd() {
  [ $nfsd_runs = yes ] || return 0
  stop_nfsd
  nfsd_runs=no
}

mount_ours() {
  end_nfsd
  start_memory_server "$build" "iwarp://$siw_address:20050" --megabytes 200 --file-system 7
  mount_rdma $mnt "$siw_address" 20050 20048 hard,timeo=50
}

connections() { client_statistics $mnt | awk '{ print $5 }'; }

unmount_ours() {
  say "   Linux's client connected $(connections) times"
  [ "$(connections)" -gt 1 ] || die "no connection was lost"
  timeout --foreground 60 umount $mnt
  stop_memory_server
}

# Files copied there and read back, for as long as /tmp/copying is there; /tmp/copies says how many.
copies() {
  local number=0
  while :; do
    cp /tmp/copied "$mnt/copy-$number" || die "a copy failed"
    cmp /tmp/copied "$mnt/copy-$number" || die "a copy came back different"
    rm "$mnt/copy-$number"
    number=$((number + 1))
    echo $number >/tmp/copies
    [ -e /tmp/copying ] || break
  done
}

# More than this many, or no more at all.
copied() { [ "$(cat /tmp/copies)" -gt "$1" ] || ! kill -0 $copying; }

# copy_through LOSS RECOVERY: Linux's client copies to our server all the time.
copy_through() {
  mount_ours
  head -c 3000001 /dev/urandom >/tmp/copied
  touch /tmp/copying
  echo 0 >/tmp/copies
  copies >/tmp/copies.log 2>&1 &
  copying=$!
  wait_for 60 "the first copies" copied 1
  lose_and_recover "$1" "$2"
  local before
  before=$(cat /tmp/copies)
  wait_for 120 "copies after the loss" copied $((before + 2))
  rm /tmp/copying
  wait $copying || { cat /tmp/copies.log; die "the copies went wrong"; }
  say "   $(cat /tmp/copies) copies"
  unmount_ours
}

server-link() { copy_through link_down link_up; }
server-device() { copy_through device_gone device_back; }

# The files are in memory and are lost with the server; the mount lives on, and the files are gone,
# not changed.
server-kill() {
  mount_ours
  head -c 3000001 /dev/urandom >/tmp/copied
  cp /tmp/copied $mnt/before
  sync
  exec 6<$mnt/before
  kill -KILL "$server"
  wait "$server" || true
  (timeout --foreground 120 stat -f $mnt >/tmp/waiting.log 2>&1; echo "status $?" >>/tmp/waiting.log) 6<&- &
  local waiting=$!
  start_memory_server "$build" "iwarp://$siw_address:20050" --megabytes 200 --file-system 7 6<&-
  wait $waiting
  grep -q 'status 0' /tmp/waiting.log || die "a call that waited for the server ended so: $(cat /tmp/waiting.log)"
  echo 3 >/proc/sys/vm/drop_caches
  ! cat <&6 >/tmp/old 2>/tmp/old.log || cmp /tmp/copied /tmp/old || die "a file that is gone has other bytes"
  exec 6<&-
  [ -z "$(ls -A $mnt)" ] || die "names of the server that died: $(ls -A $mnt)"
  cp /tmp/copied $mnt/after
  echo 3 >/proc/sys/vm/drop_caches
  cmp /tmp/copied $mnt/after || die "a copy came back different"
  rm $mnt/after
  unmount_ours
}

for name in "$@"; do
  say "== $name"
  began=$SECONDS
  "$name"
  say "   $((SECONDS - began)) s"
done
kernel_says
