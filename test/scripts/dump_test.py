#!/usr/bin/env python3
"""scripts/rrdk-dump.py: what it reads and prints, and that it finds no fault in correct conversations. A random
test prints its seed; RRDK_SEED=N replays it.
"""
import contextlib
import gzip
import io
import json
import os
import random
import re
import struct
import subprocess
import unittest

from dump_writers import (BEGIN, CAPTURES, NFS_WRITE, SINK, STEP, Files, Iwarp, Roce, RrdkOwn, Talk,
                          SCRIPT, backward, block, connprop, interface, mixed, opaque, packet_block, pcap, pcapng,
                          propset, read_back, read_call, read_results, receives, reply_body, rrdk_dump,
                          section, statistics, subset, words, write_call)
from lib import dump_capture, dump_rpc  # found by dump_writers
from lib.dump_rpc import CONNPROP, DONE, MSG, MSGP, NFS, NOMSG, OPTIONAL, REQPROP, RESPROP, UPDPROP

RANDOM_VARIANTS = 300


def with_properties(t):
    t.null()
    connprop(t, 0, receives(8192), backward(2), stay=(1,))
    connprop(t, 1, receives(4096))
    t.property(0, REQPROP, 9, propset(receives(16384)))
    t.property(1, RESPROP, 9, subset(), subset(), propset(receives(8192)))
    t.call(5, 1, opaque(bytes(7000)))
    t.reply(5, opaque(bytes(7000)))
    t.property(1, UPDPROP, 10, propset(receives(16384)))
    t.raw(0, 11, 2, 8, OPTIONAL, 0, 77, 0)
    t.error(11, 9)
    t.call(6, side=1, reply=[SINK])
    t.wire.write(0, SINK[0], SINK[2], reply_body(6))
    t.reply(6, side=0, kind=NOMSG, reply=[(SINK[0], 24, SINK[2])])


def falls_back(t):
    """A client of version 2 finds a server of version 1."""
    t.call(5)
    t.error(5, 1, 1, 1)
    old = Talk(t.wire)
    old.call(5)
    old.reply(5)
    mixed(old)


