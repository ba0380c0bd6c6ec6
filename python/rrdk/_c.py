"""The C API (rrdk/rrdk.h) as ctypes declares it: structures, functions, and errors as exceptions.

test/python/layout_test.py compares everything here with the header.

A function of `lib` releases the interpreter's lock while it runs, since it may wait, or take locks that a thread holds
which waits for the interpreter. The functions of `held` do neither, and keep the lock: they cost less, and other
threads of Python cannot get in between.
"""
import ctypes
import enum
import os
import types
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_int32, c_size_t, c_uint8,
                    c_uint16, c_uint32, c_uint64, c_void_p)

Handle = c_void_p
Enum = c_int


class ErrorCode(enum.IntEnum):
    """The kinds of errors, as rrdk/error.h describes them."""
    INVALID_ARGUMENT = 1
    BAD_URI = 2
    ADDRESS_IN_USE = 3
    NOT_FOUND = 4
    REFUSED = 5
    NOT_A_PEER = 6
    PERMISSION = 7
    NO_MEMORY = 8
    TIMEOUT = 9
    CONNECTION_LOST = 10
    UNSUPPORTED = 11
    LIMIT = 12
    SHUTDOWN = 13
    SYSTEM = 14


class CallStatus(enum.IntEnum):
    """How a call ended, as rrdk/call_status.h describes it."""
    OK = 0
    TIMEOUT = 1
    CONNECTION_LOST = 2
    CANCELLED = 3
    SHUTDOWN = 4
    PROG_UNAVAIL = 5
    PROG_MISMATCH = 6
    PROC_UNAVAIL = 7
    GARBAGE_ARGS = 8
    SYSTEM_ERR = 9
    RPC_MISMATCH = 10
    AUTH_ERROR = 11
    CHUNK_ERROR = 12
    VERSION_ERROR = 13
    REMOTE_ERROR = 14
    MALFORMED_REPLY = 15
    TOO_LARGE = 16
    NO_MEMORY = 17
    INVALID_MEMORY = 18
    INVALID_CALL = 19
    FULL = 20


class AcceptStat(enum.IntEnum):
    """Why a call is rejected (RFC 5531 section 9)."""
    PROG_UNAVAIL = 1
    PROG_MISMATCH = 2
    PROC_UNAVAIL = 3
    GARBAGE_ARGS = 4
    SYSTEM_ERR = 5


class AuthStat(enum.IntEnum):
    """Why a call is denied (RFC 5531 section 9, RFC 2203)."""
    BADCRED = 1
    REJECTEDCRED = 2
    BADVERF = 3
    REJECTEDVERF = 4
    TOOWEAK = 5
    INVALIDRESP = 6
    FAILED = 7
    RPCSEC_GSS_CREDPROBLEM = 13
    RPCSEC_GSS_CTXPROBLEM = 14


class LogLevel(enum.IntEnum):
    ERROR = 0
    WARNING = 1
    INFO = 2
    DEBUG = 3


class Hugepages(enum.IntEnum):
    PREFER = 0
    REQUIRE = 1
    NEVER = 2


class IdlePolicy(enum.IntEnum):
    BUSY = 0
    YIELD = 1
    ADAPTIVE = 2


class Version(enum.IntEnum):
    """Versions of RPC-over-RDMA that a client speaks."""
    ONE = 0
    TWO = 1
    AUTO = 2


class Draft(enum.IntEnum):
    """Drafts of version 2."""
    DRAFT_04 = 0
    DRAFT_00 = 1


class Protection(enum.IntEnum):
    """What a security context protects: who calls; what is called, too; and no one else can read it."""
    NONE = 1
    INTEGRITY = 2
    PRIVACY = 3


class Acceptance(enum.IntFlag):
    """Which callers a program or a procedure takes, combined by | (rrdk/gss.h). ANY: any flavour; of a procedure, what
    its program takes. AUTHENTIC, INTEGRITY and PRIVACY are what NFS calls krb5, krb5i and krb5p; GSS is all three."""
    ANY = 0
    NONE = 1
    SYS = 2
    AUTHENTIC = 4
    INTEGRITY = 8
    PRIVACY = 16
    GSS = 28


