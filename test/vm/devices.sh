#!/usr/bin/env bash
# In the guest: user space sees the RDMA devices that were asked for, and their links are up.
#
#   devices.sh NAME...
set -u
ibv_devices
rdma link
for device in "$@"; do
  ibv_devinfo -d "$device" | grep PORT_ACTIVE >/dev/null || { echo "$device is not there, or down"; exit 1; }
done
