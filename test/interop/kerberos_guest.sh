#!/usr/bin/env bash
# In a guest with siw on lo: NFS with Kerberos (RPCSEC_GSS), testrpc against Linux's server, and Linux's
# client against nfs-memory-server.
#
#   kerberos_guest.sh BUILD
#
# The realm is that of test/gss/realm.py, in the guest. Ends with status 77 where something is missing.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
build=$1 uri=iwarp://$siw_address:20049

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

mnt=/mnt/nfs sizes='1 3000 100000 1000000'

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

say "== Linux's client"
# rpc.gssd makes contexts by TCP port 2049, as root's user, who is alice. It asks for the name of the
# server's address.
echo "$siw_address localhost" >>/etc/hosts
mkdir -p /run/rpc_pipefs
mountpoint -q /run/rpc_pipefs || mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
modprobe -a nfs rpcrdma
rpc.gssd -f -n -p /run/rpc_pipefs >/tmp/gssd.log 2>&1 &
wait_for 30 "rpc.gssd" sh -c "ls -l /proc/$!/fd | grep -q clntXX/gssd"
start_memory_server "$build" "iwarp://$siw_address:20051" --megabytes 60 --kerberos 0.0.0.0:2049
head -c 1000000 /dev/urandom >/tmp/original
for sec in krb5 krb5i krb5p; do
  say "== mount -o sec=$sec"
  mount_rdma $mnt "$siw_address" 20051 20048 "soft,timeo=600,retrans=2,sec=$sec"
  grep "$mnt.*proto=rdma.*sec=$sec," /proc/mounts
  use_mount
  record --device "siw (iwarp:)" --client "Linux, $sec" --server "nfs-memory-server, $sec" --inline "4096 / 4096" \
    --sizes "1 B to 1 MB" /proc/self/mountstats@$mnt
  timeout --foreground 60 umount $mnt
done
! mount_rdma $mnt "$siw_address" 20051 20048 "soft,timeo=600,retrans=2,sec=sys" ||
  die "nfs-memory-server took a call without Kerberos"
stop_memory_server

say "== Linux's server"
# Calls with one KIND of protection.
try() {
  try_nfs3 "$build" "$uri" --sec "$1" --target nfs@localhost --nfs-names 100 --window 4 --count 300 || return
  record --device "siw (iwarp:)" --client "testrpc, $1" --server "Linux, $1" --inline "4096 / 4096" \
    --sizes "1 B to 1 MiB" /tmp/run.json
}

start_nfsd
sed -i 's/fsid=0/&,sec=krb5:krb5i:krb5p/' /etc/exports
exportfs -ra
# It accepts contexts for nfsd, with any key of the realm's table.
rpc.svcgssd -f -n &
wait_for 30 "rpc.svcgssd" sh -c "ls -l /proc/$!/fd | grep -q auth.rpcsec.init"

! (try_nfs3 "$build" "$uri" --sec sys --nfs-names 0 --count 1) || die "Linux took a call without Kerberos"
try krb5
try krb5i
# A late 6.1 decodes the arguments from the length of what was encrypted, for every client: its
# nfsd_dispatch() begins where svcauth_gss_unwrap_priv() had begun. 6.12 does not.
if ! (try krb5p) 2>&1 | tee /tmp/krb5p.log; then
  [[ $(uname -r) == 6.1.* ]] && grep -q 'FSINFO.*: garbage arguments$' /tmp/krb5p.log || exit 1
  say "   Linux $(uname -r) cannot read arguments that are encrypted"
fi
kernel_says
