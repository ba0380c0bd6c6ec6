#!/usr/bin/env bash
# In a guest with siw on lo: what Linux's server answers to headers that are wrong, and what either
# client makes of the other's RDMA_ERROR. errors_guest.sh BUILD
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1
mnt=/mnt/meddled
kinds=(version type discriminator truncated nomessage)

# start_meddler PORT LISTEN TO OPTIONS...: its log is /tmp/meddler-PORT.log.
start_meddler() {
  local port=$1 log=/tmp/meddler-$1.log
  "$here/meddler.py" --listen "$2" --to "$3" "${@:4}" >"$log" 2>&1 &
  meddler=$!
  wait_for 30 "meddler.py" grep -q 'listening on' "$log"
}

our_client() {
  start_meddler 20060 127.0.0.1:20060 "$siw_address:20049" \
    --break "version@60,type@80,discriminator@100,truncated@120"
  local status=0
  timeout --foreground 120 "$build/apps/testrpc/testrpc" --client iwarp://127.0.0.1:20060 --engine nfs3 \
    --nfs-export /export --nfs-mount 20048 --nfs-calls null,getattr,lookup --nfs-names 0 --window 4 \
    --count 300 --timeout 20000 --json /tmp/errors.json >/tmp/errors.log 2>&1 || status=$?
  kill $meddler
  cat /tmp/meddler-20060.log
  grep -E '^(ERRORS|CALLS|testrpc:)' /tmp/errors.log
  [ $status -eq 1 ] || die "testrpc ended with status $status"
  grep -q 'w=4: 3 chunk error, 1 transport version error$' /tmp/errors.log || die "other errors than Linux's four"
  grep -q '"errors": 4, .*"reconnects": 0,' /tmp/errors.json || die "more than four calls were touched"
}

linux_client() {
  start_memory_server "$build" iwarp://127.0.0.1:20050 --megabytes 10
  start_meddler 20061 "$siw_address:20061" 127.0.0.1:20050 --orders /tmp/orders
  mount_rdma $mnt "$siw_address" 20061 20048
  local kind
  for kind in "${kinds[@]}"; do
    stat -f $mnt >/dev/null || die "FSSTAT fails"
    echo "$kind" >/tmp/orders.new && mv /tmp/orders.new /tmp/orders
    ! timeout --foreground 60 stat -f $mnt >/dev/null 2>/tmp/stat.log || die "$kind: FSSTAT is answered"
    grep -q 'Input/output error' /tmp/stat.log || die "$kind: Linux's client says: $(cat /tmp/stat.log)"
    [ ! -e /tmp/orders ] || die "$kind: no call came by"
  done
  echo right >$mnt/file
  [ "$(cat $mnt/file)" = right ]
  rm $mnt/file
  cat /tmp/meddler-20061.log
  local -a f
  read -ra f < <(client_statistics $mnt)
  say "   Linux's client: connections ${f[4]}, bad replies ${f[21]}"
  [ "${f[4]}" = 1 ] || die "an error cost the connection"
  timeout --foreground 60 umount $mnt
  stop_memory_server
  kill $meddler
}

start_nfsd
say "== headers that are wrong, at Linux's server"
timeout --foreground 200 "$here/odd_headers.py" "$siw_address:20049" --expect "$here/odd_headers_linux.txt"
say "== Linux's errors, at our client"
our_client
stop_nfsd  # our MOUNT has the same port
say "== our errors, at Linux's client"
linux_client
