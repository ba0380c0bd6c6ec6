#!/usr/bin/env bash
# In a guest with siw: Linux's NFS client (xprtrdma) mounts an nfs-memory-server and uses it.
#
#   kernel_client.sh HOST PORT MOUNT_PORT [INLINE:NAMES...]
#
# One mount for each INLINE, Linux's inline thresholds in bytes, with NAMES files in one folder: by
# default the kernel's own and the smallest. In the table of doc/interop.md the device is called
# RRDK_DEVICE, and our own threshold RRDK_INLINE.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
. "$here/guest.sh"
host=$1 port=$2 mount_port=$3
shift 3
[ $# -gt 0 ] || set -- 4096:2000 1024:300
mnt=/mnt/nfs
local_copy=/tmp/originals

drop_caches() { sync; echo 3 >/proc/sys/vm/drop_caches; }

# Files of 1 byte to 16 MiB, with sizes around blocks, pages, inline thresholds and rsize.
make_originals() {
  mkdir -p $local_copy
  local size
  for size in 1 3 100 900 1023 1024 1025 3000 3900 4095 4096 4097 8192 65535 65536 65537 \
    262143 262144 262145 1048576 1048577 5000000 16777216; do
    head -c "$size" /dev/urandom >"$local_copy/file-$size"
  done
}

copy_and_compare() {
  local folder=$mnt/copies-$1 file
  mkdir "$folder"
  cp $local_copy/* "$folder"
  drop_caches
  for file in "$local_copy"/*; do
    cmp "$file" "$folder/${file##*/}" || die "$file came back different"
  done
  ls -lR "$folder" >/dev/null
  rm -r "$folder"
}

# Parts of a file, over and beyond the existing data, and through holes.
write_parts() {
  local here=$mnt/parts there=$local_copy/../parts
  for file in "$here" "$there"; do
    head -c 300000 $local_copy/file-16777216 >"$file"
    dd if=$local_copy/file-1048577 of="$file" bs=1000 seek=123 count=77 conv=notrunc status=none
    dd if=$local_copy/file-1048577 of="$file" bs=4096 seek=200 count=3 conv=notrunc status=none
    truncate -s 100001 "$file"
    echo "at the end" >>"$file"
    truncate -s 123456 "$file"
  done
  drop_caches
  cmp "$here" "$there"
  rm "$here"
}

use_names() {
  local i long count files=$1
  mkdir $mnt/names
  # One process: a guest without KVM starts few a second.
  for ((i = 0; i < files; i++)); do : >"$mnt/names/name-$i"; done
  drop_caches
  count=$(ls $mnt/names | sort -u | wc -l)
  [ "$count" -eq "$files" ] || die "$count names listed of $files"
  drop_caches
  count=$(ls -l $mnt/names | grep -c name-)
  [ "$count" -eq "$files" ] || die "$count names listed with attributes of $files"
  [ ! -e $mnt/names/absent ]
  timeout --foreground 300 rm -r $mnt/names
  [ ! -e $mnt/names ] || die "the folder of names is still there"
  long=$(printf 'n%.0s' {1..255})
  : >"$mnt/$long"
  [ -e "$mnt/$long" ]
  rm "$mnt/$long"
  ! touch "$mnt/${long}x" 2>/dev/null || die "a name of 256 bytes was taken"
}

use_objects() {
  cd $mnt
  mkdir -p a/b/c
  echo one >a/one
  mv a/one a/b/two
  [ "$(cat a/b/two)" = one ]
  mv a/b c
  [ "$(cat c/two)" = one ]
  ln c/two hard
  [ "$(stat -c %h hard)" = 2 ]
  ln -s c/two soft
  [ "$(readlink soft)" = c/two ] && [ "$(cat soft)" = one ]
  local target
  target=$(printf 't%.0s' {1..1000})
  ln -s "$target" long
  drop_caches
  [ "$(readlink long)" = "$target" ] || die "a long symbolic link came back different"
  chmod 640 c/two && chown 12:34 c/two && touch -d '2001-02-03 04:05:06.789 UTC' c/two
  drop_caches
  [ "$(stat -c '%a %u %g' c/two)" = "640 12 34" ]
  [ "$(date -u -d "@$(stat -c %Y c/two)" +%F)" = 2001-02-03 ]
  # bash's noclobber opens with O_EXCL: CREATE EXCLUSIVE.
  (set -C; echo x >exclusive)
  ! (set -C; echo x >exclusive) 2>/dev/null || die "O_EXCL made a file twice"
  ! rmdir a/../c 2>/dev/null || die "a folder with names in it was removed"
  ! mknod device c 1 3 2>/dev/null || die "a device was made"
  # A file that is open lives on without its name (the client renames it).
  exec 5<>open-file
  echo kept >&5
  rm open-file
  [ "$(cat /dev/fd/5)" = kept ] || die "an open file lost its contents"
  exec 5>&-
  df $mnt | tail -1
  rm -r a c hard soft long exclusive
  cd /
}

fill_it_up() {
  local free
  free=$(df --output=avail -B1 $mnt | tail -1)
  if [ "$free" -gt $((64 << 20)) ]; then
    return 0  # too large to be filled here in time
  fi
  ! dd if=/dev/zero of=$mnt/big bs=1M count=80 status=none 2>/tmp/dd-full.log || die "more was written than there is room"
  grep -q 'No space left' /tmp/dd-full.log || die "a full server gives: $(cat /tmp/dd-full.log)"
  rm $mnt/big
  echo room >$mnt/again
  rm $mnt/again
}

# How often the client connected, the errors it found, and the kinds of chunks it used.
check_statistics() {
  local -a f
  read -ra f < <(client_statistics $mnt)
  say "   connections ${f[4]}, sends ${f[7]}, receives ${f[8]}, bad XIDs ${f[9]}, bad replies ${f[21]}"
  say "   chunks: Read ${f[12]}, Write ${f[13]}, Reply ${f[14]}; long calls ${f[22]}, invalidated here ${f[26]}"
  [ "${f[4]}" = 1 ] || die "the client had to connect ${f[4]} times"
  [ "${f[9]}" = 0 ] || die "${f[9]} replies had XIDs that the client does not know"
  [ "${f[21]}" = 0 ] || die "the client refused ${f[21]} replies"
  local i
  for i in 12 13 14; do
    [ "${f[i]}" -gt 0 ] || die "there is a kind of chunk that the client has not used: ${f[*]}"
  done
}

make_originals
modprobe rpcrdma
for pass in "$@"; do
  inline=${pass%:*} names=${pass#*:}
  say "== rdma_max_inline of $inline bytes"
  echo $inline >/proc/sys/sunrpc/rdma_max_inline_read
  echo $inline >/proc/sys/sunrpc/rdma_max_inline_write
  mount_rdma $mnt "$host" "$port" "$mount_port"
  grep "$mnt" /proc/mounts
  for step in "copy_and_compare $inline" write_parts use_objects "use_names $names" fill_it_up; do
    began=$SECONDS
    $step
    say "   ${step%% *}: $((SECONDS - began)) s"
  done
  [ -z "$(ls -A $mnt)" ] || die "left behind: $(ls -A $mnt)"
  check_statistics
  record --device "${RRDK_DEVICE-siw (iwarp:)}" --client Linux --server nfs-memory-server \
    --inline "${RRDK_INLINE-4096} / $inline" --sizes "1 B to 16 MiB" "/proc/self/mountstats@$mnt"
  timeout --foreground 60 umount $mnt
done
kernel_says
