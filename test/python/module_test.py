#!/usr/bin/env python3
"""The module rrdk with both ends in one process: handlers and what they do wrong, credentials, what is passed to the
library, watched and measured."""
import ctypes
import json
import logging
import os
import signal
import struct
import subprocess
import sys
import threading

import python_harness as harness
import rrdk
from python_harness import PATIENCE, PROGRAM, READ, Both, procedure

SCRIPTS = harness.ROOT / "scripts"
RUN_WORDS = {"window", "connections", "active", "duration", "count", "seconds", "calls", "calls_right", "errors",
             "errors_by_reason", "rpc_per_s", "bytes_per_s", "latency_ns", "histogram", "reconnects"}


class Handlers(Both):
    def test_an_exception_answers_system_err_and_is_logged(self):
        def fail(call):
            raise KeyError("gone")

        self.start_both(procedure(fail))
        with self.assertLogs("rrdk", logging.ERROR) as logged:
            self.assert_status(rrdk.CallStatus.SYSTEM_ERR)
        self.assertIn("the handler of a call of P1 of test raised an exception", logged.output[0])
        self.assertIn("KeyError: 'gone'", logged.output[0])

    def test_an_exception_while_bytes_are_borrowed(self):
        def fail(call):
            part = call.args.borrow_item()[1:]
            raise ValueError(len(part))

        self.start_both(procedure(fail, eligible_args=1))
        own = self.memory.allocate(100_000)
        with self.assertLogs("rrdk", logging.ERROR):
            self.call.begin(self.program, 1).put_item(own)
            with self.assertRaises(rrdk.CallError):
                self.call.wait()

    def test_wrong_arguments_answer_garbage_args(self):
        def take(call):
            call.args.get_u32()
            call.args.end()
            call.reply()

        self.start_both(procedure(take))
        self.answer(data=b"1234").end()
        self.assert_status(rrdk.CallStatus.GARBAGE_ARGS, data=b"")
        self.assert_status(rrdk.CallStatus.GARBAGE_ARGS, data=b"12345678")

    def test_a_call_that_is_forgotten_answers_system_err(self):
        self.start_both(procedure(lambda call: None))
        with self.assertLogs("rrdk", logging.ERROR) as logged:
            self.assert_status(rrdk.CallStatus.SYSTEM_ERR)
        self.assertIn("a call of P1 of test was not answered", logged.output[0])

    def test_an_interrupt_goes_through_to_the_program(self):
        def stop(call):
            raise KeyboardInterrupt

        self.start_both(procedure(stop))
        self.call.begin(self.program, 1)
        with self.assertLogs("rrdk", logging.ERROR), self.assertRaises(KeyboardInterrupt):
            self.call.wait()
        self.until(lambda: not self.call.in_flight)
        self.assertIn(self.call.status, (rrdk.CallStatus.SYSTEM_ERR, rrdk.CallStatus.CANCELLED))

    def test_an_interrupt_before_a_callback_has_begun(self):
        # The library calls raise() when the peer is done with a call's memory, so that a signal is pending when the
        # next callback begins.
        raise_signal = ctypes.cast(ctypes.CDLL(None)["raise"], rrdk._c.OnReleased)
        interrupts, ended = 0, []

        def ignore_nothing(what):
            self.fail(f"{what.object}: {what.exc_value}")

        def answer(call):
            rrdk._c.held.server_call_on_released(call._handle, raise_signal, signal.SIGINT)
            call.reply()

        def begin(call):
            call.begin(self.program, 1).put_u32(0)
            rrdk._c.held.call_on_released(call._handle, raise_signal, signal.SIGINT)
            call.submit(lambda call: ended.append(call.status))

        self.start_both(procedure(answer), procedure(lambda call: call.reply(), 2))
        self.answer(2)
        sys.unraisablehook, before = ignore_nothing, sys.unraisablehook
        self.addCleanup(setattr, sys, "unraisablehook", before)
        calls = [rrdk.Call(self.connection) for _ in range(4)]
        for round in range(1, 26):
            for call in calls:
                begin(call)
            while len(ended) < 4 * round:
                try:
                    self.until(lambda: len(ended) == 4 * round)
                except KeyboardInterrupt:
                    interrupts += 1
        self.assertEqual(set(ended), {rrdk.CallStatus.OK})
        self.assertGreater(interrupts, 0)

    def test_the_programs_signal_handlers_come_back(self):
        def handler(*_):
            pass

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, handler))
        self.begin()
        self.assertIsNot(signal.getsignal(signal.SIGUSR1), handler)
        other = rrdk.Runtime(self.memory)
        self.runtime.close()
        self.assertIsNot(signal.getsignal(signal.SIGUSR1), handler)
        other.close()
        self.assertIs(signal.getsignal(signal.SIGUSR1), handler)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_an_exit_in_a_thread_of_the_library_is_logged(self):
        self.start_both(procedure(lambda call: sys.exit("enough")), poll_cpus=[-1], idle=rrdk.IdlePolicy.ADAPTIVE)
        with self.assertLogs("rrdk", logging.ERROR) as logged:
            self.assert_status(rrdk.CallStatus.SYSTEM_ERR)
            self.runtime.poll_until(lambda: len(logged.output) > 1, PATIENCE)
        self.assertIn("ends a program, in a thread of the library", logged.output[1])

    def test_all_ways_of_answering(self):
        def answer(call):
            how = call.args.get_u32()
            call.results.put_u32(how)
            for seconds in (-1, -0.001, float("nan")):
                with self.assertRaisesRegex(ValueError, "cannot be sent after"):
                    call.reply_after(seconds)
            (call.reply, lambda: call.reply_after(0.001), lambda: call.reject(rrdk.AcceptStat.PROC_UNAVAIL),
             lambda: call.reject_versions(3, 9), lambda: call.deny(rrdk.AuthStat.TOOWEAK), call.drop)[how]()
            with self.assertRaisesRegex(rrdk.ClosedError, "answered"):
                call.reply()
            for function in (call.args.get_u32, call.results.put_u32, lambda: call.xid, call.auth_sys):
                with self.assertRaises((rrdk.ClosedError, TypeError)):
                    function()

        self.start_both(procedure(answer, fixed_results=4))
        self.assertEqual(self.answer(data=b"\0\0\0\0").get_u32(), 0)
        self.assertEqual(self.answer(data=b"\0\0\0\1").get_u32(), 1)
        self.assert_status(rrdk.CallStatus.PROC_UNAVAIL, data=b"\0\0\0\2")
        mismatch = self.assert_status(rrdk.CallStatus.PROG_MISMATCH, data=b"\0\0\0\3")
        self.assertEqual((mismatch.low, mismatch.high), (3, 9))
        self.assertEqual(self.assert_status(rrdk.CallStatus.AUTH_ERROR, data=b"\0\0\0\4").auth_stat,
                         rrdk.AuthStat.TOOWEAK)
        self.assert_status(rrdk.CallStatus.CONNECTION_LOST, data=b"\0\0\0\5")

    def test_calls_are_kept_and_answered_by_another_thread(self):
        kept = []
        self.start_both(procedure(kept.append, fixed_results=4))
        self.call.begin(self.program, 1)
        self.call.submit()
        self.until(lambda: kept)

        def answer():
            kept[0].results.put_u32(42)
            kept[0].reply()

        thread = threading.Thread(target=answer)
        thread.start()
        self.until(lambda: not self.call.in_flight)
        thread.join()
        self.assertEqual(self.call.results.get_u32(), 42)

    def test_workers_may_wait(self):
        def forward(call):
            inner = rrdk.Call(self.connection)
            inner.begin(self.program, 2)
            call.results.put_u32(inner.wait().get_u32() + 1)
            call.reply()

        def plain(call):
            with self.assertRaisesRegex(rrdk.Error, "must not"):
                rrdk.Call(self.connection).wait()
            call.results.put_u32(1)
            call.reply()

        self.start_both(procedure(forward, worker=True, fixed_results=4), procedure(plain, 2, fixed_results=4),
                        poll_cpus=[-1], worker_cpus=[-1], idle=rrdk.IdlePolicy.ADAPTIVE)
        self.answer(2)  # a new connection has one credit until its first reply
        self.assertEqual(self.answer().get_u32(), 2)

    def test_other_procedures_and_names(self):
        def any_other(call):
            call.results.put_u32(call.procedure)
            call.reply()

        self.start_both(rrdk.Procedure(rrdk.OTHER_PROCEDURES, "OTHER", any_other, fixed_results=4))
        self.assertEqual(self.answer(77).get_u32(), 77)
        with self.assertRaisesRegex(ValueError, "test has no procedure NONE"):
            self.call.begin(self.program, "NONE")

    def test_credentials(self):
        def who(call):
            identity = call.auth_sys()
            call.results.pack("II", call.auth_flavor, identity.uid if identity else 0)
            call.results.put_string(identity.machine_name if identity else "")
            call.reply()

        self.start_both(procedure(who, fixed_results=200))
        self.assertEqual(self.answer().unpack("II"), (0, 0))
        self.connection.set_auth_sys(rrdk.AuthSys(7, 8, (9, 10), "here"))
        results = self.answer()
        self.assertEqual((results.unpack("II"), results.get_string()), ((1, 7), "here"))
        self.call.set_credential(rrdk.Credential(rrdk.AuthSys(11, 12)))
        self.assertEqual(self.answer().unpack("II"), (1, 11))
        self.call.set_credential(rrdk.Credential(flavor=77, body=b"1234"))
        self.assertEqual(self.answer().unpack("II"), (77, 0))
        self.call.set_credential(None)
        self.assertEqual(self.answer().unpack("II"), (1, 7))
        for wrong in (rrdk.AuthSys(-1, 0), rrdk.AuthSys(1 << 32, 0), rrdk.AuthSys(1, 2, (3,) * 17),
                      rrdk.AuthSys(1, 2, (), "x" * 256)):
            with self.assertRaises((OverflowError, ValueError)):
                self.connection.set_auth_sys(wrong)

    def test_on_open_and_on_close(self):
        opened, closed = [], []

        def on_open(connection):
            if opened:
                raise rrdk.Error(rrdk.ErrorCode.REFUSED, "one is enough")
            opened.append(connection.id)

        self.start_both(procedure(lambda call: call.reply()),
                        server_options={"on_open": on_open, "on_close": lambda c, error: closed.append(error)})
        self.answer()
        with self.assertRaisesRegex(rrdk.Error, "one is enough") as caught:
            self.client.connect(self.bound)
        self.assertEqual(caught.exception.code, rrdk.ErrorCode.REFUSED)
        self.assertEqual([info.id for info in self.server.connections()], opened)
        self.server.close_connection(opened[0], "go away")
        self.until(lambda: closed)
        self.assertIn("go away", str(closed[0]))
        with self.assertRaises(rrdk.Error) as caught:
            self.server.close_connection(opened[0])
        self.assertEqual(caught.exception.code, rrdk.ErrorCode.NOT_FOUND)


    def test_on_open_refuses_if_it_fails(self):
        errors = [rrdk.Error("a text", "no code"), rrdk.Error(0, "nothing"), rrdk.Error(1 << 32, "too large"),
                  rrdk.Error(None, "none"), rrdk.Error(rrdk.ErrorCode.LIMIT, "\ud800"), KeyError("x"), SystemExit(1)]

        def on_open(connection):
            if errors:
                raise errors.pop(0)

        self.begin()
        _, uri = self.serve(self.driver, PROGRAM, on_open=on_open)
        client = rrdk.Client(self.runtime)
        logging.getLogger("rrdk").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("rrdk").setLevel, logging.NOTSET)
        while errors:
            with self.assertRaises((rrdk.Error, SystemExit)):
                client.connect(uri)
        client.connect(uri)  # when nothing is wrong


