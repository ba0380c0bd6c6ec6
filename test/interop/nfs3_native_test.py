#!/usr/bin/env python3
"""testrpc's engine nfs3 against nfs-memory-server: two processes, NFSv3 over shm: and iwarp:, every
reply checked. No kernel takes part.

Usage: nfs3_native_test.py TESTRPC NFS_MEMORY_SERVER [CASE...]
"""
import os
import re
import signal
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "apps"))
SERVER = sys.argv.pop(2)
import testrpc_harness as harness  # noqa: E402: it takes the path of testrpc from the command line

IWARP = "iwarp://127.0.0.1:0"
PROCEDURES = ["NULL", "GETATTR", "LOOKUP", "READLINK", "READ", "WRITE", "READDIR"]


class Nfs3(harness.Case):
    def start_nfs_server(self, listen, *options):
        server = self.start("--listen", listen, "--mount-port", 0, *options, program=SERVER)
        port = server.wait_for_line("MOUNT on TCP port").split()[-1]
        uri = server.wait_for_line("listening on").split()[-1]
        return server, ["--client", uri, "--engine", "nfs3", "--nfs-mount", port,
                        "--timeout", 60000, "--json", self.json_path]

    def stop_nfs_server(self, server):
        server.send(signal.SIGTERM)
        self.assert_status(server, 0)
        self.assertIn("pools whole: yes", server.output)
        return server.output

    def verify(self, listen, server_options=(), options=()):
        server, client = self.start_nfs_server(listen, *server_options)
        run = self.run_testrpc(*client, "--verify", "--window", "1,8", "--count", 600, *options)
        result = self.assert_all_right(run, 600)
        for row in result["runs"]:
            for name in PROCEDURES:
                self.assertGreater(row["procedures"][name], 0, row)
        output = self.stop_nfs_server(server)
        self.assertRegex(output, r" 0 rejected, 0 transport errors, 0 protocol breaches")
        self.assertIn("left: 0 names, 0 bytes", output)


def transfers(capture, procedure):
    """Offset and count of each NFSv3 call of that procedure in a file of --capture."""
    with open(capture, "rb") as file:
        data = file.read()
    # Direction, RPC version 2, program, version, procedure.
    for call in re.finditer(re.escape(struct.pack(">6I", 0, 2, 100003, 3, procedure, 1)), data):
        at = skip_opaque(data, call.end())  # the body of the credential, whose flavour is AUTH_SYS
        at = skip_opaque(data, at + 4)  # the verifier
        yield struct.unpack_from(">QI", data, skip_opaque(data, at))  # behind the file handle


def skip_opaque(data, at):
    length, = struct.unpack_from(">I", data, at)
    return at + 4 + (length + 3) // 4 * 4


