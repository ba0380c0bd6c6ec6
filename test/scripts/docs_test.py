#!/usr/bin/env python3
"""scripts/check-docs.py follows a page and notices when it is wrong; scripts/check-api.py finds symbols without a
description; scripts/check-counters.py finds counters that the page describes differently."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = """# A page

<!-- file: folder/words.txt -->
```
one, and $HOME as it is
```
<!-- start -->
```sh
sh -c 'echo listening on 1; sleep 1000'
```
Text between.
<!-- run -->
```sh
cat folder/words.txt
echo 'rrdk: info: not on the page'; echo '12:00 rrdk: info: nor this'
echo number 17
```
<!-- output -->
```
one, and $HOME as it is
number ...
```

    false  # not marked, not run
"""
HEADER = """/** Of a thing: Thing. */
#pragma once
namespace rrdk {
class Thing {
 public:
  Thing();
  /** Runs. */
  void run();
  void run_again();

  void hidden();

 private:
  void inside();
};
}
"""


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def follow(self, text):
        page = self.root / "page.md"
        page.write_text(text)
        return subprocess.run([sys.executable, ROOT / "scripts/check-docs.py", page], capture_output=True, text=True)

    def assert_fails(self, told, text):
        run = self.follow(text)
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertIn(told, run.stdout)

    def test_pages(self):
        run = self.follow(PAGE)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assert_fails("page.md:19: the page shows other output", PAGE.replace("number ...", "letter ..."))
        self.assert_fails("exit status 1", PAGE.replace("echo number 17", "false"))
        self.assert_fails("it ended instead of listening", PAGE.replace("echo listening on 1; sleep 1000", "true"))

    def test_undocumented_symbols(self):
        (self.root / "lib/include/rrdk").mkdir(parents=True)
        (self.root / "doc").mkdir()
        shutil.copy(ROOT / "doc/Doxyfile", self.root / "doc")

        def check(text):
            (self.root / "lib/include/rrdk/thing.h").write_text(text)
            return subprocess.run([sys.executable, ROOT / "scripts/check-api.py"], capture_output=True, text=True,
                                  env={**os.environ, "RRDK_ROOT": str(self.root)})

        run = check(HEADER)
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertEqual(run.stdout.splitlines()[:-1],
                         ["lib/include/rrdk/thing.h:11: rrdk::Thing::hidden (function) is not documented"])
        run = check(HEADER.replace("  void hidden();", "  void hidden();  ///< no more"))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertEqual(check(HEADER.replace("Of a thing: Thing.", "Of a thing.")).returncode, 1)

    def test_counters(self):
        for path in ("lib/include/rrdk/counter_table.h", "doc/telemetry.md"):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.root / path)
        table, page = self.root / "lib/include/rrdk/counter_table.h", self.root / "doc/telemetry.md"

        def check(*arguments):
            return subprocess.run([sys.executable, ROOT / "scripts/check-counters.py", *arguments], capture_output=True,
                                  text=True, env={**os.environ, "RRDK_ROOT": str(self.root)})

        self.assertEqual(check().returncode, 0)
        table.write_text(table.read_text().replace('"Replies received."', '"Replies that came."'))
        self.assertIn("check-counters.py --write", check().stdout)
        check("--write")
        self.assertEqual(check().returncode, 0)
        self.assertIn("| `replies_received` | server, client | counter | Replies that came |", page.read_text())
        table.write_text(table.read_text().replace("COUNTER(3,", "COUNTER(4,"))
        self.assertIn("has an id twice", check().stdout)


if __name__ == "__main__":
    unittest.main()
