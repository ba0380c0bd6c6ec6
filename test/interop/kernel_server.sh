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

record_run() { record --device "$device" --client testrpc --server Linux --inline "$1 / 4096" --sizes "$2" /tmp/run.json; }

start_nfsd
try_nfs3 "$build" "$uri" --window 1,4 --count 300
record_run 4096 "1 B to 1 MiB"
# Linux's Sends stay at 4 KiB.
try_nfs3 "$build" "$uri" --inline 1024 --window 4 --count 300
record_run 1024 "1 B to 1 MiB"
try_nfs3 "$build" "$uri" --chunk-threshold 0 --segments 4 --nfs-names 30 --size 1,100K --window 8 --count 200
# Long listings.
try_nfs3 "$build" "$uri" --nfs-calls readdir --nfs-names 1000 --count 60
