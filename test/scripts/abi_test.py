#!/usr/bin/env python3
"""scripts/check-abi.py, on a library of one class that changes; and how a program finds the library."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = """/** A server. */
#pragma once
#include <memory>
namespace rrdk {
/** What a server may do. */
struct ServerOptions {
  int credits = 1;
  FIELD
};
/** Serves. */
class Server {
 public:
  explicit Server(const ServerOptions& options);
  ~Server();
  int serve(int calls);
  int twice() { return serve(2); }
 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
void FUNCTION(Server& server);
}
"""
SOURCE = """#include "rrdk/server.h"
namespace rrdk {
struct Server::Impl { long HIDDEN = 0; void work() {} };
Server::Server(const ServerOptions&) : impl_(std::make_unique<Impl>()) { impl_->work(); }
Server::~Server() = default;
int Server::serve(int calls) { return calls; }
void FUNCTION(Server& server) { server.serve(1); }
namespace inside { int secret() { return 1; } }
}
"""
MAP = """RRDK_0 { global: extern "C++" { rrdk::Server::Server*; rrdk::Server::[!A-Z]*; rrdk::stop*; EXPORT }; local: *; };"""


class Abi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("lib/include/rrdk", "doc", "test/data"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(ROOT / "doc/Doxyfile", self.root / "doc")

    def check(self, *arguments, field="", function="stop", hidden="count", export=""):
        """Builds that library, and checks it."""
        for name, text in (("lib/include/rrdk/server.h", HEADER), ("server.cc", SOURCE), ("rrdk.map", MAP)):
            for word, value in (("FIELD", field), ("FUNCTION", function), ("HIDDEN", hidden), ("EXPORT", export)):
                text = text.replace(word, value)
            (self.root / name).write_text(text)
        subprocess.run(["g++", "-std=c++20", "-g", "-shared", "-fPIC", "-fvisibility-inlines-hidden", "-Ilib/include",
                        "-Wl,--version-script=rrdk.map", "-o", "librrdk.so", "server.cc"], check=True, cwd=self.root)
        return subprocess.run([sys.executable, ROOT / "scripts/check-abi.py", *arguments, self.root / "librrdk.so"],
                              capture_output=True, text=True, env={**os.environ, "RRDK_ROOT": str(self.root)})

    def assert_finds(self, text, run):
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertIn(text, run.stdout)

    def test_changes_that_break_programs(self):
        renewed = self.check("--renew")
        self.assertEqual(renewed.returncode, 0, renewed.stdout + renewed.stderr)
        self.assertNotIn("secret", (self.root / "test/data/librrdk.abi").read_text())
        for good in ({}, {"hidden": "calls"}):
            run = self.check(**good)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assert_finds("'int window'", self.check(field="int window = 1;"))
        self.assert_finds("rrdk::stop(rrdk::Server&)", self.check(function="stop_now"))

    def test_exports_are_what_headers_declare(self):
        self.check("--renew")
        self.assert_finds("server.h:21: rrdk::halt is not exported", self.check(function="halt"))
        self.assert_finds("rrdk::inside::secret is exported, but no header", self.check(export="rrdk::inside::*;"))


class Found(unittest.TestCase):
    def test_by_cmake(self):
        """find_package(): versions that fit, and the target."""
        if shutil.which("cmake") is None:
            self.skipTest("cmake is missing: apt-get install cmake")
        version = re.search(r"version : '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
        minor = version.rsplit(".", 1)[0]
        with tempfile.TemporaryDirectory() as folder:
            for made, source in (("rrdkConfig", "lib/rrdkConfig"), ("rrdkConfigVersion", "lib/rrdkConfigVersion"),
                                 ("rrdk-tirpcConfig", "bridge/tirpc/rrdk-tirpcConfig"),
                                 ("rrdk-tirpcConfigVersion", "lib/rrdkConfigVersion")):
                text = (ROOT / f"{source}.cmake.in").read_text()
                for word, value in (("version", version), ("libdir", folder), ("includedir", folder)):
                    text = text.replace(f"@{word}@", value)
                Path(folder, f"{made}.cmake").write_text(text)

            def find(package, wanted, target, language):
                Path(folder, "CMakeLists.txt").write_text(
                    f"cmake_minimum_required(VERSION 3.20)\nproject(user {language})\n"
                    f"find_package({package} {wanted} REQUIRED)\nadd_library(it INTERFACE)\n"
                    f"target_link_libraries(it INTERFACE {target})\n")
                return subprocess.run(["cmake", "-S", folder, "-B", tempfile.mkdtemp(dir=folder),
                                       f"-Drrdk_DIR={folder}", f"-Drrdk-tirpc_DIR={folder}"],
                                      capture_output=True, text=True).returncode == 0

            for package in (("rrdk", "rrdk::rrdk", "CXX"), ("rrdk-tirpc", "rrdk::tirpc", "C")):
                name, *target = package
                self.assertTrue(find(name, version, *target))
                self.assertTrue(find(name, minor, *target))
                self.assertFalse(find(name, f"{minor}.99", *target))
                self.assertFalse(find(name, "99.0", *target))


if __name__ == "__main__":
    unittest.main()
