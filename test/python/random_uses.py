#!/usr/bin/env python3
"""Uses the objects of the module rrdk in random order, also after they were closed: only exceptions may follow.

Usage: random_uses.py - SEED SOCKET [STEPS [threads]]; "threads": some runtimes have threads that poll.
"""
import gc
import random
import sys
import time

import python_harness  # noqa: F401  (it finds the module)
import rrdk

EXPECTED = (rrdk.Error, ValueError, TypeError, BufferError, OverflowError, MemoryError, AttributeError)
SIZES = (0, 1, 100, 5000, 70_000)


class Uses:
    def __init__(self, seed, socket, threads):
        self.random = random.Random(seed)
        self.kinds = [{}, {"poll_cpus": [-1], "idle": rrdk.IdlePolicy.ADAPTIVE}] if threads else [{}]
        self.socket = socket
        self.pool = {kind: [] for kind in ("memory", "runtime", "server", "client", "connection", "call", "room",
                                           "buffer", "view", "kept", "results", "telemetry", "uri")}
        self.program = rrdk.Program(0x20001111, 1, "random", [
            rrdk.Procedure(1, "ECHO", self.handle, fixed_results=8, eligible_args=1, eligible_results=1)])
        self.uses = [getattr(self, name) for name in dir(self) if name.startswith("use_")]

    def any(self, kind):
        """One of those that there are, open or not."""
        found = self.pool[kind]
        if not found:
            raise rrdk.ClosedError(kind)
        return self.random.choice(found)

    def put(self, kind, value):
        found = self.pool[kind]
        found.append(value)
        if len(found) > 6:
            found.pop(self.random.randrange(len(found)))
        return value

    def size(self):
        return self.random.choice(SIZES)

    def handle(self, call):
        way = self.random.randrange(8)
        if way == 0:
            self.put("kept", call)
        elif way == 1:
            raise KeyError("a handler's mistake")
        elif way == 2:
            self.random.choice(self.uses)()
        elif way == 3:
            self.put("view", call.args.borrow_item())
        elif way == 4:
            buffer = call.result_buffer(self.size())
            call.results.put_buffer(buffer, len(buffer) and 1)
            call.reply()
        elif way == 5:
            call.results.put_item(self.any("room"))
            call.reply()
        else:
            call.results.put_opaque(call.args.borrow_item())
            call.reply()

    def done(self, call):
        if self.random.random() < 0.5:
            self.put("results", call.results)
        self.random.choice(self.uses)()

    def use_memory(self):
        if len([each for each in self.pool["memory"] if not each.closed]) < 2:
            self.put("memory", rrdk.Memory(bytes=32 << 20))

    def use_runtime(self):
        if len([each for each in self.pool["runtime"] if not each.closed]) < 2:
            self.put("runtime", rrdk.Runtime(self.any("memory"), **self.random.choice(self.kinds)))

    def use_server(self):
        server = self.put("server", rrdk.Server(self.any("runtime")))
        server.add_service(self.program)
        self.put("uri", server.listen(self.random.choice(["iwarp://127.0.0.1:0", f"shm:{self.socket}"])))

    def use_client(self):
        client = self.put("client", rrdk.Client(self.any("runtime"), call_timeout_ms=20, connect_timeout_ms=100))
        self.put("connection", client.connect_start(self.any("uri")))

    def use_connection(self):
        self.put("connection", self.any("client").connect_start(self.any("uri")))

    def use_call(self):
        self.put("call", rrdk.Call(self.any("connection")))

    def use_room(self):
        self.put("room", self.any("memory").allocate(self.size()))

    def use_buffer(self):
        self.put("buffer", self.any("memory").buffer(self.size()))

    def use_view(self):
        view = self.put("view", self.any(self.random.choice(["room", "buffer"])).view())
        if self.random.random() < 0.3:
            self.put("view", view[1:])

    def use_view_of_view(self):
        view = self.any("view")
        if not view.readonly:
            view[:] = bytes(len(view))
        bytes(view)

    def use_submit(self):
        call = self.any("call")
        args = call.begin(self.program, 1, expect_reply=self.size())
        way = self.random.randrange(4)
        if way == 0:
            args.put_opaque(bytes(self.size()))
        elif way == 1:
            args.put_item(self.any("room"))
        elif way == 2:
            buffer = self.any("buffer")
            args.put_buffer(buffer, len(buffer) and 1)
        else:
            args.put_opaque(self.any("view"))
        if self.random.random() < 0.3:
            call.offer(self.any("room"))
        if self.random.random() < 0.3:
            buffer = self.any("buffer")
            call.offer_buffer(buffer, len(buffer))
        if self.random.random() < 0.2:
            call.wait()
        else:
            call.submit(self.done)

    def use_results(self):
        results = self.put("results", self.any("call").results)
        self.put("view", results.borrow_item())

    def use_old_results(self):
        self.any("results").get_item()

    def use_offered(self):
        self.put("buffer", self.any("call").take_offered(self.random.randrange(2)))

    def use_kept(self):
        call = self.any("kept")
        call.results.put_opaque(call.args.get_item())
        self.random.choice([call.reply, call.drop, lambda: call.reject(rrdk.AcceptStat.SYSTEM_ERR)])()

    def use_infos(self):
        connection, server = self.any("connection"), self.any("server")
        connection.info(), connection.counters(), connection.state, connection.error(), connection.version
        server.connections(), server.counters(), server.limits()

    def use_telemetry(self):
        self.put("telemetry", rrdk.Telemetry(f"random{self.random.randrange(1 << 30)}", self.any("runtime"),
                                             [self.any("server")], [self.any("connection")])).openmetrics()

    def use_cancel(self):
        self.any("call").cancel()

    def use_poll(self):
        runtime = self.any("runtime")
        runtime.poll_until(lambda: False, self.random.choice([0, 0.002]))

    use_poll_more = use_poll_again = use_poll

    def use_forget(self):
        kind = self.random.choice(list(self.pool))
        if self.pool[kind] and kind not in ("memory", "runtime"):
            self.pool[kind].pop(self.random.randrange(len(self.pool[kind])))
        if self.random.random() < 0.1:
            gc.collect()

    def use_close(self):
        kind = self.random.choice([kind for kind in self.pool if kind not in ("memory", "runtime", "uri")])
        found = self.any(kind)
        (found.release if kind == "view" else found.close)()

    def use_close_all(self):
        if self.random.random() < 0.05:
            self.any(self.random.choice(["memory", "runtime"])).close()


def main(seed, socket, steps=3000, *options):
    uses = Uses(int(seed), socket, "threads" in options)
    refused, began = 0, time.monotonic()
    for step in range(int(steps)):
        if time.monotonic() > began + 60:
            break
        try:
            uses.random.choice(uses.uses)()
        except EXPECTED:
            refused += 1
    print(f"{step + 1} uses, of which {refused} were refused, in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[2:])
