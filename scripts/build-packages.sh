#!/usr/bin/env bash
# Builds the Debian packages of this checkout, as it is: librrdk0, librrdk-dev,
# librrdk-tirpc0, librrdk-tirpc-dev, python3-rrdk, rrdk-tools.
#
#   scripts/build-packages.sh [FOLDER]   puts them into FOLDER (build-packages); prints their names
#
# Needs what scripts/install-deps.sh --packages installs. Builds a copy of the checkout in FOLDER/source,
# so nothing is written elsewhere.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
case ${1-} in --help | -h) usage; exit 0 ;; -*) die "unknown option '$1' (see --help)" ;; esac

folder=${1:-$root/build-packages}
command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null ||
  die "debhelper is missing: scripts/install-deps.sh --packages"
mkdir -p "$folder"
folder=$(cd -- "$folder" && pwd)
rm -rf "$folder/source" "$folder"/*.deb
mkdir "$folder/source"
cd "$root"
python3 -c 'import sys
sys.path.insert(0, "scripts")
from lib.source import repository_files
print(*repository_files(), sep="\0", end="")' |
  tar --create --null --files-from - | tar --extract --directory "$folder/source"

# debhelper sets another HOME, where ccache would find nothing.
if command -v ccache >/dev/null; then
  export CCACHE_DIR=${CCACHE_DIR:-$(ccache --get-config cache_dir)} CCACHE_BASEDIR=$folder/source CCACHE_NOHASHDIR=1
  PATH=/usr/lib/ccache:$PATH
fi
cd "$folder/source"
dpkg-buildpackage --build=binary --unsigned-changes >"$folder/build.log" 2>&1 ||
  { tail -n 40 "$folder/build.log" >&2; die "the build failed; its log is $folder/build.log"; }
ls "$folder"/*.deb
