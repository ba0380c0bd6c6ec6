"""The headers of RPC-over-RDMA version 1 (RFC 8166), of both drafts of version 2, and of ONC RPC (RFC 5531).

parse() reads a transport header and records faults in its form, as (requirement, words). dump_rules.py judges
what a header means in its conversation.
"""
import struct
from dataclasses import dataclass, field

MSG, NOMSG, MSGP, DONE, ERROR, OPTIONAL, CONNPROP, REQPROP, RESPROP, UPDPROP = range(10)
VERSION_1, DRAFT_00, DRAFT_04 = "v1", "v2-00", "v2-04"
DRAFTS = (DRAFT_04, DRAFT_00)
PROPERTIES = (CONNPROP, REQPROP, RESPROP, UPDPROP)
KINDS = {VERSION_1: (MSG, NOMSG, MSGP, DONE, ERROR), DRAFT_00: (MSG, NOMSG, ERROR, OPTIONAL),
         DRAFT_04: (MSG, NOMSG, ERROR, OPTIONAL, *PROPERTIES)}
KIND_NAMES = ("RDMA_MSG", "RDMA_NOMSG", "RDMA_MSGP", "RDMA_DONE", "RDMA_ERROR", "RDMA_OPTIONAL", "CONNPROP",
              "REQPROP", "RESPROP", "UPDPROP")
SHORTEST = {VERSION_1: 28, DRAFT_00: 28, DRAFT_04: 36}  # RDMA_MSG and RDMA_NOMSG without chunks
FIXED = 16  # bytes: XID, version, credit, procedure
ERR_VERS = 1
OLD_ERR_CHUNK_BYTES = 32  # RFC 5666 section 4.3; they mean nothing

# Names of the error codes, and how many words follow.
ERRORS = {
    VERSION_1: {1: ("ERR_VERS", 2), 2: ("ERR_CHUNK", 0)},
    DRAFT_00: {1: ("ERR_VERS", 2), 2: ("BAD_HEADER", 0), 3: ("INVAL_OPTION", 0)},
    DRAFT_04: {1: ("ERR_VERS", 2), 2: ("BAD_XDR", 0), 3: ("INVAL_PROC", 0), 4: ("READ_CHUNKS", 1),
               5: ("WRITE_CHUNKS", 1), 6: ("SEGMENTS", 1), 7: ("WRITE_RESOURCE", 2), 8: ("REPLY_RESOURCE", 1),
               9: ("INVAL_OPTION", 0), 10: ("SYSTEM", 0)}}

# The rule that a fault of form breaks, in version 1, draft-00, draft-04.
FORMS = {what: dict(zip((VERSION_1, DRAFT_00, DRAFT_04), rules)) for what, rules in {
    "procedure": ("V1-HDR-06", "V2D0-HDR-02", "V2D4-HDR-02"),
    "header": ("V1-HDR-07", "V2D0-HDR-03", "V2D4-HDR-03"),
    "Read list": ("V1-HDR-08", "V2D0-HDR-04", "V2D4-HDR-04"),
    "Write list": ("V1-HDR-09", "V2D0-HDR-04", "V2D4-HDR-04"),
    "Reply chunk": ("V1-HDR-10", "V2D0-HDR-04", "V2D4-HDR-04"),
    "truth": ("V1-HDR-17", "V2D0-HDR-04", "V2D4-HDR-04"),
    "direction": ("", "", "V2D4-HDR-05"),
    "error code": ("V1-ERR-01", "V2D0-ERR-01", "V2D4-ERR-01"),
    "error's words": ("V1-ERR-02", "V2D0-ERR-01", "V2D4-ERR-02"),
    "versions": ("V1-ERR-02", "V2D0-ERR-01", "V2D4-ERR-05"),
    "option": ("", "V2D0-OPT-01", "V2D4-OPT-01"),
    "CONNPROP": ("", "", "V2D4-POP-01"),
    "other properties": ("", "", "V2D4-POP-02"),
    "property's data": ("", "", "V2D4-PROP-08"),
    "NOMSG's end": ("V1-HDR-13", "V2D0-HDR-08", "V2D4-HDR-09"),
    "error's end": ("V1-HDR-14", "V2D0-HDR-08", "V2D4-HDR-07"),
    "properties' end": ("", "", "V2D4-POP-31")}.items()}