class HandlersOverTcp(Handlers):
    driver = "iwarp"


class Arguments(Both):
    """What is passed is checked before the library gets it."""

    def test_options(self):
        self.begin()
        for options, error in (({"credits": 1 << 32}, OverflowError), ({"credits": -1}, OverflowError),
                               ({"credits": "1"}, TypeError), ({"credits": 1.5}, TypeError),
                               ({"credits": True}, TypeError), ({"reconnect": 1}, TypeError),
                               ({"no_such_option": 1}, TypeError), ({"size": 1}, TypeError)):
            with self.assertRaises(error):
                rrdk.Client(self.runtime, **options)
        with self.assertRaisesRegex(rrdk.Error, "credits") as caught:
            rrdk.Client(self.runtime, credits=5000)
        self.assertEqual(caught.exception.code, rrdk.ErrorCode.INVALID_ARGUMENT)
        with self.assertRaises(rrdk.Error) as caught:
            rrdk.Client(self.runtime).connect("nothing:at-all")
        self.assertEqual(caught.exception.code, rrdk.ErrorCode.BAD_URI)
        with self.assertRaises(ValueError):
            rrdk.Client(self.runtime).connect("shm:a\0b")
        other = rrdk.Memory(bytes=8 << 20)
        self.addCleanup(other.close)
        for use in (lambda: rrdk.Runtime(self.runtime), lambda: rrdk.Server(self.memory),
                    lambda: rrdk.Client(self.memory), lambda: rrdk.Client(self.runtime, keepalive_program=other),
                    lambda: rrdk.Server(self.runtime).add_service(self.runtime),
                    lambda: rrdk.Telemetry("x", self.memory), lambda: rrdk.Telemetry("x", None, [self.runtime])):
            with self.assertRaisesRegex(TypeError, "is needed"):
                use()
        with self.assertRaisesRegex(TypeError, "handler"):
            rrdk.Program(1, 1, "x", [(1, "ONE", 5)])
        with self.assertRaisesRegex(rrdk.Error, "procedure"):
            rrdk.Program(1, 1, "x", [(1, "ONE"), (1, "TWO")])

    def test_values(self):
        self.start_both(procedure(lambda call: (call.results.put_fixed(call.args.get_rest()), call.reply()),
                                  fixed_results=200))
        args = self.call.begin(self.program, 1)
        for wrong in (1 << 32, -1, 1.5, "1", None):
            with self.assertRaises(struct.error):
                args.put_u32(wrong)
        for wrong in ("1", None, 5):
            with self.assertRaises(TypeError):
                args.put_opaque(wrong)
        with self.assertRaises(ValueError):
            args.pack("Ib", 1, 1)
        other = rrdk.Memory(bytes=8 << 20)
        self.addCleanup(other.close)
        for wrong in (b"bytes", self.memory.buffer(1), self.memory, rrdk.Span(self.memory, 0, 1)):
            with self.assertRaises(TypeError):
                args.put_item(wrong)
        for wrong in (rrdk.Span(self.memory.allocate(1), 0, 2), other.allocate(1)):
            with self.assertRaises(ValueError):
                args.put_item(wrong)
        for wrong in (self.memory.allocate(100), b"bytes", None):
            with self.assertRaises(TypeError):
                args.put_buffer(wrong, 1)
        with self.assertRaises(ValueError):
            args.put_buffer(other.buffer(1), 1)
        for wrong in (self.call, None, 1):
            with self.assertRaises(TypeError):
                self.call.begin(wrong, 1)
            with self.assertRaises(TypeError):
                self.call.set_credential(wrong or 0)
        args = self.call.begin(self.program, 1)
        args.pack("iqfd", -1, -2, 0.5, -0.25).put_bool(True).put_string("grün").put_u64(1 << 63)
        args.put_opaque(bytearray(b"12345")).put_opaque(memoryview(b"abcd")[::2]).put_fixed(b"xyz")
        results = self.call.wait()
        self.assertEqual(results.unpack("iqfd"), (-1, -2, 0.5, -0.25))
        self.assertIs(results.get_bool(), True)
        self.assertEqual(results.get_string(), "grün")
        self.assertEqual(results.get_u64(), 1 << 63)
        self.assertEqual(results.get_opaque(5), b"12345")
        self.assertEqual(results.get_opaque(), b"ac")
        self.assertEqual(results.get_fixed(3), b"xyz")
        results.end()
        with self.assertRaises(rrdk.XdrError):
            results.get_u32()
        for wrong in (-1, 1 << 32, 1.5):
            with self.assertRaises((OverflowError, TypeError)):
                results.get_opaque(wrong)

    def test_spans(self):
        self.begin()
        room = self.memory.allocate(100)
        for offset, length in ((-1, 5), (0, 101), (100, 1), (50, -1)):
            with self.assertRaises(ValueError):
                room.span(offset, length)
        self.assertEqual(room.span(90).length, 10)

    def test_the_order_of_a_call(self):
        self.start_both(procedure(lambda call: call.reply()))
        for use in (self.call.submit, self.call.wait, lambda: self.call.offer(self.memory.allocate(1))):
            with self.assertRaisesRegex(rrdk.Error, "begin"):
                use()
        self.call.begin(self.program, 1)
        self.call.close()
        with self.assertRaisesRegex(rrdk.ClosedError, "the call is closed"):
            self.call.begin(self.program, 1)


