#!/usr/bin/env bash
# In the guest: the kernel's NFS client mounts the kernel's NFS server (scripts/vm/guest/nfsd.sh) over
# RDMA, and a file copied each way comes out the same.
#
#   nfs.sh ADDRESS 3|4.1
set -eu
address=$1 version=$2
options=proto=rdma,port=20049,soft,timeo=100
case $version in
  3) mount=(mount -t nfs -o "vers=3,$options,mountproto=tcp,mountport=20048,nolock" "$address:/export") ;;
  4.1) mount=(mount -t nfs4 -o "vers=4.1,$options" "$address:/") ;;
  *) echo "version $version is neither 3 nor 4.1" >&2; exit 2 ;;
esac
folder=$(mktemp -d)
trap '! mountpoint -q "$folder" || umount -l "$folder"; rm -rf "$folder" "$folder".*' EXIT
head -c 3000001 /dev/urandom >"$folder.there"
head -c 3000001 /dev/urandom >"/export/back-$version"
"${mount[@]}" "$folder"
grep " $folder .*proto=rdma" /proc/mounts
cp "$folder.there" "$folder/there-$version"
cp "$folder/back-$version" "$folder.back"
umount "$folder"
cmp "$folder.there" "/export/there-$version"
cmp "/export/back-$version" "$folder.back"
rm -f "/export/there-$version" "/export/back-$version"
