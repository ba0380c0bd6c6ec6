"""Serving: the table of a program, its handlers, the calls that they answer, servers."""
import ctypes
import traceback
import weakref
from collections import namedtuple
from ctypes import POINTER, byref, cast, create_string_buffer

from . import _c
from ._c import OTHER_PROCEDURES, Acceptance, AcceptStat, AuthStat, ClosedError, Error, ErrorCode, Protection, XdrError, held, lib
from ._messages import AuthSys, Decoder, Encoder, ask_info, info_of
from ._runtime import (Buffer, Handled, Loans, Object, Runtime, Spans, acceptors, called, entry, keys, log, may_wait,
                       members, need, on_released)

# ---- Programs ----

class Procedure(namedtuple("Procedure", "number name handler worker idempotent eligible_args eligible_results "
                                        "fixed_results no_long_calls accepts",
                           defaults=(None, False, True, 0, 0, 0, False, Acceptance.ANY))):
    """One procedure of a program, for both ends. `handler(call)` serves it; with `worker` it runs on a worker, where it
    may wait. Set `idempotent` to False if running it twice differs from running it once. eligible_args and
    eligible_results are the numbers of opaque<> that RDMA may move. fixed_results are the bytes of the results without
    their variable parts, which the client bounds (begin(expect_reply=), offers). number OTHER_PROCEDURES: all that
    have no entry. `accepts` says which callers a server takes, in place of the program's."""
    __slots__ = ()


class Program(Handled):
    """The table of a program: what both ends know. The library keeps it once it has been used, so make it once.
    `accepts` says whose calls are served: Acceptance.INTEGRITY | Acceptance.PRIVACY is krb5i or better. A client cannot
    verify Kerberos, so a program that it offers (Client.add_service()) must also take other callers."""
    _what = "the program"

    def __init__(self, number, version, name, procedures, *, chunk_breach_is_transport_error=False,
                 accepts=Acceptance.ANY):
        self.number, self.version, self.name = _c.number(number), _c.number(version), name
        self.procedures = sorted((Procedure(*each) for each in procedures), key=lambda each: each.number)
        self.by_number = {each.number: each for each in self.procedures}
        self._numbers = {each.name: each.number for each in self.procedures}
        table = (_c.Procedure * len(self.procedures))(*map(_entry, self.procedures))
        options = _c.ProgramOptions(
            ctypes.sizeof(_c.ProgramOptions), ctypes.sizeof(_c.Procedure), number, version,
            _c.text_of(name, "the name of a program"), cast(table, POINTER(_c.Procedure)), len(table),
            chunk_breach_is_transport_error, _c.number(accepts, 64))
        self._handle = _c.made(lib.program_create, byref(options))

    def __del__(self):
        if not self.closed:
            lib.program_destroy(self._handle)

    def number_of(self, procedure):
        """The number of a procedure that is given by its name or its number."""
        if not isinstance(procedure, str):
            return _c.number(procedure)
        if procedure not in self._numbers:
            raise ValueError(f"{self.name} has no procedure {procedure}")
        return self._numbers[procedure]

    def handler_of(self, number):
        """Returns the Procedure that serves this number."""
        return self.by_number.get(number) or self.by_number.get(OTHER_PROCEDURES)


def _entry(procedure):
    entry = _c.Procedure(name=_c.text_of(procedure.name, "the name of a procedure"))
    if procedure.handler is not None:
        if not callable(procedure.handler):
            raise TypeError(f"the handler of {procedure.name} cannot be called")
        entry.handler = on_call
    for name in ("number", "worker", "no_long_calls", "eligible_args", "eligible_results", "fixed_results", "accepts"):
        _c.put_field(entry, name, getattr(procedure, name))
    entry.not_idempotent = not procedure.idempotent
    return entry



# ---- Calls that came in ----

# What serves calls, by the argument that add_service() was given.
_services = {}


class Service(namedtuple("Service", "owner program")):
    """A program that a Server, or a Client, offers."""
    __slots__ = ()


class CallSecurity(namedtuple("CallSecurity", "flavor protection principal")):
    """What is known of a call's caller. Only a `principal` that is not "" was proven: the caller as Kerberos names it,
    "alice@EXAMPLE.ORG". `protection` is Protection.NONE without one."""
    __slots__ = ()


