#!/usr/bin/env bash
# In a guest with siw on lo: each kind of security with RRDK and Linux in both roles.
#
#   kerberos_guest.sh BUILD
#
# Ends with a table of what was tried. The realm is that of test/gss/realm.py, in the guest. Ends with
# status 77 where something is missing.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1

skip() {
  say "$*"
  exit 77
}

if [ -z "${RRDK_TEST_REALM-}" ]; then
  for tool in krb5kdc kadmin.local kinit rpc.svcgssd rpc.gssd; do
    PATH=$PATH:/usr/sbin command -v $tool >/dev/null || skip "no $tool here (scripts/install-deps.sh --tests)"
  done
  modprobe -a auth_rpcgss rpcsec_gss_krb5 || skip "the kernel has no RPCSEC_GSS with Kerberos"
  exec "$here/../gss/realm.py" "$0" "$@"
fi

ulimit -l unlimited

mnt=/mnt/nfs sizes='1 3000 100000 1000000' kinds='sys krb5 krb5i krb5p'
table=()

# passed CLIENT SERVER KIND SIZES SOURCE
passed() {
  add_result "$1" "$2" "$3" yes
  record --device "siw (iwarp:)" --client "$1, $3" --server "$2, $3" --inline "4096 / 4096" --sizes "$4" "$5"
}

# add_result CLIENT SERVER KIND RESULT
add_result() { table+=("$(printf '%-18s %-18s %-6s %s' "$@")"); }

use_mount() {
  local size
  mkdir $mnt/folder
  for size in $sizes; do head -c "$size" /tmp/original >$mnt/folder/file-"$size"; done
  ln -s file-1 $mnt/folder/link
  sync
  echo 3 >/proc/sys/vm/drop_caches
  for size in $sizes; do head -c "$size" /tmp/original | cmp - $mnt/folder/file-"$size"; done
  [ "$(ls -l $mnt/folder | grep -c -- -)" = 5 ] || die "a listing is not whole"
  [ "$(readlink $mnt/folder/link)" = file-1 ] || die "a symbolic link came back different"
  rm -r $mnt/folder
}

# target KIND: testrpc's option for it
target() { [ "$1" = sys ] || echo "--target nfs@localhost"; }

from_ours_to_ours() {
  local kind uri=iwarp://$siw_address:20052
  taskset -c 1 "$build/apps/testrpc/testrpc" --server "$uri" --sec "${kinds// /,}" --idle adaptive --max-size 1M \
    >/tmp/server.log 2>&1 &
  server=$!
  wait_for 60 "testrpc's server" listens 20052
  for kind in $kinds; do
    say "== testrpc to testrpc, $kind"
    # shellcheck disable=SC2046 # words
    timeout --foreground 100 taskset -c 0 "$build/apps/testrpc/testrpc" --client "$uri" --sec "$kind" $(target "$kind") \
      --engine echo,read,write --size 3000,100K --window 4 --count 6 --verify --idle adaptive --json /tmp/run.json
    passed testrpc testrpc "$kind" "3000 B and 100 KiB" /tmp/run.json
  done
  kill "$server"
  wait "$server" || { cat /tmp/server.log; die "testrpc's server ended badly"; }
}

# mount_ours KIND
mount_ours() { mount_rdma $mnt "$siw_address" 20051 20048 "soft,timeo=600,retrans=2,sec=$1"; }

# rpc.gssd makes contexts by TCP port 2049, as root's user, who is alice.
from_linux_to_ours() {
  local kind demand=()
  for kind in $kinds; do
    say "== mount -o sec=$kind"
    [ "$kind" = sys ] || demand=(--kerberos 0.0.0.0:2049)
    start_memory_server "$build" "iwarp://$siw_address:20051" --megabytes 60 "${demand[@]}"
    mount_ours "$kind"
    grep "$mnt.*proto=rdma.*sec=$kind," /proc/mounts
    use_mount
    passed Linux nfs-memory-server "$kind" "1 B to 1 MB" /proc/self/mountstats@$mnt
    timeout --foreground 60 umount $mnt
    [ "$kind" != krb5p ] || ! mount_ours sys || die "nfs-memory-server took a call without Kerberos"
    stop_memory_server
  done
}

# export_to SEC
export_to() {
  sed -i "s/fsid=0[^)]*/fsid=0,sec=$1/" /etc/exports
  exportfs -ra
}

# call_linux KIND OPTIONS...
call_linux() {
  local kind=$1
  shift
  # shellcheck disable=SC2046 # words
  try_nfs3 "$build" "iwarp://$siw_address:20049" --sec "$kind" $(target "$kind") "$@"
}

from_ours_to_linux() {
  local kind
  export_to sys
  call_linux sys --nfs-names 30 --window 4 --count 150
  passed testrpc Linux sys "1 B to 1 MiB" /tmp/run.json
  export_to krb5:krb5i:krb5p
  ! (call_linux sys --nfs-names 0 --count 1) || die "Linux took a call without Kerberos"
  for kind in krb5 krb5i; do
    call_linux $kind --nfs-names 30 --window 4 --count 150
    passed testrpc Linux $kind "1 B to 1 MiB" /tmp/run.json
  done
  # A late 6.1 decodes the arguments from the length of what was encrypted, for every client: its
  # nfsd_dispatch() begins where svcauth_gss_unwrap_priv() had begun. 6.12 does not.
  if (call_linux krb5p --nfs-names 30 --window 4 --count 150) 2>&1 | tee /tmp/krb5p.log; then
    passed testrpc Linux krb5p "1 B to 1 MiB" /tmp/run.json
  else
    [[ $(uname -r) == 6.1.* ]] && grep -q 'FSINFO.*: garbage arguments$' /tmp/krb5p.log || exit 1
    add_result testrpc Linux krb5p "no: Linux $(uname -r) cannot read arguments that are encrypted"
  fi
}

head -c 1000000 /dev/urandom >/tmp/original
# rpc.gssd asks for the name of the server's address.
echo "$siw_address localhost" >>/etc/hosts
mkdir -p /run/rpc_pipefs
mountpoint -q /run/rpc_pipefs || mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
modprobe -a nfs rpcrdma
rpc.gssd -f -n -p /run/rpc_pipefs >/tmp/gssd.log 2>&1 &
wait_for 30 "rpc.gssd" sh -c "ls -l /proc/$!/fd | grep -q clntXX/gssd"
from_ours_to_ours
from_linux_to_ours
start_nfsd
# It accepts contexts for nfsd, with any key of the realm's table.
rpc.svcgssd -f -n &
wait_for 30 "rpc.svcgssd" sh -c "ls -l /proc/$!/fd | grep -q auth.rpcsec.init"
from_ours_to_linux
kernel_says
say "== client, server, security"
printf '%s\n' "${table[@]}"
