#!/usr/bin/env bash
# In a guest with siw on lo: captures what testrpc and Linux's server, and Linux's client and
# nfs-memory-server, say to each other. wire_guest.sh BUILD FOLDER
#
# Leaves client.pcap and server.pcap (by what is ours) in FOLDER, and the number of calls that our end
# counted in client.calls and server.calls.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1 folder=$2
mnt=/mnt/wire

start_capture() {
  tcpdump --immediate-mode -U -B 65536 -Z root -i lo -w "/tmp/$1.pcap" "tcp port $2" 2>/tmp/tcpdump.log &
  capture=$!
  wait_for 30 tcpdump grep -q 'listening on' /tmp/tcpdump.log
}

stop_capture() {
  kill -INT $capture
  wait $capture || true
  cat /tmp/tcpdump.log
  grep -q '^0 packets dropped by kernel' /tmp/tcpdump.log || die "the capture has holes"
  cp "/tmp/$1.pcap" "$folder/"
}

our_client() {
  start_capture client 20049
  timeout --foreground 120 "$build/apps/testrpc/testrpc" --client "iwarp://$siw_address:20049" --engine nfs3 --verify \
    --nfs-export /export --nfs-mount 20048 --nfs-names 80 --count 150 --window 8 --credits 23 \
    --timeout 20000 --size 1,5000,150000
  stop_capture client
}

our_server() {
  start_memory_server "$build" "iwarp://$siw_address:20050" --megabytes 60 --credits 17
  start_capture server 20050
  mount_rdma $mnt "$siw_address" 20050 20048
  local size
  for size in 1 3000 4097 100000 1048577; do
    head -c $size /dev/urandom >/tmp/original
    cp /tmp/original $mnt/file-$size
    sync
    echo 3 >/proc/sys/vm/drop_caches
    cmp /tmp/original $mnt/file-$size
  done
  ln -s "$(printf 't%.0s' {1..1000})" $mnt/long
  ls -l $mnt >/dev/null
  rm -r ${mnt:?}/*
  timeout --foreground 60 umount $mnt
  stop_memory_server >/tmp/stopped
  stop_capture server
  cat /tmp/stopped
  sed -n 's/^served \([0-9]*\) calls.*/\1/p' /tmp/stopped >"$folder/server.calls"
}

start_nfsd
our_client
stop_nfsd  # our MOUNT has the same port
our_server
