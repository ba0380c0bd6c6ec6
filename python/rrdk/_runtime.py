"""What a program sets up first: memory and its buffers, the runtime. And what all objects share: who owns whom, and how
the library calls Python.
"""
import atexit
import contextlib
import ctypes
import itertools
import logging
import os
import select
import signal
import sys
import threading
import time
import weakref
from collections import namedtuple
from ctypes import byref, c_char_p, c_int, c_uint8

from . import _c
from ._c import Error, ErrorCode, held, lib

log = logging.getLogger("rrdk")

# ---- Calls from the library ----


class _Thread(threading.local):
    inside = 0        # how many callbacks of poll cores the thread is in
    interrupt = None  # an exception that is to end the program, as Ctrl-C, and came in a callback


_thread = _Thread()
keys = itertools.count(1)  # what callbacks get as their argument, in place of pointers to objects of Python
_entries = set()  # the code of the functions that the library calls


def entry(kind):
    """Makes a function one that the library calls, of this type."""
    def made(function):
        _entries.add(function.__code__)
        return kind(function)
    return made


def _entered(frame):
    """Returns the frame of the innermost callback, and the frame that it has called, from this one outwards."""
    inner = None
    while frame is not None and frame.f_code not in _entries:
        frame, inner = frame.f_back, frame
    return frame, inner


@contextlib.contextmanager
def called(what, waits=False):
    """The body of a callback. No exception leaves it, since there is C around it: it is logged, and one that ends the
    program continues where Python called the library. `waits` says that the callback may wait."""
    before = _thread.inside
    _thread.inside = before if waits else before + 1
    try:
        yield
    except Exception:
        log.exception("%s raised an exception", what)
    except BaseException as interrupt:
        if _entered(sys._getframe())[0].f_back is None:
            log.exception("%s raised an exception that ends a program, in a thread of the library", what)
        else:
            _thread.interrupt = interrupt
    finally:
        _thread.inside = before


def may_wait(what):
    """Raises an error in a callback: what waits there would wait for itself."""
    if _thread.inside > 0:
        raise Error(ErrorCode.INVALID_ARGUMENT, f"{what} waits, which a handler or callback must not do")


def go_on():
    """Raises the exception that ended a callback, if it was one that ends the program."""
    interrupt = _thread.interrupt
    if interrupt is not None:
        _thread.interrupt = None
        raise interrupt


class _Guard:
    """The program's handler of a signal, which may raise an exception, as Ctrl-C does. Python runs it between any two
    steps of the main thread, also before a callback has come to its `with called()`, where ctypes would drop the
    exception and the callback would not run: there the exception waits for go_on()."""

    def __init__(self, handler):
        self.handler = handler

    def __call__(self, number, frame):
        try:
            self.handler(number, frame)
        except BaseException as interrupt:
            callback, inner = _entered(frame)
            if callback is None or inner is not None and not _is_ours(inner.f_code):
                raise  # outside of callbacks, or in the program's part of one
            _thread.interrupt = interrupt


def _is_ours(code):
    return code.co_filename == _CONTEXTLIB or os.path.dirname(code.co_filename) == _PACKAGE


_CONTEXTLIB = contextlib.contextmanager.__code__.co_filename
_PACKAGE = os.path.dirname(_entered.__code__.co_filename)
_guarded = set()  # the embedded runtimes that are open


def _guard_signals():
    if threading.current_thread() is threading.main_thread():
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _Guard):
                signal.signal(number, _Guard(handler))


def _restore_signals():
    if threading.current_thread() is threading.main_thread():
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if isinstance(handler, _Guard):
                signal.signal(number, handler.handler)


def members(weak_set):
    """Returns a list of what is in a WeakSet, to which other threads may add."""
    while True:
        with contextlib.suppress(RuntimeError):
            return list(weak_set)


# ---- Objects with handles ----

lock = threading.RLock()  # for counts that several threads change
_memories = {}  # those that are open, in order
acceptors = {}  # the same
_at_exit = False


def need(value, kind):
    """Returns the value, which must be of this class: another class's handle would be taken for one of its kind."""
    if not isinstance(value, kind):
        raise TypeError(f"a {kind.__name__} is needed, not {value!r}")
    return value


