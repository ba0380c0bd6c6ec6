#!/usr/bin/env bash
# In the guest: rping's client and server, from rdmacm-utils, talk through the device of an address.
#
#   rping.sh ADDRESS
set -u
rping -s -a "$1" -C 5 &
server=$!
# The server says nothing when it listens; until then the client is refused. It ends with its first
# client, so that one has the time that five rounds take where the host is busy.
until timeout 60 rping -c -v -a "$1" -C 5; do
  kill -0 $server || { echo "rping's server ended early"; exit 1; }
done
wait $server
