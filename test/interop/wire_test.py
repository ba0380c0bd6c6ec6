#!/usr/bin/env python3
"""What both ends put on the wire, by tshark's word: testrpc and a server over the iwarp driver, captured on
the loopback interface of a network namespace of their own. Every header is held to wire_rules.py and to
the counters of both programs.

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
import wire_promises  # noqa: E402
import wire_rules  # noqa: E402
import wire_version_two  # noqa: E402

IWARP = "iwarp://127.0.0.1:0"
BACKWARD_CREDITS = 5
SOME_ENGINES = "echo,read,write,callback"
FEW_ENGINES = "echo,read,callback"
NFS = 100003
NFS_NUMBERS = {"NULL": 0, "GETATTR": 1, "LOOKUP": 3, "READLINK": 5, "READ": 6, "WRITE": 7, "READDIR": 16}


@unittest.skipIf(os.environ[INSIDE] != "yes", os.environ[INSIDE])
class Wire(harness.Case):
    def setUp(self):
        super().setUp()
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.capture = os.path.join(self.folder, "wire.pcap")
        # Each packet takes a place of the largest size: one that just holds the loopback
        # interface's.
        self.tcpdump = self.start("--immediate-mode", "-U", "-Z", "root", "-s", 65600, "-B", 131072, "-i", "lo",
                                  "-w", self.capture, "tcp", program="tcpdump")
        self.tcpdump.wait_for_line("listening on")

    def start_server_of(self, program, *options):
        server = self.start(*options, program=program)
        return server, server.wait_for_line("listening on").split()[-1]

    def talk(self, server, uri, *options, draft="v2-04"):
        """Runs the client until both ends have ended; returns the capture and the server's counters."""
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
        records, faults, summary = wire_check.examine(self.capture, draft)
        self.assertEqual(faults, [], summary)
        self.assertEqual((summary["calls"], summary["connections"]), (int(served[1]), int(served[2])), summary)
        self.assertEqual(summary["invalidations"] > 0, draft != "v2-00")
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

    def both_ways(self, version, engines, *options, draft="v2-04", sizes=()):
        """Calls in both directions at once: those of servers by engine `callback`."""
        shared = ["--rpcrdma-dialect", draft, "--backward-credits", BACKWARD_CREDITS, *sizes]
        server, uri = self.start_server_of(harness.TESTRPC, "--server", IWARP, *shared)
        records, summary = self.talk(
            server, uri, "--engine", engines, "--size", "100,9000", "--window", "1,16", "--count", 20,
            "--rpcrdma-version", version, *shared, *options, draft=draft)
        runs = self.result()["runs"]
        called_back = sum(run["calls"] for run in runs if run["engine"] == "callback")
        self.assertGreaterEqual(summary["calls"], sum(run["calls"] for run in runs))
        self.assertGreaterEqual(summary["backward_calls"], called_back)
        self.assertEqual(summary["versions"], [version])
        self.assertEqual(summary["backward_granted"], [BACKWARD_CREDITS])
        self.assertEqual(summary["backward_outstanding"], BACKWARD_CREDITS)
        self.assertEqual(summary["outstanding"], 16)
        self.assertFalse(summary["crc"])
        return records, summary

    # An odd number of changes: every other run begins with the server's Receives at their largest.
    def both_ways_with_sizes(self, engines):
        return self.both_ways(2, engines, "--change-receive-size", 5,
                              sizes=("--max-receive-size", 16384))


