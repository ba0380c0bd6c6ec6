"""Both ends of RPCSEC_GSS version 1 (RFC 2203) in RPC over RDMA over iWARP, without any code of the library's:
Kerberos is python3-gssapi's, and the framing is written here. A Caller and a Responder keep to the rules, and have
a method or an argument for each part that a test may want wrong."""
import collections
import itertools
import socket
import struct
import threading

import gssapi

PATIENCE = 120
PROGRAM, VERSION = 0x20005666, 1  # testrpc's
NULL, ECHO = 0, 1
CALL, REPLY = 0, 1
AUTH_NONE, RPCSEC_GSS = 0, 6
DATA, INIT, CONTINUE_INIT, DESTROY = range(4)
NONE, INTEGRITY, PRIVACY = 1, 2, 3
MAXSEQ = 0x80000000
GSS_COMPLETE, GSS_CONTINUE = 0, 1
# Sizes of Sends of 4096 bytes, both ways (RFC 8797).
PRIVATE_DATA = struct.pack(">IBBBB", 0xf6ab0e18, 1, 0, 3, 3)

SERVICE = gssapi.Name("nfs@localhost", gssapi.NameType.hostbased_service)


def words(*values):
    return struct.pack(f">{len(values)}I", *values)


def opaque(data):
    return words(len(data)) + data + bytes(-len(data) % 4)


def flipped(data):
    """The bytes with one bit changed, which is in a checksum if there is one at the end."""
    at = len(data) * 3 // 4
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def word(self):
        self.at += 4
        return struct.unpack_from(">I", self.data, self.at - 4)[0]

    def words(self, count):
        return [self.word() for _ in range(count)]

    def opaque(self):
        length = self.word()
        start, self.at = self.at, self.at + length + -length % 4
        if self.at > len(self.data):
            raise ValueError("an opaque ends too early")
        return self.data[start:start + length]

    def rest(self):
        start, self.at = self.at, len(self.data)
        return self.data[start:]