class State(enum.IntEnum):
    """The states of a connection (rrdk/client.h)."""
    CONNECTING = 0
    UP = 1
    LOST = 2
    RECONNECTING = 3
    CLOSED = 4


class EndedBy(enum.IntEnum):
    """What ended a connection."""
    NOBODY = 0
    PEER = 1
    PROGRAM = 2
    LIMIT = 3
    NETWORK = 4


# The enumerations above, with the prefix that their values have in the header.
ENUMS = {ErrorCode: "RRDK_E_", CallStatus: "RRDK_CALL_", AcceptStat: "RRDK_ACCEPT_", AuthStat: "RRDK_AUTH_",
         LogLevel: "RRDK_LOG_", Hugepages: "RRDK_HUGEPAGES_", IdlePolicy: "RRDK_IDLE_", Version: "RRDK_RPC_RDMA_",
         Draft: "RRDK_", State: "RRDK_", EndedBy: "RRDK_ENDED_BY_", Protection: "RRDK_GSS_",
         Acceptance: "RRDK_ACCEPTS_"}
DDP_NO, DDP_ELIGIBLE = 0, 1
OTHER_PROCEDURES = 0xffffffff
NO_ID = 0xffffffff
URI_BYTES = 512


def _structure(name, *fields):
    return type(name, (Structure,), {"_fields_": fields, "__module__": __name__})


def _same(kind, *names):
    return tuple((name, kind) for name in names)


ErrorText = _structure("rrdk_error", ("code", Enum), ("message", c_char * 508))
Span = _structure("rrdk_span", ("data", c_void_p), ("length", c_uint32), ("region", c_uint32))
View = _structure("rrdk_view", ("fragments", c_void_p), ("num_fragments", c_size_t), ("offset", c_uint32),
                  ("length", c_uint32))
SizeClass = _structure("rrdk_size_class", *_same(c_uint32, "buffer_size", "count"))
MemoryOptions = _structure(
    "rrdk_memory_options", ("size", c_size_t), ("bytes", c_uint64), ("classes", POINTER(SizeClass)),
    ("num_classes", c_size_t), ("numa_nodes", POINTER(c_int)), ("num_numa_nodes", c_size_t), ("hugepages", Enum),
    ("prefault", c_bool))
RuntimeOptions = _structure(
    "rrdk_runtime_options", ("size", c_size_t), ("poll_cpus", POINTER(c_int)), ("num_poll_cpus", c_size_t),
    ("worker_cpus", POINTER(c_int)), ("num_worker_cpus", c_size_t), ("embedded_cores", c_uint32), ("idle", Enum),
    *_same(c_uint32, "adaptive_us", "ring_size", "stamp_every", "pass_budget_us"))
CaptureOptions = _structure("rrdk_capture_options", ("size", c_size_t), ("message_bytes", c_uint32),
                            ("file_bytes", c_uint64))
CaptureCounts = _structure("rrdk_capture_counts", ("size", c_size_t), *_same(c_uint64, "captured", "lost"))

OnCall = CFUNCTYPE(None, Handle, c_void_p)
OnDone = CFUNCTYPE(None, Handle, c_void_p)
OnReleased = CFUNCTYPE(None, c_void_p)
OnState = CFUNCTYPE(None, Handle, Enum, POINTER(ErrorText), c_void_p)
OnOpen = CFUNCTYPE(Enum, Handle, POINTER(ErrorText), c_void_p)
OnClose = CFUNCTYPE(None, Handle, POINTER(ErrorText), c_void_p)

Procedure = _structure(
    "rrdk_procedure", ("number", c_uint32), ("name", c_char_p), ("handler", OnCall), ("context", c_void_p),
    *_same(c_bool, "worker", "not_idempotent", "no_long_calls"), *_same(c_uint8, "eligible_args", "eligible_results"),
    ("fixed_results", c_uint32), ("accepts", c_uint64))
ProgramOptions = _structure(
    "rrdk_program_options", *_same(c_size_t, "size", "procedure_size"), *_same(c_uint32, "program", "version"),
    ("name", c_char_p), ("procedures", POINTER(Procedure)), ("num_procedures", c_size_t),
    ("chunk_breach_is_transport_error", c_bool), ("accepts", c_uint64))
