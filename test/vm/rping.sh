#!/usr/bin/env bash
# In the guest: rping's client and server, from rdmacm-utils, talk through the device of an address.
#
#   rping.sh ADDRESS
#
# Two things must not happen over siw, and on a slow machine they would:
#
# - A client that comes too early. siw refuses it in rdma_connect(), and rping then joins a thread that
#   waits for a completion that never comes: the process never ends. (Over rxe an event says that
#   it was refused, and rping ends.) So the client starts when the server listens.
# - A first message that comes too early. siw_accept() sends the MPA reply, and only then makes the
#   socket's data the queue pair's. What arrives in between stays in the socket until more comes, and
#   rping's client sends no more without an answer. So both ends are on one CPU, where the client does
#   not run until the server, a real-time process, has left siw_accept() and sleeps.
set -u
taskset -c 0 chrt --fifo 1 rping -s -a "$1" -C 5 &
server=$!

# It says nothing of that. Its identifier has the state from the beginning of rdma_listen() on, after
# which its first thread waits for a client.
listens() { waits && rdma resource show cm_id pid $server | grep 'state LISTEN' >/dev/null && waits; }

waits() {
  local where=''
  read -r where </proc/$server/wchan
  [[ $where == *futex* ]]
}

until listens; do
  kill -0 $server || { echo "rping's server ended before its client came"; exit 1; }
  sleep 0.1
done
if ! timeout 60 taskset -c 0 rping -c -v -a "$1" -C 5; then
  echo "rping's client failed, or did not end within 60 s"
  kill -9 $server
  exit 1
fi
wait $server || { echo "rping's server ended with status $?"; exit 1; }
