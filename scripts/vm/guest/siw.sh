#!/usr/bin/env bash
# Makes a siw (software iWARP) device in the guest: siw.sh lo|eth0|veth
#
#   lo     siw_lo, 10.6.0.1 and fd06::1. Plain TCP programs reach its listeners at 127.0.0.1 as well;
#          programs that connect through rdma_cm must use 10.6.0.1 (rdma_cm knows no loopback on
#          iWARP).
#   eth0   siw_eth0, 10.0.2.15: where the host's --forward leads
#   veth   siw_veth, 10.6.1.1, on one end of a veth pair
set -euo pipefail
case ${1-} in
  lo)
    # lo's own MAC is all zeroes, so the device's GID would be too, and rdma_cm would not find it.
    # One process sets all of this, since starting one takes an emulated CPU a tenth of a second.
    printf '%s\n' 'link set lo down' 'link set lo address 02:00:00:00:00:01' 'link set lo up' \
      'address replace 10.6.0.1/32 dev lo' 'address replace fd06::1/128 dev lo nodad' | ip -batch -
    interface=lo
    ;;
  eth0) interface=eth0 ;;
  veth)
    printf '%s\n' 'link add siwveth type veth peer name siwpeer' 'link set siwpeer up' 'link set siwveth up' \
      'address add 10.6.1.1/24 dev siwveth' | ip -batch -
    interface=siwveth
    ;;
  *) echo "usage: siw.sh lo|eth0|veth" >&2; exit 2 ;;
esac
modprobe siw
rdma link add "siw_$1" type siw netdev "$interface"