AuthSysOptions = _structure("rrdk_auth_sys", *_same(c_uint32, "stamp", "uid", "gid", "num_gids"),
                            ("gids", c_uint32 * 16), ("machine_name", c_char * 256))
ConnectionInfo = _structure(
    "rrdk_connection_info", ("size", c_size_t), ("id", c_uint64), ("peer", c_char * 128), ("driver", c_char * 16),
    ("pid", c_int32),
    *_same(c_uint32, "uid", "gid", "core", "version", "send_size", "receive_size", "credits", "in_progress"),
    *_same(c_uint64, "calls", "replies", "calls_rejected", "transport_errors", "rdma_read_bytes",
           "rdma_written_bytes", "protocol_breaches", "age_ns", "idle_ns"),
    ("ended_by", Enum), ("ending_code", Enum), ("ending_refusal", c_char_p), ("ending", c_char * 256))
TransportError = _structure(
    "rrdk_transport_error", ("size", c_size_t),
    *_same(c_uint32, "version", "code", "low", "high", "maximum", "write_chunk", "length"))
# Of either kind; the module sets none.
Interceptor = _structure("rrdk_call_interceptor", *_same(c_void_p, "before", "after", "context"))
ClientOptions = _structure(
    "rrdk_client_options", ("size", c_size_t), *_same(Enum, "version", "draft"),
    *_same(c_uint32, "version_memory_ms", "credits", "inline_size"), ("properties", c_bool),
    ("max_receive_size", c_uint32), *_same(c_uint64, "max_call", "max_reply"),
    *_same(c_uint32, "connect_timeout_ms", "call_timeout_ms", "lend_ms", "starved_ms", "chunk_threshold"),
    *_same(c_bool, "pad_write_chunks", "one_segment", "reconnect"),
    *_same(c_uint32, "reconnect_first_delay_ms", "reconnect_max_delay_ms", "reconnect_give_up_ms"),
    ("retransmit", c_bool), *_same(c_uint32, "keepalive_ms", "keepalive_patience"), ("keepalive_program", Handle),
    ("backward_credits", c_uint32), ("backward_chunks", c_bool), ("max_backward_chunk_bytes", c_uint64),
    ("max_queued", c_uint32), ("interceptor", Interceptor), ("service_interceptor", Interceptor))
GssAcceptorOptions = _structure(
    "rrdk_gss_acceptor_options", ("size", c_size_t), *_same(c_char_p, "service", "key_table"),
    *_same(c_uint32, "max_contexts", "max_unfinished", "max_protected_bytes"), ("tcp", c_char_p))
GssAcceptorStats = _structure(
    "rrdk_gss_acceptor_stats", ("size", c_size_t),
    *_same(c_uint64, "contexts", "established", "refused", "expired", "evicted", "destroyed", "tcp_refused"))
CallSecurity = _structure("rrdk_call_security", ("size", c_size_t), ("flavor", c_uint32), ("protection", Enum),
                          ("principal", c_char_p))
ConnectOptions = _structure("rrdk_connect_options", ("size", c_size_t), ("core", c_int), ("on_state", OnState),
                            ("argument", c_void_p))
ServerOptions = _structure(
    "rrdk_server_options", ("size", c_size_t), *_same(c_bool, "version_one", "version_two"), ("draft", Enum),
    *_same(c_uint32, "credits", "first_credits"), ("private_receives", c_bool), ("inline_size", c_uint32),
    ("properties", c_bool), ("max_receive_size", c_uint32),
    *_same(c_uint64, "max_call", "max_reply", "max_chunk_bytes"), ("backward_credits", c_uint32),
    ("backward_chunks", c_bool),
    *_same(c_uint32, "backward_timeout_ms", "backward_lend_ms", "max_connections", "max_connections_per_client",
           "first_call_timeout_ms", "idle_timeout_ms", "send_timeout_ms", "replay_entries", "replay_bytes",
           "replay_clients", "replay_max_reply", "replay_window_ms"),
    ("replay_always", c_bool), ("replay_total_bytes", c_uint64), ("on_open", OnOpen), ("on_close", OnClose),
    ("connection_argument", c_void_p), ("replay_min_window_ms", c_uint32), ("replay_ipv4_prefix", c_uint8),
    ("replay_run_unprotected", c_bool), ("backward_max_queued", c_uint32), ("interceptor", Interceptor),
    ("backward_interceptor", Interceptor), ("gss", Handle))
