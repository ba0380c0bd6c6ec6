#!/usr/bin/env bash
# Checks that debian/*.symbols list what the shared libraries of a build export. From these lists dpkg-shlibdeps
# knows from which release on a package has what a program uses.
#
#   scripts/check-symbols.sh BUILD           librrdk.so and librrdk-tirpc.so of a build directory
#   scripts/check-symbols.sh --renew BUILD   adds what is new, with the version in debian/changelog
#
# A line is never taken away or changed by hand after a release: programs depend on it.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
renew=
case ${1-} in
  --help | -h) usage; exit 0 ;;
  --renew) renew=yes; shift ;;
esac
[ -d "${1-}" ] || die "which build directory? (see --help)"
command -v dpkg-gensymbols >/dev/null || die "dpkg-gensymbols is missing: apt-get install dpkg-dev"
build=$(cd -- "$1" && pwd)
cd "$root"
version=$(dpkg-parsechangelog --show-field Version)

check() {  # PACKAGE LIBRARY
  local list=debian/$1.symbols
  dpkg-gensymbols -c4 ${renew:+-t} -p"$1" -v"$version" -e"$2" -I"$list" -O"${renew:+$list}" >"$result" 2>&1 || [ -n "$renew" ] ||
    die "$list does not fit $2; scripts/check-symbols.sh --renew adds what is new:
$(grep '^[-+] ' "$result")"
  # A version's own name, which not every linker writes.
  [ -z "$renew" ] || sed -i -E 's/^#MISSING: [^#]*#( ?\(optional\))/\1/' "$list"
}
result=$(mktemp)
trap 'rm -f "$result"' EXIT
for library in librrdk0:librrdk.so.0 librrdk-tirpc0:bridge/tirpc/librrdk-tirpc.so.0; do
  [ -e "$build/${library#*:}" ] || die "$build/${library#*:} is not there: ninja -C $build"
  check "${library%%:*}" "$build/${library#*:}"
done
