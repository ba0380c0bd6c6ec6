#!/usr/bin/env bash
# In a guest with siw on eth0: Linux's NFS server, for a client on the host. It says that it is ready
# by a file in FOLDER, which the host shares, and ends when the host says "done" there.
# kernel_server_idle.sh FOLDER
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
start_nfsd
uname -r >"$1/ready.new" && mv "$1/ready.new" "$1/ready"
wait_for 400 "the host's client" test -e "$1/done"
[ -z "$(ls -A /export)" ] || die "left behind in /export: $(ls -A /export)"