ServerLimits = _structure(
    "rrdk_server_limits", ("size", c_size_t),
    *_same(c_uint32, "max_connections", "max_connections_per_client", "first_call_timeout_ms", "idle_timeout_ms",
           "send_timeout_ms"))
STRUCTURES = (ErrorText, Span, View, SizeClass, MemoryOptions, RuntimeOptions, CaptureOptions, CaptureCounts, Procedure,
              ProgramOptions, AuthSysOptions, ConnectionInfo, TransportError, ClientOptions, ConnectOptions,
              ServerOptions, ServerLimits, GssAcceptorOptions, GssAcceptorStats, CallSecurity)
OnConnection = CFUNCTYPE(None, POINTER(ConnectionInfo), c_void_p)

_Error = POINTER(ErrorText)
_Made = POINTER(Handle)
_Counters = POINTER(c_uint64)

# Name without "rrdk_": what it returns, and its arguments.
FUNCTIONS = {
    "version": (c_uint32,),
    "version_string": (c_char_p,),
    "errc_name": (c_char_p, Enum),
    "errc_errno": (c_int, Enum),
    "call_status_name": (c_char_p, Enum),
    "errc_of": (Enum, Enum),
    "connection_state_name": (c_char_p, Enum),
    "counter_count": (c_uint32,),
    "counter_name": (c_char_p, c_uint32),
    "counter_text": (c_char_p, c_uint32),
    "ensure_eal": (Enum, POINTER(c_char_p), c_size_t, _Error),
    "set_log_level": (None, Enum),

    "memory_options_init": (None, POINTER(MemoryOptions), c_size_t),
    "memory_create": (Enum, POINTER(MemoryOptions), _Made, _Error),
    "memory_destroy": (None, Handle),
    "memory_whole": (c_bool, Handle),
    "memory_largest_buffer": (c_uint32, Handle),
    "buffer_get": (Handle, Handle, c_uint32),
    "buffer_put": (None, Handle),
    "memory_allocate": (Enum, Handle, c_size_t, _Made, _Error),
    "registered_memory_destroy": (None, Handle),

    "runtime_options_init": (None, POINTER(RuntimeOptions), c_size_t),
    "runtime_create": (Enum, Handle, POINTER(RuntimeOptions), _Made, _Error),
    "runtime_destroy": (None, Handle),
    "runtime_core_counters": (c_size_t, Handle, c_uint32, _Counters, c_size_t),
    "capture_options_init": (None, POINTER(CaptureOptions), c_size_t),
    "runtime_start_capture": (Enum, Handle, c_char_p, POINTER(CaptureOptions), _Error),
    "runtime_stop_capture": (c_bool, Handle, POINTER(CaptureCounts)),
    "runtime_capture_counts": (c_bool, Handle, POINTER(CaptureCounts)),

    "program_create": (Enum, POINTER(ProgramOptions), _Made, _Error),
    "program_destroy": (None, Handle),
    "credential_create_auth_sys": (Enum, POINTER(AuthSysOptions), _Made, _Error),
    "credential_create": (Enum, c_uint32, c_char_p, c_size_t, _Made, _Error),
    "credential_create_gss": (Enum, Handle, Handle, c_char_p, Enum, c_char_p, _Made, _Error),
    "credential_destroy": (None, Handle),

    "client_options_init": (None, POINTER(ClientOptions), c_size_t),
    "client_create": (Enum, Handle, POINTER(ClientOptions), _Made, _Error),
    "client_destroy": (None, Handle),
    "client_add_service": (Enum, Handle, Handle, c_void_p, _Error),
    "client_set_auth_sys": (Enum, Handle, POINTER(AuthSysOptions), _Error),
    "client_set_auth": (Enum, Handle, c_uint32, c_char_p, c_size_t, _Error),
    "client_set_credential": (None, Handle, Handle),
    "connect_options_init": (None, POINTER(ConnectOptions), c_size_t),
    "connect_start": (Enum, Handle, c_char_p, POINTER(ConnectOptions), _Made, _Error),
    "connect": (Enum, Handle, c_char_p, POINTER(ConnectOptions), _Made, _Error),
    "connection_destroy": (None, Handle),
    "connection_close_start": (None, Handle),
    "connection_drain": (c_uint32, Handle, c_uint32),
    "connection_state_of": (Enum, Handle),
    "connection_error": (Enum, Handle, _Error),
    "connection_caller": (Handle, Handle),
    "connection_get_info": (c_bool, Handle, POINTER(ConnectionInfo)),
    "connection_version": (c_uint32, Handle),
    "connection_counters": (c_size_t, Handle, _Counters, c_size_t),
    "caller_set_auth_sys": (Enum, Handle, POINTER(AuthSysOptions), _Error),
    "caller_set_auth": (Enum, Handle, c_uint32, c_char_p, c_size_t, _Error),
    "caller_set_credential": (None, Handle, Handle),
    "call_submit_and_wait": (Enum, Handle),
    "call_destroy": (None, Handle),

    "gss_acceptor_options_init": (None, POINTER(GssAcceptorOptions), c_size_t),
    "gss_acceptor_create": (Enum, POINTER(GssAcceptorOptions), _Made, _Error),
    "gss_acceptor_destroy": (None, Handle),
    "gss_acceptor_get_stats": (c_bool, Handle, POINTER(GssAcceptorStats)),
    "gss_acceptor_tcp_port": (c_uint16, Handle),
    "server_options_init": (None, POINTER(ServerOptions), c_size_t),
    "server_create": (Enum, Handle, POINTER(ServerOptions), _Made, _Error),
    "server_destroy": (None, Handle),
    "server_add_service": (Enum, Handle, Handle, c_void_p, _Error),
    "server_remove_service": (Enum, Handle, c_uint32, c_uint32, _Error),
    "server_listen": (Enum, Handle, c_char_p, c_char_p, c_size_t, _Error),
    "server_stop_listening": (None, Handle),
    "server_drain": (c_uint32, Handle, c_uint32),
    "server_close_connection": (Enum, Handle, c_uint64, c_char_p, _Error),
    "server_visit": (None, Handle, OnConnection, c_void_p),
    "server_get_limits": (c_bool, Handle, POINTER(ServerLimits)),
    "server_set_limits": (Enum, Handle, POINTER(ServerLimits), _Error),
    "server_counters": (c_size_t, Handle, _Counters, c_size_t),
    "server_connection_id": (c_uint64, Handle),
    "server_connection_get_info": (c_bool, Handle, POINTER(ConnectionInfo)),
    "server_call_backward_client": (Enum, Handle, _Made, _Error),
    "backward_client_release": (None, Handle),

    "telemetry_create": (Enum, c_char_p, Handle, _Made, c_size_t, _Made, c_size_t, _Made, _Error),
    "telemetry_destroy": (None, Handle),
    "telemetry_openmetrics": (c_size_t, Handle, c_char_p, c_size_t),
    "telemetry_answer": (c_size_t, Handle, c_char_p, c_char_p, c_size_t, POINTER(c_char_p)),
}
HELD = {
    "now_ns": (c_uint64,),
    "runtime_poll": (c_uint32, Handle, c_uint32),
    "runtime_wake_fd": (c_int, Handle, c_uint32),
    "runtime_arm_wake": (c_bool, Handle, c_uint32),
    "runtime_num_workers": (c_uint32, Handle),
    "buffer_data": (c_void_p, Handle),
    "buffer_capacity": (c_uint32, Handle),
    "registered_memory_data": (c_void_p, Handle),
    "registered_memory_size": (c_size_t, Handle),
    "registered_memory_span": (Span, Handle, c_size_t, c_uint32),
    "view_run": (c_void_p, POINTER(View), c_uint32, POINTER(c_uint32)),
    "view_copy": (None, POINTER(View), c_void_p),
    "encoder_ok": (c_bool, Handle),
    "encoder_position": (c_uint64, Handle),
    "put_opaque": (None, Handle, c_void_p, c_size_t),
    "put_fixed": (None, Handle, c_void_p, c_size_t),
    "put_item": (None, Handle, Span, Enum),
    "put_buffer": (None, Handle, Handle, c_uint32, Enum),
    "decoder_ok": (c_bool, Handle),
    "decoder_at_end": (c_bool, Handle),
    "decoder_remaining": (c_uint64, Handle),
    "get_u32": (c_uint32, Handle),
    "get_u64": (c_uint64, Handle),
    "get_bool": (c_bool, Handle),
    "get_opaque": (View, Handle, c_uint32),
    "get_fixed": (View, Handle, c_uint32),
    "get_item": (View, Handle, c_uint32),
    "backward_client_caller": (Handle, Handle),
    "caller_alive": (c_bool, Handle),
    "caller_room": (c_uint32, Handle),
    "call_create": (Handle, Handle),
    "call_begin": (Handle, Handle, Handle, c_uint32),
    "call_set_credential": (c_bool, Handle, Handle),
    "call_reset_credential": (c_bool, Handle),
    "call_offer": (None, Handle, POINTER(Span), c_size_t),
    "call_offer_buffer": (None, Handle, Handle, c_uint32),
    "call_expect_reply": (None, Handle, c_uint64),
    "call_set_timeout_ms": (None, Handle, c_uint32),
    "call_set_retransmit": (None, Handle, c_bool),
    "call_on_released": (None, Handle, OnReleased, c_void_p),
    "call_submit": (c_bool, Handle, OnDone, c_void_p),
    "call_cancel": (None, Handle),
    "call_in_flight": (c_bool, Handle),
    "call_status_of": (Enum, Handle),
    "call_sent": (c_bool, Handle),
    "call_results": (Handle, Handle),
    "call_take_offered": (Handle, Handle, c_uint32),
    "call_mismatch_low": (c_uint32, Handle),
    "call_mismatch_high": (c_uint32, Handle),
    "call_auth_stat": (c_uint32, Handle),
    "call_transport_error": (c_bool, Handle, POINTER(TransportError)),
    "server_call_procedure": (c_uint32, Handle),
    "server_call_xid": (c_uint32, Handle),
    "server_call_wanted": (c_bool, Handle),
    "server_call_auth_flavor": (c_uint32, Handle),
    "server_call_credential": (View, Handle),
    "server_call_auth_sys": (c_bool, Handle, POINTER(AuthSysOptions)),
    "server_call_security": (c_bool, Handle, POINTER(CallSecurity)),
    "server_call_connection": (Handle, Handle),
    "server_call_args": (Handle, Handle),
    "server_call_results": (Handle, Handle),
    "server_call_result_buffer": (Handle, Handle, c_uint32),
    "server_call_on_released": (None, Handle, OnReleased, c_void_p),
    "server_call_reply": (None, Handle),
    "server_call_reply_after": (None, Handle, c_uint64),
    "server_call_reject": (None, Handle, c_uint32),
    "server_call_reject_versions": (None, Handle, c_uint32, c_uint32),
    "server_call_deny": (None, Handle, c_uint32),
    "server_call_drop": (None, Handle),
}