class Right(Files):
    def test_conversations(self):
        for function, version, dialect in ((mixed, 1, "v2-04"), (mixed, 2, "v2-00"), (mixed, 2, "v2-04"),
                                           (with_properties, 2, "v2-04"), (falls_back, 2, "v2-04")):
            for kind in (Roce, Iwarp, RrdkOwn):
                if kind is RrdkOwn and function is not mixed:
                    continue
                with self.subTest(function.__name__, version=version, dialect=dialect, over=kind.__name__):
                    wire = self.talk(kind(), function, version, dialect)
                    self.assert_right(self.report(wire.capture(), dialect))

    def test_linux(self):
        for path in CAPTURES:
            with self.subTest(path.name):
                self.assert_right(self.report(path.read_bytes()), 1796)

    def test_linux_with_packets_twice_and_out_of_order(self):
        for path in CAPTURES:
            with self.subTest(path.name):
                frames = [(p.time, p.data) for p in dump_capture.packets(path)]
                self.assert_right(self.report(pcap(disturbed(frames))), 1796)

    def test_without_the_beginning_there_are_no_complaints(self):
        for path in CAPTURES:
            frames = [(p.time, p.data) for p in dump_capture.packets(path)][500:]
            report = self.report(pcap(frames))
            self.assertEqual(self.said(report), [])
            if "rxe" in path.name:
                self.assertGreater(report.whole.calls, 1000)
                self.assertEqual(len(report.connections), 1)
            else:
                self.assertRegex(" ".join(report.capture.notes), "beginning .MPA. is not in the capture")

    def test_packets_that_were_dropped(self):
        for kind in (Roce, Iwarp):
            for at in range(6, 30):
                wire = self.talk(kind(), mixed)
                del wire.frames[at]
                with self.subTest(at=at, over=kind.__name__):
                    self.assertEqual(self.said(self.report(wire.capture())), [])

    def test_messages_that_rrdk_did_not_capture(self):
        wire = self.talk(RrdkOwn(), mixed)
        frames = [frame for i, frame in enumerate(wire.frames) if i % 3]
        wire.frames = frames
        report = self.report(wire.capture() + statistics("<", 9))
        self.assertEqual(self.said(report), [])
        self.assertRegex(report.capture.notes[0], "^9 messages or packets are missing")

    def test_packets_that_are_not_whole(self):
        for path in CAPTURES:
            for kept in (60, 96, 150):
                with self.subTest(path.name, kept=kept):
                    frames = [(p.time, p.data) for p in dump_capture.packets(path)]
                    report = self.report(pcap(frames, snaplen=kept))
                    self.assertEqual(self.said(report), [])
                    self.assertRegex(" ".join(report.capture.notes), "packets are not whole in the capture")
        self.assertGreater(report.whole.calls, 1000)  # 150 bytes hold the important part of most

    def test_only_one_direction(self):
        for kind in (Roce, Iwarp):
            for side in (0, 1):
                wire = self.talk(kind(), mixed)
                source = (b"\x0a\0\0\1", b"\x0a\0\0\2")[side]
                wire.frames = [frame for frame in wire.frames if frame[1][26:30] == source]
                with self.subTest(over=kind.__name__, side=side):
                    self.assertEqual(self.said(self.report(wire.capture())), [])

    def test_connections_side_by_side(self):
        for kind in (Roce, Iwarp, RrdkOwn):
            wires = []
            for i in range(5):
                names = {"queue_pairs": (30 + 2 * i, 31 + 2 * i), "ports": (41000 + i, 20049)}
                wires.append(self.talk(type("One", (kind,), names)(), mixed))
            frames = sorted((time, i, frame) for i, wire in enumerate(wires) for time, frame in wire.frames)
            wires[0].frames = [(time, frame) for time, _, frame in frames]
            with self.subTest(kind.__name__):
                report = self.report(wires[0].capture())
                self.assert_right(report, 40)
                self.assertEqual(len(report.connections), 5)

    def test_other_programs_of_rdma_are_left_alone(self):
        for kind in (Roce, Iwarp):
            wire = kind(private=(b"", b""))
            for i in range(20):
                wire.send(i % 2, bytes((i,)) * 16)
                wire.write(i % 2, 0x77, 0, bytes(3000))
            report = self.report(wire.capture())
            self.assertEqual(self.said(report), [])
            self.assertEqual(report.whole.calls, 0)

    def test_markers_are_refused(self):
        wire = Iwarp()
        time, frame = wire.frames[2]
        at = frame.index(b"MPA ID Req Frame") + 16
        wire.frames[2] = time, frame[:at] + bytes((frame[at] | 0x80,)) + frame[at + 1:]
        report = self.report(self.talk(wire, mixed).capture())
        self.assertEqual(self.said(report), [])
        self.assertRegex(report.connections[1].link.notes[0] if report.connections else "", "markers")

    def test_own_captures_need_not_show_the_peers_part(self):
        wire = RrdkOwn()
        t = Talk(wire)
        t.null()
        read_call(t)
        t.reply(5, read_results(8000), writes=[[SINK]])
        write_call(t, 6)
        t.reply(6)
        self.assert_right(self.report(wire.capture()), 3)

    def test_rfc_5666_is_not_a_breach_where_it_was_agreed(self):
        for kind in (Roce, Iwarp):
            t = Talk(kind())
            t.null()
            t.call(2, 1, words(4096, 4096, 1), program=100417)
            t.reply(2, words(4096, 0, 1))
            t.call(3, kind=MSGP, between=words(8, 1024))
            t.reply(3, reads=[(28, 0x71, 100, 0)])
            t.wire.read(0, 0x71, 0, bytes(100))
            t.raw(0, 3, 1, 8, DONE)
            self.assert_right(self.report(t.wire.capture()), 3)


