#!/usr/bin/env bash
# Makes an rxe (software RoCEv2) device in the guest: rxe.sh veth|eth0
#
#   veth   rxe_veth, 10.7.0.1, on one end of a veth pair
#   eth0   rxe_eth0, 10.0.2.15
#
# There is no rxe on lo: the device can be made, but rdma_cm finds no route to it.
set -euo pipefail
case ${1-} in
  eth0) interface=eth0 ;;
  veth)
    ip link add rxeveth type veth peer name rxepeer
    ip link set rxepeer up
    ip link set rxeveth up
    ip address add 10.7.0.1/24 dev rxeveth
    interface=rxeveth
    ;;
  *) echo "usage: rxe.sh veth|eth0" >&2; exit 2 ;;
esac
modprobe rdma_rxe
rdma link add "rxe_$1" type rxe netdev "$interface"
