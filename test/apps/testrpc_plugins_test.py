#!/usr/bin/env python3
"""A minimal image has DPDK's libraries without the folder of its plug-ins: testrpc needs none. Also checks the
shared library in RRDK_LIBRARY.
"""
import os
import re
import subprocess

import testrpc_harness as harness

DRIVERS = ("librte_mempool", "librte_net", "librte_bus")
NEEDED = re.compile(r"\(NEEDED\).*\[(.*)\]")
# EAL's own name of the folder, as its library has it.
PLUGINS = re.compile(rb"/[\w./-]+/dpdk/pmds-[\w.]+")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def library_path(name):
    """The file of a library that testrpc is linked with."""
    for line in output_of("ldd", harness.TESTRPC).splitlines():
        if f"{name}.so" in line:
            return line.split("=>")[1].split()[0]
    raise AssertionError(f"{harness.TESTRPC} is not linked with {name}")


def plugin_folder():
    """Where this testrpc's EAL looks for plug-ins, or None."""
    with open(library_path("librte_eal"), "rb") as library:
        found = PLUGINS.search(library.read())
    return found[0].decode() if found else None


class Plugins(harness.Case):
    def assert_needs_no_drivers(self, path):
        needed = NEEDED.findall(output_of("readelf", "-d", path))
        self.assertTrue([name for name in needed if name.startswith("librte_eal.so")], f"{path} needs {needed}")
        self.assertFalse([name for name in needed if name.startswith(DRIVERS)], f"{path} needs {needed}")

    def test_the_program_needs_no_drivers(self):
        self.assert_needs_no_drivers(harness.TESTRPC)

    def test_the_shared_library_needs_no_drivers(self):
        library = os.environ.get("RRDK_LIBRARY")
        if not library:
            self.skipTest("RRDK_LIBRARY is not set: Meson sets it")
        self.assert_needs_no_drivers(library)

    def test_works_without_the_folder_of_plugins(self):
        folder = plugin_folder()
        if folder is None or not os.path.isdir(folder):
            self.skipTest(f"EAL has no folder of plug-ins here ({folder})")
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        inside = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh",
                  empty, folder]
        tried = subprocess.run([*inside, "ls", folder], capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(f"no mount name space of its own: {tried.stderr.strip()}")
        self.assertEqual(tried.stdout, "")
        process = self.start(*inside[1:], harness.TESTRPC, "--self", "--engine", "echo", "--count", "100",
                             "--json", self.json_path, program=inside[0])
        self.assert_all_right(process)


if __name__ == "__main__":
    harness.main()
