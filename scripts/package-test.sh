#!/usr/bin/env bash
# Builds the Debian packages, installs them into a clean Debian, and follows pages of doc/ there as an
# unprivileged user, with only what the packages installed.
#
#   scripts/package-test.sh [FOLDER]   keeps the clean Debian and what it downloaded in FOLDER
#                                      (build-tests/packages)
#
# Needs root, mmdebstrap, and the mirror of this machine's apt. If one is missing, it says so and ends with
# exit status 77. Takes two minutes, and two more if FOLDER is empty.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
case ${1-} in --help | -h) usage; exit 0 ;; -*) die "unknown option '$1' (see --help)" ;; esac

skip() { say "$*"; exit 77; }

# The clean Debian's /proc, /dev and package cache are mounted in this mount name space only, and
# disappear with it.
if [ -z "${RRDK_PACKAGE_TEST_INSIDE-}" ]; then
  [ "$(id -u)" -eq 0 ] || skip "needs root, for a clean Debian in a folder"
  command -v mmdebstrap >/dev/null || skip "mmdebstrap is missing: apt-get install mmdebstrap"
  unshare --mount --pid --fork true 2>/dev/null || skip "may not make name spaces here"
  RRDK_PACKAGE_TEST_INSIDE=yes exec unshare --mount --propagation private --pid --fork --kill-child "$0" "$@"
fi

folder=${1:-$root/build-tests/packages}
mkdir -p "$folder/archives/partial"
folder=$(cd -- "$folder" && pwd)
debian=$folder/debian  # the clean one
base=$folder/base.tar
# The tools of a programmer, without anything that our packages depend on.
tools=g++,pkg-config,cmake,make,ca-certificates

say "-- packages"
# Optimisation and debugging information take most of the build's time, and neither is tested here.
DEB_BUILD_OPTIONS='noautodbgsym noopt' DEB_CXXFLAGS_STRIP=-g "$root/scripts/build-packages.sh" "$folder/built"

# The sources of this machine's apt that are Debian's own.
sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' \
  'Origin: Debian' 2>/dev/null | sort -u)
[ -n "$sources" ] || skip "apt has no lists of Debian here: apt-get update"
release=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")

if [ ! -s "$base" ]; then
  say "-- a clean Debian ($release)"
  mmdebstrap --quiet --format=tar --variant=minbase --include="$tools" "$release" "$base.new" - <<<"$sources" \
    >"$folder/debian.log" 2>&1 || { tail -n 5 "$folder/debian.log"; skip "no clean Debian: $(tail -n 1 "$folder/debian.log")"; }
  mv "$base.new" "$base"
fi
rm -rf --one-file-system "$debian"
mkdir "$debian"
tar --extract --file "$base" --directory "$debian" --exclude './dev/*'
mount -t proc proc "$debian/proc"
mount --bind -o ro /sys "$debian/sys"
mount -t tmpfs tmpfs "$debian/dev"
for device in null zero full random urandom; do
  : >"$debian/dev/$device"
  mount --bind "/dev/$device" "$debian/dev/$device"
done
mkdir "$debian/dev/shm" "$debian/packages"
mount -t tmpfs -o mode=1777 tmpfs "$debian/dev/shm"
ln -s /proc/self/fd "$debian/dev/fd"
mount --bind "$folder/archives" "$debian/var/cache/apt/archives"
mount --bind "$folder/built" "$debian/packages"
[ ! -e /etc/resolv.conf ] || cat /etc/resolv.conf >"$debian/etc/resolv.conf"

inside() { chroot "$debian" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C.UTF-8 "$@"; }
as_user() { inside setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs "$@"; }

say "-- installed"
inside sh -c 'apt-get -q -o APT::Update::Error-Mode=any update >/update.log 2>&1' ||
  { tail -n 5 "$debian/update.log"; skip "the mirror cannot be reached"; }
