#!/usr/bin/python3
"""scripts/hdr-log.py: HdrHistogram can read its output. If Java and Debian's libhdrhistogram-java are installed,
HdrHistogram itself is used."""
import base64
import importlib.util
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "hdr-log.py"
sys.path.insert(0, str(SCRIPT.parent))
SPEC = importlib.util.spec_from_file_location("hdr_log", SCRIPT)
hdr_log = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hdr_log)

JAR = Path("/usr/share/java/HdrHistogram.jar")
RUN = {"engine": "null", "size": 0, "window": 1, "seconds": 2.0, "histogram": [[900, 10], [1100, 89], [2_000_000, 1]]}
RESULT = {"version": "0.1.0", "revision": "abc", "time": "2026-01-02T03:04:05Z", "command": ["testrpc", "--self"],
          "runs": [RUN, {**RUN, "engine": "read", "size": 4096, "histogram": [[7, 3]]}]}


def decoded(text):
    """(lowest value of the step, count) of all counts above zero; read by the format's rules, not by ours."""
    packed = base64.b64decode(text)
    cookie, length = struct.unpack_from(">ii", packed)
    assert cookie == 0x1c849314 and length == len(packed) - 8, (cookie, length)
    plain = zlib.decompress(packed[8:])
    cookie, length, offset, digits, lowest, _, ratio = struct.unpack_from(">iiiiqqd", plain)
    assert (cookie, offset, digits, lowest, ratio) == (0x1c849313, 0, 3, 1, 1.0)
    payload = plain[40:]
    assert length == len(payload)
    found, index, at = [], 0, 0
    while at < len(payload):
        number = shift = 0
        while True:
            byte = payload[at]
            at += 1
            number |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                break
        number = (number >> 1) ^ -(number & 1)
        if number < 0:
            index -= number
            continue
        bucket = max(0, (index >> 10) - 1)
        found.append(((index - (bucket << 10)) << bucket, number))
        index += 1
    return found


class Log(unittest.TestCase):
    def write(self, content):
        file = tempfile.NamedTemporaryFile("w", suffix=".json", delete=False)
        self.addCleanup(Path(file.name).unlink)
        with file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return file.name

    def run_script(self, content):
        return subprocess.run([sys.executable, SCRIPT, self.write(content)], capture_output=True, text=True)

    def test_each_run_is_a_tagged_line(self):
        out = self.run_script(RESULT)
        self.assertEqual((out.returncode, out.stderr), (0, ""))
        lines = out.stdout.splitlines()
        self.assertEqual(lines[1], "#[Histogram log format version 1.3]")
        self.assertTrue(lines[2].startswith("#[StartTime: 1767323045.000 "))
        first, second = (line.split(",") for line in lines[4:])
        self.assertEqual(first[:4], ["Tag=null-0-1", "0.000", "2.000", "2.000"])
        self.assertEqual(second[:2], ["Tag=read-4096-1", "2.000"])
        self.assertEqual(decoded(second[4]), [(7, 3)])

    def test_each_interval_of_a_run_is_a_line(self):
        series = [{"start": 0.0, "seconds": 0.5, "calls": 2, "histogram": [[900, 2]]},
                  {"start": 0.5, "seconds": 1.5, "calls": 3, "histogram": [[1100, 3]]}]
        run = {**RUN, "series": series}
        del run["histogram"]
        out = self.run_script({**RESULT, "runs": [run, run]})
        rows = [line.split(",") for line in out.stdout.splitlines()[4:]]
        self.assertEqual([row[:3] for row in rows],
                         [["Tag=null-0-1", "0.000", "0.500"], ["Tag=null-0-1", "0.500", "1.500"],
                          ["Tag=null-0-1-2", "2.000", "0.500"], ["Tag=null-0-1-2", "2.500", "1.500"]])
        self.assertEqual(decoded(rows[3][4]), [(1100, 3)])

    def test_every_run_has_a_tag_of_its_own(self):
        run = RESULT["runs"][0]
        opened = [{**run, "rate": rate} for rate in (1000.0, 2500.5)]
        some = {**run, "connections": 8, "active": 2}
        out = self.run_script({**RESULT, "runs": [run, *opened, some, run, run]})
        self.assertEqual([line.split(",")[0] for line in out.stdout.splitlines()[4:]],
                         ["Tag=null-0-1", "Tag=null-0-1-1000/s", "Tag=null-0-1-2500.5/s", "Tag=null-0-1-2-active",
                          "Tag=null-0-1-2", "Tag=null-0-1-3"])

    def test_counts_and_values_come_back(self):
        values = [1, 2, 2047, 2048, 2049, 4095, 4096, 123_456, 10**9, 3 * 10**12]
        got = decoded(hdr_log.encode([(value, 10**k + 1) for k, value in enumerate(values)]))
        self.assertEqual(sum(count for _, count in got), sum(10**k + 1 for k in range(len(values))))
        back = [value for value, _ in got]
        expected = sorted({v if v < 2048 else v >> (v.bit_length() - 11) << (v.bit_length() - 11) for v in values})
        self.assertEqual(back, expected)

    def test_other_files_are_refused(self):
        for content, word in (("nonsense", "line 1"), ({"runs": []}, "--histogram"),
                              ({**RESULT, "runs": [{"engine": "null"}]}, "--histogram")):
            out = self.run_script(content)
            self.assertEqual((out.returncode, out.stdout), (2, ""))
            self.assertIn(word, out.stderr)
            self.assertEqual(out.stderr.count("\n"), 1)

    def test_hdr_histogram_reads_it(self):
        if shutil.which("java") is None or not JAR.exists():
            self.skipTest("there is no Java, or no HdrHistogram (Debian: default-jre-headless, libhdrhistogram-java)")
        log = self.write(self.run_script(RESULT).stdout)
        out = subprocess.run(["java", "-cp", str(JAR), "org.HdrHistogram.HistogramLogProcessor", "-i", log, "-tag",
                              "null-0-1", "-outputValueUnitRatio", "1"], capture_output=True, text=True)
        self.assertIn("Total count    =          100", out.stdout, out.stdout + out.stderr)
        self.assertRegex(out.stdout, r"Max\s+=\s+200\d\d\d\d\.")


if __name__ == "__main__":
    unittest.main()
