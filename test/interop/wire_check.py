#!/usr/bin/env python3
"""Holds a capture of RPC over RDMA over iWARP to the rules of wire_rules.py.

    wire_check.py CAPTURE [--calls N] [--wants NAME,...] [--rpcrdma-dialect v2-04|v2-00]

It must begin before the connections do. Prints its counts. With --calls, clients must have made that many
calls; with --wants none of the named numbers may be zero, such as read_chunks or long_replies. The dialect
is the meaning of version 2.
"""
import argparse
import os
import sys
import tempfile

import wire_dissect
import wire_frames
import wire_rules
import wire_version_two


def examine(capture, draft="v2-04"):
    """Returns (records, faults, summary) of wire_rules.check(), with tshark's own complaints."""
    with tempfile.TemporaryDirectory() as folder:
        frames = os.path.join(folder, "frames.pcap")
        left = wire_frames.rewrite(capture, frames)
        records = wire_dissect.dissect(frames, draft)
        faults, summary = wire_rules.check(records)
        faults += wire_dissect.complaints(frames, summary["versions"])
    if left:
        faults.append((None, f"the capture ends within a frame: {left} bytes"))
    return records, faults, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture")
    parser.add_argument("--calls", type=int)
    parser.add_argument("--wants", default="")
    parser.add_argument("--rpcrdma-dialect", choices=wire_version_two.TYPES, default="v2-04")
    options = parser.parse_args()
    _, faults, summary = examine(options.capture, options.rpcrdma_dialect)
    print(", ".join(f"{name} {value}" for name, value in summary.items() if name != "procedures"))
    if options.calls is not None and summary["calls"] != options.calls:
        faults.append((None, f"{summary['calls']} calls instead of {options.calls}"))
    faults += [(None, f"no {name}") for name in options.wants.split(",") if name and not summary[name]]
    for frame, text in faults[:20]:
        print(f"frame {frame}: {text}" if frame else text)
    sys.exit(f"{len(faults)} faults on the wire" if faults else 0)


if __name__ == "__main__":
    main()