@dataclass(slots=True)
class Header:
    xid: int
    version: int
    credit: int
    kind: int
    dialect: str  # "": an unknown version
    direction: int | None = None  # draft-04: 0 call, 1 reply
    inv_handle: int = 0
    reads: list = field(default_factory=list)  # (Position, handle, length, offset)
    writes: list = field(default_factory=list)  # of chunks: lists of (handle, length, offset)
    reply: list | None = None
    error: int = 0
    words: list = field(default_factory=list)  # behind the error code
    option: int | None = None
    properties: list = field(default_factory=list)  # (id, bytes)
    subsets: list = field(default_factory=list)  # sets of indices
    size: int = 0
    faults: list = field(default_factory=list)  # (requirement, words)
    readable: bool = True  # a receiver could parse it
    seen: bool = True  # the capture contains the whole header

    def is_error(self):
        return self.kind == ERROR

    def error_name(self):
        return ERRORS.get(self.dialect, ERRORS[VERSION_1]).get(self.error, (f"error {self.error}",))[0]

    def kind_name(self):
        return KIND_NAMES[self.kind] if self.kind < len(KIND_NAMES) else f"procedure {self.kind}"

    def segments(self):
        """(handle, length, offset) of all chunks."""
        return [entry[1:] for entry in self.reads] + self.sinks()

    def sinks(self):
        return [segment for chunk in self.writes for segment in chunk] + (self.reply or [])


class Ended(Exception):
    """The message is shorter than its contents require."""


class Unseen(Exception):
    """The message may be long enough, but the capture contains no more bytes."""


class Reader:
    """Decodes XDR (RFC 4506) of a message of `length` bytes whose first bytes are `data`."""

    def __init__(self, data, length):
        self.data, self.length, self.at, self.place = data, length, 0, "header"

    def take(self, count):
        if self.at + count > self.length:
            raise Ended
        if self.at + count > len(self.data):
            raise Unseen
        self.at += count
        return self.data[self.at - count:self.at]

    def word(self):
        return int.from_bytes(self.take(4), "big")

    def words(self, count):
        return [self.word() for _ in range(count)]

    def truth(self):
        value = self.word()
        if value > 1:
            self.place = "truth"
            raise Ended
        return value

    def opaque(self):
        length = self.word()
        if self.at + length > self.length:
            self.place = "property's data" if self.place in ("CONNPROP", "other properties") else self.place
            raise Ended
        data = self.take(length)
        self.take(-length % 4)
        return data

    def segment(self):
        return struct.unpack(">IIQ", self.take(16))

    def chunk(self):
        return [self.segment() for _ in range(self.word())]

    def list_of(self, entry):
        entries = []
        while self.truth():
            entries.append(entry())
        return entries

    def read_entry(self):
        return struct.unpack(">IIIQ", self.take(20))

    def properties(self):
        return [(self.word(), self.opaque()) for _ in range(self.word())]

    def subset(self):
        words = self.words(self.word())
        return {32 * i + bit for i, word in enumerate(words) for bit in range(32) if word >> bit & 1}


def parse(data, length, draft):
    """Returns the header of a message of `length` bytes, or None if its fixed part is incomplete."""
    if len(data) < FIXED:
        return None
    xid, version, credit, kind = struct.unpack_from(">IIII", data)
    header = Header(xid, version, credit, kind, {1: VERSION_1, 2: draft}.get(version, ""), size=FIXED)
    reader = Reader(data, length)
    reader.at = FIXED
    dialect = header.dialect or VERSION_1
    if not header.dialect and kind != ERROR:  # all versions have the same ERR_VERS (V2X-15)
        return header
    try:
        take_body(header, reader, dialect)
    except Ended:
        header.readable = False
        header.faults.append((FORMS[reader.place][dialect], wrong_form(header, reader)))
    except Unseen:
        header.seen = False
    header.size = reader.at
    if header.readable and header.seen:
        check_end(header, length, dialect)
    return header


