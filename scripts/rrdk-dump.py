#!/usr/bin/env python3
"""Explains a capture of RPC-over-RDMA: calls with their chunks, credits and latencies, and broken rules.

    scripts/rrdk-dump.py rpc.pcapng                  connections, a line for each call, and a summary
    scripts/rrdk-dump.py --breaches rpc.pcapng       only what breaks the rules of the specifications
    scripts/rrdk-dump.py --json - rpc.pcapng         the same for programs
    tcpdump -w - | scripts/rrdk-dump.py -            a capture from a pipe, once the pipe is closed

Reads RRDK's own captures (rrdk/capture.h) and tcpdump's captures of RoCEv2 and iWARP. The exit status is 0
if no rule is broken, 1 if one is, and 2 if the command line or the file is at fault or the file contains no
RPC-over-RDMA.
doc/rrdk-dump.md explains the lines and lists the rules that are checked.
"""
import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from lib import dump_rpc, dump_rules, output
from lib.dump_capture import BadFile
from lib.dump_conversation import Conversation
from lib.dump_frames import Capture

SECOND = 10**9  # nanoseconds
LAST_SECOND = 253402300799  # of the year 9999
NOTHING_LOOKED_AT = "there is no RPC-over-RDMA in it, so no rule was looked at"
RIGHT, BROKEN, AT_FAULT = 0, 1, 2  # exit statuses


def fail(message):
    print(f"rrdk-dump: {message}", file=sys.stderr)
    sys.exit(AT_FAULT)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(f"{message} (--help tells more)")


def xid(text):
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no number") from None


def command_line(words=None):
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path, help="a pcap or pcapng file, also packed by gzip; - is standard input")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--calls", action="store_true", help="connections, calls, and a summary (the default)")
    part.add_argument("--summary", action="store_true", help="only the summary")
    part.add_argument("--breaches", action="store_true", help="only what breaks a rule")
    parser.add_argument("--xid", type=xid, metavar="N", help="of the calls, only those with this XID")
    parser.add_argument("--json", metavar="FILE", help="also write everything to FILE; - is standard output, "
                        "and then nothing else is written there")
    parser.add_argument("--dialect", choices=dump_rpc.DRAFTS, default=dump_rpc.DRAFT_04,
                        help="the draft of version 2 (default: %(default)s)")
    return parser.parse_args(words)


# ---- what is counted

class Range:
    def __init__(self):
        self.least = self.most = None

    def add(self, value):
        self.least = value if self.least is None else min(self.least, value)
        self.most = value if self.most is None else max(self.most, value)

    def __str__(self):
        if self.least is None:
            return "none"
        return str(self.least) if self.least == self.most else f"{self.least}..{self.most}"


class Latencies:
    """Latencies rounded to three digits, so that memory does not grow with their number."""

    def __init__(self):
        self.counts, self.count, self.most = Counter(), 0, 0

    def add(self, nanoseconds):
        self.counts[int(float(f"{nanoseconds:.3g}"))] += 1
        self.count += 1
        self.most = max(self.most, nanoseconds)

    def percentile(self, share):
        """Returns the percentile, or None if there are too few calls for it: p99 of ten calls is their maximum."""
        if 0.5 < share < 1 and round(self.count * (1 - share), 6) < 1:
            return None
        left = self.count * share
        for value in sorted(self.counts):
            left -= self.counts[value]
            if left <= 0 and share < 1:
                return min(value, self.most)
        return self.most if self.count else None


class Tally:
    """The totals of some calls."""

    def __init__(self):
        self.calls = self.unanswered = 0
        self.errors, self.breaches = Counter(), Counter()
        self.asked, self.granted, self.latencies = Range(), Range(), Latencies()

    def add(self, record):
        self.breaches.update(breach["id"] for breach in breaches_of(record))
        if record["type"] != "call":
            return
        self.calls += 1
        self.asked.add(record["asked"])
        if not record["answered"]:
            self.unanswered += 1
            return
        self.granted.add(record["granted"])
        if record["latency_ns"] is not None:
            self.latencies.add(record["latency_ns"])
        if record["error"]:
            self.errors[record["result"]] += 1


