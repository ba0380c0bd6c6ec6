#!/usr/bin/env python3
"""What both ends put on the wire, by tshark's word: testrpc and a server over the iwarp driver with
CRCs, captured on the loopback interface of a network namespace of their own. Every header is held to
wire_rules.py and to the counters of both programs.

Usage: wire_test.py TESTRPC NFS_MEMORY_SERVER [CASE...]
Needs tshark, tcpdump, root, and leave to make a network namespace; else its cases are skipped.
"""
import copy
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "apps"))
INSIDE = "RRDK_WIRE_TEST_INSIDE"


def why_not():
    for tool in ("tshark", "tcpdump", "unshare", "ip"):
        if not shutil.which(tool):
            return f"{tool} is missing (scripts/install-deps.sh --tests installs it)"
    if os.getuid() != 0:
        return "to capture needs root"
    if subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        return "no network namespace can be made here"
    return ""


if INSIDE not in os.environ:
    os.environ[INSIDE] = why_not() or "yes"
    if os.environ[INSIDE] == "yes":
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])

SERVER = sys.argv.pop(2)
import testrpc_harness as harness  # noqa: E402: it takes the path of testrpc from the command line
import wire_check  # noqa: E402
import wire_rules  # noqa: E402

IWARP = "iwarp://127.0.0.1:0"
NFS = 100003
NFS_NUMBERS = {"NULL": 0, "GETATTR": 1, "LOOKUP": 3, "READLINK": 5, "READ": 6, "WRITE": 7, "READDIR": 16}


@unittest.skipIf(os.environ[INSIDE] != "yes", os.environ[INSIDE])
class Wire(harness.Case):
    def setUp(self):
        super().setUp()
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.capture = os.path.join(self.folder, "wire.pcap")
        self.tcpdump = self.start("--immediate-mode", "-U", "-Z", "root", "-B", "65536", "-i", "lo", "-w", self.capture,
                                  "tcp", program="tcpdump")
        self.tcpdump.wait_for_line("listening on")

    def start_server_of(self, program, *options):
        server = self.start(*options, program=program)
        return server, server.wait_for_line("listening on").split()[-1]

    def talk(self, server, uri, *options):
        """The client's run, to both ends' end; what was captured, and the server's counters."""
        client = self.run_testrpc("--client", uri, "--verify", "--timeout", 60000, "--json", self.json_path, *options)
        self.assert_all_right(client)
        server.send(signal.SIGINT)
        self.assert_status(server, 0)
        self.tcpdump.send(signal.SIGINT)
        self.assert_status(self.tcpdump, 0)
        self.assertIn("\n0 packets dropped by kernel", self.tcpdump.output)
        self.assertRegex(server.output, r"\b0 transport errors|transport errors +0")
        self.assertRegex(server.output, r"\b0 protocol breaches|protocol breaches +0")
        served = re.search(r"served (\d+) calls on (\d+) connections", server.output)
        records, faults, summary = wire_check.examine(self.capture)
        self.assertEqual(faults, [], summary)
        self.assertEqual((summary["calls"], summary["connections"]), (int(served[1]), int(served[2])), summary)
        self.assertGreater(summary["invalidations"], 0)
        return records, summary

    def nfs(self, server_options, *options):
        server, uri = self.start_server_of(SERVER, "--listen", IWARP, "--mount-port", 0, *server_options)
        port = server.lines[0].split()[-1]
        records, summary = self.talk(server, uri + "?crc=1", "--engine", "nfs3", "--nfs-mount", port,
                                     "--nfs-names", 80, "--count", 120, "--window", 8, *options)
        self.assertTrue(summary["crc"])
        counted = self.result()["runs"][0]["procedures"]
        for name, number in NFS_NUMBERS.items():
            self.assertGreaterEqual(summary["procedures"][NFS, number], counted[name], name)
        for kind in ("read_chunks", "write_chunks", "reply_chunks", "long_replies"):
            self.assertGreater(summary[kind], 0, summary)
        return records, summary


class Right(Wire):
    def test_nfs(self):
        _, summary = self.nfs(["--credits", 17], "--credits", 23)
        self.assertEqual((summary["asked"], summary["granted"]), ([23], [17]))
        self.assertEqual(summary["outstanding"], 8)

    def test_nfs_with_smallest_buffers(self):
        # Linux's xprtrdma and svcrdma understand 1024 bytes too: what goes beyond is in chunks.
        records, _ = self.nfs(["--inline", 1024], "--inline", 1024, "--segments", 3, "--size", "5000,100000")
        sends = [r["message_bytes"] for r in records if r.get("header")]
        self.assertLessEqual(max(sends), 1024)
        self.assertTrue(any(len(r["header"]["writes"][0]) == 3 for r in records
                            if r.get("header") and r["header"]["writes"]))

    def test_few_credits(self):
        _, summary = self.nfs(["--credits", 3], "--window", 16, "--size", 3000)
        self.assertEqual((summary["granted"], summary["outstanding"]), ([3], 3))

    def test_all_engines(self):
        server, uri = self.start_server_of(harness.TESTRPC, "--server", IWARP)
        _, summary = self.talk(server, uri, "--engine", "all", "--size", "100,9000", "--window", 4, "--count", 40,
                               "--connections", 2)
        self.assertFalse(summary["crc"])
        calls = sum(run["calls"] for run in self.result()["runs"])
        self.assertGreaterEqual(summary["calls"], calls)