class Link:
    """One iWARP connection: MPA revision 1 without markers and CRCs (RFC 5044), and each message one RDMAP Send in one
    segment. Their RPC messages are inline, without chunks."""

    def __init__(self, stream, key, other_key):
        self.stream, self.sent = stream, 0
        stream.settimeout(PATIENCE)
        frame = key + struct.pack(">BBH", 0, 1, len(PRIVATE_DATA)) + PRIVATE_DATA
        if key.startswith(b"MPA ID Req"):
            stream.sendall(frame)
        start = self._read(20)
        if not start.startswith(other_key):
            raise ConnectionError(f"{start} is not {other_key}")
        self._read(struct.unpack_from(">H", start, 18)[0])
        if key.startswith(b"MPA ID Rep"):
            stream.sendall(frame)

    @classmethod
    def connect(cls, uri):
        host, _, port = uri.removeprefix("iwarp://").rpartition(":")
        stream = socket.create_connection((host, int(port)), timeout=PATIENCE)
        return cls(stream, b"MPA ID Req Frame", b"MPA ID Rep Frame")

    @classmethod
    def accept(cls, listener):
        return cls(listener.accept()[0], b"MPA ID Rep Frame", b"MPA ID Req Frame")

    def _read(self, length):
        data = b""
        while len(data) < length:
            more = self.stream.recv(length - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def send(self, message):
        self.sent += 1
        xid = message[:4]
        ulpdu = struct.pack(">BBIIII", 0x41, 0x43, 0, 0, self.sent, 0)
        ulpdu += xid + words(1, 32, 0, 0, 0, 0) + message  # RDMA_MSG without lists
        frame = struct.pack(">H", len(ulpdu)) + ulpdu
        self.stream.sendall(frame + bytes(-len(frame) % 4) + bytes(4))

    def receive(self):
        """The next RPC message. RDMA Writes of nothing come before it, by which a driver asks whether we are there."""
        ulpdu = b"\xc1"
        while ulpdu[0] & 0x80:  # tagged
            length = struct.unpack(">H", self._read(2))[0]
            ulpdu = self._read(length + -(2 + length) % 4 + 4)[:length]
        header = Reader(ulpdu[18:])
        xid, version, _, kind, *lists = header.words(7)
        if (version, kind, lists) != (1, 0, [0, 0, 0]):
            raise ValueError(f"not a message without chunks: XID {xid:x}, version {version}, type {kind}, {lists}")
        return header.rest()

    def close(self):
        self.stream.close()


def credential(control, sequence, service, handle, version=1, behind=b""):
    """`behind` stands inside its length, behind the handle."""
    return words(RPCSEC_GSS) + opaque(words(version, control, sequence, service) + opaque(handle) + behind)


def protect(context, service, sequence, data):
    """Arguments or results as RFC 2203 sections 5.3.2.1 to 5.3.2.3 want them."""
    if service == NONE:
        return data
    clear = words(sequence) + data
    if service == INTEGRITY:
        return opaque(clear) + opaque(context.get_signature(clear))
    return opaque(context.wrap(clear, True).message)


def reveal(context, service, sequence, body):
    """The other way; raises if anything about it is wrong."""
    if service == NONE:
        return body
    reader = Reader(body)
    clear = reader.opaque()
    if service == INTEGRITY:
        context.verify_signature(clear, reader.opaque())
    else:
        opened = context.unwrap(clear)
        clear = opened.message
        if not opened.encrypted:
            raise ValueError("signed only")
    if reader.rest() or clear[:4] != words(sequence):
        raise ValueError("another number, or something behind the body")
    return clear[4:]


# `status`: accept_stat, or auth_stat if it is denied.
Reply = collections.namedtuple("Reply", "xid denied status flavor verifier results")


def read_reply(message):
    reader = Reader(message)
    xid, kind, denied = reader.words(3)
    if kind != REPLY:
        raise ValueError("not a reply")
    if denied:
        reader.word()  # AUTH_ERROR
        return Reply(xid, True, reader.word(), None, b"", reader.rest())
    flavor, verifier, status = reader.word(), reader.opaque(), reader.word()
    return Reply(xid, False, status, flavor, verifier, reader.rest())


class Caller:
    """A connection with a context of its own."""

    def __init__(self, uri):
        self.link = Link.connect(uri)
        self.xids = itertools.count(1)
        self.handle, self.window, self.sequence = b"", 0, 0
        self.context = None

    def request(self, procedure, header, verifier=words(AUTH_NONE, 0), body=b""):
        """Sends a call with that credential; returns its XID."""
        xid = next(self.xids)
        self.link.send(words(xid, CALL, 2, PROGRAM, VERSION, procedure) + header + verifier + body)
        return xid

    def init(self, token, control=INIT, procedure=NULL, version=1, sequence=0, service=NONE, behind=b""):
        header = credential(control, sequence, service, self.handle, version)
        self.request(procedure, header, body=opaque(token) + behind)
        return read_reply(self.link.receive())

    def begin(self, *flags):
        """Starts a context; returns its first token."""
        flag = gssapi.RequirementFlag
        wanted = [flag.mutual_authentication, flag.integrity, flag.confidentiality, *flags]
        self.context = gssapi.SecurityContext(name=SERVICE, usage="initiate", flags=wanted)
        return self.context.step()

    def take(self, reply):
        """Reads rpc_gss_init_res and steps on; returns the major status and the next token."""
        reader = Reader(reply.results)
        self.handle = reader.opaque()
        major, _, self.window = reader.words(3)
        answer = reader.opaque()
        token = self.context.step(answer) if not self.context.complete else None
        if major == GSS_COMPLETE:
            self.context.verify_signature(words(self.window), reply.verifier)
        return major, token

    def establish(self):
        if self.take(self.init(self.begin()))[0] != GSS_COMPLETE:
            raise ValueError("the context is not complete")
        return self

    def message(self, procedure, service, data=b"", control=DATA, number=None, handle=None, version=1, behind=b"",
                header_sum=lambda right: right, body=lambda right: right, inner=None):
        """A call's message. The context's next number is taken, unless `number` is one; `inner` is the one in the body.
        `header_sum` and `body` change what would be right."""
        if number is None:
            self.sequence += 1
            number = self.sequence
        header = words(next(self.xids), CALL, 2, PROGRAM, VERSION, procedure)
        header += credential(control, number, service, self.handle if handle is None else handle, version, behind)
        verifier = words(RPCSEC_GSS) + opaque(header_sum(self.context.get_signature(header)))
        protected = protect(self.context, service, number if inner is None else inner, data)
        return header + verifier + body(protected)

    def answer(self, message):
        self.link.send(message)
        return read_reply(self.link.receive())

    def verify(self, reply, number):
        """Raises unless the reply is that of the call with that number."""
        self.context.verify_signature(words(number), reply.verifier)

    def call(self, procedure, service, data=b"", number=None):
        """A right call; returns its results, after all that they are protected by was checked."""
        message = self.message(procedure, service, data, number=number)
        number = self.sequence if number is None else number
        reply = self.answer(message)
        if (reply.xid, reply.denied, reply.status) != (Reader(message).word(), 0, 0):
            raise ValueError(f"refused: {reply}")
        self.verify(reply, number)
        return reveal(self.context, service, number, reply.results)

    def close(self):
        self.link.close()


Call = collections.namedtuple("Call", "xid procedure version control sequence service handle")


class Responder(threading.Thread):
    """A server for one connection. `calls` are those that came by RPCSEC_GSS, and `failure` is what was wrong with one
    so that it ended."""
    WINDOW = 2048
    HANDLE = b"a handle of 21 bytes."

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.uri = f"iwarp://127.0.0.1:{self.listener.getsockname()[1]}?mpa=1"
        self.context, self.calls, self.failure = None, [], None
        self.start()

    def run(self):
        link = None
        try:
            with self.listener:
                link = Link.accept(self.listener)
            while True:
                link.send(self.serve(link.receive()))
        except ConnectionError:
            pass  # the client has closed it
        except Exception as error:  # for the test, which looks at it
            self.failure = error
        finally:
            if link is not None:
                link.close()

    def serve(self, message):
        reader = Reader(message)
        xid, kind, rpc, program, version, procedure = reader.words(6)
        flavor, body = reader.word(), Reader(reader.opaque())
        signed = message[:reader.at]
        if (flavor, procedure) == (AUTH_NONE, NULL):  # whether a server is there
            return words(xid, REPLY, 0, AUTH_NONE, 0, 0)
        call = Call(xid, procedure, *body.words(4), body.opaque())
        if (kind, rpc, program, version, flavor, body.rest()) != (CALL, 2, PROGRAM, VERSION, RPCSEC_GSS, b""):
            raise ValueError("not a call by RPCSEC_GSS")
        self.calls.append(call)
        verifier = reader.word(), reader.opaque()
        if call.control in (INIT, CONTINUE_INIT):
            if (procedure, verifier) != (NULL, (AUTH_NONE, b"")):
                raise ValueError("a token's call is not NULL, or has a verifier")
            return words(xid, REPLY, 0) + self.take_token(call, Reader(reader.rest()))
        if (verifier[0], call.handle) != (RPCSEC_GSS, self.HANDLE):
            raise ValueError("no verifier, or another handle")
        self.context.verify_signature(signed, verifier[1])
        data = reveal(self.context, call.service, call.sequence, reader.rest()) if call.control == DATA else b""
        results = self.results(call, data if procedure == ECHO else b"")
        return words(xid, REPLY, 0, RPCSEC_GSS) + opaque(self.sum_of_number(call)) + words(0) + results

    def take_token(self, call, arguments):
        token = arguments.opaque()
        if arguments.rest() or call.handle not in (b"", self.HANDLE):
            raise ValueError("something behind the token, or another handle")
        self.context = gssapi.SecurityContext(usage="accept", creds=gssapi.Credentials(name=SERVICE, usage="accept"))
        return self.complete(self.context.step(token))

    def complete(self, answer):
        return (words(RPCSEC_GSS) + opaque(self.sum_of_window()) + words(0) + opaque(self.HANDLE)
                + words(GSS_COMPLETE, 0, self.WINDOW) + opaque(answer))

    # What a hostile one does in another way.
    def sum_of_window(self):
        return self.context.get_signature(words(self.WINDOW))

    def sum_of_number(self, call):
        return self.context.get_signature(words(call.sequence))

    def results(self, call, data):
        return protect(self.context, call.service, call.sequence, data) if call.control == DATA else b""