class Right(Wire):
    def test_nfs(self):
        _, summary = self.nfs(["--credits", 17], "--credits", 23)
        self.assertEqual(summary["asked"], [23])
        # Few at first, then twice as many each time, and never more than the server has.
        granted = summary["granted"]
        self.assertEqual((granted[0], granted[-1]), (4, 17))
        self.assertLessEqual(set(granted), {4, 8, 16, 17})
        self.assertEqual(summary["outstanding"], 8)

    def test_nfs_with_smallest_buffers(self):
        # Linux's xprtrdma and svcrdma accept 1024 bytes, too: longer messages are in chunks.
        records, _ = self.nfs(["--inline", 1024], "--inline", 1024, "--segments", 3, "--size", "5000,100000")
        sends = [r["message_bytes"] for r in records if r.get("header")]
        self.assertLessEqual(max(sends), 1024)
        self.assertTrue(any(len(r["header"]["writes"][0]) == 3 for r in records
                            if r.get("header") and r["header"]["writes"]))

    def test_few_credits(self):
        _, summary = self.nfs(["--credits", 3], "--window", 16, "--size", 3000)
        self.assertEqual((summary["granted"], summary["outstanding"]), ([3], 3))

    def test_both_ways(self):
        _, summary = self.both_ways(1, "all", "--connections", 2)
        self.assertEqual(summary["connections"], 2)

    def test_both_ways_in_version_two(self):
        _, summary = self.both_ways(2, SOME_ENGINES)
        self.assertEqual(summary["properties"], {wire_version_two.CONNPROP: 2})

    def test_both_ways_in_draft_00(self):
        _, summary = self.both_ways(2, SOME_ENGINES, draft="v2-00")
        self.assertFalse(summary["properties"])

    def test_receive_sizes_change_while_calls_run(self):
        records, summary = self.both_ways_with_sizes(SOME_ENGINES)
        runs = self.result()["runs"]
        asked = summary["properties"][wire_version_two.REQPROP]
        self.assertGreaterEqual(asked, sum(run["receive_size_changes"] for run in runs))
        self.assertEqual(summary["properties"][wire_version_two.RESPROP], asked)
        self.assertGreater(summary["properties"][wire_version_two.UPDPROP], 2 * len(runs))
        for client in (True, False):  # larger Receives are used
            self.assertGreater(max(r["message_bytes"] for r in records if r.get("header") and r["client"] is client),
                               wire_promises.DEFAULT_2)


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


def a_message(forward, caller, having=lambda header: True):
    """A message of that direction, from the end that calls or from the other one."""
    return lambda r: r.get("forward") is forward and (r["client"] is forward) is caller and having(r["header"])


def properties(kind, client):
    return lambda r: r.get("header") and r["client"] is client and r["header"]["msg_type"] == kind


def set_in(wanted, **values):
    """Sets a word in the first header that matches."""
    return lambda records: of_kind(records, wanted)["header"].update(values)


def set_in_all(wanted, **values):
    def apply(records):
        for record in filter(wanted, records):
            record["header"].update(values)
    return apply


def flip(wanted, name):
    def apply(records):
        of_kind(records, wanted)["header"][name] ^= 1
    return apply


def set_private(kind, at, octet):
    """Sets a word in RFC 8797's data, which are at the end of the private data."""
    def apply(records):
        record = of_kind(records, lambda r: r["kind"] == kind)
        start = record["private"].index("f6ab0e18") + 2 * at
        record["private"] = f"{record['private'][:start]}{octet:02x}{record['private'][start + 2:]}"
    return apply


def give_away_xid(records):
    """The second backward call gets the XID of the first."""
    first, second = [r for r in records if a_message(False, True)(r)][:2]
    second["header"]["xid"], second["begins"] = first["header"]["xid"], first["begins"]


def call_first(records):
    at = next(i for i, r in enumerate(records) if a_message(False, True)(r))
    call = records.pop(at)
    records.insert(next(i for i, r in enumerate(records) if r.get("header")), call)


def forget_growth(records):
    """All messages of the server except CONNPROP announce small Receives."""
    for record in records:
        if properties(wire_version_two.UPDPROP, False)(record):
            record["header"]["set"] = [(wire_promises.RECEIVE_SIZE, size(wire_promises.DEFAULT_2 + 4))]


def say_twice(records):
    at = next(i for i, r in enumerate(records) if properties(wire_version_two.CONNPROP, True)(r))
    records.insert(at + 1, {**copy.deepcopy(records[at]), "msn": records[at]["msn"] + 1})


def size(value):
    return value.to_bytes(4, "big")


def say(client, name, value):
    """Changes the value of a property in CONNPROP."""
    def apply(records):
        header = of_kind(records, properties(wire_version_two.CONNPROP, client))["header"]
        header["set"] = [(n, size(value) if n == name else data) for n, data in header["set"]]
    return apply