@unittest.skipIf(not shutil.which("tshark"), "tshark is missing (scripts/install-deps.sh --tests installs it)")
class Linux(harness.Case):
    def test_keeps_the_same_rules(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "captures")
        _, faults, summary = wire_check.examine(os.path.join(folder, "siw-nfs3-inline1k-veth.pcap"))
        self.assertEqual(faults, [], summary)
        self.assertEqual((summary["calls"], summary["long_calls"], summary["long_replies"]), (1796, 1, 155))


def of_kind(records, wanted):
    return next(r for r in records if wanted(r))


def header_with(name, client):
    return lambda r: r.get("header") and r["client"] == client and r["header"][name]


def change_header(client, name, change, having=None):
    def apply(records):
        header = of_kind(records, header_with(having or name, client))["header"]
        header[name] = change(header[name])
    return apply


def change(opcode, name, add, client=False):
    def apply(records):
        record = of_kind(records, lambda r: r.get("opcode") == opcode and r["client"] == client)
        record[name] += add
    return apply


def drop(wanted):
    def apply(records):
        del records[next(i for i, r in enumerate(records) if wanted(r))]
    return apply


def read_request(name, add):
    def apply(records):
        of_kind(records, lambda r: r.get("read"))["read"][name] += add
    return apply


def grant_one(records):
    for record in records:
        if record.get("header") and not record["client"]:
            record["header"]["flow_control"] = 1


def longer(lists):
    return [[(h, n + 4, o) for h, n, o in chunk] for chunk in lists]


BREACHES = {
    "a version": change_header(True, "version", lambda v: 2),
    "no credits": change_header(False, "flow_control", lambda v: 0),
    "fewer credits than calls": grant_one,
    "a reply's XID": change_header(False, "xid", lambda v: v ^ 1),
    "a call's XID": change_header(True, "xid", lambda v: v ^ 1),
    "a Position": change_header(True, "reads", lambda v: [(v[0][0] - 4, *v[0][1:])]),
    "a Read chunk's length": change_header(True, "reads", lambda v: [(*v[0][:2], v[0][2] + 4, v[0][3])]),
    "a Read chunk's handle": change_header(True, "reads", lambda v: [(v[0][0], v[0][1] ^ 1, *v[0][2:])]),
    "a Write chunk's length": change_header(False, "writes", longer),
    "a Write chunk's handle": change_header(True, "writes", lambda v: [[(h ^ 1, n, o) for h, n, o in c] for c in v]),
    "a Write chunk too many": change_header(False, "writes", lambda v: v + v),
    "the Reply chunk": change_header(False, "reply", lambda v: None),
    "a long reply's type": lambda records: of_kind(
        records, lambda r: r.get("header") and r["header"]["msg_type"] == wire_rules.NOMSG)["header"].update(msg_type=0),
    "a Write's place": change("Write", "offset", 1 << 20),
    "a Write's key": change("Write", "stag", 1),
    "a message number": change("Send", "msn", 1, client=True),
    "the key that is invalidated": change("Send with Invalidate", "invalidates", 1),
    "a Read's key": read_request("srcstag", 1),
    "a Read's length": read_request("rdmardsz", 4),
    "a lost Write": drop(lambda r: r.get("opcode") == "Write" and not r["client"]),
    "a lost Read Response": drop(lambda r: r.get("opcode") == "Read Response"),
    "a lost reply": drop(lambda r: r.get("header") and not r["client"]),
    "a CRC of zero": lambda records: of_kind(records, lambda r: r.get("crc")).update(crc=0),
}


class Wrong(Wire):
    """Each breach of the rules is noticed: in the records of a conversation without fault, and in the
    bytes of the capture."""

    def test_breaches_are_seen(self):
        records, _ = self.nfs([])
        for name, breach in BREACHES.items():
            changed = copy.deepcopy(records)
            breach(changed)
            self.assertNotEqual(wire_rules.check(changed)[0], [], name)

    def test_wrong_bytes_are_seen(self):
        self.nfs(["--credits", 17], "--credits", 23)
        with open(self.capture, "rb") as file:
            data = bytearray(file.read())
        call = data.index(bytes.fromhex("00000001" "00000017" "00000000"))  # version, credits, RDMA_MSG
        data[call + 7] ^= 1
        with open(self.capture, "wb") as file:
            file.write(data)
        _, faults, _ = wire_check.examine(self.capture)
        self.assertTrue(any("Bad CRC" in text for _, text in faults), faults)


harness.main()