class ServerCall(Handled):
    """A call to be answered, exactly once: by reply(), reply_after(), reject(), reject_versions(), deny() or drop(), in
    the handler or later, from any thread. A call that is forgotten is answered SYSTEM_ERR."""
    _what = "the call, which has been answered,"

    def __init__(self, handle, service):
        self._handle = handle
        self._service = service
        self._spans = Spans(service.owner.runtime.memory)
        self._loans = Loans("the arguments")
        self.procedure = held.server_call_procedure(handle)
        self.args = Decoder(held.server_call_args(handle), "the arguments", self, self._loans)
        self.results = Encoder(held.server_call_results(handle), "the results", self._spans)
        service.owner._kept.add(self)

    def __del__(self):
        if not self.closed:
            log.error("%s was not answered: SYSTEM_ERR", self)
            held.server_call_reject(self._take(), AcceptStat.SYSTEM_ERR)
            self._spans.drop()

    def __str__(self):
        program = self._service.program
        known = program.by_number.get(self.procedure)
        return f"a call of {known.name if known else self.procedure} of {program.name}"

    @property
    def xid(self):
        return held.server_call_xid(self._handle)

    @property
    def wanted(self):
        """False once an answer cannot reach the caller any more."""
        return held.server_call_wanted(self._handle)

    @property
    def connection(self):
        """The ServerConnection on which the call came."""
        return ServerConnection(held.server_call_connection(self._handle))

    @property
    def auth_flavor(self):
        return held.server_call_auth_flavor(self._handle)

    def auth_sys(self):
        """The caller's AuthSys; None if the call has no such credential, or it is malformed."""
        structure = _c.AuthSysOptions()
        return AuthSys.of(structure) if held.server_call_auth_sys(self._handle, byref(structure)) else None

    @property
    def security(self):
        """What is known of the caller: a CallSecurity."""
        structure = _c.CallSecurity(size=ctypes.sizeof(_c.CallSecurity))
        held.server_call_security(self._handle, byref(structure))
        return CallSecurity(structure.flavor, _c.known(Protection, structure.protection),
                            structure.principal.decode(errors="surrogateescape"))

    def result_buffer(self, size):
        """Returns a Buffer for results.put_buffer(), which counts as the client's."""
        handle = held.server_call_result_buffer(self._handle, _c.number(size))
        if handle is None:
            raise Error(ErrorCode.NO_MEMORY, f"no buffer of {size} bytes is left")
        return Buffer(handle, self._service.owner.runtime.memory)

    def backward_client(self):
        """Returns the caller as a BackwardClient: Call(backward_client) calls what it offers. Close it when it is not
        needed any more: until then the library keeps what it knows of that client, also after its connection."""
        if not isinstance(self._service.owner, Server):
            raise Error(ErrorCode.UNSUPPORTED, "the caller is a server")
        return BackwardClient(self._handle, self._service.owner)

    def reply(self):
        """Sends the results. BufferError: something that args.borrow_item() returned is in use."""
        self._end(held.server_call_reply)

    def reply_after(self, seconds):
        """Sends the results, but not earlier than that from now (at most 60 s)."""
        if not seconds >= 0:
            raise ValueError(f"a reply cannot be sent after {seconds} s")
        self._end(held.server_call_reply_after, int(min(seconds, 60) * 1e9))

    def reject(self, status):
        """Answers with an AcceptStat, such as GARBAGE_ARGS."""
        self._end(held.server_call_reject, AcceptStat(status))

    def reject_versions(self, low, high):
        """Answers PROG_MISMATCH with these versions."""
        self._end(held.server_call_reject_versions, _c.number(low), _c.number(high))

    def deny(self, reason):
        """Answers AUTH_ERROR with an AuthStat."""
        self._end(held.server_call_deny, AuthStat(reason))

    def drop(self):
        """Does not answer, and closes the connection."""
        self._end(held.server_call_drop)

    def _end(self, function, *arguments):
        self._handle  # it has not been answered
        self._loans.end()
        handle = self._take()
        if self._spans:
            held.server_call_on_released(handle, on_released, self._spans.lend())
        function(handle, *arguments)

    def _take(self):
        """Returns the handle, which is not used here any more."""
        handle = self._handle
        for each in (self, self.args, self.results):
            each._forget()
        return handle


class BackwardClient(Object):
    """A client as its server calls it: rrdk.Call(client) makes calls to it. It must be closed; close() does not
    wait."""
    _what = "the backward client"
    _close_waits = False

    def __init__(self, server_call, server):
        super().__init__(server)
        self.runtime = server.runtime
        self._calls = weakref.WeakSet()
        server._use(lambda _: self._open(_c.made(lib.server_call_backward_client, server_call)))

    def _use_caller(self, function):
        return use_caller(self, held.backward_client_caller, function)

    def _before_close(self):
        for call in members(self._calls):
            call._end_results()

    def _destroy(self, handle):
        for call in members(self._calls):
            call._abandon()
        lib.backward_client_release(handle)


