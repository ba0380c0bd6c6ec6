#!/usr/bin/env bash
# Starts the kernel's NFS server in the guest, over TCP and RDMA:
#
#   nfsd.sh [FOLDER]     exports FOLDER (by default /export, a tmpfs made for it) to everyone
#
# NFS versions 3, 4.1 and 4.2; port 2049 for TCP, 20049 for RDMA, on all RDMA devices there are (make
# them first: siw.sh, rxe.sh). mountd listens on 20048. Mount with
#
#   mount -t nfs  -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=20048,nolock ADDRESS:/export DIR
#   mount -t nfs4 -o vers=4.1,proto=rdma,port=20049 ADDRESS:/ DIR
set -euo pipefail
[ -e /run/lab/settings ] || { echo "nfsd.sh: only for the guest of scripts/vm/run" >&2; exit 2; }
folder=${1-/export}

if [ ! -d "$folder" ]; then
  mkdir -p "$folder"
  mount -t tmpfs -o mode=1777 export "$folder"
fi
echo "$folder *(rw,sync,no_root_squash,no_subtree_check,insecure,fsid=0)" >/etc/exports
mkdir -p /var/lib/nfs/{v4recovery,sm,rpc_pipefs} /proc/fs/nfsd /run/rpcbind
touch /var/lib/nfs/{etab,rmtab,state}

modprobe nfsd
modprobe rpcrdma
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
pidof rpcbind >/dev/null || rpcbind -w >/dev/null 2>&1
exportfs -ra
# The shortest that the kernel takes, in seconds: nothing here has state to reclaim from before.
# It takes them before it runs for the first time only.
for name in nfsv4leasetime nfsv4gracetime; do
  [ "$(cat /proc/fs/nfsd/$name)" = 10 ] || echo 10 >/proc/fs/nfsd/$name
done
rpc.nfsd --no-udp -V 3 -V 4.1 -V 4.2 4
echo 'rdma 20049' >/proc/fs/nfsd/portlist
rpc.mountd --port 20048 >/dev/null 2>&1