def wrong_form(header, reader):
    if reader.place == "procedure":
        return f"{header.kind_name()} is not a procedure of version {header.version}"
    if reader.place == "truth":
        return f"at byte {reader.at - 4} a list goes on or ends by neither 1 nor 0"
    if reader.place == "direction":
        return f"direction {header.direction} is neither call nor reply"
    if reader.place == "error code":
        return f"error code {header.error} is not one of version {header.version}, or is missing"
    return f"{reader.length} bytes end within the {reader.place}"


def take_body(header, reader, dialect):
    kind = header.kind
    if kind not in KINDS[dialect]:
        reader.place = "procedure"
        raise Ended
    if kind in (MSG, NOMSG, MSGP):
        take_lists(header, reader, dialect)
    elif kind == ERROR:
        take_error(header, reader, dialect)
    elif kind == OPTIONAL:
        reader.place = "option"
        header.direction = reader.word() if dialect == DRAFT_04 else None
        header.option = reader.word()
        reader.opaque()
    elif kind in PROPERTIES:
        reader.place = "CONNPROP" if kind == CONNPROP else "other properties"
        header.subsets = [reader.subset(), reader.subset()] if kind == RESPROP else []
        header.properties = reader.properties()
        if kind == CONNPROP:
            header.subsets = [reader.subset()]


def take_lists(header, reader, dialect):
    if reader.length < SHORTEST[dialect] + 8 * (header.kind == MSGP):
        raise Ended
    if dialect == DRAFT_04:
        header.direction, header.inv_handle = reader.words(2)
        if header.direction > 1:
            reader.place = "direction"
            raise Ended
    elif header.kind == MSGP:  # rdma_align, rdma_thresh
        reader.words(2)
    reader.place = "Read list"
    header.reads = reader.list_of(reader.read_entry)
    reader.place = "Write list"
    header.writes = reader.list_of(reader.chunk)
    reader.place = "Reply chunk"
    header.reply = reader.chunk() if reader.truth() else None


def take_error(header, reader, dialect):
    reader.place = "error code"
    header.error = reader.word()
    if header.error not in ERRORS[dialect]:
        raise Ended
    reader.place = "error's words"
    header.words = reader.words(ERRORS[dialect][header.error][1])
    if header.error == ERR_VERS and header.words[0] > header.words[1]:
        header.faults.append((FORMS["versions"][dialect], "its lowest version is above its highest"))


def check_end(header, length, dialect):
    rest = length - header.size
    if header.kind == ERROR and dialect == VERSION_1 and header.error == 2 and rest <= OLD_ERR_CHUNK_BYTES:
        return
    what = {NOMSG: "NOMSG's end", ERROR: "error's end", DONE: "error's end",
            **dict.fromkeys(PROPERTIES, "properties' end")}.get(header.kind)
    if what and rest:
        header.faults.append((FORMS[what][dialect], f"{rest} bytes follow its header"))


# ---- ONC RPC

CALL, REPLY = 0, 1
ACCEPTED = ("accepted", "PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS", "SYSTEM_ERR")
AUTH_ERRORS = {1: "AUTH_BADCRED", 2: "AUTH_REJECTEDCRED", 3: "AUTH_BADVERF", 4: "AUTH_REJECTEDVERF",
               5: "AUTH_TOOWEAK", 6: "AUTH_INVALIDRESP", 7: "AUTH_FAILED", 13: "RPCSEC_GSS_CREDPROBLEM",
               14: "RPCSEC_GSS_CTXPROBLEM"}