def breaches_of(record):
    return [record] if record["type"] == "breach" else record["breaches"]


class Spool:
    """The records of each connection; only a few stay in memory."""
    FEW = 64

    def __init__(self):
        self.file, self.fresh, self.blocks = tempfile.TemporaryFile(), {}, {}

    def add(self, record):
        number = record["connection"]
        fresh = self.fresh.setdefault(number, [])
        fresh.append(record)
        if len(fresh) >= self.FEW:
            text = json.dumps(fresh).encode()
            self.blocks.setdefault(number, []).append((self.file.seek(0, os.SEEK_END), len(text)))
            self.file.write(text)
            fresh.clear()

    def of(self, connection):
        for at, length in self.blocks.get(connection, ()):
            self.file.seek(at)
            yield from json.loads(self.file.read(length))
        yield from self.fresh.get(connection, ())


class Connection:
    def __init__(self, link, draft, take, lost):
        self.link, self.tally = link, Tally()
        self.conversation = Conversation(link, draft, take, lost)

    def versions(self):
        return sorted(self.conversation.versions)


class Report:
    def __init__(self, path, draft):
        self.path, self.draft, self.capture, self.fault = path, draft, Capture(path), ""
        self.connections, self.spool, self.whole, self.procedures = {}, Spool(), Tally(), {}

    def read(self):
        """Reads the capture. What precedes a fault in the file is kept."""
        try:
            for event in self.capture.events():
                self.take(event)
        except BadFile as error:
            self.fault = str(error)
        finally:
            self.capture.file.close()
        for connection in self.connections.values():
            connection.conversation.take_end()
        if self.capture.stepped_back:
            for tally in (self.whole, *self.procedures.values(), *(c.tally for c in self.connections.values())):
                tally.latencies = Latencies()

    def take(self, event):
        connection = self.connections.get(event.link.number)
        if connection is None:
            lost = bool(self.capture.dropped) and not event.link.shows_rdma
            connection = Connection(event.link, self.draft, self.add, lost)
            self.connections[event.link.number] = connection
        connection.conversation.take(event)

    def records(self, connection):
        for record in self.spool.of(connection):
            if self.capture.stepped_back and "latency_ns" in record:
                record["latency_ns"] = None
            yield record

    def looked_at(self):
        """Returns whether there was anything that could break a rule."""
        return any(connection.conversation.known for connection in self.connections.values())

    def add(self, record):
        self.spool.add(record)
        self.whole.add(record)
        self.connections[record["connection"]].tally.add(record)
        if record["type"] == "call":
            self.procedures.setdefault(record["procedure"], Tally()).add(record)


# ---- for people

def duration(nanoseconds):
    if abs(nanoseconds) < SECOND // 1000:
        return f"{nanoseconds / 1000:.0f} us"
    if abs(nanoseconds) < SECOND:
        return f"{nanoseconds / 1e6:.1f} ms"
    return f"{nanoseconds / SECOND:.2f} s"


def counted(count, what, many=None):
    return f"{count or 'no'} {what if count == 1 else many or what + 's'}"


def segments(chunk):
    return f" in {chunk['segments']} segments" if chunk["segments"] != 1 else ""


def travel(record):
    """Describes how a call's data move."""
    words = [f"long call {record['long_call']}" if record["long_call"] else f"call {record['inline']}"]
    words += [f"Read chunk at {c['position']}: {c['bytes']}{segments(c)}" for c in record["read_chunks"]]
    words += [f"Write chunk {c['bytes']}{segments(c)}" if c["used"] is None else
              f"Write chunk {c['used']} of {c['bytes']}{segments(c)}" for c in record["write_chunks"]]
    reply, is_long = record["reply_chunk"], record.get("reply_kind") == "RDMA_NOMSG"
    if reply and not is_long:
        words.append(f"Reply chunk {reply['bytes']}{segments(reply)}")
    if reply and is_long:
        words.append(f"long reply {reply['used']} of {reply['bytes']}{segments(reply)}")
    elif record["answered"]:
        words.append(f"reply {record['reply_inline']}")
    return ", ".join(words)


