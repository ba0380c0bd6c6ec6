"""What messages consist of: arguments and results in XDR, credentials; and who is at the other end."""
import ctypes
import functools
import struct
import weakref
from collections import namedtuple
from ctypes import byref, c_uint32

from . import _c
from ._c import XdrError, held, lib
from ._runtime import Buffer, Handled, need

_XDR_LETTERS = frozenset("0123456789iIqQfd ")


@functools.lru_cache(maxsize=None)
def _format(format):
    if not _XDR_LETTERS.issuperset(format):
        raise ValueError(f"{format!r} has letters other than i, I, q, Q, f and d, which XDR has")
    return struct.Struct(">" + format)


class Encoder(Handled):
    """Writes arguments or results in XDR, in order. Each function returns the encoder. What does not fit into a message
    shows when the call ends (TOO_LARGE), or is answered SYSTEM_ERR.

    pack() costs one call of the library, however many numbers it writes.
    """

    def __init__(self, handle, what, spans):
        self._handle = handle
        self._what = what
        self._spans = spans  # what the call refers to

    def pack(self, format, *values):
        """Writes numbers, as struct.pack(): i, I (32 bits), q, Q (64 bits), f, d."""
        data = _format(format).pack(*values)
        held.put_fixed(self._handle, data, len(data))
        return self

    def put_u32(self, value):
        return self.pack("I", value)

    def put_u64(self, value):
        return self.pack("Q", value)

    def put_bool(self, value):
        return self.pack("I", bool(value))

    def put_opaque(self, data):
        """opaque<>: the number of bytes, a copy of these, and the pad."""
        _c.put_bytes(held.put_opaque, self._handle, data)
        return self

    def put_fixed(self, data):
        """opaque[n]: a copy of the bytes, and the pad. Also for what is XDR already."""
        _c.put_bytes(held.put_fixed, self._handle, data)
        return self

    def put_string(self, text):
        return self.put_opaque(text.encode())

    def put_item(self, memory, eligible=True):
        """opaque<> in RegisteredMemory, or a Span, without a copy; if `eligible` and the procedure's entry allow
        it, RDMA moves it. The bytes must not change until memory.lent is 0 again."""
        handle = self._handle
        held.put_item(handle, self._spans.add(memory), bool(eligible))
        return self

    def put_buffer(self, buffer, length, eligible=True):
        """opaque<> in a Buffer, which the message takes over."""
        handle = self._handle
        held.put_buffer(handle, hand_over(buffer, length, self._spans.memory), length, bool(eligible))
        return self


def hand_over(buffer, length, memory):
    """Returns the handle of a Buffer of this memory, which is then closed."""
    if need(buffer, Buffer)._memory is not memory:
        raise ValueError("the buffer is not of the runtime's memory")
    if not 0 <= _c.number(length) <= len(buffer):
        raise ValueError(f"{length} bytes are not in a buffer of {len(buffer)}")
    return buffer._take()


