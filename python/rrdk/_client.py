"""Calling: clients, their connections, calls."""
import ctypes
import time
import weakref
from ctypes import byref

from . import _c
from ._c import CallError, CallStatus, ClosedError, Error, ErrorCode, Protection, State, held, lib
from ._messages import Credential, Decoder, Encoder, ask_info, hand_over
from ._runtime import (Buffer, Handled, Loans, Object, Runtime, Spans, called, entry, keys, lock, may_wait, members,
                       need, on_released, take_back)
from ._serving import Program, end_services, forget_services, offer, use_caller


def handle_of(credential):
    return None if credential is None else need(credential, Credential)._handle


class Client(Object):
    """Connects to servers. The options are those of rrdk_client_options, such as reconnect=True, call_timeout_ms=2000,
    retransmit=True, version=Version.AUTO. keepalive_program is a Program, whose NULL procedure is called."""
    _what = "the client"

    def __init__(self, runtime, *, keepalive_program=None, **options):
        structure = _c.options(_c.ClientOptions, lib.client_options_init, options)
        if keepalive_program is not None:
            structure.keepalive_program = need(keepalive_program, Program)._handle
        super().__init__(need(runtime, Runtime))
        self.runtime = runtime
        self._services = []
        self._kept = weakref.WeakSet()
        runtime._use(lambda of_runtime: self._open(_c.made(lib.client_create, of_runtime, byref(structure))))

    def add_service(self, program):
        """Offers the program to servers on this client's connections; must precede the first connection."""
        offer(self, lib.client_add_service, program)

    def set_auth_sys(self, identity):
        """Sets the AuthSys that later connections begin with."""
        self._must(lib.client_set_auth_sys, byref(identity.structure()))

    def set_auth(self, flavor, body=b""):
        self._must(lib.client_set_auth, _c.number(flavor), bytes(body), len(body))

    def set_credential(self, credential):
        """Sets the Credential that later connections begin with; None: no user's."""
        self._use(lambda handle: lib.client_set_credential(handle, handle_of(credential)))

    def connect(self, uri, *, core=-1, on_state=None):
        """Connects, and waits until the connection is up. on_state(connection, state, error) is called for each State,
        with the error that led to it, or None."""
        may_wait("connect()")
        return Connection(self, lib.connect, uri, core, on_state)

    def connect_start(self, uri, *, core=-1, on_state=None):
        """As connect(), but returns at once: calls may be made, and wait for the connection."""
        return Connection(self, lib.connect_start, uri, core, on_state)

    def _before_close(self):
        end_services(self)

    def _destroy(self, handle):
        lib.client_destroy(handle)
        forget_services(self)


# Connections with a callback, by the argument that it gets.
_connections = {}


@entry(_c.OnState)
def _on_state(handle, state, reason, key):
    connection = _connections.get(key)
    if connection is None:
        return
    with called("on_state"):
        error = _c.error_of(reason.contents) if reason else None
        connection._may_have(handle)
        connection._on_state(connection, _c.known(State, state), error)


