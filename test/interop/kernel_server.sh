#!/usr/bin/env bash
# In a guest with siw on lo: testrpc's engine nfs3, over the iwarp driver, against Linux's NFS server
# (svcrdma). kernel_server.sh BUILD
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1

# testrpc's calls, all checked. What is left behind fails, too.
try() {
  say "== $*"
  timeout 300 "$build/apps/testrpc/testrpc" --client "iwarp://$siw_address:20049" --engine nfs3 \
    --nfs-export /export --nfs-mount 20048 --verify --timeout 20000 --seed "${RRDK_SEED:-1}" "$@"
  [ -z "$(ls -A /export)" ] || die "left behind in /export: $(ls -A /export)"
}

start_nfsd
try --window 1,4 --count 300
# Linux's Sends stay at 4 KiB.
try --inline 1024 --window 1,4 --count 300
try --chunk-threshold 0 --segments 4 --nfs-names 30 --size 1,100K --window 8 --count 200
# Connections that break: Linux finds repeated calls in its own duplicate request cache.
try --nfs-names 30 --window 8 --count 400 --reconnect --retransmit --faults send-error=1/60
# Long listings.
try --nfs-calls readdir --nfs-names 1000 --count 60
