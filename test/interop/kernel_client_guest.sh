#!/usr/bin/env bash
# In a guest with siw on lo: nfs-memory-server and Linux's NFS client, both in the guest.
# kernel_client_guest.sh BUILD
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
start_memory_server "$1" "iwarp://$siw_address:20049" --megabytes 60
timeout 400 "$here/kernel_client.sh" "$siw_address" 20049 20048 || { cat /tmp/server.log; exit 1; }
stop_memory_server
