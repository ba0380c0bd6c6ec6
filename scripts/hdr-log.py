#!/usr/bin/env python3
"""Turns testrpc's JSON into a log that HdrHistogram and its tools read (format version 1.3).

  testrpc --self --engine null,read --size 4K-64K --histogram --json result.json
  scripts/hdr-log.py result.json > result.hlog
  testrpc --self --engine null --duration 10 --interval 0.1 --json result.json     # a line for each 0.1 s

Writes one line for each run, or for each interval of testrpc --interval, tagged with its engine, size and
window, and with what else distinguishes it: the rate of an open loop, the number of active connections, or
the repetition. Values are nanoseconds with three digits; testrpc knows them to 1 %. HistogramLogAnalyzer,
hdr-plot and similar tools draw the log. Exit status: 0; 2 if the file is not a result of testrpc, or was
made without --histogram and --interval.
"""
import base64
import calendar
import json
import struct
import sys
import time
import zlib

from lib import output

# HdrHistogram's layout of counts for three digits and values from 1: "buckets" of 2048 linear steps, where
# each bucket after the first uses only the upper half.
DIGITS, HALF_BITS = 3, 10
HIGHEST = 3_600_000_000_000
COOKIE, COMPRESSED_COOKIE = 0x1c849303 | 0x10, 0x1c849304 | 0x10  # version 2, words of 64 bits


def index_of(value):
    bucket = max(0, (value | (2 << HALF_BITS) - 1).bit_length() - (HALF_BITS + 1))
    return (bucket << HALF_BITS) + (value >> bucket)


def leb128(number):
    """ZigZag, then groups of seven bits; a ninth byte has eight."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7f and len(out) < 8:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(buckets):
    """Returns a histogram in HdrHistogram's compressed form, in base64. `buckets` are (value, count)."""
    counts = {}
    for value, count in buckets:
        index = index_of(max(1, min(value, HIGHEST)))
        counts[index] = counts.get(index, 0) + count
    payload, at = bytearray(), 0
    for index in sorted(counts):
        if index > at:
            payload += leb128(at - index)  # a run of zeros
        payload += leb128(counts[index])
        at = index + 1
    plain = struct.pack(">iiiiqqd", COOKIE, len(payload), 0, DIGITS, 1, HIGHEST, 1.0) + bytes(payload)
    packed = zlib.compress(plain)
    return base64.b64encode(struct.pack(">ii", COMPRESSED_COOKIE, len(packed)) + packed).decode()


def tags(runs):
    """Returns a tag for each run, without commas and blanks. Tools take lines with the same tag as one series."""
    seen = {}
    for run in runs:
        tag = f"{run['engine']}-{run['size']}-{run['window']}"
        if run.get("rate") is not None:
            tag += f"-{run['rate']:.6g}/s"
        if run.get("active") != run.get("connections"):
            tag += f"-{run['active']}-active"
        seen[tag] = seen.get(tag, 0) + 1
        yield tag if seen[tag] == 1 else f"{tag}-{seen[tag]}"


def lines(result):
    began = calendar.timegm(time.strptime(result["time"], "%Y-%m-%dT%H:%M:%SZ"))
    yield f"#[testrpc {result['version']} ({result['revision']}): {' '.join(result['command'])}]"
    yield "#[Histogram log format version 1.3]"
    yield f"#[StartTime: {began}.000 (seconds since epoch), {result['time']}]"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    at = 0.0
    for run, tag in zip(result["runs"], tags(result["runs"])):
        for part in run.get("series") or [{**run, "start": 0.0}]:
            longest = max((value for value, count in part["histogram"] if count), default=0)
            yield (f"Tag={tag},{at + part['start']:.3f},{part['seconds']:.3f},{longest / 1e6:.3f},"
                   f"{encode(part['histogram'])}")
        at += run["seconds"]


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        sys.exit(0 if len(sys.argv) == 2 else 2)
    path = sys.argv[1]
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        text = "\n".join(lines(result))
    except (OSError, ValueError) as error:
        print(f"hdr-log: {path}: {error}", file=sys.stderr)
        sys.exit(2)
    except (KeyError, TypeError):
        print(f"hdr-log: {path} is no result of testrpc with --histogram or --interval", file=sys.stderr)
        sys.exit(2)
    print(text)


if __name__ == "__main__":
    sys.exit(output.run("hdr-log", main))
