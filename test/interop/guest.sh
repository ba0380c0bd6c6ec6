# shellcheck shell=bash
# What the guest's scripts share; to be sourced. They run as root in a guest of scripts/vm/run, where
# nothing outlives the run.

siw_address=10.6.0.1  # of siw on lo: rdma_cm connects to it from the guest itself

say() { printf '%s\n' "$*"; }

die() {
  printf 'interop: %s\n' "$*" >&2
  exit 1
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local seconds=$1 what=$2 end=$((SECONDS + $1))
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || die "$what: not within $seconds s"
    sleep 0.1
  done
}

# The kernel's messages about RDMA, and about its own faults.
kernel_says() { dmesg | grep -E 'rpcrdma:|svcrdma|siw_|siw:|nfs: server|WARNING|Oops|BUG:|hung' | grep -v 'taints\|tainting' | tail -20 || true; }

listens() { ss -Htln "sport = :$1" | grep . >/dev/null; }

# start_nfsd: the kernel's NFS server, RDMA on port 20049, MOUNT on 20048, exporting /export, which
# is in memory.
start_nfsd() {
  "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/vm/guest/nfsd.sh"
  wait_for 60 "mountd" listens 20048
}

stop_nfsd() {
  rpc.nfsd 0 &
  wait_for 60 "nfsd's end" sh -c "! kill -0 $!"
  kill "$(pidof rpc.mountd)"
  wait_for 30 "mountd's end" sh -c '! pidof rpc.mountd'
}

# try_nfs3 BUILD URI OPTIONS...: testrpc's NFS calls to Linux's server, all checked. What is left behind
# fails, too. It sleeps when it has nothing to do: a CPU that is emulated is slow enough.
try_nfs3() {
  local build=$1 uri=$2
  shift 2
  say "== $*"
  timeout --foreground 300 "$build/apps/testrpc/testrpc" --client "$uri" --engine nfs3 --json /tmp/run.json \
    --nfs-export /export --nfs-mount 20048 --verify --timeout 20000 --idle adaptive --seed "${RRDK_SEED:-1}" "$@" || return
  [ -z "$(ls -A /export)" ] || die "left behind in /export: $(ls -A /export)"
}

# Processes that a script leaves running would disturb the next script in the same guest.
server=
clean_up() {
  # shellcheck disable=SC2046 # ids
  kill -KILL $(jobs -p) || true
  ! pidof rpc.mountd || stop_nfsd
} >/dev/null 2>&1
trap clean_up EXIT

# mount_rdma FOLDER ADDRESS PORT MOUNT_PORT [OPTIONS]: with `soft`, so that a server that hangs makes a
# test fail, not hang.
mount_rdma() {
  mkdir -p "$1"
  timeout --foreground 60 mount -t nfs \
    -o "vers=3,proto=rdma,port=$3,mountproto=tcp,mountport=$4,nolock,${5-soft,timeo=600,retrans=2}" "$2:/" "$1"
}

# client_statistics FOLDER: the counts of Linux's client for a mount, one line of
# /proc/self/mountstats whose fields xprt_rdma_print_stats() names: 4 is how often it connected, 21
# the replies it refused.
client_statistics() {
  awk -v at="mounted on $1 with" 'index($0, at) { here = 1 } here && $1 == "xprt:" { print; exit }' /proc/self/mountstats
}

# start_memory_server BUILD URI [OPTIONS...]: starts nfs-memory-server in the guest, MOUNT on 20048;
# its log is /tmp/server.log.
start_memory_server() {
  local build=$1 uri=$2
  shift 2
  "$build/test/interop/nfs-memory-server" --listen "$uri" --mount-port 20048 "$@" >/tmp/server.log 2>&1 &
  server=$!
  wait_for 60 "nfs-memory-server" grep -q 'listening on' /tmp/server.log
}

# record MATRIX_PY_OPTIONS... SOURCE: a row of doc/interop.md's table, if that is wanted (run.sh --results).
record() {
  [ -z "${RRDK_RESULTS-}" ] || "$(dirname -- "${BASH_SOURCE[0]}")/matrix.py" row "$RRDK_RESULTS" "$@"
}

# Ends it, and reports whether all its buffers are back.
stop_memory_server() {
  kill -TERM "$server"
  wait "$server" || { cat /tmp/server.log; die "nfs-memory-server ended badly"; }
  server=
  grep -E '^(served|  |contexts|pools)' /tmp/server.log
}