NFS, MOUNT, NFSACL, PORTMAP, CONFIGURATION = 100003, 100005, 100227, 100000, 100417
NFS_CALLBACK, PERF, PERF_CALLBACK = 0x40000000, 0x20005666, 0x20005667
CONF_RDMA = 1
PROGRAMS = {key: (name, procedures.split()) for key, name, procedures in (
    ((NFS, 2), "NFSv2", "NULL GETATTR SETATTR ROOT LOOKUP READLINK READ WRITECACHE WRITE CREATE REMOVE "
                        "RENAME LINK SYMLINK MKDIR RMDIR READDIR STATFS"),
    ((NFS, 3), "NFSv3", "NULL GETATTR SETATTR LOOKUP ACCESS READLINK READ WRITE CREATE MKDIR SYMLINK MKNOD "
                        "REMOVE RMDIR RENAME LINK READDIR READDIRPLUS FSSTAT FSINFO PATHCONF COMMIT"),
    ((NFS, 4), "NFSv4", "NULL COMPOUND"),
    ((NFS_CALLBACK, 1), "NFSv4 callback", "CB_NULL CB_COMPOUND"),
    ((MOUNT, 1), "MOUNTv1", "NULL MNT DUMP UMNT UMNTALL EXPORT"),
    ((MOUNT, 2), "MOUNTv2", "NULL MNT DUMP UMNT UMNTALL EXPORT"),
    ((MOUNT, 3), "MOUNTv3", "NULL MNT DUMP UMNT UMNTALL EXPORT"),
    ((NFSACL, 2), "NFSACLv2", "NULL GETACL SETACL GETATTR ACCESS"),
    ((NFSACL, 3), "NFSACLv3", "NULL GETACL SETACL"),
    ((PORTMAP, 2), "PORTMAP", "NULL SET UNSET GETPORT DUMP CALLIT"),
    ((CONFIGURATION, 1), "rdmaconfig", "NULL CONF_RDMA"),
    ((PERF, 1), "perf", "NULL ECHO READ WRITE SANDWICH READ2 CALLBACK"),
    ((PERF_CALLBACK, 1), "perf callback", "NULL ECHO"))}


# NFSv4 (RFC 8881 section 16): operations by number, and the length of those that only prepare others (None: opaque).
NFS4_FIRST = 3
NFS4_OPERATIONS = """ACCESS CLOSE COMMIT CREATE DELEGPURGE DELEGRETURN GETATTR GETFH LINK LOCK LOCKT LOCKU LOOKUP LOOKUPP
    NVERIFY OPEN OPENATTR OPEN_CONFIRM OPEN_DOWNGRADE PUTFH PUTPUBFH PUTROOTFH READ READDIR READLINK REMOVE RENAME RENEW
    RESTOREFH SAVEFH SECINFO SETATTR SETCLIENTID SETCLIENTID_CONFIRM VERIFY WRITE RELEASE_LOCKOWNER BACKCHANNEL_CTL
    BIND_CONN_TO_SESSION EXCHANGE_ID CREATE_SESSION DESTROY_SESSION FREE_STATEID GET_DIR_DELEGATION GETDEVICEINFO
    GETDEVICELIST LAYOUTCOMMIT LAYOUTGET LAYOUTRETURN SECINFO_NO_NAME SEQUENCE SET_SSV TEST_STATEID WANT_DELEGATION
    DESTROY_CLIENTID RECLAIM_COMPLETE ALLOCATE COPY COPY_NOTIFY DEALLOCATE IO_ADVISE LAYOUTERROR LAYOUTSTATS
    OFFLOAD_CANCEL OFFLOAD_STATUS READ_PLUS SEEK WRITE_SAME CLONE GETXATTR SETXATTR LISTXATTRS REMOVEXATTR""".split()
