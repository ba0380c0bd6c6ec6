"""Telemetry; and measuring calls as testrpc does, with its words in the results (doc/testrpc-json.md)."""
import ctypes
import os
import platform
import sys
import time
from ctypes import byref, c_char_p

from . import _c
from ._c import CallError, CallStatus, lib
from ._client import Call, Connection
from ._runtime import Object, Runtime, need
from ._serving import Server

_SUB_BITS, _MAX_BITS = 7, 37
_PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9}


class Telemetry(Object):
    """The metrics of a runtime, servers and connections: DPDK's telemetry tools, and rrdk-top, find them under the
    name; openmetrics() is the text for Prometheus. Closed with the first of what it was made of."""
    _what = "the telemetry"

    def __init__(self, name, runtime=None, servers=(), connections=()):
        def array(objects, kind):
            return (_c.Handle * len(objects))(*[need(each, kind)._handle for each in objects]), len(objects)

        runtimes = [] if runtime is None else [need(runtime, Runtime)]
        super().__init__(*runtimes, *servers, *connections)
        self._open(_c.made(lib.telemetry_create, _c.text_of(name, "the name"), runtime and runtime._handle,
                           *array(servers, Server), *array(connections, Connection)))

    def openmetrics(self):
        return self._text(lib.telemetry_openmetrics)

    def answer(self, accept=None):
        """Returns the text in the format that an HTTP reader's Accept header asks for, and its content type."""
        kind = c_char_p()
        accept = None if accept is None else _c.text_of(accept, "accept")
        text = self._text(lambda handle, to, size: lib.telemetry_answer(handle, accept, to, size, byref(kind)))
        return text, kind.value.decode()

    def _text(self, function):
        size = 1 << 16
        while True:
            room = ctypes.create_string_buffer(size)
            length = self._use(function, room, size)
            if length < size:
                return room.value.decode()
            size = length + 4096

    def _destroy(self, handle):
        lib.telemetry_destroy(handle)


class Histogram:
    """Durations in nanoseconds, as testrpc counts them: every power of two is cut into 128 equal buckets, so that a
    duration is known to 0.8 %; longer ones than 2^37 ns (137 s) count as that."""

    def __init__(self):
        self._counts = {}
        self.count = self.sum = self.max = 0
        self.min = None

    def record(self, ns):
        self.count += 1
        self.sum += ns
        if ns > self.max:
            self.max = ns
        if self.min is None or ns < self.min:
            self.min = ns
        index = self._index(ns)
        self._counts[index] = self._counts.get(index, 0) + 1

    def add(self, other):
        for index, count in other._counts.items():
            self._counts[index] = self._counts.get(index, 0) + count
        self.count += other.count
        self.sum += other.sum
        self.max = max(self.max, other.max)
        self.min = min((each for each in (self.min, other.min) if each is not None), default=None)

    def percentile(self, percent):
        """The duration that `percent` of all do not exceed, rounded up to the end of its bucket; None if there are too
        few, so that none is beyond it."""
        needed = 1 if percent <= 50 else round(100 / (100 - percent)) if percent < 100 else 1
        if self.count < needed:
            return None
        rank = min(max(1, int(percent / 100 * self.count + 0.5)), self.count)
        for upper, count in self.buckets():
            rank -= count
            if rank <= 0:
                return max(upper, self.min)
        return self.max

    def buckets(self):
        """Returns pairs of the longest duration of a bucket, and the number of durations in it, ascending."""
        return [[min(self._upper_end(index), self.max), self._counts[index]] for index in sorted(self._counts)]

    def summary(self):
        """Returns min, mean, p50, p90, p99, p99.9 and max; None for what is not known."""
        if self.count == 0:
            return dict.fromkeys(["min", "mean", *_PERCENTILES, "max"])
        return {"min": self.min, "mean": self.sum / self.count,
                **{name: self.percentile(percent) for name, percent in _PERCENTILES.items()}, "max": self.max}

    @staticmethod
    def _index(ns):
        ns = min(ns, (1 << _MAX_BITS) - 1)
        shift = ns.bit_length() - _SUB_BITS - 1
        return ns if shift <= 0 else (shift << _SUB_BITS) + (ns >> shift)

    @staticmethod
    def _upper_end(index):
        shift = 0 if index < 2 << _SUB_BITS else (index >> _SUB_BITS) - 1
        return ((index - (shift << _SUB_BITS) + 1) << shift) - 1