class Connection(Object):
    """A connection to a server, made by Client.connect() or connect_start()."""
    _what = "the connection"

    def __init__(self, client, function, uri, core, on_state):
        options = _c.options(_c.ConnectOptions, lib.connect_options_init, {"core": core})
        super().__init__(client)  # on_state may be called, and use all this, before the function returns
        self.client, self.runtime, self.uri = client, client.runtime, uri
        self._on_state = on_state
        self._calls = weakref.WeakSet()
        self._starting = True
        self._key = next(keys)
        if on_state is not None:
            options.on_state, options.argument = _on_state, self._key
            _connections[self._key] = self
        try:
            client._use(lambda of_client: self._open(
                _c.made(function, of_client, _c.text_of(uri, "the URI"), byref(options))))
        except BaseException:
            if self in client._children:  # it is up, and Ctrl-C came
                self.close()
            self._forget()
            self._end()
            raise

    def _may_have(self, handle):
        """A callback has got the handle, perhaps before connect() has returned it."""
        with lock:
            if self._starting:
                self._handle = handle

    def _open(self, handle):
        with lock:
            self._starting = False
            super()._open(handle)

    @property
    def state(self):
        return _c.known(State, self._use(lib.connection_state_of))

    @property
    def alive(self):
        """True if it is established, so that calls are sent."""
        return self._use_caller(held.caller_alive)

    @property
    def room(self):
        """How many more calls submit() takes, which Client(max_queued=) bounds."""
        return self._use_caller(held.caller_room)

    @property
    def version(self):
        """The version of RPC-over-RDMA in which calls are sent; 0: not known yet."""
        return self._use(lib.connection_version)

    def error(self):
        """Returns the Error for which the connection broke, or the last attempt failed; None if neither happened."""
        text = _c.ErrorText()
        return _c.error_of(text) if self._use(lib.connection_error, byref(text)) else None

    def info(self):
        return self._use(lambda handle: ask_info(lib.connection_get_info, handle))

    def counters(self):
        """Returns {name: value} of what the connection has counted (doc/telemetry.md)."""
        return self._use(lambda handle: _c.counters(lib.connection_counters, handle))

    def set_auth_sys(self, identity):
        """Sets the AuthSys of calls that are begun from now on."""
        self._use_caller(lambda caller: _c.must(lib.caller_set_auth_sys, caller, byref(identity.structure())))

    def set_auth(self, flavor, body=b""):
        self._use_caller(lambda caller: _c.must(lib.caller_set_auth, caller, _c.number(flavor), bytes(body), len(body)))

    def set_credential(self, credential):
        """Sets the Credential of calls that are begun from now on; None: no user's."""
        self._use_caller(lambda caller: lib.caller_set_credential(caller, handle_of(credential)))

    def establish_context(self, program, target, protection=Protection.INTEGRITY, *, principal=None):
        """Returns a Credential: a security context of RPCSEC_GSS with Kerberos, for any number of calls and connections.
        It is made by calls of the program's NULL procedure, and waited for. target is the server's service, such as
        "nfs@server.example.org"; principal says whose ticket is used, and None is the default one. This may take seconds.
        Once no Credential, Call, Client or Connection has it any more, the server is told to forget it. Raises an Error: NOT_FOUND (no ticket, or no such service), REFUSED, NOT_A_PEER (the server takes no Kerberos),
        UNSUPPORTED, or what a call ends with."""
        may_wait("establish_context()")
        arguments = (need(program, Program)._handle, _c.text_of(target, "the target"), _c.number(protection),
                     None if principal is None else _c.text_of(principal, "the principal"))
        return Credential._of(self._use_caller(lambda caller: _c.made(lib.credential_create_gss, caller, *arguments)))

    def drain(self, timeout_ms):
        """Lets calls in flight finish, and closes; returns how many had not ended in time."""
        return self._wait(lib.connection_drain, _c.number(timeout_ms))

    def close_start(self):
        """Begins to close, and ends all calls with SHUTDOWN, without waiting; close() is still needed."""
        self._use(lib.connection_close_start)

    def _use_caller(self, function):
        """Returns function(caller), while which the connection stays open."""
        return use_caller(self, lib.connection_caller, function)

    def _before_close(self):
        for call in members(self._calls):
            call._end_results()

    def _destroy(self, handle):
        lib.connection_destroy(handle)
        self._end()

    def _end(self):
        for call in members(self._calls):
            call._abandon()
        _connections.pop(self._key, None)


# Calls in flight, by the argument that their callbacks get.
_in_flight = {}


@entry(_c.OnDone)
def _on_done(_, key):
    call = _in_flight.pop(key, None)
    if call is not None:
        done, call._done = call._done, None  # before another thread may submit it again
        call._in_flight = False
        if done is not None:
            with called("the callback of a call"):
                done(call)