inside sh -c 'export DEBIAN_FRONTEND=noninteractive
  apt-get -q -y install --no-install-recommends /packages/*.deb >/install.log 2>&1' ||
  { tail -n 20 "$debian/install.log"; die "the packages cannot be installed"; }
inside dpkg --verify librrdk0 librrdk-dev librrdk-tirpc0 librrdk-tirpc-dev python3-rrdk rrdk-tools
for package in librrdk0 librrdk-tirpc0; do
  ls "$debian"/var/lib/dpkg/info/"$package"*.symbols >/dev/null || die "$package does not say what it exports"
done

say "-- found: manual pages, completion, the service, examples"
for file in usr/share/man/man1/testrpc.1.gz usr/share/man/man1/rrdk-top.1.gz usr/share/man/man7/rrdk.7.gz \
  usr/share/man/man3/rrdk_call.3.gz usr/share/man/man3/rrdk_call_submit.3.gz \
  usr/share/bash-completion/completions/testrpc usr/share/zsh/vendor-completions/_testrpc \
  lib/systemd/system/testrpc.service usr/share/doc/librrdk-dev/tutorial.md \
  usr/share/doc/librrdk-dev/examples/echo_server.cc usr/share/doc/librrdk-dev/examples/memory_disk.c; do
  [ -e "$debian/$file" ] || [ -e "$debian/$file.gz" ] || die "$file was not installed"
done
[ ! -e "$debian/etc/systemd/system/multi-user.target.wants/testrpc.service" ] || die "the service was enabled"
if command -v systemd-analyze >/dev/null; then
  # The program is in the clean Debian, and systemd is not.
  sed 's,=/usr/bin/testrpc,=/bin/true,' "$debian/lib/systemd/system/testrpc.service" >"$folder/testrpc.service"
  problems=$(systemd-analyze verify --man=no "$folder/testrpc.service" 2>&1 | grep testrpc || true)
  [ -z "$problems" ] || die "$problems"
fi

say "-- the tools, as a user"
as_user sh -c 'set -e; cd /tmp; testrpc --self --engine all --size 1,64K --count 200 --verify --memory 256M >/tmp/run
  testrpc --self --engine read --size 64K --count 10 --memory 256M --capture read.pcapng >/tmp/run
  rrdk-dump --summary read.pcapng; rrdk-doctor --help >/tmp/run; rrdk-top --help >/tmp/run; rrdk-trace --help >/tmp/run; rrdk-hdr-log --help >/tmp/run' ||
  die "the tools do not work: $(cat "$debian/tmp/run" 2>/dev/null | tail -n 5)"

follow() {  # NAME PAGE
  "$root/scripts/check-docs.py" --script "$root/doc/$2" >"$debian/tmp/$1.sh"
  as_user sh -c "mkdir /tmp/$1 && cd /tmp/$1 && bash /tmp/$1.sh" || die "doc/$2 does not work"
}
say "-- the tutorial, as a user"
follow tutorial tutorial.md
say "-- programs in C, as a user"
follow c guide-c.md
say "-- programs in Python, as a user"
follow python guide-python.md
say "-- rpcgen programs, as a user"
cp -r "$debian/usr/share/doc/librrdk-tirpc-dev/examples/tirpc" "$debian/tmp/kv"
gzip -dqf "$debian"/tmp/kv/*.gz 2>/dev/null || true
chown -R 1000:1000 "$debian/tmp/kv"
"$root/test/tirpc/page_test.py" --installed "$debian/tmp/kv" chroot "$debian" /usr/bin/env -i -C /tmp/kv \
  PATH=/usr/bin:/bin LC_ALL=C.UTF-8 HOME=/tmp/kv RRDK_LOG=warning \
  setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs || die "doc/porting-rpcgen.md does not work"

say "-- CMake, as a user"
cat >"$debian/tmp/tutorial/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(disk CXX)
find_package(rrdk 0.1 REQUIRED)
add_executable(server server.cc)
target_link_libraries(server PRIVATE rrdk::rrdk)
END
as_user sh -c 'cd /tmp/tutorial && cmake -S . -B build >cmake.log && cmake --build build >>cmake.log' ||
  { tail -n 20 "$debian/tmp/tutorial/cmake.log"; die "CMake does not find the library"; }

cat >"$debian/tmp/kv/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(kv C)
find_package(rrdk-tirpc 0.1 REQUIRED)
add_executable(cmake_client kv_client.c kv_clnt.c kv_xdr.c)
target_link_libraries(cmake_client PRIVATE rrdk::tirpc)
END
as_user sh -c 'cd /tmp/kv && cmake -S . -B build >cmake.log && cmake --build build >>cmake.log' ||
  { tail -n 20 "$debian/tmp/kv/cmake.log"; die "CMake does not find the library for programs of rpcgen"; }

say "-- the static library, without link-time optimisation"
# This machine has what the library is made of, since it built the packages.
(cd -- "$folder" && printf '%s\n' '#include <rrdk/rrdk.h>' 'int main() { return rrdk_server_create == nullptr; }' |
  c++ -fno-lto -fno-use-linker-plugin -I "$debian/usr/include" -o static_program -xc++ - -xnone \
    "$debian"/usr/lib/*/librrdk.a $(sed -n 's/^Libs.private://p' "$debian"/usr/lib/*/pkgconfig/rrdk.pc)) ||
  die "librrdk.a cannot be linked"

say "-- removed"
inside sh -c 'dpkg --purge librrdk-tirpc-dev librrdk-tirpc0 librrdk-dev python3-rrdk rrdk-tools librrdk0 >/remove.log 2>&1' ||
  { cat "$debian/remove.log"; die "the packages cannot be removed"; }
say "Everything works."
