#!/usr/bin/env bash
# Builds the documentation site: the pages of doc/, and the interface as the headers describe it.
#
#   scripts/make-docs.sh [FOLDER]   into FOLDER (build-docs); begin at FOLDER/site/index.html
#
# Needs mkdocs and doxygen (scripts/install-deps.sh --tests). A link or an entry of the navigation that
# leads nowhere is an error.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
case ${1-} in --help | -h) usage; exit 0 ;; -*) die "unknown option '$1' (see --help)" ;; esac
for tool in mkdocs doxygen; do
  command -v "$tool" >/dev/null || die "$tool is missing: apt-get install mkdocs doxygen"
done

mkdir -p "${1:-$root/build-docs}"
folder=$(cd -- "${1:-$root/build-docs}" && pwd)
rm -rf "$folder/pages" "$folder/site"
mkdir "$folder/pages"
cd "$root"
scripts/lib/site_pages.py "$folder/pages"
doxygen - <<END
@INCLUDE = doc/Doxyfile
OUTPUT_DIRECTORY = $folder/pages
HTML_OUTPUT = api
GENERATE_HTML = YES
SEARCHENGINE = NO
EXTRACT_ALL = YES
EXCLUDE_SYMBOLS = *::Impl
WARN_AS_ERROR = FAIL_ON_WARNINGS
END
{ cat doc/mkdocs.yml; printf 'docs_dir: %s\nsite_dir: %s\n' "$folder/pages" "$folder/site"; } >"$folder/mkdocs.yml"
mkdocs build --config-file "$folder/mkdocs.yml" >"$folder/mkdocs.log" 2>&1 ||
  { grep -v '^INFO' "$folder/mkdocs.log" >&2; die "a page is at fault"; }
say "$folder/site/index.html"
