#!/usr/bin/env bash
# In a guest with siw on lo: nfs-memory-server and Linux's NFS client, both in the guest.
#
#   kernel_client_guest.sh BUILD [INLINE:NAMES...]
#
# With our threshold of 4096 bytes and these mounts (kernel_client.sh), then with 1024.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
try() {
  timeout --foreground 700 "$here/kernel_client.sh" "$siw_address" "$@" || { cat /tmp/server.log; exit 1; }
  stop_memory_server
}

build=$1
shift
start_memory_server "$build" "iwarp://$siw_address:20049" --megabytes 60
try 20049 20048 "$@"
# Sends of 1 KiB at our end only: the private data (RFC 8797) tells the client.
start_memory_server "$build" "iwarp://$siw_address:20050" --megabytes 60 --inline 1024
export RRDK_INLINE=1024
try 20050 20048 4096:100
