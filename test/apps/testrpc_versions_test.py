#!/usr/bin/env python3
"""The version that two processes speak, for all combinations of their options: the table in doc/version-two.md."""
import testrpc_harness as harness

COUNT = 20
CLIENTS = [("1", "v2-04"), ("2", "v2-04"), ("2", "v2-00"), ("auto", "v2-04"), ("auto", "v2-00")]
SERVERS = CLIENTS


def spoken(client, server):
    """The version that must come out, and whether the client had to fall back; None if they cannot connect."""
    wants, draft = client
    has, has_draft = server
    one = has in ("1", "auto")
    two = has in ("2", "auto") and draft == has_draft
    if wants == "1":
        return (1, False) if one else None
    if two:
        return 2, False
    return (1, True) if wants == "auto" and one else None


class Versions(harness.Case):
    uri = ""

    def options(self, choice):
        version, draft = choice
        return ["--rpcrdma-version", version, "--rpcrdma-dialect", draft]

    def check(self, client, server):
        running = self.start("--server", self.uri, *self.options(server))
        uri = running.wait_for_line("listening on").split()[-1]
        expected = spoken(client, server)
        process = self.run_testrpc(
            "--client", uri, "--engine", "null,echo,read" if expected else "null", "--size", "2000,65536",
            "--window", 8, "--count", COUNT, "--verify", "--json", self.json_path,
            *self.options(client))
        if expected is None:
            self.assert_status(process, 1)
            # An end of draft-00 has the same code for an unreadable header and for others.
            self.assertRegex(process.output, "version|chunk error")
        else:
            version, fell_back = expected
            for run in self.assert_all_right(process, COUNT)["runs"]:
                self.assertEqual(run["rpcrdma_version"], version)
                self.assertEqual(run["fallbacks"], int(fell_back))
        self.stop_server(running)

    def check_servers(self, client):
        for server in SERVERS:
            self.check(client, server)

    # Shows: V2D4-NEG-05, V2D4-NEG-07, V2X-03
    def test_client_auto_of_v2_04_over_iwarp(self):
        self.uri = "iwarp://127.0.0.1:0"
        self.check_servers(("auto", "v2-04"))


def add_test(client):
    def test(self):
        self.uri = f"shm:{self.folder}/socket"
        self.check_servers(client)

    setattr(Versions, f"test_client_{client[0]}_of_{client[1]}_over_shm".replace("-", "_"), test)


for client_ in CLIENTS:
    add_test(client_)


class ReceiveSizes(harness.Case):
    """Receive Buffer Sizes go up and down while calls are in flight (draft-04 section 5)."""
    CHANGES = 30

    def change(self, uri, version):
        grows = ["--max-receive-size", 16384]
        running = self.start("--server", uri, *grows)
        process = self.run_testrpc(
            "--client", running.wait_for_line("listening on").split()[-1], *grows,
            "--rpcrdma-version", version, "--change-receive-size", self.CHANGES,
            "--engine", "null,echo,read,write", "--size", "2000,12000", "--window", 64,
            "--count", 200, "--verify", "--json", self.json_path)
        runs = self.assert_all_right(process)["runs"]
        self.assertEqual(len(runs), 7)
        for run in runs:
            self.assertGreaterEqual(run["calls"], 200)
            self.assertEqual(run["reconnects"], 0)
            self.assertGreaterEqual(run["receive_size_changes"], self.CHANGES)
        self.assertEqual(sum(run["own_receive_size_changes"] for run in runs), 1)
        self.stop_server(running)

    # Shows: V2D4-PROP-19, V2D4-POP-18, V2D4-POP-27
    def test_over_shm(self):
        self.change(f"shm:{self.folder}/socket", "2")

    # Shows: V2D4-PROP-19
    def test_over_iwarp(self):
        self.change("iwarp://127.0.0.1:0", "auto")


harness.main()
