#!/usr/bin/env bash
# Installs the Debian packages that building RRDK needs, if any is missing.
#
#   scripts/install-deps.sh           what the library and testrpc need
#   scripts/install-deps.sh --tests   what the whole test run needs in addition
#   scripts/install-deps.sh --peers   what scripts/bench-peers.sh needs in addition
#   scripts/install-deps.sh --packages  what scripts/build-packages.sh needs in addition
#   scripts/install-deps.sh --list    prints the names only (also with the others)
#
# Works as root or with sudo, on Debian 12. If nothing is missing it needs neither root nor a network.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"

build_packages=(
  g++ meson ninja-build pkg-config
  libdpdk-dev      # EAL, rings, command line
  libexpected-dev  # tl::expected
  libisal-dev      # CRC32C; gzip of testrpc --metrics
  liburcu-dev      # read-copy-update
  libibverbs-dev librdmacm-dev  # RDMA devices: drivers/verbs
  systemtap-sdt-dev  # static probes: scripts/rrdk-trace.py
  nlohmann-json3-dev  # testrpc --csv
  libkrb5-dev      # RPCSEC_GSS: lib/gss
  libsystemd-dev   # testrpc --server as a service
)
test_packages=(
  python3 git ccache
  lld              # links each test program in a fraction of the time
  libgtest-dev libgmock-dev libbenchmark-dev
  qemu-system-x86 make gcc-12 xz-utils  # scripts/vm: a guest with Linux RDMA and NFS; siw for it
  rpcsvc-proto libtirpc-dev    # rpcgen: librrdk-tirpc; codecs to compare ours with
  clang-19 libclang-rt-19-dev clang-tidy-19 clang-format-19
  python3-matplotlib           # scripts/latency-profile.py
  abigail-tools doxygen        # scripts/check-abi.py, check-api.py
  mkdocs                       # scripts/make-docs.sh
  cmake                        # test/scripts/abi_test.py
  mandoc zsh                   # test/apps/testrpc_manual_test.py
  mmdebstrap                   # scripts/package-test.sh
  iproute2                     # test/netns, test/interop
  tshark tcpdump               # test/interop: what is on the wire
  bpftrace                     # scripts/rrdk-trace.py
  prometheus                   # scripts/prometheus
  krb5-kdc krb5-admin-server krb5-user  # test/gss: a realm of the tests' own
  python3-gssapi               # test/gss/gss_peer.py
  valgrind                     # scripts/call-path.py, call-cost.py
)
peer_packages=(
  python3 libbenchmark-dev
  ucx-utils libfabric-bin libtirpc-dev
)

package_packages=(debhelper dpkg-dev fakeroot python3 git)

packages=("${build_packages[@]}")
list=no
for argument in "$@"; do
  case $argument in
    --tests) packages+=("${test_packages[@]}" "${package_packages[@]}") ;;
    --packages) packages+=("${package_packages[@]}") ;;
    --peers) packages+=("${peer_packages[@]}") ;;
    --list) list=yes ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$argument' (see --help)" ;;
  esac
done
if [ "$list" = yes ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  die "this machine has no apt-get; install by your own means what Debian 12 calls: ${packages[*]}"
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$status" = 'install ok installed' ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  say "Packages: all ${#packages[@]} are installed."
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null ||
    die "run as root, or install sudo: missing packages are ${missing[*]}"
  as_root=(sudo)
fi

# invoke-rc.d and deb-systemd-invoke run this file before they start a service of a package, and its
# status 101 forbids that. If the administrator has such a file already, it is left as it is.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
fi

say "Packages: installing ${missing[*]}"
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0 "$@" </dev/null
}
apt update || say "apt-get update had errors; going on with the package lists at hand."
apt install --no-install-recommends "${missing[@]}" ||
  die "apt-get could not install what is missing (Debian 12 has all of it): ${missing[*]}"
