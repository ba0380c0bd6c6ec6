#!/usr/bin/env bash
# NFS over RDMA with Linux at the other end, in a guest of scripts/vm/run (siw, so iWARP over TCP).
#
#   test/interop/run.sh --build BUILD [--results FILE] [CASE...]   runs the cases; by default CI's
#       --kernel VERSION   with another of scripts/vm/run's kernels
#   test/interop/run.sh --list | --list-all                        names those of CI, or all
#   test/interop/run.sh --build BUILD --guest-commands FOLDER      CI's as NAME=COMMAND, for one guest
#   test/interop/run.sh --build BUILD --on-the-host FOLDER [CASE]  and what is left to do after that
#
# Exit status 77: no guest can be run here. FILE gets what matrix.py makes the table of doc/interop.md
# of. Linux as the server, testrpc's engine nfs3 as the client:
#
#   kernel-server   both in the guest
#   host-client     testrpc on this machine, through a forwarded port
#   rxe-server      both in the guest, over the verbs driver and rxe
#
# Linux as the client, nfs-memory-server as the server:
#
#   kernel-client   both in the guest
#   kernel-client-long  the same, with thousands of names
#   host-server     nfs-memory-server on this machine, which the guest sees as 10.0.2.2
#   rxe-client      both in the guest, over the verbs driver and rxe
#
# Both ways, in the guest:
#
#   wire            what they say is captured, and checked on this machine (wire_check.py)
#   errors          headers that are wrong, and the RDMA_ERRORs that answer them
#   versions        which version is spoken, of each choice at our end
#   loss            connections that are lost: a server that ends or is killed, a link down
#   device          a device that is removed under Linux's client, and made again
#   breaks          connections that break again and again, and calls that are repeated
#   kerberos        calls that Kerberos secures, and calls without it
#
# And without NFS:
#
#   rpcbind         testrpc --rpcbind, with Debian's rpcbind in the guest
set -euo pipefail
here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
. "$root/scripts/lib/common.sh"
cases=(errors versions wire rpcbind kernel-server kernel-client kerberos loss device breaks)
more=(kernel-client-long host-client host-server rxe-server rxe-client)
results=
kernel=()

vm() { "$root/scripts/vm/run" "${kernel[@]}" "$@"; }

# A TCP port that is free at the moment.
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

# The part of one of `cases` in the guest, with a FOLDER shared with this machine.
guest_command() {
  local name=$1 folder=$2
  printf 'export RRDK_RESULTS=%q; ' "$folder/rows"
  case $name in
    kernel-server) printf '%q %q' "$here/kernel_server.sh" "$build" ;;
    kernel-client) printf '%q %q 4096:100 1024:100' "$here/kernel_client_guest.sh" "$build" ;;
    wire) printf '%q %q %q' "$here/wire_guest.sh" "$build" "$folder" ;;
    device) printf '%q %q server-device' "$here/loss_guest.sh" "$build" ;;
    *) printf '%q %q' "$here/${name}_guest.sh" "$build" ;;
  esac
}

# The part that is left for this machine.
on_the_host() {
  local name=$1 folder=$2 wants=read_chunks,write_chunks,reply_chunks,invalidations
  [ "$name" = wire ] || return 0
  command -v tshark >/dev/null || die "no tshark here (scripts/install-deps.sh --tests installs it)"
  say "== on the wire: testrpc and Linux's server"
  "$here/wire_check.py" "$folder/client.pcap" --wants $wants || return
  say "== on the wire: Linux's client and nfs-memory-server"
  "$here/wire_check.py" "$folder/server.pcap" --wants $wants --calls "$(cat "$folder/server.calls")"
}

# in_guest SECONDS DEVICE COMMAND: with the scratch folder.
in_guest() {
  # shellcheck disable=SC2086 # options
  vm --timeout "$1" $2 --share "$scratch" "export RRDK_RESULTS=$scratch/rows; $3"
}

run_kernel-client-long() { in_guest 900 "--siw lo" "$here/kernel_client_guest.sh $build"; }
run_rxe-server() {
  in_guest 500 "--rxe veth" "$here/kernel_server.sh $build verbs://10.7.0.1:20049 'rxe (verbs:)'"
}
run_rxe-client() { in_guest 500 "--rxe veth" "$here/kernel_client_rxe.sh $build"; }

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
      --nfs-export /export --nfs-mount "$mount" --verify --window 1,4 --count 300 --timeout 20000 \
      --json "$scratch/run.json" || status=$?
    [ $status -ne 0 ] || "$here/matrix.py" row "$scratch/rows" --kernel "$(cat "$scratch/ready")" --device "siw (iwarp: on the host)" \
      --client testrpc --server Linux --inline "4096 / 4096" --sizes "1 B to 1 MiB" "$scratch/run.json"
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
  [ $status -ne 0 ] || in_guest 900 "--siw eth0" \
    "RRDK_DEVICE='siw (iwarp: on the host)' $here/kernel_client.sh 10.0.2.2 $rdma $mount" || status=$?
  kill -TERM $server
  wait $server || status=1
  cat "$scratch/server.log"
  return $status
}

build='' chosen=() print=
while [ $# -gt 0 ]; do
  case $1 in
    --list) printf '%s\n' "${cases[@]}"; exit 0 ;;
    --list-all) printf '%s\n' "${cases[@]}" "${more[@]}"; exit 0 ;;
    --results)
      [ $# -ge 2 ] || die "--results needs a file"
      results=$2
      : >>"$results"
      shift
      ;;
    --kernel)
      [ $# -ge 2 ] || die "--kernel needs a version"
      kernel=(--kernel "$2")
      shift
      ;;
    --help | -h) usage; exit 0 ;;
    --guest-commands | --on-the-host)
      [ $# -ge 2 ] || die "$1 needs a folder"
      print=$1 folder=$2
      shift
      ;;
    --build)
      [ $# -ge 2 ] || die "--build needs a folder"
      build=$(cd -P -- "$2" && pwd)
      shift
      ;;
    *)
      [[ " ${cases[*]} ${more[*]} " == *" $1 "* ]] || die "no case is called '$1' (see --list-all)"
      chosen+=("$1")
      ;;
  esac
  shift
done
[ -x "$build/test/interop/nfs-memory-server" ] || die "--build BUILD: '$build' has no test/interop/nfs-memory-server"
[ ${#chosen[@]} -gt 0 ] || chosen=("${cases[@]}")
if [ -n "$print" ]; then
  for name in "${chosen[@]}"; do
    case $print in
      --guest-commands) say "$name=$(guest_command "$name" "$folder")" ;;
      --on-the-host) on_the_host "$name" "$folder" || exit ;;
    esac
  done
  exit 0
fi

for name in "${chosen[@]}"; do
  say "== $name"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  status=0
  if [[ " ${cases[*]} " == *" $name "* ]]; then
    in_guest 700 "--siw lo" "$(guest_command "$name" "$scratch")" && on_the_host "$name" "$scratch" || status=$?
  else
    "run_$name" || status=$?
  fi
  [ -z "$results" ] || [ ! -e "$scratch/rows" ] || cat "$scratch/rows" >>"$results"
  rm -rf "$scratch"
  [ $status -eq 0 ] || exit $status
done
