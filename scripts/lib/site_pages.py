#!/usr/bin/env python3
"""Lays out the pages for scripts/make-docs.sh: doc/, README and CONTRIBUTING with links that work on the
site, and the examples as a page.

    site_pages.py FOLDER
"""
import shutil
import sys
from pathlib import Path

from source import ROOT

# Links into the checkout, and their counterparts on the site.
LINKS = {"(doc/examples/)": "(examples.md)", "(examples/)": "(examples.md)", "(lib/include/rrdk/)": "(api/files.html)",
         "(doc/examples/": "(", "(doc/": "(", "(../test/data/": "(", "(LICENSE)": "(LICENSE.txt)",
         "(examples/tirpc/": "(tirpc/", "(../bridge/tirpc/include/rrdk/": "(tirpc/",
         "(../README.md": "(index.md", "(../CONTRIBUTING.md": "(CONTRIBUTING.md"}
EXAMPLES = ["example.h", "echo_server.cc", "echo_client.cc", "direct_placement.cc", "memory_disk.c",
            "appliance/appliance.cc", "appliance/appliance.c", "appliance/watch.h"]


def page(text):
    for link, other in LINKS.items():
        text = text.replace("]" + link, "]" + other)
    return text


def main(folder):
    folder = Path(folder)
    pages = {"index.md": ROOT / "README.md", "CONTRIBUTING.md": ROOT / "CONTRIBUTING.md",
             **{path.name: path for path in (ROOT / "doc").glob("*.md")}}
    for name, path in pages.items():
        (folder / name).write_text(page(path.read_text()))
    for picture in (ROOT / "doc").glob("*.png"):
        shutil.copy(picture, folder)
    examples = [f"## {name}\n\n```{'c' if name.endswith('.c') else 'cpp'}\n{(ROOT / 'doc/examples' / name).read_text()}```\n"
                for name in EXAMPLES]
    (folder / "examples.md").write_text("# Examples\n\n" + "\n".join(examples))
    shutil.copytree(ROOT / "doc/examples/tirpc", folder / "tirpc", ignore=shutil.ignore_patterns("meson.build"))
    shutil.copy(ROOT / "bridge/tirpc/include/rrdk/tirpc.h", folder / "tirpc")
    shutil.copy(ROOT / "LICENSE", folder / "LICENSE.txt")
    shutil.copy(ROOT / "doc/examples/Containerfile", folder)
    shutil.copy(ROOT / "test/data/requirements.tsv", folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