def use_caller(owner, caller_of, function):
    """Returns function(caller), with the caller of a connection or backward client, which stays open meanwhile."""
    def use(handle):
        caller = caller_of(handle)
        if caller is None:
            raise ClosedError(owner._what)
        return function(caller)

    return owner._use(use)


@entry(_c.OnCall)
def on_call(handle, key):
    service = _services.get(key)
    procedure = service and service.program.handler_of(held.server_call_procedure(handle))
    if not procedure or service.owner._closing:
        held.server_call_reject(handle, AcceptStat.SYSTEM_ERR)
        return
    call = ServerCall(handle, service)
    with called(procedure.name, waits=procedure.worker and service.owner.runtime.workers > 0):
        try:
            procedure.handler(call)
        except BaseException as error:
            _answer_error(call, error)


def _answer_error(call, error):
    """Answers for a handler that raised an exception."""
    is_garbage = isinstance(error, XdrError)
    if is_garbage:
        log.debug("%s: %s", call, error)
    else:
        log.error("the handler of %s raised an exception", call, exc_info=error)
    traceback.clear_frames(error.__traceback__)  # which may use borrowed bytes
    if not call.closed:
        try:
            call.reject(AcceptStat.GARBAGE_ARGS if is_garbage else AcceptStat.SYSTEM_ERR)
        except BufferError:
            log.error("%s is answered when nothing uses its bytes any more", call)
    if not isinstance(error, Exception):
        raise error


def offer(owner, function, program):
    """Offers the program at a Server or Client, whose function of the library is given."""
    key = next(keys)
    _services[key] = Service(owner, need(program, Program))
    owner._services.append(key)
    try:
        owner._must(function, program._handle, key)
    except BaseException:
        _services.pop(key)
        raise


def end_services(owner):
    """Answers what handlers have kept, before what serves is destroyed."""
    for call in members(owner._kept):
        if not call.closed:
            log.warning("%s was not answered when %s was closed: SYSTEM_ERR", call, owner._what)
            call.reject(AcceptStat.SYSTEM_ERR)


def forget_services(owner):
    for key in owner._services:
        _services.pop(key, None)


# ---- Servers ----

class GssAcceptor(Object):
    """Verifies calls by Kerberos: Server(runtime, gss=acceptor). It refuses nothing by itself; `accepts` of a Program and
    of its Procedures does. `service` is such as "nfs@server.example.org", and None each one in the key table;
    `key_table` is a path, and None what KRB5_KTNAME names, or /etc/krb5.keytab; `tcp` is an address and a port at which
    contexts can be made by TCP, too, "0.0.0.0:2049". The other options are those of rrdk_gss_acceptor_options:
    max_contexts, max_unfinished, max_protected_bytes. Raises an Error: NOT_FOUND (no key), INVALID_ARGUMENT,
    UNSUPPORTED (no MIT Kerberos here), SYSTEM; with `tcp` also ADDRESS_IN_USE and PERMISSION."""
    _what = "the acceptor"

    def __init__(self, service=None, key_table=None, *, tcp=None, **options):
        may_wait("making a GssAcceptor")
        structure = _c.options(_c.GssAcceptorOptions, lib.gss_acceptor_options_init, options)
        for name, value in (("service", service), ("key_table", key_table), ("tcp", tcp)):
            if value is not None:
                setattr(structure, name, _c.text_of(value, name))
        super().__init__()
        self._open(_c.made(lib.gss_acceptor_create, byref(structure)))
        acceptors[self] = None

    @property
    def tcp_port(self):
        """The port of `tcp`; 0 if contexts are not made by TCP."""
        return self._use(lib.gss_acceptor_tcp_port)

    def stats(self):
        """Returns {name: value} of what the acceptor has counted (GssAcceptorStats in rrdk/gss.h)."""
        stats = _c.GssAcceptorStats(size=ctypes.sizeof(_c.GssAcceptorStats))
        self._use(lib.gss_acceptor_get_stats, byref(stats))
        return {name: getattr(stats, name) for name, _ in stats._fields_ if name != "size"}

    def _destroy(self, handle):
        lib.gss_acceptor_destroy(handle)
        acceptors.pop(self, None)


class ServerConnection:
    """A connection on which calls come in. After it has ended, its id is 0, and info() None."""

    def __init__(self, handle):
        self._connection = handle

    @property
    def id(self):
        """A number that no other connection of this process has."""
        return lib.server_connection_id(self._connection)

    def info(self):
        return ask_info(lib.server_connection_get_info, self._connection)


