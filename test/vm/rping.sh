#!/usr/bin/env bash
# In the guest: rping's client and server, from rdmacm-utils, talk through the device of an address.
#
#   rping.sh ADDRESS
set -u

# One client and its server. The server says nothing when it listens; until then the client is
# refused. It ends with its first client.
ping_once() {
  local server status=1
  rping -s -a "$1" -C 5 &
  server=$!
  while kill -0 $server 2>/dev/null; do
    timeout 25 rping -c -v -a "$1" -C 5
    status=$?
    [ $status -eq 0 ] && wait $server && return 0
    [ $status -eq 124 ] && break
  done
  kill -9 $server 2>/dev/null
  wait $server 2>/dev/null
  return 1
}

# In a slow guest the two ends can miss each other's first message, and then wait for ever.
for attempt in 1 2 3 4; do
  ping_once "$1" && exit 0
  echo "attempt $attempt: the two ends did not get through"
done
exit 1
