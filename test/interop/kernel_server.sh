#!/usr/bin/env bash
# In a guest with siw on lo: testrpc's engine nfs3, over the iwarp driver, against Linux's NFS server
# (svcrdma). kernel_server.sh BUILD
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1

start_nfsd
# Sends of both sides take 1 KiB at least; the kernel's 4 KiB.
for buffers in 4096 1024; do
  say "== buffers of $buffers bytes"
  timeout 120 "$build/apps/testrpc/testrpc" --client "iwarp://$siw_address:20049" --engine nfs3 \
    --nfs-export /export --nfs-mount 20048 --inline $buffers --verify --window 1,4 --count 400 \
    --timeout 20000 --seed "${RRDK_SEED:-$buffers}"
done
[ -z "$(ls -A /export)" ] || die "left behind in /export: $(ls -A /export)"