# Servers with callbacks for their connections, by the argument that these get.
_servers = {}


@entry(_c.OnOpen)
def _on_open(connection, reason, key):
    refused = ErrorCode.SYSTEM  # also if the callback fails
    with called("on_open"):
        try:
            server = _servers[key]
            if server._on_open is not None:
                server._on_open(ServerConnection(connection))
            refused = 0
        except Error as error:
            reason.contents.message = str(error).encode(errors="replace")[:507]
            if isinstance(error.code, int) and 0 < error.code < 1 << 31:  # 0 would let the client in
                refused = error.code
    return refused


@entry(_c.OnClose)
def _on_close(connection, reason, key):
    server = _servers.get(key)
    with called("on_close"):
        if server is not None and server._on_close is not None:
            server._on_close(ServerConnection(connection), _c.error_of(reason.contents))


class Server(Object):
    """Serves programs. The options are those of rrdk_server_options. on_open(connection) decides whether a client gets
    a ServerConnection: an Error that it raises refuses it, and is sent to the client. on_close(connection, error) tells
    why one has ended. `gss` is a GssAcceptor."""
    _what = "the server"

    def __init__(self, runtime, *, on_open=None, on_close=None, gss=None, **options):
        structure = _c.options(_c.ServerOptions, lib.server_options_init, options)
        super().__init__(need(runtime, Runtime), *([] if gss is None else [need(gss, GssAcceptor)]))
        self._on_open, self._on_close = on_open, on_close
        key = next(keys)
        if on_open is not None or on_close is not None:
            structure.on_open, structure.on_close, structure.connection_argument = _on_open, _on_close, key
            _servers[key] = self
        self._key = key
        self.runtime = runtime
        self._services = []
        self._kept = weakref.WeakSet()
        try:
            if gss is None:
                runtime._use(self._create, structure)
            else:
                gss._use(self._create_verifying, structure)
        except BaseException:
            if not self.closed:
                self.close()
            _servers.pop(key, None)
            raise

    def _create(self, of_runtime, structure):
        self._open(_c.made(lib.server_create, of_runtime, byref(structure)))

    def _create_verifying(self, acceptor, structure):
        structure.gss = acceptor
        self.runtime._use(self._create, structure)

    def add_service(self, program):
        """Serves the program by its handlers."""
        offer(self, lib.server_add_service, program)

    def remove_service(self, program):
        self._must(lib.server_remove_service, program.number, program.version)

    def listen(self, uri):
        """Listens; returns the URI with what the system chose. May be called for several addresses."""
        bound = create_string_buffer(_c.URI_BYTES)
        self._must(lib.server_listen, _c.text_of(uri, "the URI"), bound, len(bound))
        return bound.value.decode()

    def stop_listening(self):
        self._use(lib.server_stop_listening)

    def drain(self, timeout_ms):
        """Takes no more calls, and waits until those in progress are answered; returns how many connections were closed
        before they had finished."""
        return self._wait(lib.server_drain, _c.number(timeout_ms))

    def connections(self):
        """Returns a ConnectionInfo for each connection."""
        found = []

        @entry(_c.OnConnection)
        def visit(info, _):
            with called("connections()"):
                found.append(info_of(info.contents))

        self._use(lib.server_visit, visit, None)
        return found

    def close_connection(self, id, reason=""):
        """Ends one connection, for this reason."""
        self._must(lib.server_close_connection, _c.number(id, 64), _c.text_of(reason, "the reason"))

    def limits(self):
        """Returns the limits, as a dictionary: max_connections, max_connections_per_client, first_call_timeout_ms,
        idle_timeout_ms, send_timeout_ms."""
        limits = self._limits()
        return {name: getattr(limits, name) for name, _ in limits._fields_ if name != "size"}

    def set_limits(self, **limits):
        """Changes some of the limits, while calls are served."""
        structure = self._limits()
        for name, value in limits.items():
            _c.put_field(structure, name, value)
        self._must(lib.server_set_limits, byref(structure))

    def _limits(self):
        limits = _c.ServerLimits(size=ctypes.sizeof(_c.ServerLimits))
        self._use(lib.server_get_limits, byref(limits))
        return limits

    def counters(self):
        """Returns {name: value} of what the server has counted (doc/telemetry.md)."""
        return self._use(lambda handle: _c.counters(lib.server_counters, handle))

    def _before_close(self):
        end_services(self)

    def _destroy(self, handle):
        lib.server_destroy(handle)
        forget_services(self)
        _servers.pop(self._key, None)
