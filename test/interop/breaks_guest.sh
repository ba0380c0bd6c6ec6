#!/usr/bin/env bash
# In a guest: connections between testrpc and Linux's NFS server that break while calls are on their
# way, which are repeated; Linux finds them in its own duplicate request cache. breaks_guest.sh BUILD
#
# Over the iwarp driver and siw. Not over rxe: the nfsd of 6.1 did not serve again after the first one.
# On a busy machine it cannot always be stopped after that here, either. So it keeps running: this is
# the last case of its guest.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
trap - EXIT
if [ -e /tmp/siw-is-lost ]; then
  say "the kernel has not let go of its RDMA device (see case device)"
  exit 77
fi

start_nfsd
try_nfs3 "$1" "iwarp://$siw_address:20049" --nfs-names 30 --window 8 --count 400 --reconnect --retransmit \
  --faults send-error=1/60