class Bounds(Both):
    def test_a_full_queue_refuses_calls(self):
        kept = []
        self.start_both(procedure(kept.append, eligible_args=1), client_options={"max_queued": 0})
        own = self.memory.allocate(5000)
        self.call.begin(self.program, 1)
        self.call.submit()
        self.assertEqual(self.connection.room, 0)  # a new connection has one credit
        other = rrdk.Call(self.connection)
        other.begin(self.program, 1).put_item(own)
        for submit in (other.submit, other.wait):
            with self.assertRaises(rrdk.CallError) as caught:
                submit()
            self.assertEqual(caught.exception.status, rrdk.CallStatus.FULL)
            self.assertEqual((other.in_flight, own.lent), (False, 1))
        self.until(lambda: kept)
        kept.pop().reply()
        self.until(lambda: not self.call.in_flight)
        other.submit()
        self.until(lambda: kept)
        self.assertEqual(kept[0].args.get_opaque(), bytes(5000))
        kept[0].reply()
        self.until(lambda: not other.in_flight and own.lent == 0)
        other.results.end()


class Watching(Both):
    def test_infos_counters_and_limits(self):
        self.start_both(procedure(lambda call: call.reply()))
        self.answer()
        info = self.connection.info()
        self.assertEqual((info.driver, info.calls, info.ended_by), ("shm", 1, rrdk.EndedBy.NOBODY))
        self.assertEqual(info.pid, os.getpid())
        self.assertEqual(self.server.counters()["calls_received"], 1)
        self.assertGreater(self.runtime.counters()["completions"] + len(self.runtime.counters()), 0)
        self.server.set_limits(max_connections=3)
        self.assertEqual(self.server.limits()["max_connections"], 3)
        with self.assertRaises(rrdk.Error):
            self.server.set_limits(max_connections=0)
        self.assertTrue(self.connection.alive)
        self.assertIsNone(self.connection.error())
        self.assertEqual(self.connection.version, 1)
        self.assertEqual(self.server.drain(PATIENCE * 1000), 0)
        self.until(lambda: self.connection.state == rrdk.State.CLOSED)
        self.assertIsInstance(self.connection.error(), rrdk.Error)

    def test_captures(self):
        self.start_both(procedure(lambda call: call.reply()))
        path = os.path.join(self.folder, "calls.pcapng")
        self.runtime.start_capture(path, message_bytes=100)
        with self.assertRaisesRegex(rrdk.Error, "capture"):
            self.runtime.start_capture(path)
        self.answer()
        self.assertGreater(self.runtime.capture_counts().captured, 0)
        captured = self.runtime.stop_capture()
        self.assertGreater(captured.captured, 0)
        self.assertEqual(captured.lost, 0)
        self.assertEqual(self.runtime.stop_capture(), (0, 0))
        dumped = subprocess.run([SCRIPTS / "rrdk-dump.py", "--summary", path], capture_output=True, text=True)
        self.assertEqual(dumped.returncode, 0, dumped.stdout + dumped.stderr)


