#!/usr/bin/env bash
# In a guest with rxe on veth: nfs-memory-server over the verbs driver, and Linux's NFS client.
# kernel_client_rxe.sh BUILD
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
export RRDK_DEVICE="rxe (verbs:)"
ulimit -l unlimited
start_memory_server "$1" verbs://10.7.0.1:20049 --megabytes 60
timeout --foreground 400 "$here/kernel_client.sh" 10.7.0.1 20049 20048 4096:300 || { cat /tmp/server.log; exit 1; }
stop_memory_server
