#!/usr/bin/env bash
# In the guest: programs of a build talk through the RDMA device of an address.
#
#   verbs.sh fabric ADDRESS BUILD     the fabric interface's conformance suite
#   verbs.sh testrpc ADDRESS BUILD    every engine, every byte checked
set -eu
what=$1 address=$2 build=$3
ulimit -l unlimited  # siw holds root, too, to the limit
case $what in
  fabric)
    RRDK_VERBS_ADDRESS=$address "$build/test/test_fabric" --gtest_filter='*/verbs' --gtest_brief=1
    ;;
  testrpc)
    "$build/apps/testrpc/testrpc" --self="verbs://$address:20050" --engine all \
      --idle adaptive --size 0,1000,4K,64K --window 1,8 --verify --count 100
    ;;
  *) echo "verbs.sh: unknown '$what'" >&2; exit 2 ;;
esac