class Measuring(harness.World):
    def begin_call(self, call):
        call.begin(PROGRAM, READ).pack("QIII", 0, 100, 0, 0)
        call.offer_buffer(self.memory.buffer(100), 100)

    def measured(self, **options):
        self.begin()
        server, uri = self.serve("shm", PROGRAM)
        connections = [rrdk.Client(self.runtime).connect(uri) for _ in range(2)]
        return connections, rrdk.measure(connections, self.begin_call, engine="read", size=100, **options)

    def test_a_number_of_calls(self):
        right = []
        connections, run = self.measured(count=101, window=3, warmup_calls=10,
                                         check=lambda call: right.append(call.results.get_u32()) or True)
        self.assertEqual((run["calls"], run["calls_right"], run["errors"]), (101, 101, 0))
        self.assertEqual(right, [0] * (10 + 101))
        self.assertEqual(sum(count for _, count in run["histogram"]), 101)
        ladder = [run["latency_ns"][name] for name in ("min", "p50", "p90", "p99", "max")]
        self.assertEqual(ladder, sorted(ladder))
        self.assertIsNone(run["latency_ns"]["p99.9"])
        self.assertAlmostEqual(run["bytes_per_s"], run["rpc_per_s"] * 100, delta=1)
        path = os.path.join(self.folder, "result.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(rrdk.result(connections[0], [run]), file)
        log = subprocess.run([SCRIPTS / "hdr-log.py", path], capture_output=True, text=True)
        self.assertEqual(log.returncode, 0, log.stderr)
        self.assertIn("Tag=read-100-3,", log.stdout)

    def test_its_words_are_testrpcs(self):
        connections, run = self.measured(count=5)
        result = json.loads(json.dumps(rrdk.result(connections[0], [run])))
        process = self.run_testrpc("--self", "--engine", "read", "--size", "100", "--count", "5", "--memory", "128M",
                                   "--histogram", "--json", self.json_path)
        theirs = self.assert_all_right(process)
        for name in ("environment", "negotiated", "audit"):
            self.assertEqual(set(result[name]), set(theirs[name]))
        self.assertEqual(set(result), set(theirs))
        self.assertEqual(result["schema"], theirs["schema"])
        self.assertLessEqual(set(run), set(theirs["runs"][0]))
        self.assertLessEqual(RUN_WORDS, set(run))
        self.assertEqual(set(run["latency_ns"]), set(theirs["runs"][0]["latency_ns"]))
        for name, value in run.items():
            their = theirs["runs"][0][name]
            if value is not None and their is not None:
                self.assertEqual(isinstance(value, (int, float)), isinstance(their, (int, float)), name)

    def test_a_time_and_what_is_wrong(self):
        _, run = self.measured(duration=0, check=lambda call: False)
        self.assertEqual((run["calls_right"], run["latency_ns"]["p50"]), (0, None))
        self.assertEqual(run["errors_by_reason"], {"wrong results": run["errors"]})
        self.assertEqual(run["errors"], 2)  # one call on each connection, however short the time

    def test_an_exception_of_the_program_ends_it(self):
        def fail(call):
            raise LookupError("no result")

        with self.assertRaisesRegex(LookupError, "no result"):
            self.measured(duration=60, check=fail)

    def test_the_histogram_is_testrpcs(self):
        histogram, other = rrdk.Histogram(), rrdk.Histogram()
        for ns in range(1000):
            histogram.record(ns)
        self.assertEqual([histogram.percentile(p) for p in (50, 90, 99, 99.9, 100)], [499, 899, 991, 999, 999])
        self.assertEqual(histogram.buckets()[255:258], [[255, 1], [257, 2], [259, 2]])
        other.record(1 << 40)
        other.add(histogram)
        self.assertEqual((other.count, other.min, other.max), (1001, 0, 1 << 40))
        self.assertEqual(other.buckets()[-1], [(1 << 37) - 1, 1])


if __name__ == "__main__":
    harness.main()