def disturbed(frames):
    """Some packets twice, some after the next one of the same direction, as networks do."""
    result, draw = [], random.Random(5)
    for time, frame in frames:
        if len(result) > 10 and draw.random() < 0.1 and result[-1][1][26:34] == frame[26:34]:
            result.insert(-1, (time, frame))
        else:
            result.append((time, frame))
        if draw.random() < 0.1:
            result.append(result[-1 - draw.randrange(min(3, len(result)))])
    return result


class Formats(Files):
    def test_files_and_links(self):
        frames = self.talk(Roce(), mixed).frames
        cooked = [(time, bytes(14) + frame[12:]) for time, frame in frames]
        cooked_2 = [(time, frame[12:14] + bytes(18) + frame[14:]) for time, frame in frames]
        tagged = [(time, frame[:12] + b"\x81\0\0\5" + frame[12:]) for time, frame in frames]
        raw = [(time, frame[14:]) for time, frame in frames]
        ticks = {b"\x06": 1000, b"\x03": 10**6, b"\x09": 1}
        for name, data in {
                "little": pcap(frames), "big": pcap(frames, ">"), "nanoseconds": pcap(frames, ">", True),
                "raw": pcap(raw, link_type=101), "cooked": pcap(cooked, link_type=113),
                "cooked 2": pcap(cooked_2, link_type=276), "VLAN": pcap(tagged),
                "pcapng": pcapng(frames), "big pcapng": pcapng(frames, ">"),
                "two sections": pcapng([]) + pcapng(frames, ">"),
                "two interfaces": section("<") + interface("<", 101) + interface("<", 1) + b"".join(
                    packet_block("<", 1, time, frame) if i % 2 else packet_block("<", 0, time, frame[14:])
                    for i, (time, frame) in enumerate(frames)),
                **{f"resolution {r}": section("<") + interface("<", resolution=r) + b"".join(
                    packet_block("<", 0, time // unit, frame) for time, frame in frames)
                   for r, unit in ticks.items()},
                "simple packets": section("<") + interface("<") + b"".join(
                    block("<", 3, words_of(frame) + frame + bytes(-len(frame) % 4)) for _, frame in frames),
                "unknown blocks": section("<") + block("<", 0x77, bytes(16)) + pcapng(frames)}.items():
            with self.subTest(name):
                self.assert_right(self.report(data), 8)

    def test_binary_resolution(self):
        wire = self.talk(Roce(), mixed)
        data = section("<") + interface("<", resolution=b"\x94") + b"".join(
            packet_block("<", 0, time * 2**20 // 10**9, frame) for time, frame in wire.frames)
        report = self.report(data)
        self.assert_right(report, 8)
        self.assertLess(abs(report.capture.first - BEGIN), 1000)

    def test_ipv6(self):
        for kind in (Roce, Iwarp, RrdkOwn):
            self.assert_right(self.report(self.talk(kind(is_v6=True), mixed).capture()), 8)

    def test_files_that_are_no_captures(self):
        for data, what in ((b"", "neither pcap nor pcapng"), (b"hello, world", "neither pcap nor pcapng"),
                           (pcap([], link_type=147), "link type is 147"), (pcap([])[:20], "first header"),
                           (pcap([]) + struct.pack("<IIII", 0, 0, 1 << 30, 1 << 30), "would have"),
                           (section("<") + b"\1\0\0\0\7\0\0\0" + bytes(16), "a block would have 7 bytes"),
                           (section("<") + packet_block("<", 0, 0, b""), "interface 0")):
            self.path.write_bytes(data)
            status, _, error = self.text("--summary", self.path)
            self.assertEqual(status, 2, error)
            self.assertEqual(error.count("\n"), 1, error)
            self.assertIn(what, error)

    def test_without_anything_to_look_at_there_is_no_good_word(self):
        for data in (b"", pcap([])):
            self.path.write_bytes(data)
            status, output, error = self.text(self.path)
            self.assertEqual(status, 2)
            self.assertNotIn("nothing breaks a rule", output)
            self.assertEqual(error.count("\n"), 1, error)
        self.assertIn("there is no RPC-over-RDMA in it", error)

    def test_pipes_and_packed_files(self):
        data = self.talk(Roce(), mixed).capture()
        self.path.write_bytes(data)
        status, plain, _ = self.text("--calls", self.path)
        for given in (data, gzip.compress(data)):
            self.path.write_bytes(given)
            self.assertEqual(self.text("--calls", self.path)[:2], (status, plain))
            for name in ("-", "/dev/stdin"):
                done = subprocess.run([SCRIPT, "--calls", name], input=given, capture_output=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (status, b""))
                self.assertEqual(done.stdout.decode(), plain.replace(str(self.path), name))
        self.path.write_bytes(gzip.compress(data)[:-20])
        status, output, error = self.text("--summary", self.path)
        self.assertEqual((status, error), (0, ""))
        self.assertIn("the file ends within what gzip has packed", output)
        self.path.write_bytes(gzip.compress(data)[:60] + bytes(100))
        status, _, error = self.text("--summary", self.path)
        self.assertEqual((status, error.count("\n")), (2, 1), error)

    def test_a_file_that_ends_too_early_is_read_as_far_as_it_goes(self):
        for kind in (Roce, Iwarp):
            data = self.talk(kind(), mixed).capture()
            report = self.report(data[:-50])
            self.assertEqual((report.fault, self.said(report)), ("", []))
            self.assertRegex(report.capture.notes[0], "the file ends within")
            self.assertGreater(report.whole.calls, 5)

    def test_damage_in_the_middle_keeps_what_came_before(self):
        data = self.talk(Roce(), mixed).capture() + b"\6\0\0\0\5\0\0\0" + bytes(100)
        self.path.write_bytes(data)
        status, output, error = self.text(self.path)
        self.assertEqual(status, 2)
        self.assertIn("8 calls", output)
        self.assertIn("a block would have 5 bytes", error)


def words_of(frame):
    return struct.pack("<I", len(frame))


class Program(Files):
    def setUp(self):
        super().setUp()
        self.path.write_bytes(self.talk(Roce(), self.conversation).capture())

    @staticmethod
    def conversation(t):
        t.null()
        read_call(t)
        read_back(t, length=7001)
        t.call(6, program=NFS, program_version=3, procedure=NFS_WRITE)
        t.reply(6, credit=0)
        t.call(7)
        t.error(7, 2)
        t.call(8)

    def test_lines(self):
        status, output, error = self.text(self.path)
        self.assertEqual((status, error), (1, ""))
        self.assertIn("connection 1: 10.0.0.1 (queue pair 17) to 10.0.0.2:20049 (queue pair 1048610), RoCE",
                      output)
        self.assertIn("client sends 4096 and receives 4096 bytes, may be invalidated remotely", output)
        self.assertIn("5 calls, 1 unanswered, 1 error; credits asked 8, granted 0..8; 1 breach\n", output)
        self.assertRegex(output, r"> 0x00000001  perf NULL +call 40, reply 24  credits 8 -> 8  20 us +accep")
        self.assertRegex(output, r"perf READ +call 60, Write chunk 7001 of 8000, reply 36 ")
        self.assertRegex(output, r"NFSv3 WRITE .*\n +V1-CREDIT-05: the reply grants no credit .frame \d+.\n")
        self.assertRegex(output, r"credits 8 -> 8  20 us  RDMA_ERROR ERR_CHUNK\n")
        self.assertRegex(output, r"0x00000008 .* no reply\n")
        self.assertIn("  1 x V1-CREDIT-05: the grant is not zero when nothing is in progress\n", output)

    def test_nfs4_goes_by_the_operation_that_is_not_there_to_prepare(self):
        sequence, putfh, root, save, getattr4 = words(53) + bytes(32), words(22) + opaque(b"handle"), words(24), words(32), words(9)
        none = words(0, 0)

        def name(*operations, count=None, credential=none):
            body = opaque(b"tag") + words(1, len(operations) if count is None else count) + b"".join(operations)
            call = words(1, 0, 2, NFS, 4, 1) + credential + none + body
            return dump_rpc.procedure_name(dump_rpc.rpc_of(call))

        self.assertEqual(name(sequence, putfh, words(25), bytes(24)), "NFSv4 READ")
        self.assertEqual(name(sequence, root, getattr4 + words(0), words(10)), "NFSv4 GETATTR")
        self.assertEqual(name(sequence, putfh, save, putfh, words(29)), "NFSv4 RENAME")
        self.assertEqual(name(sequence), "NFSv4 SEQUENCE")
        self.assertEqual(name(words(75)), "NFSv4 REMOVEXATTR")
        self.assertEqual(name(words(4711)), "NFSv4 operation 4711")
        for unseen in (name(), name(sequence, putfh, count=3), name(sequence[:9]), name(words(22, 1 << 31)),
                       name(words(25), credential=words(6, 0)), name(count=1 << 31)):
            self.assertEqual(unseen, "NFSv4 COMPOUND")

    def test_parts(self):
        _, summary, _ = self.text("--summary", self.path)
        self.assertNotIn("0x00000001", summary)
        self.assertRegex(summary, r"\nall +5 +1 +1 ")
        _, breaches, _ = self.text("--breaches", self.path)
        self.assertRegex(breaches, r"^connection 1, XID 0x00000006: V1-CREDIT-05: .*\n$")
        _, one, _ = self.text("--xid", "0x6", self.path)
        self.assertIn("0x00000006", one)
        self.assertNotIn("0x00000001", one)

    def test_json(self):
        status, output, _ = self.text("--json", "-", self.path)
        self.assertEqual(status, 1)
        top = json.loads(output)
        self.assertEqual(top["summary"]["breaches"], {"V1-CREDIT-05": 1})
        records = top["connections"][0]["records"]
        self.assertEqual([record["xid"] for record in records], [1, 5, 6, 7, 8])
        self.assertEqual(records[1]["write_chunks"], [{"segments": 1, "bytes": 8000, "used": 7001}])
        self.assertEqual(records[0]["latency_ns"], 2 * STEP)  # its Acknowledge is between
        target = self.path.with_suffix(".json")
        status, output, _ = self.text("--summary", "--json", target, self.path)
        self.assertEqual(json.loads(target.read_text()), top)
        self.assertIn("5", output)

    def test_no_percentile_is_above_the_maximum(self):
        wire = Roce()
        t = Talk(wire)
        t.call(5)
        wire.time += 345_678  # rounded to three digits it is more
        t.reply(5)
        latencies = self.report(wire.capture()).whole.latencies
        self.assertEqual({latencies.percentile(share) for share in (0.5, 1)}, {latencies.most})
        self.assertIsNone(latencies.percentile(0.99))  # of so few calls
        for _ in range(99):
            latencies.add(latencies.most)
        self.assertEqual(latencies.percentile(0.99), latencies.most)

    def assert_latencies(self, frames, present):
        self.path.write_bytes(pcap(frames))
        status, output, error = self.text(self.path)
        self.assertEqual((status, error), (1, ""))
        self.assertEqual(output.count("clock steps back"), int(not present))
        self.assertEqual(" us  accepted" in output, present)
        self.assertEqual(" -  accepted" in output, not present)
        self.assertEqual(re.search(r"\nall .*", output)[0].split()[-1] == "-", not present)
        self.assertNotRegex(output, "-[0-9]+(\\.[0-9]+)? (us|ms|s)")
        top = json.loads(self.text("--json", "-", self.path)[1])
        self.assertEqual(top["summary"]["latency_ns"]["max"] is not None, present)
        records = top["connections"][0]["records"]
        self.assertEqual(records[0]["latency_ns"] is not None, present)

    def test_a_clock_that_steps_back(self):
        frames = [(p.time, p.data) for p in dump_capture.packets(self.path)]
        uptime = BEGIN - 10**9
        self.assert_latencies([(time - uptime * (i % 2), data) for i, (time, data) in enumerate(frames)], present=False)
        self.assert_latencies([(time - 2 * 10**9 * (i > 12), data) for i, (time, data) in enumerate(frames)], present=False)

    def test_packets_that_come_a_little_late(self):
        frames = [(p.time, p.data) for p in dump_capture.packets(self.path)]
        frames[-1] = frames[-1][0] - 10**6, frames[-1][1]
        self.assert_latencies(frames, present=True)

    def test_long_captures_go_through_the_spool(self):
        wire = Roce()
        for xid in range(1, 500):
            Talk(wire).null(xid)
        self.path.write_bytes(wire.capture())
        status, output, _ = self.text("--json", "-", self.path)
        self.assertEqual(status, 0)
        records = json.loads(output)["connections"][0]["records"]
        self.assertEqual([record["xid"] for record in records], [*range(1, 500)])

    def test_refusals(self):
        for arguments in ((), ("/nowhere/capture",), (self.path, "--xid", "six"), (self.path, "--what"),
                          (self.path, "--dialect", "v3"), (self.path, "--summary", "--breaches"),
                          (self.path.parent,), (self.path, "--json", "/nowhere/file")):
            status, output, error = self.text(*arguments)
            self.assertEqual((status, error.count("\n")), (2, 1), error)
            self.assertRegex(error, "^rrdk-dump: ")
            self.assertEqual(output, "")
        self.assertEqual(self.text("--help")[0], 0)


class Hostile(Files):
    def run_on(self, data, dialect):
        self.path.write_bytes(data)
        options_of_program = rrdk_dump.command_line(["--dialect", dialect, str(self.path)])
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                status = rrdk_dump.run(options_of_program)
            except SystemExit as end:
                status = end.code
        self.assertIn(status, (0, 1, 2))
        self.assertEqual(errors.getvalue().count("\n"), int(status == 2))

    def test_random_bytes(self):
        seed = int(os.environ.get("RRDK_SEED", random.randrange(1 << 32)))
        print(f"seed {seed}")
        draw = random.Random(seed)
        linux = [pcap([(p.time, p.data) for p in dump_capture.packets(path)][:120]) for path in CAPTURES]
        mine = [self.talk(kind(), function, version).capture() for kind in (Roce, Iwarp, RrdkOwn)
                for function, version in ((mixed, 1), (mixed, 2), (with_properties, 2))]
        for number in range(RANDOM_VARIANTS):
            data = bytearray(draw.choice(linux + mine))
            for _ in range(draw.choice((1, 3, 10, 100))):
                data[draw.randrange(len(data))] = draw.choice((0, 1, 255, draw.randrange(256)))
            with self.subTest(variant=number, seed=seed):
                self.run_on(data[:draw.randrange(len(data))] if draw.random() < 0.1 else data,
                            draw.choice(("v2-04", "v2-00")))

    def test_lengths_that_promise_too_much(self):
        t = Talk(Roce(), 1)
        t.null()
        t.raw(0, 5, 1, 8, MSG, 0, 1, 0xFFFFFFFF)
        t.raw(0, 6, 2, 8, CONNPROP, 0xFFFFFFFF, 1, 0xFFFFFFFF)
        t.wire.packet(1, 0x0C, struct.pack(">QII", 0, 0x61, 0xFFFFFFFF))
        self.run_on(t.wire.capture(), "v2-04")

    def test_many_queue_pairs(self):
        wire = Roce()
        for number in range(5000):
            wire.queue_pairs = (number + 2, 10000 + number)
            wire.packet(number % 2, 4, bytes(40))
        self.run_on(wire.capture(), "v2-04")


if __name__ == "__main__":
    unittest.main()