NFS4_PREPARE = {"SEQUENCE": 32, "PUTFH": None, "PUTPUBFH": 0, "PUTROOTFH": 0, "SAVEFH": 0, "RESTOREFH": 0}
RPCSEC_GSS = 6


@dataclass(slots=True)
class Rpc:
    xid: int
    kind: int
    program: int = 0
    version: int = 0
    procedure: int = 0
    status: str = ""  # of a reply
    results: int | None = None  # the offset of the results in a reply that has some
    operation: str = ""  # the main operation of an NFSv4 COMPOUND, if the capture contains it


def rpc_of(data):
    """Parses the beginning of an RPC message. Returns None if it is incomplete or is not an RPC message."""
    if len(data) < 8:
        return None
    xid, kind = struct.unpack_from(">II", data)
    if kind == REPLY:
        return Rpc(xid, kind, **reply_of(data))
    if kind == CALL and len(data) >= 24:
        rpc = Rpc(xid, kind, *struct.unpack_from(">III", data, 12))
        if (rpc.program, rpc.version, rpc.procedure) == (NFS, 4, 1):
            rpc.operation = nfs4_operation(data)
        return rpc
    return Rpc(xid, kind)


def nfs4_operation(data):
    """Returns the first operation that does not only prepare others, or else the last; empty if not visible."""
    reader, name = Reader(data, len(data)), ""
    reader.at = 24
    try:
        if reader.word() == RPCSEC_GSS:  # the operations may be encrypted
            return ""
        reader.opaque()  # the credential
        reader.word()
        reader.opaque()  # the verifier
        reader.opaque()  # the tag
        reader.word()  # the minor version
        for _ in range(reader.word()):
            number = reader.word() - NFS4_FIRST
            name = NFS4_OPERATIONS[number] if 0 <= number < len(NFS4_OPERATIONS) else f"operation {number + NFS4_FIRST}"
            if name not in NFS4_PREPARE:
                break
            length = NFS4_PREPARE[name]
            reader.opaque() if length is None else reader.take(length)
    except (Ended, Unseen):
        return ""
    return name


# RFC 5531 section 9.
def reply_of(data):
    reader = Reader(data, len(data))
    reader.at = 8
    try:
        if reader.word() == 0:
            reader.word()
            reader.opaque()  # the verifier
            state = reader.word()
            status = ACCEPTED[state] if state < len(ACCEPTED) else f"accept_stat {state}"
            return {"status": status, "results": reader.at if state == 0 else None}
        if reader.word() == 0:
            return {"status": "denied: RPC_MISMATCH"}
        state = reader.word()
        return {"status": "denied: " + AUTH_ERRORS.get(state, f"auth_stat {state}")}
    except Ended:
        return {"status": ""}


def procedure_name(rpc):
    """Returns the name of a call's procedure, "?" if the capture does not contain it."""
    if rpc is None or rpc.kind != CALL or not rpc.program:
        return "?"
    if rpc.operation:
        return f"NFSv4 {rpc.operation}"
    name, procedures = PROGRAMS.get((rpc.program, rpc.version), (f"{rpc.program}v{rpc.version}", ()))
    return f"{name} {procedures[rpc.procedure] if rpc.procedure < len(procedures) else rpc.procedure}"


# ---- private data of connection managers (RFC 8797 section 4)

IDENTIFIER, PRIVATE_BYTES = bytes.fromhex("f6ab0e18"), 8


@dataclass(slots=True)
class PrivateData:
    flags: int
    send: int
    receive: int

    def invalidation(self):
        return bool(self.flags & 1)


def private_data(octets):
    """Returns the first valid private data at any offset (section 5.2), or None."""
    at = octets.find(IDENTIFIER)
    while at >= 0:
        found = octets[at:at + PRIVATE_BYTES]
        if len(found) == PRIVATE_BYTES and found[4] == 1:
            return PrivateData(found[5], 1024 * (found[6] + 1), 1024 * (found[7] + 1))
        at = octets.find(IDENTIFIER, at + 1)
    return None
