#!/usr/bin/env bash
# NFS over RDMA with Linux at the other end, in a guest of scripts/vm/run (siw, so iWARP over TCP).
#
#   test/interop/run.sh --build BUILD [CASE...]   runs the cases, all of them by default
#   test/interop/run.sh --list
#
# Exit status 77: no guest can be run here. Linux as the server, testrpc's engine nfs3 as the client:
#
#   kernel-server   both in the guest
#   host-client     testrpc on this machine, through a forwarded port
#
# Linux as the client, nfs-memory-server as the server:
#
#   kernel-client   both in the guest
#   host-server     nfs-memory-server on this machine, which the guest sees as 10.0.2.2
set -euo pipefail
here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
. "$root/scripts/lib/common.sh"
cases=(kernel-server host-client kernel-client host-server)

vm() { "$root/scripts/vm/run" "$@"; }

# A TCP port that nobody has at the moment.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_until SECONDS PID COMMAND...: false when the time is up, or the process has ended.
wait_until() {
  local end=$((SECONDS + $1)) pid=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] && kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.2
  done
}

run_kernel-server() {
  vm --siw lo --timeout 500 "$here/kernel_server.sh $build"
}

run_kernel-client() {
  vm --siw lo --timeout 900 "$here/kernel_client_guest.sh $build"
}

# The guest serves until a file appears in the shared folder.
run_host-client() {
  local rdma mount status=0
  rdma=$(free_port)
  mount=$(free_port)
  vm --siw eth0 --forward "$rdma:20049" --forward "$mount:20048" --share "$scratch" --timeout 500 \
    "$here/kernel_server_idle.sh $scratch" &
  guest=$!
  if wait_until 3900 $guest test -e "$scratch/ready"; then
    timeout 300 "$build/apps/testrpc/testrpc" --client "iwarp://127.0.0.1:$rdma" --engine nfs3 \
      --nfs-export /export --nfs-mount "$mount" --verify --window 1,4 --count 300 --timeout 20000 ||
      status=$?
    touch "$scratch/done"
  fi
  wait $guest || return
  return $status
}

run_host-server() {
  local rdma mount status=0
  rdma=$(free_port)
  mount=$(free_port)
  "$build/test/interop/nfs-memory-server" --listen "iwarp://127.0.0.1:$rdma" --mount-port "$mount" \
    --megabytes 60 >"$scratch/server.log" 2>&1 &
  server=$!
  wait_until 60 $server grep -q 'listening on' "$scratch/server.log" || status=1
  [ $status -ne 0 ] || vm --siw eth0 --timeout 900 "$here/kernel_client.sh 10.0.2.2 $rdma $mount" || status=$?
  kill -TERM $server
  wait $server || status=1
  cat "$scratch/server.log"
  return $status
}

build='' chosen=()
while [ $# -gt 0 ]; do
  case $1 in
    --list) printf '%s\n' "${cases[@]}"; exit 0 ;;
    --help | -h) usage; exit 0 ;;
    --build)
      [ $# -ge 2 ] || die "--build needs a folder"
      build=$(cd -P -- "$2" && pwd)
      shift
      ;;
    *)
      [[ " ${cases[*]} " == *" $1 "* ]] || die "no case is called '$1' (see --list)"
      chosen+=("$1")
      ;;
  esac
  shift
done
[ -x "$build/test/interop/nfs-memory-server" ] || die "--build BUILD: '$build' has no test/interop/nfs-memory-server"
[ ${#chosen[@]} -gt 0 ] || chosen=("${cases[@]}")

for name in "${chosen[@]}"; do
  say "== $name"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  status=0
  "run_$name" || status=$?
  rm -rf "$scratch"
  [ $status -eq 0 ] || exit $status
done
