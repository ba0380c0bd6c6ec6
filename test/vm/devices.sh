#!/usr/bin/env bash
# In the guest: user space sees the RDMA devices that were asked for, and their links are up.
#
#   devices.sh NAME...
set -u
ibv_devices
rdma link
up=$(ibv_devinfo | awk '$1 == "hca_id:" { name = $2 } /PORT_ACTIVE/ { print name }')
for device in "$@"; do
  [[ $'\n'$up$'\n' == *$'\n'$device$'\n'* ]] || { echo "$device is not there, or down"; exit 1; }
done