def _load(loader, functions):
    library = loader(os.environ.get("RRDK_LIBRARY") or "librrdk.so.0")
    loaded = types.SimpleNamespace()
    for name, (result, *arguments) in functions.items():
        function = getattr(library, "rrdk_" + name)
        function.restype, function.argtypes = result, arguments
        setattr(loaded, name, function)
    return loaded


lib = _load(ctypes.CDLL, FUNCTIONS)
held = _load(ctypes.PyDLL, HELD)


# ---- Errors ----

class Error(Exception):
    """An error of the library: str() is its text. `code` is an ErrorCode, `errno` the nearest value of errno.h."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code_of(code)

    @property
    def errno(self):
        return lib.errc_errno(self.code)


class ClosedError(Error):
    """The object has been closed: or it was a call that has been answered, a buffer that was handed over."""

    def __init__(self, what):
        super().__init__(ErrorCode.SHUTDOWN, f"{what} is closed")


class CallError(Error):
    """A call that did not succeed. `status` is a CallStatus, and `sent` tells whether the server may have seen the
    call. After PROG_MISMATCH and RPC_MISMATCH, `low` and `high` are the versions that the server speaks; after
    AUTH_ERROR, `auth_stat` is the reason."""

    def __init__(self, status, sent=False, low=0, high=0, auth_stat=0):
        super().__init__(lib.errc_of(status), lib.call_status_name(status).decode())
        self.status = status_of(status)
        self.sent, self.low, self.high, self.auth_stat = sent, low, high, auth_stat


class XdrError(ValueError):
    """What a message contains is not what was to be read. In a handler it answers GARBAGE_ARGS."""


def known(kind, value):
    """Returns the value as a member of the enumeration, or as it is if a later release has it."""
    return kind(value) if value in kind._value2member_map_ else value


def code_of(value):
    return known(ErrorCode, value)


def status_of(value):
    return known(CallStatus, value)


def error_of(text):
    """Makes an exception of a rrdk_error."""
    return Error(text.code, text.message.decode(errors="replace"))


def must(function, *arguments):
    """Calls a set-up function, whose last argument is an rrdk_error; raises an error that it reports."""
    text = ErrorText()
    if function(*arguments, byref(text)) != 0:
        raise error_of(text)


def made(function, *arguments):
    """As must(), for a function that makes something; returns the handle."""
    handle = Handle()
    must(function, *arguments, byref(handle))
    return handle.value


# ---- Options ----

_INTEGERS = (c_int, c_int32, c_uint8, c_uint32, c_uint64, c_size_t)


def options(kind, initialize, values):
    """Returns a structure of options with these values, checked, in place of the defaults."""
    structure = kind()
    initialize(byref(structure), ctypes.sizeof(structure))
    for name, value in values.items():
        put_field(structure, name, value)
    return structure


def put_field(structure, name, value):
    """Sets a number or truth value, which ctypes by itself would cut to the field's size."""
    kind = dict(structure._fields_).get(name)
    if name == "size" or kind not in (c_bool, *_INTEGERS):
        raise TypeError(f"{type(structure).__name__} has no option {name!r} that is a number or a truth value")
    if kind is c_bool and not isinstance(value, bool):
        raise TypeError(f"{name} is True or False, not {value!r}")
    if kind is not c_bool and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{name} is an integer, not {value!r}")
    setattr(structure, name, value)
    if getattr(structure, name) != value:
        raise OverflowError(f"{name} is out of range: {value}")


