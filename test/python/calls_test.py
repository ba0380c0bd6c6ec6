#!/usr/bin/env python3
"""The module rrdk with testrpc at the other end: a client of testrpc's server, and a server of testrpc's client."""
import signal
import sys

import python_harness as harness
import rrdk
from python_harness import BACKWARD, CALLBACK, ECHO, PROGRAM, READ, READ2, SANDWICH, VERIFY, WRITE, crc32c, pattern

SIZES = (1, 1000, 100_001)


class Client(harness.World):
    def with_connection(self, test, *arguments, **options):
        for driver in self.drivers:
            with self.subTest(driver=driver):
                server, uri = self.start_testrpc(driver, *arguments)
                self.begin()
                self.client = rrdk.Client(self.runtime, **options)
                self.connection = self.client.connect(uri)
                self.call = rrdk.Call(self.connection)
                test()
                del self.call
                self.end()
                self.stop_server(server)

    def test_echoes(self):
        self.with_connection(self.echoes)

    def echoes(self):
        for size in SIZES:
            self.call.begin(PROGRAM, "ECHO", expect_reply=size).put_opaque(pattern(7, size))
            results = self.call.wait()
            self.assertEqual(results.get_opaque(size), pattern(7, size))
            results.end()

    def test_reads_into_memory_of_its_own(self):
        self.with_connection(self.reads_into_memory)

    def reads_into_memory(self):
        room = self.memory.allocate(SIZES[-1])
        for size in SIZES:
            self.call.begin(PROGRAM, READ).pack("QIII", 5, size, VERIFY, 0)
            self.call.offer(room.span(0, size))
            results = self.call.wait()
            self.assertEqual(results.unpack("II"), (0, crc32c(pattern(5, size))))
            item = results.borrow_item(size)
            self.assertEqual(item, pattern(5, size))
            results.end()
            self.assertEqual(room.view()[:size], pattern(5, size))
        self.assertEqual(room.lent, 0)
        item.release()
        room.close()

    def test_reads_into_buffers(self):
        self.with_connection(self.reads_into_buffers)

    def reads_into_buffers(self):
        self.call.begin(PROGRAM, READ2).pack("QIII", 9, 5000, 3, VERIFY)
        self.call.offer_buffer(self.memory.buffer(5000), 5000)
        self.call.offer_buffer(self.memory.buffer(3), 3)
        results = self.call.wait()
        self.assertEqual(results.get_u32(), 0)
        self.assertEqual((results.get_item(), results.get_u32()), (pattern(9, 5000), crc32c(pattern(9, 5000))))
        self.assertEqual((results.get_item(), results.get_u32()), (pattern(5009, 3), crc32c(pattern(5009, 3))))
        results.end()
        first = self.call.take_offered(0)
        self.assertEqual(first.view()[:5000], pattern(9, 5000))
        self.assertIsNone(self.call.take_offered(0))

    def test_writes(self):
        self.with_connection(self.writes)

    def writes(self):
        own = self.memory.allocate(SIZES[-1])
        own.view()[:] = pattern(3, SIZES[-1])
        for size in SIZES:
            for how in ("copy", "memory", "buffer"):
                args = self.call.begin(PROGRAM, WRITE).pack("QII", 3, VERIFY, 0)
                if how == "copy":
                    args.put_opaque(own.view()[:size])
                elif how == "memory":
                    args.put_item(own.span(0, size))
                else:
                    with self.memory.buffer(size) as buffer:
                        buffer.view()[:size] = pattern(3, size)
                        args.put_buffer(buffer, size)
                self.assertEqual(self.call.wait().unpack("III"), (0, size, crc32c(pattern(3, size))), (how, size))
            args = self.call.begin(PROGRAM, SANDWICH).put_opaque(b"head").put_u32(VERIFY)
            args.put_item(own.span(0, size)).put_opaque(b"the tail")
            self.assertEqual(self.call.wait().unpack("IIIII"), (0, crc32c(b"head"), crc32c(pattern(3, size)),
                                                                crc32c(b"the tail"), size))

    def test_many_calls_at_a_time(self):
        self.with_connection(self.many_calls)

    def many_calls(self):
        ended = []

        def done(call):
            ended.append(call.results.get_opaque())
            if len(ended) < 1000:
                begin(call)

        def begin(call):
            call.begin(PROGRAM, ECHO, expect_reply=8).put_opaque(b"%08d" % len(ended))
            call.submit(done)

        for _ in range(100):
            begin(rrdk.Call(self.connection))  # which is kept while it is in flight
        self.until(lambda: len(ended) >= 1099)
        self.assertEqual({len(text) for text in ended}, {8})

    def test_is_called_back(self):
        for driver in self.drivers:
            with self.subTest(driver=driver):
                server, uri = self.start_testrpc(driver)
                self.begin()
                client = rrdk.Client(self.runtime)
                client.add_service(BACKWARD)
                call = rrdk.Call(client.connect(uri))
                call.begin(PROGRAM, CALLBACK).pack("II", 3, 100)
                self.assertEqual(call.wait().unpack("I"), (3,))
                self.end()
                self.stop_server(server)

    def test_calls_that_do_not_succeed(self):
        self.with_connection(self.calls_that_fail)

    def calls_that_fail(self):
        other = rrdk.Program(PROGRAM.number, 7, "perf", [rrdk.Procedure(1, "ECHO")])
        for program, procedure, status, text in (
                (rrdk.Program(0x20009999, 1, "nothing", [rrdk.Procedure(1, "ONE")]), 1,
                 rrdk.CallStatus.PROG_UNAVAIL, "program unavailable"),
                (rrdk.Program(PROGRAM.number, 1, "perf", [rrdk.Procedure(99, "MORE")]), 99,
                 rrdk.CallStatus.PROC_UNAVAIL, "procedure unavailable"),
                (PROGRAM, READ, rrdk.CallStatus.GARBAGE_ARGS, "garbage arguments"),
                (other, 1, rrdk.CallStatus.PROG_MISMATCH, "version")):
            self.call.begin(program, procedure)
            with self.assertRaises(rrdk.CallError) as caught:
                self.call.wait()
            self.assertEqual(caught.exception.status, status)
            self.assertIn(text, str(caught.exception))
            self.assertTrue(caught.exception.sent)
        self.assertEqual((caught.exception.low, caught.exception.high), (1, 1))

    def with_kept_calls(self, test):
        """Connects to a server in this process, which keeps its calls, and answers them when the test says so."""
        for driver in self.drivers:
            with self.subTest(driver=driver):
                self.begin()
                self.kept = []
                self.program = rrdk.Program(0x20001234, 1, "keep", [
                    rrdk.Procedure(1, "KEEP", self.kept.append, eligible_results=1, fixed_results=4)])
                _, uri = self.serve(driver, self.program)
                self.call = rrdk.Call(rrdk.Client(self.runtime).connect(uri))
                test()
                del self.call
                self.end()

    def answer(self, size):
        self.until(lambda: self.kept)
        call = self.kept.pop()
        call.results.put_buffer(call.result_buffer(size), size)
        call.reply()

    def test_a_deadline_and_the_memory_that_is_lent(self):
        self.with_kept_calls(self.deadline)

    def deadline(self):
        room = self.memory.allocate(65536)
        self.call.begin(self.program, 1, timeout_ms=1)
        self.call.offer(room)
        with self.assertRaises(rrdk.CallError) as caught:
            self.call.wait()
        self.assertEqual(caught.exception.status, rrdk.CallStatus.TIMEOUT)
        self.assertEqual(caught.exception.code, rrdk.ErrorCode.TIMEOUT)
        self.assertEqual(room.lent, 1)
        with self.assertRaises(BufferError):
            room.close()
        self.answer(65536)
        self.until(lambda: room.lent == 0)
        room.close()

    def test_cancels(self):
        self.with_kept_calls(self.cancels)

    def cancels(self):
        ended = []
        self.call.begin(self.program, 1, expect_reply=8)
        self.call.submit(lambda call: ended.append(call.status))
        self.assertTrue(self.call.in_flight)
        self.call.cancel()
        self.until(lambda: ended)
        self.assertEqual(ended, [rrdk.CallStatus.CANCELLED])
        self.answer(8)

    def test_threads_that_poll(self):
        for driver in self.drivers:
            with self.subTest(driver=driver):
                server, uri = self.start_testrpc(driver)
                self.begin(poll_cpus=[-1], idle=rrdk.IdlePolicy.ADAPTIVE)
                self.connection = rrdk.Client(self.runtime).connect(uri)
                self.call = rrdk.Call(self.connection)
                self.echoes()
                self.reads_into_memory()
                self.many_calls()
                with self.assertRaisesRegex(rrdk.Error, "has threads that poll"):
                    self.runtime.poll()
                self.end()
                self.stop_server(server)

    def test_connects_again(self):
        self.begin()
        states = []
        first, uri = self.start_testrpc("shm")
        client = rrdk.Client(self.runtime, reconnect=True, retransmit=True, reconnect_max_delay_ms=50)
        connection = client.connect(uri, on_state=lambda _, state, error: states.append((state, error)))
        call = rrdk.Call(connection)
        call.begin(PROGRAM, ECHO, expect_reply=3).put_opaque(b"one")
        self.assertEqual(call.wait().get_opaque(), b"one")
        first.send(signal.SIGKILL)
        first.wait()
        self.until(lambda: (rrdk.State.RECONNECTING) in [state for state, _ in states])
        call.begin(PROGRAM, ECHO, expect_reply=3).put_opaque(b"two")
        call.submit()
        second, _ = self.start_testrpc("shm")
        self.until(lambda: not call.in_flight)
        self.assertEqual(call.results.get_opaque(), b"two")
        self.assertEqual([state for state, _ in states][:3],
                         [rrdk.State.CONNECTING, rrdk.State.UP, rrdk.State.LOST])
        self.assertEqual(states[-1], (rrdk.State.UP, None))
        self.assertIsInstance(states[2][1], rrdk.Error)
        self.assertEqual(connection.counters()["reconnections"], 1)
        connection.close()
        self.assertEqual(states[-1][0], rrdk.State.CLOSED)
        self.stop_server(second)


class Server(harness.World):
    def test_serves_testrpc(self):
        for driver in self.drivers:
            with self.subTest(driver=driver):
                server = self.start(harness.__file__, self.address(driver), program=sys.executable)
                uri = server.wait_for_line("listening on").split("listening on ")[1]
                client = self.run_testrpc(
                    "--client", uri, "--engine", "null,echo,read,write,sandwich,read2,callback", "--size", "1,3K,20K",
                    "--window", "4", "--count", "4", "--verify", "--memory", "128M", "--idle", "adaptive",
                    "--json", self.json_path)
                self.assert_all_right(client)
                server.send(signal.SIGINT)
                self.assert_status(server, 0)
                self.assertIn("pools whole: yes", server.output)
                self.assertNotIn("Traceback", server.output)


if __name__ == "__main__":
    harness.main()
