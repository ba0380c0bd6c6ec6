#!/usr/bin/env bash
# In a guest with siw on lo: NFS with Kerberos (RPCSEC_GSS), testrpc against Linux's server.
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
  for tool in krb5kdc kadmin.local kinit rpc.svcgssd; do
    PATH=$PATH:/usr/sbin command -v $tool >/dev/null || skip "no $tool here (scripts/install-deps.sh --tests)"
  done
  modprobe -a auth_rpcgss rpcsec_gss_krb5 || skip "the kernel has no RPCSEC_GSS with Kerberos"
  exec "$here/../gss/realm.py" "$0" "$@"
fi

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
ulimit -l unlimited

! (try_nfs3 "$build" "$uri" --sec sys --nfs-names 0 --count 1) || die "Linux took a call without Kerberos"
try krb5
try krb5i
# A late 6.1 decodes the arguments from the length of what was encrypted, whoever the client is: its
# nfsd_dispatch() begins where svcauth_gss_unwrap_priv() had begun. 6.12 does not.
if ! (try krb5p) 2>&1 | tee /tmp/krb5p.log; then
  [[ $(uname -r) == 6.1.* ]] && grep -q 'FSINFO.*: garbage arguments$' /tmp/krb5p.log || exit 1
  say "   Linux $(uname -r) cannot read arguments that are encrypted"
fi
