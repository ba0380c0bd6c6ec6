#!/usr/bin/env python3
"""Two processes over shm:, every engine with --verify: every size, windows 1 and 32, handlers on
the poll core and on a worker. No wrong byte, no call lost, all pools whole at exit."""
import os

import testrpc_harness as harness

SIZES = "0,1,3,4,1000,1024,4096,65536,1M,4M"
if "RRDK_FEWER_SIZES" in os.environ:  # a sanitizer is slow, and sees no more in the largest
    SIZES = "0,1,3,4,1000,4096,65536,300000"
SMALL = "0,1,3,4,1000,1024,4096"
ENGINES = ["null", "echo", "read", "write", "sandwich", "read2", "mixed", "callback"]
SIZE_COUNT = SIZES.count(",") + 1
# Messages that do not fit inline need one size only.
CALLBACK_SIZES = SIZE_COUNT - (3 if "1024" in SIZES else 2)
WINDOWS = [1, 32]
COUNT = 48
# null has no sizes, and mixed takes all sizes at once.
RUNS = (1 + 5 * SIZE_COUNT + 1 + CALLBACK_SIZES) * 2


class Matrix(harness.Case):
    def run_matrix(self, sizes, *options, server_options=(), engines="all"):
        server = self.start_server("--max-size", "4M", *server_options)
        client = self.run_testrpc(
            "--client", self.uri, "--engine", engines, "--size", sizes, "--window", "1,32",
            "--count", COUNT, "--verify", "--timeout", 60000, "--json", self.json_path, *options)
        result = self.assert_all_right(client, COUNT)
        self.stop_server(server)
        return result

    def test_every_engine_size_and_window_inline(self):
        result = self.run_matrix(SIZES)
        self.assertEqual({r["engine"] for r in result["runs"]}, set(ENGINES))
        self.assertEqual({r["window"] for r in result["runs"]}, set(WINDOWS))
        self.assertEqual(len(result["runs"]), RUNS)

    def test_every_engine_size_and_window_on_a_worker(self):
        result = self.run_matrix(SIZES, "--dispatch", "worker",
                                 server_options=("--dispatch", "worker"))
        self.assertEqual(len(result["runs"]), RUNS)

    def test_small_data_in_chunks(self):
        self.run_matrix(SMALL, "--chunk-threshold", 0)

    def test_results_scattered_over_segments(self):
        self.run_matrix("1000,65536,1M", "--segments", 16, engines="read,read2")

    def test_data_sent_out_of_pieces(self):
        self.run_matrix("7,1000,65536,1M", "--pieces", 100, engines="echo,read,write,sandwich,read2",
                        server_options=("--pieces", "37"))

    def test_credentials_of_a_user(self):
        self.run_matrix("1000,65536", "--sec", "sys")

    def test_smallest_buffers(self):
        self.run_matrix("0,900,1024,5000,100K", "--inline", 1024,
                        server_options=("--inline", 1024))

    def test_several_connections(self):
        self.run_matrix("1000,65536", "--connections", 3)

    def test_within_a_small_budget(self):
        """A budget that is used up: large calls wait for buffers, and small calls get them back."""
        self.run_matrix("1000,1M", "--connections", 4, server_options=("--memory", "64M"))

    def test_dedicated_poll_core(self):
        self.run_matrix("1000,65536", server_options=("--poll-cpus", "0", "--idle", "adaptive"))

    def test_both_adaptive(self):
        self.run_matrix("1000,65536", "--idle", "adaptive", server_options=("--idle", "adaptive"))


harness.main()