class Access(Nfs3):
    READ, WRITE = 6, 7
    SIZE = 64 << 10
    SPAN = 16 * SIZE

    def offsets(self, calls, procedure, access, *options):
        server, client = self.start_nfs_server(self.uri)
        capture = f"{self.folder}/{access}.pcapng"
        run = self.run_testrpc(*client, "--verify", "--nfs-calls", calls, "--size", self.SIZE, "--count", 40, "--access",
                               access, "--capture", capture, *options)
        result = self.assert_all_right(run, 40)
        self.assertEqual(result["options"]["nfs"]["access"], access)
        self.stop_nfs_server(server)
        places = [(offset, count) for offset, count in transfers(capture, procedure) if count == self.SIZE]
        self.assertGreaterEqual(len(places), 40)
        for offset, count in places:
            self.assertLessEqual(offset + count, self.SPAN)
        return [offset for offset, _ in places]

    def test_sequential_goes_on_where_the_last_one_ended(self):
        for calls, procedure in (("read", self.READ), ("write", self.WRITE)):
            offsets = self.offsets(calls, procedure, "sequential")[-30:]
            for before, after in zip(offsets, offsets[1:]):
                self.assertIn(after, (before + self.SIZE, 0) if before + self.SIZE == self.SPAN else
                              (before + self.SIZE,))

    def test_random_goes_anywhere(self):
        for calls, procedure in (("read", self.READ), ("write", self.WRITE)):
            offsets = self.offsets(calls, procedure, "random")
            self.assertGreater(len(set(offsets)), 30)
            self.assertGreater(max(offsets), self.SPAN // 2)
            self.assertLess(min(offsets), self.SPAN // 2)


class Verified(Nfs3):
    def test_shm(self):
        self.verify(self.uri)

    def test_iwarp(self):
        self.verify(IWARP)

    def test_iwarp_with_smallest_buffers(self):
        self.verify(IWARP, ["--inline", 1024], ["--inline", 1024, "--seed", 2])

    def test_buffers_of_different_sizes(self):
        self.verify(self.uri, ["--inline", 4096], ["--inline", 1024, "--seed", 3])

    def test_several_connections_and_segments(self):
        self.verify(self.uri, (), ["--connections", 3, "--segments", 5, "--seed", 4])

    def test_data_always_in_chunks(self):
        self.verify(self.uri, (), ["--chunk-threshold", 0, "--size", "1,2000", "--seed", 5])

    def test_a_thousand_names(self):
        server, client = self.start_nfs_server(self.uri)
        run = self.run_testrpc(*client, "--nfs-calls", "readdir", "--nfs-names", 1000,
                               "--count", 300)
        self.assert_all_right(run, 300)
        self.stop_nfs_server(server)

    def test_calls_that_are_put_off_are_made_later(self):
        server, client = self.start_nfs_server(self.uri, "--busy", 20)
        run = self.run_testrpc(*client, "--verify", "--window", 4, "--count", 600)
        result = self.assert_all_right(run, 600)
        self.assertGreater(result["runs"][0]["tried_later"], 0)
        self.assertIn("put off by the server", run.output)
        self.stop_nfs_server(server)

    def test_calls_of_an_open_loop_that_are_put_off_are_made_later(self):
        server, client = self.start_nfs_server(self.uri, "--busy", 20)
        run = self.run_testrpc(*client, "--verify", "--window", 4, "--rate", 3000, "--count", 600)
        row, = self.assert_all_right(run, 600)["runs"]
        self.assertGreater(row["tried_later"], 0)
        self.assertEqual((row["calls_due"], row["calls_not_made"]), (600, 0))
        # They have been due since before they were put off, which is for 100 ms.
        self.assertGreaterEqual(row["latency_ns"]["max"], 100_000_000)
        self.stop_nfs_server(server)

    def test_a_server_that_puts_everything_off(self):
        server, client = self.start_nfs_server(self.uri, "--busy", 1)
        run = self.run_testrpc(*client, "--nfs-calls", "read,write", "--window", 1, "--count", 2)
        self.assert_status(run, 1)
        self.assertIn("NFS3ERR_JUKEBOX", run.output)
        self.stop_nfs_server(server)

    def test_calls_that_are_lost_are_sent_again(self):
        server, client = self.start_nfs_server(self.uri)
        run = self.run_testrpc(*client, "--verify", "--window", 4, "--count", 2000,
                               "--reconnect", "--retransmit", "--faults", "send-error=1/150")
        result = self.assert_all_right(run)
        self.assertGreater(result["runs"][0]["retransmissions"], 0)
        self.assertIn("left: 0 names", self.stop_nfs_server(server))


class Refused(Nfs3):
    def test_nfs_errors_have_names(self):
        server, client = self.start_nfs_server(self.uri, "--megabytes", 1)
        run = self.run_testrpc(*client, "--verify", "--window", 8, "--count", 400)
        self.assert_status(run, 1)
        self.assertRegex(run.output, r"ERRORS in nfs3 \S+ w=8: \d+ NFS3ERR_NOSPC\n")
        self.assertNotIn("WRONG BYTES", run.output)
        self.assertIn("left: 0 names, 0 bytes", self.stop_nfs_server(server))

    def test_too_few_names_to_set_up(self):
        server, client = self.start_nfs_server(self.uri, "--names", 50)
        run = self.run_testrpc(*client, "--count", 10)
        self.assert_fails_with_one_line(run, "NFS CREATE of", "NFS3ERR_NOSPC")
        self.assertIn("left: 0 names", self.stop_nfs_server(server))

    def test_no_such_export(self):
        server, client = self.start_nfs_server(self.uri)
        run = self.run_testrpc(*client, "--nfs-export", "/elsewhere")
        self.assert_fails_with_one_line(run, "MOUNT of '/elsewhere'", "NFS3ERR_NOENT")
        self.stop_nfs_server(server)

    def test_without_a_mount(self):
        server, client = self.start_nfs_server(self.uri)
        client[client.index("--nfs-mount") + 1] = 1
        run = self.run_testrpc(*client)
        self.assert_fails_with_one_line(run, "MOUNT of '/': program 100005 at ",
                                        " port 1: Connection refused")
        self.stop_nfs_server(server)

    def test_other_programs(self):
        server, client = self.start_nfs_server(self.uri)
        run = self.run_testrpc(*client[:2], "--engine", "null", "--count", 10)
        self.assert_status(run, 1)
        self.assertTrue(re.search(r"\d+ program unavailable", run.output), run.describe())
        self.stop_nfs_server(server)


harness.main()
