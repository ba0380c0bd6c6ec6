#!/usr/bin/env python3
"""The module rrdk with both ends in one process: the order in which objects end, memoryviews and borrowed bytes, what
other threads and the end of a program find."""
import gc
import logging
import os
import subprocess
import sys
import threading
import weakref

import python_harness as harness
import rrdk
from python_harness import PATIENCE, PROGRAM, READ, Both, pattern, procedure


class Lifetimes(Both):
    def test_what_is_left_open_is_closed_with_the_memory(self):
        self.start_both(procedure(lambda call: call.reply()))
        self.answer()
        self.memory.close()
        for use in (self.answer, self.connection.info, self.client.close, self.server.counters, self.runtime.poll,
                    lambda: self.client.connect(self.bound), lambda: rrdk.Call(self.connection),
                    lambda: self.memory.buffer(1), lambda: rrdk.Server(self.runtime), lambda: self.call.status):
            if use == self.client.close:
                use()  # again: nothing
                continue
            with self.assertRaises(rrdk.ClosedError):
                use()

    def test_nothing_waits_or_is_closed_in_a_handler(self):
        def wrong(call):
            for use in (self.memory.close, self.server.close, self.connection.close, self.runtime.close,
                        lambda: self.server.drain(1), lambda: self.runtime.poll_until(lambda: True),
                        lambda: self.client.connect(self.bound), lambda: self.runtime.start_capture("/dev/null")):
                with self.assertRaisesRegex(rrdk.Error, "must not"):
                    use()
            self.assertEqual(self.runtime.poll(), 0)
            call.reply()

        self.start_both(procedure(wrong))
        self.answer()

    def test_a_kept_call_is_answered_when_its_server_is_closed(self):
        kept = []
        self.start_both(procedure(kept.append))
        self.call.begin(self.program, 1)
        self.call.submit()
        self.until(lambda: kept)
        with self.assertLogs("rrdk", logging.WARNING):
            self.server.close()
        with self.assertRaises(rrdk.ClosedError):
            kept[0].reply()
        self.until(lambda: not self.call.in_flight)

    def test_a_call_in_flight_survives_its_name_and_ends_with_its_connection(self):
        kept, ended = [], []
        self.start_both(procedure(kept.append))
        call = rrdk.Call(self.connection)
        call.begin(self.program, 1)
        call.submit(lambda call: ended.append(call.status))
        for use in (call.submit, call.wait, call.close, lambda: call.begin(self.program, 1), lambda: call.results):
            with self.assertRaisesRegex(rrdk.Error, "in flight"):
                use()
        alive = weakref.ref(call)
        del call
        gc.collect()
        self.assertIsNotNone(alive())
        self.connection.close()
        self.assertEqual(ended, [rrdk.CallStatus.SHUTDOWN])
        gc.collect()
        self.assertIsNone(alive())

    def test_an_exception_in_a_callback_is_logged(self):
        def done(call):
            raise IndexError("oops")

        self.start_both(procedure(lambda call: call.reply()))
        self.call.begin(self.program, 1)
        with self.assertLogs("rrdk", logging.ERROR) as logged:
            self.call.submit(done)
            self.until(lambda: not self.call.in_flight)
        self.assertIn("IndexError: oops", logged.output[0])

    def test_memory_stays_while_a_view_is_used(self):
        self.begin()
        for room in (self.memory.allocate(100), self.memory.buffer(100)):
            view = room.view()
            part = view[10:20]
            for close in (room.close, self.memory.close):
                with self.assertRaisesRegex(BufferError, "release it first"):
                    close()
            self.assertFalse(self.runtime.closed)
            part[:] = b"0123456789"
            alive = weakref.ref(room)
            del room, close
            gc.collect()
            self.assertIsNotNone(alive())  # the view keeps it
            part.release()
            with self.assertRaises(ValueError):
                view[0]
            alive().close()

    def test_a_buffer_is_handed_over_once(self):
        self.start_both(procedure(lambda call: call.reply()))
        buffer = self.memory.buffer(1000)
        part = buffer.view()[5:]
        args = self.call.begin(self.program, 1)
        with self.assertRaises(BufferError):
            args.put_buffer(buffer, 1000)
        part.release()
        with self.assertRaises(ValueError):
            args.put_buffer(buffer, len(buffer) + 1)
        args.put_buffer(buffer, 1000)
        for use in (buffer.view, lambda: args.put_buffer(buffer, 1), lambda: len(buffer)):
            with self.assertRaisesRegex(rrdk.ClosedError, "the buffer is closed"):
                use()
        buffer.close()
        self.call.wait()
        with self.assertRaisesRegex(rrdk.ClosedError, "the arguments"):
            args.put_u32(1)

    def test_borrowed_bytes_must_be_released(self):
        seen = []

        def borrow(call):
            view = call.args.borrow_item()
            call.results.put_opaque(view)
            part = view[1:3]
            with self.assertRaises(BufferError):
                call.reply()
            seen.append(bytes(part))
            part.release()
            call.reply()
            with self.assertRaises(ValueError):
                view[0]

        self.start_both(procedure(borrow, eligible_args=1, fixed_results=4))
        for size in (100, 50_000):
            own = self.memory.allocate(size)
            own.view()[:] = pattern(0, size)
            self.call.begin(self.program, 1, expect_reply=size).put_item(own)
            results = self.call.wait()
            item = results.borrow_item()
            self.assertTrue(item.readonly)
            self.assertEqual(item, pattern(0, size))
            part = item[:5]
            with self.assertRaises(BufferError):
                self.call.begin(self.program, 1)
            with self.assertRaises(BufferError):
                self.connection.close()
            part.release()
            item.release()
        self.assertEqual(seen, [pattern(0, 100)[1:3]] * 2)

    def test_results_end_with_the_memory_that_they_are_in(self):
        self.begin()
        server, uri = self.serve("iwarp", PROGRAM)
        call = rrdk.Call(rrdk.Client(self.runtime).connect(uri))
        room = self.memory.allocate(5000)
        call.begin(PROGRAM, READ).pack("QIII", 0, 5000, 0, 0)
        call.offer(room)
        results = call.wait()
        results.unpack("II")
        item = results.borrow_item()
        part = item[10:]
        with self.assertRaises(BufferError):
            room.close()
        self.assertEqual(part, pattern(10, 4990))
        part.release()
        room.close()
        for use in (results.get_u32, lambda: call.results):
            with self.assertRaises(rrdk.ClosedError):
                use()
        room = self.memory.allocate(5000)
        call.begin(PROGRAM, READ).pack("QIII", 0, 5000, 0, 0)
        call.offer(room)
        alive = weakref.ref(room)
        del room
        call.wait().unpack("II")
        gc.collect()
        self.assertIsNotNone(alive())  # the call keeps it
        self.assertEqual(call.results.get_item(), pattern(0, 5000))
        call.close()
        self.assertIsNone(alive())

    def test_what_reads_and_writes_messages_ends_with_the_call_or_keeps_it(self):
        streams = []

        def drop(call):
            streams.extend([call.args, call.results])

        def reply(call):
            call.results.put_u32(5)
            call.reply()

        self.start_both(procedure(reply, fixed_results=4), procedure(drop, 2))
        with self.assertLogs("rrdk", logging.ERROR):
            self.assert_status(rrdk.CallStatus.SYSTEM_ERR, 2)
        args = rrdk.Call(self.connection).begin(self.program, 1)
        for use in (streams[0].get_u32, lambda: streams[1].put_u32(1), lambda: args.put_u32(1)):
            with self.assertRaises(rrdk.ClosedError):
                use()

        def ask():
            call = rrdk.Call(self.connection)
            call.begin(self.program, 1)
            return call.wait()

        results = ask()
        gc.collect()
        self.assertEqual(results.get_u32(), 5)
        self.connection.close()
        with self.assertRaises(rrdk.ClosedError):
            results.end()

    def test_memory_that_arguments_refer_to_stays(self):
        self.start_both(procedure(lambda call: call.reply()))
        own = self.memory.allocate(100)
        self.call.begin(self.program, 1).put_item(own)
        with self.assertRaisesRegex(BufferError, "in use by a call"):
            own.close()
        self.call.begin(self.program, 1)
        own.close()

    def test_random_uses_never_crash(self):
        seed = os.environ.get("RRDK_SEED") or "1"  # RRDK_SEED=N tries others
        program = os.path.join(os.path.dirname(harness.__file__), "random_uses.py")
        for options in ([], ["threads"]):
            done = subprocess.run(
                [sys.executable, "-X", "faulthandler", program, "-", seed, f"{self.folder}/socket", "1500", *options],
                capture_output=True, text=True, env={**os.environ, "RRDK_LOG": "error"}, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, f"RRDK_SEED={seed}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}")

    def test_telemetry_ends_before_what_it_shows(self):
        self.start_both(procedure(lambda call: call.reply()))
        telemetry = rrdk.Telemetry("python", self.runtime, [self.server], [self.connection])
        self.answer()
        self.assertIn("rrdk_server_calls_received_total", telemetry.openmetrics())
        text, kind = telemetry.answer("application/openmetrics-text")
        self.assertIn("openmetrics", kind)
        self.assertTrue(text.endswith("# EOF\n"))
        self.server.close()
        self.assertTrue(telemetry.closed)

    def test_the_end_of_a_program_closes_everything(self):
        program = f"""
import sys, os
sys.path[:0] = {sys.path[:2]!r}
import python_harness, rrdk
runtime = rrdk.Runtime(rrdk.Memory(bytes=64 << 20), poll_cpus=[-1], idle=rrdk.IdlePolicy.ADAPTIVE)
kept = []
program = rrdk.Program(1 << 29, 1, "test", [rrdk.Procedure(1, "KEEP", kept.append)])
server = rrdk.Server(runtime)
server.add_service(program)
connection = rrdk.Client(runtime).connect(server.listen("shm:" + {self.folder!r} + "/end"))
view = runtime.memory.allocate(10).view()
calls = [rrdk.Call(connection) for _ in range(10)]
for call in calls:
    call.begin(program, 1)
    call.submit(lambda call: None)
runtime.poll_until(lambda: kept)
"""
        self.run_program(program)

    def test_the_end_of_a_program_waits_for_the_pass_of_a_daemon(self):
        program = f"""
import sys, threading, time
sys.path[:0] = {sys.path[:2]!r}
import python_harness, rrdk
entered = threading.Event()

def handle(call):
    entered.set()
    while not rrdk._runtime._at_exit:
        time.sleep(0.001)
    call.reply()
    print("answered", flush=True)

def poll():
    runtime = rrdk.Runtime(rrdk._memory)
    server = rrdk.Server(runtime)
    program = rrdk.Program(1 << 29, 1, "test", [rrdk.Procedure(1, "WAIT", handle)])
    server.add_service(program)
    call = rrdk.Call(rrdk.Client(runtime).connect(server.listen("shm:" + {self.folder!r} + "/daemon")))
    call.begin(program, 1)
    try:
        call.wait()
    except rrdk.Error:
        pass

rrdk._memory = rrdk.Memory(bytes=64 << 20)
threading.Thread(target=poll, daemon=True).start()
entered.wait()
"""
        self.assertIn("answered", self.run_program(program))

    def run_program(self, text):
        """Runs it to its end, which must be a good one; returns its output."""
        done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", text], capture_output=True, text=True,
                              timeout=PATIENCE, env={**os.environ, "RRDK_LOG": "warning",
                                                     "PYTHONPATH": os.path.dirname(harness.__file__)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stdout

    def test_a_runtime_is_not_closed_during_a_pass(self):
        caught = []

        def handle(call):
            def close():
                for each in (self.runtime, self.memory):
                    try:
                        each.close()
                    except rrdk.Error as error:
                        caught.append(str(error))

            thread = threading.Thread(target=close)
            thread.start()
            thread.join()
            call.reply()

        self.begin()
        serving = rrdk.Runtime(self.memory)  # which has nothing that would be closed first
        self.start_both(procedure(handle))
        serving.close()
        self.call.begin(self.program, 1)
        self.call.submit()
        self.until(lambda: caught)
        self.assertEqual(len(caught), 2)
        for text in caught:
            self.assertIn("in use by another thread: it stays open", text)
        self.assertFalse(self.runtime.closed or self.memory.closed)

    def test_a_connection_is_used_before_connect_has_returned(self):
        for options in ({}, {"poll_cpus": [-1], "idle": rrdk.IdlePolicy.ADAPTIVE}):
            for name in ("connect", "connect_start"):
                seen, calls = [], []

                def on_state(connection, state, error):
                    if state != rrdk.State.CLOSED:
                        seen.append((connection.state, connection.room > 0))
                        calls.append(rrdk.Call(connection))

                self.begin(**options)
                _, uri = self.serve(self.driver, PROGRAM)
                connection = getattr(rrdk.Client(self.runtime), name)(uri, on_state=on_state)
                self.until(lambda: connection.alive and len(calls) == 2)
                self.assertEqual([room for _, room in seen], [True, True])
                calls[0].begin(PROGRAM, "NULL")
                connection.close()
                self.assertEqual((connection._users, connection._children), (0, {}))
                self.assertTrue(connection.closed and calls[0].closed)
                self.end()

    def test_a_callback_uses_a_connection_while_it_is_made(self):
        inside, made = threading.Event(), threading.Event()

        def on_state(connection, state, error):
            def use(_):
                inside.set()
                self.assertTrue(made.wait(PATIENCE))

            if state == rrdk.State.UP:
                connection._use(use)

        def start(*arguments):
            code = rrdk._c.lib.connect_start(*arguments)
            self.assertTrue(inside.wait(PATIENCE))
            return code

        self.begin(poll_cpus=[-1], idle=rrdk.IdlePolicy.ADAPTIVE)
        _, uri = self.serve(self.driver, PROGRAM)
        connection = rrdk._client.Connection(rrdk.Client(self.runtime), start, uri, -1, on_state)
        with self.assertRaisesRegex(rrdk.Error, "in use by another thread"):
            connection.close()
        made.set()
        self.until(lambda: connection._users == 0)
        connection.close()

    def test_a_server_that_could_not_be_closed_serves(self):
        self.start_both(procedure(lambda call: call.reply()))
        with self.assertRaisesRegex(rrdk.Error, "in use by another thread"):
            self.server._use(lambda handle: self.server.close())
        self.answer()

    def test_a_callback_may_submit_the_call_again(self):
        order = []

        class Watched(rrdk.Call):
            def __setattr__(call, name, value):
                if name == "_in_flight" and value is False and "_done" in call.__dict__:
                    order.append(call._done)
                object.__setattr__(call, name, value)

        self.start_both(procedure(lambda call: call.reply()))
        call = Watched(self.connection)
        order.clear()
        call.begin(self.program, 1)
        call.submit(lambda call: order.append("called"))
        self.until(lambda: not call.in_flight)
        self.assertEqual(order, [None, "called"])

    def test_another_thread_may_not_poll(self):
        self.begin()
        self.runtime.poll()
        caught = []

        def poll():
            try:
                self.runtime.poll()
            except rrdk.Error as error:
                caught.append(str(error))

        thread = threading.Thread(target=poll)
        thread.start()
        thread.join()
        self.assertEqual(caught, ["another thread polls this runtime: always poll in the same one"])


if __name__ == "__main__":
    harness.main()