def put_array(structure, name, kind, values):
    """Sets a pointer to an array, and the number of its elements; returns the array, which must live as long."""
    array = (kind * len(values))(*values)
    setattr(structure, name, array)
    setattr(structure, "num_" + name, len(values))
    return array


def number(value, bits=32):
    """Returns the value if it is an unsigned integer of that size: ctypes would cut a larger one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"an integer is needed, not {value!r}")
    if not 0 <= value < 1 << bits:
        raise OverflowError(f"{value} is not an unsigned number of {bits} bits")
    return value


def text_of(value, what):
    if not isinstance(value, str):
        raise TypeError(f"{what} is a string, not {value!r}")
    if "\0" in value:
        raise ValueError(f"{what} contains a NUL")
    return os.fsencode(value)


def counters(function, *arguments):
    """Returns {name: value} of what function(arguments..., values, count) counts."""
    count = lib.counter_count()
    values = (c_uint64 * count)()
    function(*arguments, values, count)
    names = (lib.counter_name(id) for id in range(count))
    return {name.decode(): value for name, value in zip(names, values) if name is not None}


# ---- Bytes ----

def put_bytes(function, encoder, data):
    """Calls function(encoder, address, length) with a bytes-like object. Only read-only views are copied before."""
    if isinstance(data, bytes):
        function(encoder, data, len(data))
        return
    with memoryview(data) as view:
        if view.readonly or not view.c_contiguous:
            function(encoder, bytes(view), view.nbytes)
        else:
            function(encoder, byref((c_char * view.nbytes).from_buffer(view)), view.nbytes)