class _Load:
    """The calls of one connection: each of `window` Calls makes one after another."""

    def __init__(self, connection, begin, check, window, count, duration):
        self._begin, self._check, self._duration = begin, check, duration
        self.latencies = Histogram()
        self.errors = {}
        self.failure = None  # an exception of begin() or check()
        self.ended = 0       # when the last call ended
        # How many calls each Call is still to make; each has its own share, since others run at the same time.
        self._calls = {Call(connection): None if count is None else count // window + (k < count % window)
                       for k in range(window)}
        self.busy = set()  # of the Calls that are not done; poll threads take them out
        self._submitted = {}

    def start(self):
        self._stop_at = None if self._duration is None else time.monotonic_ns() + int(self._duration * 1e9)
        self.busy.update(self._calls)
        for call in self._calls:
            if self._calls[call] != 0 and self.failure is None:
                self._make(call)  # one call at least, however short the time
            else:
                self.busy.discard(call)

    def stop(self):
        self._stop_at = 0

    def _next(self, call):
        if self._calls[call] == 0 or self.failure is not None or (
                self._stop_at is not None and time.monotonic_ns() >= self._stop_at):
            self.busy.discard(call)
        else:
            self._make(call)

    def _make(self, call):
        if self._calls[call] is not None:
            self._calls[call] -= 1
        try:
            self._begin(call)
            self._submitted[call] = time.monotonic_ns()
            call.submit(self._done)
        except BaseException as failure:
            self.failure = failure
            self.busy.discard(call)

    def _done(self, call):
        self.ended = time.monotonic_ns()
        try:
            wrong = self._what_is_wrong(call)
        except BaseException as failure:
            self.failure = failure
            self.busy.discard(call)
            return
        if wrong is None:
            self.latencies.record(self.ended - self._submitted[call])
        else:
            self.errors[wrong] = self.errors.get(wrong, 0) + 1
        self._next(call)

    def _what_is_wrong(self, call):
        if call.status != CallStatus.OK:
            return str(CallError(call.status))
        if self._check is not None and not self._check(call):
            return "wrong results"
        return None

    def close(self):
        for call in self._calls:
            if not call.in_flight:
                call.close()


def _run(runtime, loads):
    """Makes the calls; returns when the first one was begun."""
    began = time.monotonic_ns()
    for load in loads:
        load.start()
    try:
        runtime.poll_until(lambda: not any(load.busy for load in loads))
    finally:
        for load in loads:
            load.stop()
            load.close()
    for load in loads:
        if load.failure is not None:
            raise load.failure
    return began


def measure(connections, begin, *, window=1, duration=None, count=None, warmup_calls=0, check=None, engine="calls",
            size=0):
    """Makes calls on a Connection, or on several, `window` at a time on each: for `duration` seconds, each
    Call once at least, or `count` calls in all. begin(call) begins each one and writes its arguments; check(call), if it
    is given, says whether its results are right. `engine` and `size` (bytes of data in a call) only name the run.

    Returns a run of testrpc's JSON, with those of its members that are known here. Latencies are from submit() to the
    callback, Python's time included: compare with testrpc's before you trust small ones.
    """
    if (duration is None) == (count is None):
        raise TypeError("either duration or count is needed")
    connections = list(connections) if isinstance(connections, (list, tuple)) else [connections]
    runtime = connections[0].runtime
    if any(connection.runtime is not runtime for connection in connections):
        raise ValueError("the connections are of several runtimes")

    def loads(count, duration):
        share, rest = divmod(count or 0, len(connections))
        return [_Load(connection, begin, check, window, None if count is None else share + (k < rest), duration)
                for k, connection in enumerate(connections)]

    if warmup_calls:
        _run(runtime, loads(warmup_calls, None))
    reconnects = _reconnects(connections)
    now = _now()
    measured = loads(count, duration)
    began = _run(runtime, measured)
    latencies, errors = Histogram(), {}
    for load in measured:
        latencies.add(load.latencies)
        for reason, times in load.errors.items():
            errors[reason] = errors.get(reason, 0) + times
    seconds = max((max(load.ended for load in measured) - began) / 1e9, 1e-9)
    failed = sum(errors.values())
    return {"time": now, "engine": engine, "size": size, "window": window, "connections": len(connections),
            "active": len(connections), "duration": duration, "count": count, "warmup_calls": warmup_calls,
            "seconds": seconds, "calls": latencies.count + failed, "calls_right": latencies.count, "errors": failed,
            "errors_by_reason": errors, "stopped": False, "rate": None,
            "reconnects": _reconnects(connections) - reconnects, "rpcrdma_version": connections[-1].version,
            "rpc_per_s": latencies.count / seconds, "bytes_per_s": latencies.count * size / seconds,
            "latency_ns": latencies.summary(), "histogram": latencies.buckets()}


def result(connection, runs):
    """Returns the JSON object of testrpc with these runs of a connection. rrdk-hdr-log reads it; what is not known is
    None."""
    info = connection.info()
    uname = platform.uname()
    return {"tool": "rrdk.py", "schema": 2, "version": lib.version_string().decode(), "revision": None,
            "time": runs[0]["time"] if runs else _now(),
            "environment": {"host": uname.node, "cpu": _cpu(), "cpus": os.cpu_count(),
                            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
                            "kernel": uname.release, "dpdk": None, "compiler": None, "optimized": None},
            "command": list(sys.argv), "uri": connection.uri, "options": {},
            "negotiated": {"peer": info.peer, "driver": info.driver, "rpcrdma_version": info.version,
                           "send_size": info.send_size, "receive_size": info.receive_size, "credits": info.credits},
            "connect_seconds": None, "runs": list(runs),
            "audit": dict.fromkeys(["pools_whole", "allocations", "allocations_per_call", "registrations",
                                    "registrations_per_call"])}


def _reconnects(connections):
    return sum(connection.counters()["reconnections"] for connection in connections)


def _now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _cpu():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), None)
    except OSError:
        return None