class Handled:
    """Has the handle of an object of the library, until it is closed: using it is an error from then on."""
    _what = "the object"

    def __getattr__(self, name):  # only for what is not there
        if name == "_handle":
            raise _c.ClosedError(self._what)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def closed(self):
        return "_handle" not in self.__dict__

    def _forget(self):
        """Lets no more use be made of the handle."""
        self.__dict__.pop("_handle", None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Object(Handled):
    """An object of the library. It keeps alive what it was made of, and is closed before that: close() first closes
    what was made of this one. `with` closes, too, and so does the end of the program."""
    _close_waits = True
    _closing = False

    def __init__(self, *parents):
        self._users = 0
        self._children = {}
        self._parents = parents

    def _open(self, handle):
        """Gives it its handle: in a _use() of a parent, which is then not closed before it knows this object."""
        self._handle = handle
        for parent in self._parents:
            parent._children[self] = None

    def _use(self, function, *arguments):
        """Returns function(handle, arguments...). Another thread cannot close the object meanwhile."""
        used = False  # Ctrl-C may come anywhere
        try:
            with lock:
                handle = self._handle
                self._users += 1
                used = True
            return function(handle, *arguments)
        finally:
            if used:
                with lock:
                    self._users -= 1
            go_on()

    def _wait(self, function, *arguments):
        """As _use(), for a function that waits."""
        may_wait(function.__name__)
        return self._use(function, *arguments)

    def _must(self, function, *arguments):
        """As _wait(), for a set-up function."""
        may_wait(function.__name__)
        self._use(lambda handle: _c.must(function, handle, *arguments))

    def close(self):
        """Closes what was made of this object, the newest first, and then the object. Waits. Does nothing if it is
        closed already."""
        if self.closed:
            return
        if self._close_waits:
            may_wait(f"closing {self._what}")
        self._closing = True
        try:
            self._before_close()
            for child in reversed(list(self._children)):
                child.close()
            self._before_destroy()
            with lock:
                if self.closed:
                    return
                self._must_be_unused()
                handle = self.__dict__.pop("_handle")
        except BaseException:
            self._closing = False
            raise
        try:
            self._destroy(handle)
        finally:
            for parent in self._parents:
                parent._children.pop(self, None)
        go_on()

    def _must_be_unused(self):
        """Raises an error if another thread uses it, has made a child, or is closing one."""
        if self._users or self._children:
            raise self._in_use()

    def _in_use(self):
        return Error(ErrorCode.INVALID_ARGUMENT, f"{self._what} is in use by another thread: it stays open")

    def _before_close(self):
        """Raises an exception if it cannot be closed now."""

    def _before_destroy(self):
        """The same, when what was made of it is closed."""

    def _destroy(self, handle):
        raise NotImplementedError


@atexit.register
def _close_all():
    """The end of the program. After it no thread of the library calls Python any more."""
    global _at_exit
    with lock:
        _at_exit = True
    for memory in reversed(list(_memories)):
        for runtime in list(memory._children):
            runtime._await_pass()
        for each in [*reversed(list(memory._children)), memory]:
            _close_at_exit(each)
    for acceptor in list(acceptors):
        _close_at_exit(acceptor)


def _close_at_exit(each):
    try:
        each.close()
    except Exception as error:
        log.debug("at the end of the program: %s", error)


# ---- Memory ----

class Loans:
    """Memoryviews of the library's memory: each keeps its owner, and its owner can tell whether one is left."""

    def __init__(self, what):
        self._what = what
        self._views = []

    def lend(self, owner, address, length, readonly=False):
        """Returns a memoryview of these bytes, which are valid for as long as the owner."""
        array = (c_uint8 * length).from_address(address) if length else (c_uint8 * 0)()
        array.owner = owner
        view = memoryview(array).cast("B")
        if readonly:
            view = view.toreadonly()
        self._views = [pair for pair in self._views if pair[1]() is not None]
        self._views.append((weakref.ref(view), weakref.ref(array)))
        return view

    def end(self):
        """Releases the views. Raises an error if something that was made of one is left, such as a slice."""
        for view, _ in self._views:
            with contextlib.suppress(AttributeError, BufferError):  # it is gone; or it has a user
                view().release()
        self._views = [pair for pair in self._views if pair[1]() is not None]
        if self._views and not _at_exit:
            raise BufferError(f"a memoryview of {self._what} is in use, or a part of one: release it first")


def ensure_eal(*arguments):
    """Starts DPDK's environment, with these arguments over quiet defaults, or adopts the one that runs. Making a Memory
    does it without arguments."""
    if threading.current_thread() is not threading.main_thread():
        raise Error(ErrorCode.INVALID_ARGUMENT, "DPDK's environment must be started by the main thread: ensure_eal()")
    words = [_c.text_of(word, "an argument of EAL") for word in arguments]
    _c.must(lib.ensure_eal, (c_char_p * len(words))(*words), len(words))


_eal_started = False


class Memory(Object):
    """The memory of buffers and messages. `classes` are pairs of a buffer's size and their number, 0 for as many as
    the budget allows; the other options are those of rrdk::MemoryOptions: bytes (the budget), hugepages, prefault."""
    _what = "the memory"

    def __init__(self, *, classes=(), numa_nodes=(), **options):
        global _eal_started
        if not _eal_started:
            ensure_eal()
            _eal_started = True
        structure = _c.options(_c.MemoryOptions, lib.memory_options_init, options)
        keep = [_c.put_array(structure, "numa_nodes", c_int, numa_nodes)] if numa_nodes else []
        if classes:
            pairs = [(_c.number(size), _c.number(count)) for size, count in classes]
            keep.append(_c.put_array(structure, "classes", _c.SizeClass, pairs))
        super().__init__()
        self._parts = weakref.WeakSet()  # buffers and registered memory
        self._open(_c.made(lib.memory_create, byref(structure)))
        _memories[self] = None

    @property
    def whole(self):
        """True if every buffer is back in its pool, which is not to be expected while a runtime exists."""
        return self._use(lib.memory_whole)

    @property
    def largest_buffer(self):
        return self._use(lib.memory_largest_buffer)

    def buffer(self, size):
        """Returns a Buffer of at least `size` bytes. Raises an error (NO_MEMORY) if the pools are exhausted."""
        def get(of_memory):
            handle = lib.buffer_get(of_memory, _c.number(size))
            return None if handle is None else Buffer(handle, self)

        buffer = self._use(get)
        if buffer is None:
            raise Error(ErrorCode.NO_MEMORY, f"no buffer of {size} bytes is left")
        return buffer

    def allocate(self, size):
        """Returns RegisteredMemory of this size, for bulk data that RDMA moves to or from the program's own place."""
        return self._use(lambda handle: RegisteredMemory(
            _c.made(lib.memory_allocate, handle, _c.number(size, 64)), self))

    def _before_close(self):
        for part in members(self._parts):
            part._loans.end()

    def _before_destroy(self):
        for part in members(self._parts):
            part._check_closable()

    def _destroy(self, handle):
        for part in members(self._parts):
            part.close()
        lib.memory_destroy(handle)
        _memories.pop(self, None)


class _Bytes(Handled):
    """Memory that RDMA can access. view() is a memoryview, without a copy."""

    def __init__(self, handle, memory):
        self._handle = handle
        self._memory = memory  # which is thus closed later
        self._loans = Loans(self._what)
        memory._parts.add(self)

    def __len__(self):
        return self._size()

    def __del__(self):
        if not self.closed:  # no view is left, since each keeps its owner
            self._free(self.__dict__.pop("_handle"))

    def view(self):
        """Returns a writable memoryview of the bytes. While it, or a slice, is in use, they stay here."""
        return self._loans.lend(self, self._address(), len(self))

    def close(self):
        """Gives the memory back. BufferError: a view is in use, or a call."""
        if not self.closed:
            self._check_closable()
            self._free(self._take())

    def _check_closable(self):
        self._loans.end()

    def _take(self):
        self._loans.end()
        handle = self._handle
        del self._handle
        return handle


class Buffer(_Bytes):
    """A buffer of a pool, which it returns to with the last reference. A message can take it over
    (Encoder.put_buffer(), Call.offer_buffer()): then it is closed here."""
    _what = "the buffer"

    def _size(self):
        return held.buffer_capacity(self._handle)

    def _address(self):
        return held.buffer_data(self._handle)

    def _free(self, handle):
        lib.buffer_put(handle)


class RegisteredMemory(_Bytes):
    """Memory of the program that RDMA can access: calls read from it and write to it in place. `lent` says how often
    calls refer to it that have not ended, or whose peer may still use it."""
    _what = "the registered memory"

    def __init__(self, handle, memory):
        super().__init__(handle, memory)
        self.lent = 0
        self.readers = weakref.WeakSet()  # calls whose results may be placed here

    def span(self, offset=0, length=None):
        """Returns a part, to be given to put_item() or offer()."""
        length = len(self) - offset if length is None else length
        if not (0 <= offset and 0 <= length and offset + length <= len(self)):
            raise ValueError(f"{length} bytes at {offset} are not inside these {len(self)} bytes")
        return Span(self, offset, _c.number(length))

    def _size(self):
        return held.registered_memory_size(self._handle)

    def _address(self):
        return held.registered_memory_data(self._handle)

    def _free(self, handle):
        lib.registered_memory_destroy(handle)

    def _check_closable(self):
        if self.lent and not _at_exit:
            raise BufferError("the registered memory is in use by a call")
        for call in members(self.readers):
            call._end_results()
        super()._check_closable()


class Span(namedtuple("Span", "memory offset length")):
    """A part of a RegisteredMemory."""
    __slots__ = ()

    def structure(self):
        return held.registered_memory_span(self.memory._handle, self.offset, self.length)


class Spans:
    """What a call refers to: lent from when it is added until the call is given up, or the library says that the peer
    is done with it."""

    def __init__(self, memory):
        self.memory = memory  # of which they must be
        self._spans = []

    def __len__(self):
        return len(self._spans)

    def add(self, part):
        """Adds a Span, or all of a RegisteredMemory; returns the structure for the library."""
        span = part.span() if isinstance(part, RegisteredMemory) else need(part, Span)
        if need(span.memory, RegisteredMemory)._memory is not self.memory:
            raise ValueError("the memory is not that of the runtime")
        span = span.memory.span(span.offset, span.length)  # which checks what the program made
        structure = span.structure()
        with lock:  # poll threads end loans
            span.memory.lent += 1
        self._spans.append(span)
        return structure

    def drop(self):
        with lock:
            for span in self._spans:
                span.memory.lent -= 1
        self._spans.clear()

    def lend(self):
        """Lets the library say when the peer is done; returns the argument for on_released()."""
        key = next(keys)
        lent = Spans(self.memory)
        lent._spans, self._spans = self._spans, []
        _lent[key] = lent
        return key

    def return_from(self, key):
        """Undoes lend()."""
        if lent := _lent.pop(key, None):
            self._spans = lent._spans

    def memories(self):
        return {span.memory for span in self._spans}


# The Spans that the peer may use, by the argument that on_released() gets.
_lent = {}


def take_back(key):
    if spans := _lent.pop(key, None):
        spans.drop()


@entry(_c.OnReleased)
def on_released(key):
    with called("the end of a loan"):
        take_back(key)


# ---- Runtime ----

CaptureCounts = namedtuple("CaptureCounts", "captured lost")
_EMPTY_PASSES = 200  # before a thread that waits sleeps


class Runtime(Object):
    """Cores that poll. Without poll_cpus, the program itself polls, in one thread: poll() or poll_until(). With
    poll_cpus (a CPU for each thread, -1: not pinned) the library has threads, which call handlers and callbacks.
    worker_cpus are threads for handlers of procedures with `worker`. The other options are those of
    rrdk::RuntimeOptions: idle, adaptive_us, ring_size, stamp_every, pass_budget_us."""
    _what = "the runtime"

    def __init__(self, memory, *, poll_cpus=(), worker_cpus=(), **options):
        if "embedded_cores" in options:
            raise TypeError("a program in Python polls one core")
        structure = _c.options(_c.RuntimeOptions, lib.runtime_options_init, options)
        keep = [_c.put_array(structure, name, c_int, [int(cpu) for cpu in cpus])
                for name, cpus in (("poll_cpus", poll_cpus), ("worker_cpus", worker_cpus)) if cpus]
        may_wait("making a runtime")
        super().__init__(need(memory, Memory))
        self.memory = memory
        self.embedded = not poll_cpus
        self._poller = None  # the thread that polls
        self._passes = 0     # how many passes it is in: one, or another in a callback
        memory._use(lambda of_memory: self._open(_c.made(lib.runtime_create, of_memory, byref(structure))))
        del keep
        self.workers = held.runtime_num_workers(self._handle)
        if self.embedded:
            _guarded.add(self)
            _guard_signals()

    def is_mine(self):
        """True if this thread polls, or may begin to."""
        return self.embedded and self._poller in (None, threading.get_ident())

    def poll(self):
        """Makes one pass, in which handlers and callbacks run; returns the number of things done. Never waits. Raises
        what ends the program, such as KeyboardInterrupt, if a handler or callback did."""
        if self._poller != threading.get_ident():
            self._become_poller()
        before = self._passes
        try:
            with lock:
                handle = self._handle
                if _at_exit:
                    raise _c.ClosedError(self._what)
                self._passes = before + 1
            done = held.runtime_poll(handle, 0)
        finally:
            self._passes = before
        go_on()
        return done

    def _become_poller(self):
        if not self.embedded:
            raise Error(ErrorCode.INVALID_ARGUMENT, "this runtime has threads that poll")
        if self._poller is not None:
            raise Error(ErrorCode.INVALID_ARGUMENT, "another thread polls this runtime: always poll in the same one")
        self._poller = threading.get_ident()
        _guard_signals()  # which the program has set since then

    def _before_close(self):
        if self._passes:  # its children would wait for the pass
            raise self._in_use()

    def _must_be_unused(self):
        self._before_close()
        super()._must_be_unused()

    def _await_pass(self):
        """At the end of the program: waits until another thread, which is a daemon, has left its last pass."""
        give_up = time.monotonic() + 10
        while self._passes and self._poller != threading.get_ident() and time.monotonic() < give_up:
            time.sleep(0.001)

    def fileno(self):
        """A descriptor that is readable when there is something to do, once arm_wake() has returned True; for select
        and asyncio's loop.add_reader()."""
        return held.runtime_wake_fd(self._handle, 0)

    def arm_wake(self):
        """Prepares to sleep on fileno(). Returns False if poll() has something to do."""
        return held.runtime_arm_wake(self._handle, 0)

    def poll_until(self, done, timeout=None):
        """Polls until done() is true, or `timeout` seconds have passed; returns what done() returned last. Sleeps while
        there is nothing to do. With threads that poll, it looks every millisecond."""
        may_wait("poll_until()")
        deadline = None if timeout is None else time.monotonic() + timeout
        empty = 0
        while not (result := done()):
            if deadline is not None and time.monotonic() >= deadline:
                break
            if not self.embedded:
                self._handle  # it is open
                time.sleep(0.001)
            elif self.poll():
                empty = 0
            elif (empty := empty + 1) > _EMPTY_PASSES:
                self._sleep(deadline)
            else:
                os.sched_yield()
        return result

    def _sleep(self, deadline):
        if self.arm_wake():
            # Ctrl-C ends select(); another thread may have made done() true, so look again after a while.
            left = 0.05 if deadline is None else min(0.05, max(0, deadline - time.monotonic()))
            select.select([self], [], [], left)

    def counters(self, core=0):
        """Returns {name: value} of what a core has counted."""
        return self._use(lambda handle: _c.counters(lib.runtime_core_counters, handle, _c.number(core)))

    def start_capture(self, path, **options):
        """Writes what the connections send and receive into a file for Wireshark, as rrdk/capture.h describes. Options:
        message_bytes, file_bytes."""
        structure = _c.options(_c.CaptureOptions, lib.capture_options_init, options)
        self._must(lib.runtime_start_capture, os.fsencode(path), byref(structure))

    def stop_capture(self):
        """Ends the capture; returns its counts, zeros if there was no capture."""
        return self._capture_counts(lib.runtime_stop_capture)

    def capture_counts(self):
        """Returns how many messages a capture in progress has, and how many it lost."""
        return self._capture_counts(lib.runtime_capture_counts)

    def _capture_counts(self, function):
        counts = _c.CaptureCounts(size=ctypes.sizeof(_c.CaptureCounts))
        self._wait(function, byref(counts))
        return CaptureCounts(counts.captured, counts.lost)

    def _destroy(self, handle):
        lib.runtime_destroy(handle)
        if self.embedded:
            _guarded.discard(self)
            if not _guarded:
                _restore_signals()


def set_log_level(most_verbose):
    """Drops lines of the library's log less severe than this LogLevel."""
    lib.set_log_level(_c.LogLevel(most_verbose))