BACKWARD_CALL, BACKWARD_REPLY = a_message(False, True), a_message(False, False)
A_CHUNK = [[(1, 4, 0)]]
# With the description in the message.
BACKWARD_BREACHES = {
    "an XID of another": (flip(BACKWARD_CALL, "xid"), "header and message differ"),
    "an XID twice": (give_away_xid, "an XID comes twice"),
    "fewer credits than calls": (set_in_all(BACKWARD_REPLY, flow_control=1), "more calls than credits"),
    "no credit": (set_in(BACKWARD_REPLY, flow_control=0), "no credit is asked for"),
    "a chunk": (set_in(BACKWARD_CALL, writes=A_CHUNK), "a backward message with chunks"),
    "a long call": (set_in(BACKWARD_CALL, msg_type=wire_rules.NOMSG, direction=0), "a backward message with chunks"),
    "a call before any": (call_first, "a server that calls first"),
    "a lost reply": (drop(BACKWARD_REPLY), "a call without a reply"),
    "another version": (set_in(BACKWARD_CALL, version=3), "version 3"),
}
SIZE_BREACHES_1 = {
    "a small receiver": (set_private("reply", 7, 0), "to who takes 1024"),
    "a small sender": (set_private("reply", 6, 0), "to who takes 1024"),
}
PROPERTY_BREACHES = {
    "a direction": (flip(BACKWARD_CALL, "direction"), "another direction"),
    "Receives that stay small": (forget_growth, "to who takes 4100"),
    "no word of larger Receives": (drop(properties(wire_version_two.UPDPROP, True)), "to who takes 4096"),
    "Receives that shrink": (say(True, wire_promises.RECEIVE_SIZE, 1 << 20), "shrink unasked"),
    "Receives that are too small": (say(False, wire_promises.RECEIVE_SIZE, 1024), "below the default"),
    "no calls taken": (say(True, wire_promises.BACKWARD_SUPPORT, wire_promises.NONE), "a kind that is not taken"),
    "CONNPROP twice": (say_twice, "a second CONNPROP"),
    "no CONNPROP": (drop(properties(wire_version_two.CONNPROP, False)), "who has not said its properties"),
    "no answer": (drop(properties(wire_version_two.RESPROP, False)), "before the last one was answered"),
    "another's answer": (flip(properties(wire_version_two.RESPROP, False), "xid"), "an answer to no request"),
    "a refusal beside the rest": (set_in(properties(wire_version_two.RESPROP, False), subsets=[{0}, {0}]),
                                  "not about what was asked for"),
}


class Wrong(Wire):
    """Each breach of the rules is noticed, in the records of a correct conversation and in the bytes of the
    capture."""

    def test_breaches_are_seen(self):
        records, _ = self.nfs([])
        for name, breach in BREACHES.items():
            changed = copy.deepcopy(records)
            breach(changed)
            self.assertNotEqual(wire_rules.check(changed)[0], [], name)

    def notice(self, records, breaches):
        for name, (breach, words) in breaches.items():
            changed = copy.deepcopy(records)
            breach(changed)
            said = {text for _, text in wire_rules.check(changed)[0]}
            self.assertTrue(any(words in text for text in said), f"{name}: {sorted(said)[:5]}")

    def test_breaches_of_backward_calls_are_seen(self):
        records, _ = self.both_ways(1, FEW_ENGINES)
        self.notice(records, {**BACKWARD_BREACHES, **SIZE_BREACHES_1})

    def test_breaches_of_properties_are_seen(self):
        records, _ = self.both_ways_with_sizes(FEW_ENGINES)
        self.notice(records, {**BACKWARD_BREACHES, **PROPERTY_BREACHES})
        say(True, wire_promises.BACKWARD_SUPPORT, wire_promises.GENERAL)(records)
        breach, words = BACKWARD_BREACHES["a chunk"]
        breach(records)  # it no longer is a breach
        self.assertNotIn(words, {text for _, text in wire_rules.check(records)[0]})

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
