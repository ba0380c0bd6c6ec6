#!/usr/bin/env bash
# In a guest: testrpc's engine nfs3 against Linux's NFS server (svcrdma).
#
#   kernel_server.sh BUILD [URI DEVICE]
#
# By default over the iwarp driver and siw on lo. DEVICE is what the table of doc/interop.md calls it.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1 uri=${2-iwarp://$siw_address:20049} device=${3-siw (iwarp:)}
ulimit -l unlimited

# testrpc's calls, all checked. What is left behind fails, too.
try() {
  say "== $*"
  timeout --foreground 300 "$build/apps/testrpc/testrpc" --client "$uri" --engine nfs3 --json /tmp/run.json \
    --nfs-export /export --nfs-mount 20048 --verify --timeout 20000 --seed "${RRDK_SEED:-1}" "$@"
  [ -z "$(ls -A /export)" ] || die "left behind in /export: $(ls -A /export)"
}

record_run() { record --device "$device" --client testrpc --server Linux --inline "$1 / 4096" --sizes "$2" /tmp/run.json; }

start_nfsd
try --window 1,4 --count 300
record_run 4096 "1 B to 1 MiB"
# Linux's Sends stay at 4 KiB.
try --inline 1024 --window 4 --count 300
record_run 1024 "1 B to 1 MiB"
try --chunk-threshold 0 --segments 4 --nfs-names 30 --size 1,100K --window 8 --count 200
# Long listings.
try --nfs-calls readdir --nfs-names 1000 --count 60
# Connections that break: Linux finds repeated calls in its own duplicate request cache. Not over rxe:
# the nfsd of 6.1 did not serve again after the first one, and could not even be stopped.
[[ $uri != iwarp:* ]] || try --nfs-names 30 --window 8 --count 400 --reconnect --retransmit --faults send-error=1/60