def call_line(record, begin):
    granted, latency = record.get("granted", "-"), record.get("latency_ns")
    latency = "-" if latency is None else duration(latency)
    return f"{(record['time_ns'] - begin) / SECOND:12.6f} {'>' if record['forward'] else '<'} " \
        f"{record['xid']:#010x}  {record['procedure']:<18}  {travel(record)}  " \
        f"credits {record['asked']} -> {granted}  {latency}  {record['result']}"


def property_line(record, begin):
    return f"{(record['time_ns'] - begin) / SECOND:12.6f} {'>' if record['client'] else '<'} " \
        f"{record['xid']:#010x}  {record['name']}  {record['says'] or 'nothing'}"


def breach_line(breach, indent):
    return f"{' ' * indent}{breach['id']}: {breach['text']} (frame {breach['frame']})"


class Text:
    def __init__(self, report, options):
        self.report, self.options = report, options
        self.begin = report.capture.first or 0

    def write(self):
        if self.options.breaches:
            for number in self.report.connections:
                self.write_breaches(number)
            return
        if not self.options.summary:
            for number, connection in self.report.connections.items():
                self.write_connection(number, connection)
        self.write_summary()

    def wanted(self, number):
        for record in self.report.records(number):
            if self.options.xid is None or record.get("xid") == self.options.xid:
                yield record

    def write_breaches(self, number):
        for record in self.wanted(number):
            for breach in breaches_of(record):
                about = f", XID {record['xid']:#010x}" if "xid" in record else ""
                print(f"connection {number}{about}: {breach_line(breach, 0)}")

    def write_connection(self, number, connection):
        self.write_heading(number, connection)
        for record in self.wanted(number):
            if record["type"] == "breach":
                print(breach_line(record, 13))
                continue
            print((call_line if record["type"] == "call" else property_line)(record, self.begin))
            for breach in record["breaches"]:
                print(breach_line(breach, 15))
        print()

    def write_heading(self, number, connection):
        link, tally, conversation = connection.link, connection.tally, connection.conversation
        ends = link.ends[::-1] if conversation.client == 1 else link.ends
        joint = "and" if conversation.client is None else "to"
        versions = " and ".join(map(str, connection.versions()))
        print(f"connection {number}: {ends[0]} {joint} {ends[-1]}, {link.transport}"
              f"{f', {link.comment}' if link.comment else ''}")
        if not conversation.known:
            print(f"  no RPC-over-RDMA, {counted(conversation.foreign, 'other Send')}")
        else:
            print(f"  version {versions or 'unknown'}, {self.private(link, conversation)}")
            print(f"  {self.counts(tally)}")
        for note in self.notes(link, conversation):
            print(f"  {note}")

    def counts(self, tally):
        return f"{counted(tally.calls, 'call')}, {tally.unanswered} unanswered, " \
            f"{counted(sum(tally.errors.values()), 'error')}; " \
            f"credits asked {tally.asked}, granted {tally.granted}; " \
            f"{counted(sum(tally.breaches.values()), 'breach', 'breaches')}"

    def notes(self, link, conversation):
        notes = list(link.notes)
        if link.one_sided:
            notes.append("only one direction is in the capture")
        elif not link.whole and conversation.known:
            notes.append("how it began is not in the capture, so rules that depend on it are not looked at")
        if conversation.lost:
            notes.append("messages are missing in the capture, so fewer rules are looked at")
        return notes

    def private(self, link, conversation):
        if link.private == [None, None]:
            return "private data not seen"
        client = conversation.client or 0
        told = self.said("client", link.private[client]), self.said("server", link.private[1 - client])
        return "private data: " + "; ".join(told)

    def said(self, name, octets):
        found = dump_rpc.private_data(octets) if octets is not None else None
        if found is None:
            return f"{name} has no private data" if octets is not None else f"{name}'s private data not seen"
        remotely = ", may be invalidated remotely" if found.invalidation() else ""
        return f"{name} sends {found.send} and receives {found.receive} bytes{remotely}"

    def when(self, capture):
        if capture.first is None:
            return ""
        begin = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(min(self.begin // SECOND, LAST_SECOND)))
        length = "" if capture.stepped_back else f" {duration(capture.last - self.begin)}"
        return f",{length} from {begin} on"

    def write_summary(self):
        report, capture = self.report, self.report.capture
        print(f"{report.path}: {counted(capture.frames, 'frame')}, "
              f"{counted(len(report.connections), 'connection')}{self.when(capture)}")
        for note in capture.notes[:20]:
            print(f"  {note}")
        if report.procedures:
            self.write_procedures()
        for name, count in sorted(report.whole.errors.items()):
            print(f"  {count} x {name}")
        for rule, count in sorted(report.whole.breaches.items()):
            print(f"  {count} x {rule}: {dump_rules.RULES[rule]}")
        if report.whole.breaches:
            return
        where = " of what could be read" if report.fault else ""
        print(f"  nothing{where} breaks a rule" if report.looked_at() else f"  {NOTHING_LOOKED_AT}")

    def write_procedures(self):
        rows = sorted(self.report.procedures.items(), key=lambda row: -row[1].calls)
        width = max(len(name) for name, _ in rows)
        print(" " * width, f"{'calls':>9} {'unanswered':>10} {'errors':>7} {'p50':>8} {'p99':>8} {'max':>8}")
        for name, tally in [*rows, ("all", self.report.whole)]:
            times = ["-"] * 3
            if tally.latencies.count:
                known = [tally.latencies.percentile(share) for share in (0.5, 0.99, 1)]
                times = ["-" if time is None else duration(time) for time in known]
            print(f"{name:{width}} {tally.calls:9} {tally.unanswered:10} {sum(tally.errors.values()):7} "
                  + " ".join(f"{text:>8}" for text in times))


# ---- for programs

def tally_json(tally):
    return {"calls": tally.calls, "unanswered": tally.unanswered, "errors": tally.errors,
            "breaches": tally.breaches, "credits_asked": [tally.asked.least, tally.asked.most],
            "credits_granted": [tally.granted.least, tally.granted.most],
            "latency_ns": {"p50": tally.latencies.percentile(0.5), "p99": tally.latencies.percentile(0.99),
                           "max": tally.latencies.percentile(1)}}


def connection_json(number, connection):
    link, conversation = connection.link, connection.conversation
    return {"connection": number, "transport": link.transport, "comment": link.comment, "ends": link.ends,
            "client": conversation.client, "rpc_over_rdma": conversation.known,
            "versions": connection.versions(),
            "private_data": [octets and octets.hex() for octets in link.private],
            "whole": link.whole, "one_sided": link.one_sided, "lost": conversation.lost, "notes": link.notes,
            **tally_json(connection.tally)}


def write_json(report, file):
    """Writes one record per line, so that records need not be kept."""
    capture = report.capture
    top = {"capture": str(report.path), "frames": capture.frames, "begin_ns": capture.first,
           "end_ns": capture.last, "notes": capture.notes, "fault": report.fault, "dialect": report.draft,
           "summary": tally_json(report.whole),
           "procedures": {name: tally_json(tally) for name, tally in report.procedures.items()}}
    file.write(json.dumps(top)[:-1] + ', "connections": [')
    for i, (number, connection) in enumerate(report.connections.items()):
        head = json.dumps(connection_json(number, connection))[:-1]
        file.write((",\n" if i else "\n") + head + ', "records": [')
        for j, record in enumerate(report.records(number)):
            file.write((",\n" if j else "\n") + json.dumps(record))
        file.write("]}")
    file.write("]}\n")


def write(report, options):
    if options.json == "-":
        write_json(report, sys.stdout)
    else:
        if options.json:
            with output.file(options.json) as file:
                write_json(report, file)
        Text(report, options).write()


def run(options):
    try:
        report = Report(options.capture, options.dialect)
        report.read()
    except OSError as error:
        fail(f"{options.capture}: {error.strerror}")
    with report.spool.file:
        write(report, options)
    if report.fault or not report.looked_at():
        sys.stdout.flush()  # the results come before the fault
        fail(f"{options.capture}: {report.fault or NOTHING_LOOKED_AT}")
    return BROKEN if report.whole.breaches else RIGHT


if __name__ == "__main__":
    sys.exit(output.run("rrdk-dump", lambda: run(command_line()), failed=AT_FAULT))