class Decoder(Handled):
    """Reads arguments or results in XDR, in order. XdrError: they contain something else, or nothing more.

    What is read is a copy, except with borrow_item(). `most` is the highest number of bytes to accept.
    """

    def __init__(self, handle, what, call, loans):
        self._handle = handle
        self._what = what
        self._call = weakref.ref(call)  # which borrowed bytes keep
        self._loans = loans             # of the call

    def unpack(self, format):
        """Reads numbers; returns a tuple, as struct.unpack(). The letters are those of Encoder.pack()."""
        numbers = _format(format)
        return numbers.unpack(self.get_fixed(numbers.size))

    def get_u32(self):
        value = held.get_u32(self._handle)
        if value == 0:
            self._check()
        return value

    def get_u64(self):
        value = held.get_u64(self._handle)
        if value == 0:
            self._check()
        return value

    def get_bool(self):
        value = held.get_bool(self._handle)
        if not value:
            self._check()
        return value

    def get_opaque(self, most=0xffffffff):
        return self._copy(held.get_opaque(self._handle, _c.number(most)))

    def get_fixed(self, length):
        return self._copy(held.get_fixed(self._handle, _c.number(length)))

    def get_string(self, most=0xffffffff):
        try:
            return self.get_opaque(most).decode()
        except UnicodeDecodeError as error:
            raise XdrError(f"{self._what} have a string that is not UTF-8") from error

    def get_item(self, most=0xffffffff):
        """opaque<> that RDMA may have moved."""
        return self._copy(held.get_item(self._handle, _c.number(most)))

    def borrow_item(self, most=0xffffffff):
        """As get_item(), in place: a read-only memoryview, which is released when the call is answered, or begun again.
        It must not be in use then. (If the bytes lie in several pieces, it shows a copy.)"""
        view = held.get_item(self._handle, _c.number(most))
        run = c_uint32()
        address = held.view_run(byref(view), 0, byref(run))
        if view.length == 0 or run.value != view.length:
            return memoryview(self._copy(view))
        return self._loans.lend(self._call(), address, view.length, readonly=True)

    def get_rest(self):
        """All that remains, as bytes of XDR."""
        return self.get_fixed(held.decoder_remaining(self._handle))

    def end(self):
        """Nothing must be left, as after a procedure's arguments."""
        if not held.decoder_at_end(self._handle):
            self._check()
            raise XdrError(f"{self._what} are longer than what is to be read")

    def _copy(self, view):
        if view.length == 0:
            self._check()
            return b""
        run = c_uint32()
        address = held.view_run(byref(view), 0, byref(run))
        if run.value == view.length:
            return ctypes.string_at(address, view.length)
        copy = bytearray(view.length)
        held.view_copy(byref(view), ctypes.addressof((ctypes.c_char * view.length).from_buffer(copy)))
        return bytes(copy)

    def _check(self):
        if not held.decoder_ok(self._handle):
            raise XdrError(f"{self._what} are not what was to be read")


# ---- Credentials ----

class AuthSys(namedtuple("AuthSys", "uid gid gids machine_name stamp", defaults=((), "", 0))):
    """An AUTH_SYS credential (RFC 5531 appendix A): at most 16 gids."""
    __slots__ = ()

    def structure(self):
        structure = _c.AuthSysOptions()
        for name in ("uid", "gid", "stamp"):
            _c.put_field(structure, name, getattr(self, name))
        name = _c.text_of(self.machine_name, "the name of a machine")
        if len(name) > 255 or len(self.gids) > 16:
            raise ValueError("AUTH_SYS has at most 16 groups, and 255 bytes of a machine's name")
        structure.machine_name, structure.num_gids = name, len(self.gids)
        for k, gid in enumerate(self.gids):
            structure.gids[k] = _c.number(gid)
        return structure

    @staticmethod
    def of(structure):
        return AuthSys(structure.uid, structure.gid, tuple(structure.gids[:structure.num_gids]),
                       structure.machine_name.decode(errors="replace"), structure.stamp)


class Credential(Handled):
    """A credential for the calls of one user, which any number of calls share: Credential(AuthSys(...)), or
    Credential(flavor=N, body=bytes)."""
    _what = "the credential"

    def __init__(self, identity=None, *, flavor=0, body=b""):
        if identity is not None:
            self._handle = _c.made(lib.credential_create_auth_sys, byref(identity.structure()))
        else:
            self._handle = _c.made(lib.credential_create, _c.number(flavor), bytes(body), len(body))

    @classmethod
    def _of(cls, handle):
        its = cls.__new__(cls)
        its._handle = handle
        return its

    def __del__(self):
        if not self.closed:
            lib.credential_destroy(self._handle)


# ---- Connections ----

_names = [name for name, _ in _c.ConnectionInfo._fields_ if name != "size"]
ConnectionInfo = namedtuple("ConnectionInfo", _names)


def info_of(structure):
    """Returns a ConnectionInfo, whose fields are those of rrdk_connection_info."""
    values = (getattr(structure, name) for name in _names)
    info = ConnectionInfo(*(v.decode(errors="replace") if isinstance(v, bytes) else v for v in values))
    return info._replace(ended_by=_c.known(_c.EndedBy, info.ended_by), ending_code=_c.code_of(info.ending_code))


def ask_info(function, handle):
    """Returns what function(handle, info) writes, or None if it says that nothing is there."""
    structure = _c.ConnectionInfo(size=ctypes.sizeof(_c.ConnectionInfo))
    return info_of(structure) if function(handle, byref(structure)) else None
