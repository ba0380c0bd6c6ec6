#!/usr/bin/env bash
# In a guest with siw on lo: what comes of each choice of versions at our end, with Linux, which knows
# version 1 only, at the other: Linux's column and row of the table in doc/version-two.md.
#
#   versions_guest.sh BUILD
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1
mnt=/mnt/versions

# our_client STATUS VERSION DRAFT: calls to Linux's server.
our_client() {
  local status=0
  rm -f /tmp/run.json
  timeout --foreground 120 "$build/apps/testrpc/testrpc" --client "iwarp://$siw_address:20049" --engine nfs3 \
    --nfs-export /export --nfs-mount 20048 --nfs-names 30 --window 4 --count 100 --verify --timeout 20000 \
    --rpcrdma-version "$2" --rpcrdma-dialect "$3" --json /tmp/run.json >/tmp/client.log 2>&1 || status=$?
  [ $status -eq "$1" ] || { cat /tmp/client.log; die "version $2 ($3): testrpc ended with status $status"; }
}

# expect FALLBACKS: all calls went well, in version 1.
expect() {
  grep -q '"rpcrdma_version": 1,' /tmp/run.json || die "calls were not sent in version 1"
  grep -q "\"fallbacks\": $1\b" /tmp/run.json || die "expected $1 fallbacks: $(grep -o '"fallbacks": [0-9]*' /tmp/run.json)"
}

start_nfsd
for draft in v2-04 v2-00; do
  our_client 0 1 $draft
  expect 0
  our_client 0 auto $draft
  expect 1
  our_client 1 2 $draft
  grep -q 'version' /tmp/client.log || die "version 2 ($draft): testrpc does not name the version"
  say "   our client of 1, auto and 2 ($draft), Linux's server: 1, 1 after falling back, none"
done
stop_nfsd

for version in 1 auto; do
  start_memory_server "$build" "iwarp://$siw_address:20049" --megabytes 10 --rpcrdma-version $version
  mount_rdma $mnt "$siw_address" 20049 20048
  echo "$version" >$mnt/file
  [ "$(cat $mnt/file)" = "$version" ]
  rm $mnt/file
  timeout --foreground 60 umount $mnt
  stop_memory_server
  say "   Linux's client, our server of $version: 1"
done
start_memory_server "$build" "iwarp://$siw_address:20049" --megabytes 10 --rpcrdma-version 2
! mount_rdma $mnt "$siw_address" 20049 20048 soft,timeo=50,retrans=1 2>/tmp/mount.log || die "Linux speaks version 2"
stop_memory_server
say "   Linux's client, our server of 2: none"