class Call(Handled):
    """Makes calls on a Connection (or to a BackwardClient), one after another: begin() and the arguments, offers of
    memory for results, then wait(), or submit() with a callback. One thread at a time."""
    _what = "the call"

    def __init__(self, connection):
        self.connection = connection
        self._args = self._done = None
        self._results = None  # a weak reference to the decoder, which keeps the call
        self._loans = Loans("the results")
        self._begun = self._in_flight = self._is_late = self._has_results = False
        self._lent = 0
        self._spans = Spans(connection.runtime.memory)
        self._places = ()  # where the results may be: memory that was offered, which is kept as long
        connection._use_caller(self._create)

    def _create(self, caller):
        handle = held.call_create(caller)
        if handle is None:
            raise MemoryError("no memory for a call")
        self._handle = handle
        self.connection._calls.add(self)

    def __del__(self):
        if not self.closed:  # it is not in flight, since _in_flight would have it
            self._abandon()

    @property
    def in_flight(self):
        return self._in_flight or self._is_late and held.call_in_flight(self._handle)

    def begin(self, program, procedure, *, timeout_ms=None, retransmit=None, expect_reply=None):
        """Starts a new call of a procedure, by number or name; returns the Encoder of its arguments. timeout_ms is its
        deadline, 0 for none; retransmit says whether it is sent again if the connection breaks. expect_reply bounds the
        variable part of its results in bytes."""
        self._must_be_idle()
        number = need(program, Program).number_of(procedure)
        self._end_streams()
        self._begun = True
        self._args = Encoder(held.call_begin(self._handle, program._handle, number), "the arguments", self._spans)
        if timeout_ms is not None:
            held.call_set_timeout_ms(self._handle, _c.number(timeout_ms))
        if retransmit is not None:
            held.call_set_retransmit(self._handle, bool(retransmit))
        if expect_reply is not None:
            held.call_expect_reply(self._handle, _c.number(expect_reply, 64))
        return self._args

    def set_credential(self, credential):
        """Sets the Credential of this Call's calls; None: the connection's again. Before begin()."""
        self._must_be_idle()
        if credential is None:
            done = held.call_reset_credential(self._handle)
        else:
            done = held.call_set_credential(self._handle, need(credential, Credential)._handle)
        if not done:
            raise Error(ErrorCode.SHUTDOWN, "the connection of the call is gone")

    def offer(self, *memory):
        """Offers RegisteredMemory, or Spans, for the next result that RDMA may move: there it is placed."""
        self._must_be_begun()
        segments = [self._spans.add(each) for each in memory]
        held.call_offer(self._handle, (_c.Span * len(segments))(*segments), len(segments))

    def offer_buffer(self, buffer, length):
        """As offer(), with a Buffer, which the call takes over; take_offered() returns it."""
        self._must_be_begun()
        handle = self._handle
        held.call_offer_buffer(handle, hand_over(buffer, length, self._spans.memory), length)

    def submit(self, done=None):
        """Sends the call. done(call) is called when it has ended, during a pass of the connection's core. Raises a
        CallError if the connection's queue is full (FULL): submit it again later, without beginning it again."""
        self._prepare()
        self._done = done
        key = next(keys)
        _in_flight[key] = self
        if not held.call_submit(self._handle, _on_done, key):
            del _in_flight[key]
            self._refused()

    def wait(self):
        """Sends the call, waits until it has ended, and returns the Decoder of its results. Raises a CallError if it
        did not succeed. In a program that polls, it polls; what ends the program cancels the call."""
        may_wait("wait()")
        runtime = self.connection.runtime
        if not runtime.is_mine():
            self._prepare()
            self._wait_for_others()
            return self.results
        self.submit()
        try:
            runtime.poll_until(lambda: not self._in_flight)
        except BaseException:
            if self._in_flight:
                self.cancel()
            raise
        return self.results

    def _wait_for_others(self):
        """Waits until the thread that polls has ended the call."""
        ended = self.connection._use(lambda _: lib.call_submit_and_wait(self._handle))
        self._in_flight = False
        if ended in (CallStatus.INVALID_CALL, CallStatus.NO_MEMORY):
            take_back(self._lent)  # if the call was refused, the loan does not end by itself
        elif ended == CallStatus.FULL:
            self._refused()
        elif ended == CallStatus.TIMEOUT:
            # The thread that polls may not have left the call yet; or it does not poll, and never will.
            give_up = time.monotonic() + 1
            while held.call_in_flight(self._handle) and time.monotonic() < give_up:
                time.sleep(0.001)
            self._is_late = held.call_in_flight(self._handle)
            raise CallError(ended, True)

    def cancel(self):
        """Ends the call with CANCELLED; its callback still comes. Any thread."""
        held.call_cancel(self._handle)

    @property
    def status(self):
        """How the call ended, a CallStatus."""
        self._must_be_idle()
        return _c.status_of(held.call_status_of(self._handle))

    @property
    def results(self):
        """The Decoder of the results, until the call is begun again, or memory that was offered for them is closed.
        Raises a CallError if it did not succeed."""
        results = self._results and self._results()
        if results is None:
            status, handle = self.status, self._handle
            if not self._has_results:
                raise ClosedError("what the call returned")
            if status != CallStatus.OK:
                raise CallError(status, held.call_sent(handle), held.call_mismatch_low(handle),
                                held.call_mismatch_high(handle), held.call_auth_stat(handle))
            results = Decoder(held.call_results(handle), "the results", self, self._loans)
            results.call = self
            self._results = weakref.ref(results)
        return results

    def transport_error(self):
        """The server's error, as a dictionary, after CHUNK_ERROR, VERSION_ERROR and REMOTE_ERROR."""
        self._must_be_idle()
        error = _c.TransportError(size=ctypes.sizeof(_c.TransportError))
        held.call_transport_error(self._handle, byref(error))
        return {name: getattr(error, name) for name, _ in error._fields_ if name != "size"}

    def take_offered(self, k):
        """Returns the Buffer of the k-th offer, from 0, or None. Read the results before: they end here."""
        self._must_be_idle()
        self._end_results()
        handle = held.call_take_offered(self._handle, _c.number(k))
        return None if handle is None else Buffer(handle, self.connection.runtime.memory)

    def close(self):
        """Not while it is in flight: cancel() it first."""
        if not self.closed:
            self._must_be_idle()
            self._end_streams()
            self._abandon()

    def _must_be_idle(self):
        self._is_late = self._is_late and held.call_in_flight(self._handle)
        if self._in_flight or self._is_late:
            raise Error(ErrorCode.INVALID_ARGUMENT, "the call is in flight")

    def _must_be_begun(self):
        self._must_be_idle()
        if not self._begun:
            raise Error(ErrorCode.INVALID_ARGUMENT, "begin() the call first")

    def _prepare(self):
        """What precedes every form of submitting."""
        self._must_be_begun()
        handle = self._handle
        self._args._forget()
        self._begun = False
        self._lent = 0
        if self._spans:
            self._places = self._spans.memories()
            for memory in self._places:
                memory.readers.add(self)
            self._lent = self._spans.lend()
            held.call_on_released(handle, on_released, self._lent)
        self._in_flight = self._has_results = True

    def _refused(self):
        """submit() was refused, so no callback comes: that of the loan does not, either."""
        self._in_flight = self._has_results = False
        status = held.call_status_of(self._handle)
        if status == CallStatus.FULL:
            self._begun = True
            self._spans.return_from(self._lent)
            raise CallError(status)
        take_back(self._lent)
        if status == CallStatus.NO_MEMORY:
            raise CallError(status)
        raise Error(ErrorCode.SHUTDOWN, "the connection of the call is gone, or this is a child of fork()")

    def _end_results(self):
        """The results cannot be read any more. BufferError: something uses them."""
        self._loans.end()
        if results := self._results and self._results():
            results._forget()
        self._results = None
        self._has_results = False
        for memory in self._places:
            memory.readers.discard(self)
        self._places = ()

    def _end_streams(self):
        self._end_results()
        if self._args is not None:
            self._args._forget()
        self._args, self._begun = None, False
        self._spans.drop()

    def _abandon(self):
        """The end of the call, or of its connection."""
        for stream in (self._args, self._results and self._results()):
            if stream is not None:
                stream._forget()
        self._spans.drop()
        if not self.closed:
            lib.call_destroy(self.__dict__.pop("_handle"))
