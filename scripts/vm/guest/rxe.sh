#!/usr/bin/env bash
# Makes rxe (software RoCEv2) devices in the guest: rxe.sh veth|pair|eth0
#
#   veth   rxe_veth, 10.7.0.1 and fd07::1, on one end of a veth pair
#   pair   rxe_pair0, 10.8.0.1, and rxe_pair1, 10.8.0.2, on both ends of one: what is sent to one
#          address leaves from the other's, and tcpdump -i rxepair0 sees it
#   eth0   rxe_eth0, 10.0.2.15
#
# There is no rxe on lo: the device can be made, but rdma_cm finds no route to it.
set -euo pipefail

# Linux would deliver packets to its own addresses without sending them. These rules make it send them,
# and accept them on the other side.
send_through_pair() {
  local number other
  sysctl -q net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.rxepair{0,1}.{accept_local=1,rp_filter=0,arp_ignore=1}
  for number in 0 1; do
    other=$((1 - number))
    echo "route add 10.8.0.$((other + 1)) dev rxepair$number src 10.8.0.$((number + 1)) table $((101 + number))"
    echo "rule add pref $((10 + number)) from 10.8.0.$((number + 1)) to 10.8.0.$((number + 1)) lookup local"
    echo "rule add pref $((20 + number)) to 10.8.0.$((other + 1)) iif lo lookup $((101 + number))"
    # rdma_cm's check of an incoming request asks for the route back with the interface given.
    echo "rule add pref $((30 + number)) to 10.8.0.$((other + 1)) oif rxepair$number lookup $((101 + number))"
  done | ip -batch -
  printf '%s\n' 'rule add pref 40 lookup local' 'rule del pref 0' | ip -batch -
}

case ${1-} in
  eth0) devices=(rxe_eth0=eth0) ;;
  veth)
    printf '%s\n' 'link add rxeveth type veth peer name rxepeer' 'link set rxepeer up' 'link set rxeveth up' \
      'address add 10.7.0.1/24 dev rxeveth' 'address add fd07::1/64 dev rxeveth nodad' | ip -batch -
    devices=(rxe_veth=rxeveth)
    ;;
  pair)
    printf '%s\n' 'link add rxepair0 type veth peer name rxepair1' 'link set rxepair0 up' 'link set rxepair1 up' \
      'address add 10.8.0.1/24 dev rxepair0' 'address add 10.8.0.2/24 dev rxepair1' | ip -batch -
    send_through_pair
    devices=(rxe_pair0=rxepair0 rxe_pair1=rxepair1)
    ;;
  *) echo "usage: rxe.sh veth|pair|eth0" >&2; exit 2 ;;
esac
modprobe rdma_rxe
for device in "${devices[@]}"; do
  rdma link add "${device%=*}" type rxe netdev "${device#*=}"
done
