"""Attacks over shm:, by peers that speak its handshake (drivers/shm/handshake.h) as they like."""
import array
import fcntl
import os
import socket
import struct
import time

from attacks import attack

MAGIC = 0x6d68734b44525231
VERSION = 1
HELLO, CONNECT, ACCEPT, REJECT, REGION, REGION_GONE = range(1, 7)

F_ADD_SEALS = 1033
SEALS = 0x1 | 0x2 | 0x4 | 0x10  # no sealing, shrinking, growing, and no new writers

SLOTS, KEYS = 16, 16
SEGMENT_BYTES = (128 + SLOTS * 256 + KEYS * 64 + 4095) // 4096 * 4096


def message(kind, slots=0, keys=0, reads=0, bell=0, region=0xFFFFFFFF, offset=0, length=0):
    return struct.pack("<QIIIIIIIIQQ56s", MAGIC, VERSION, kind, slots, keys, reads, bell, region, 0, offset,
                       length, b"")


def sealed(size, seals=SEALS, fill=False):
    """A memfd; with `fill` it has memory."""
    fd = os.memfd_create("attack", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if fill:
        os.posix_fallocate(fd, 0, size)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


class Peer:
    def __init__(self, uri):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(1)
        self.socket.connect(uri.removeprefix("shm:"))

    def send(self, data, *fds):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], rights)

    def close(self):
        self.socket.close()


def try_peer(uri):
    """A peer, or None where the server's backlog is full or it has closed already."""
    try:
        return Peer(uri)
    except OSError:
        return None


@attack("shm-silent-visitors", "shm")
def silent_visitors(uri, until):
    """300 connections that say nothing, again and again."""
    count = 0
    while time.monotonic() < until:
        peers = [peer for peer in (try_peer(uri) for _ in range(300)) if peer]
        count += len(peers)
        time.sleep(min(2.5, max(0.0, until - time.monotonic())))
        for peer in peers:
            peer.close()
    return f"{count} connections"


@attack("shm-lingering-descriptors", "shm")
def lingering_descriptors(uri, until):
    """Garbage with hundreds of descriptors, among them TCP sockets whose close() waits for minutes."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    null = os.open("/dev/null", os.O_RDONLY)
    count = 0
    while time.monotonic() < until:
        peer = try_peer(uri)
        if peer is None:
            time.sleep(0.01)
            continue
        slow = socket.create_connection(listener.getsockname())
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
        slow.setblocking(False)
        try:
            while True:
                slow.send(bytes(65536))
        except BlockingIOError:
            pass
        try:
            peer.send(message(REGION), slow.fileno(), *[null] * 200)
            count += 201
        except OSError:
            pass
        slow.close()  # the server's copy may be the last
        peer.close()
        time.sleep(0.02)
    return f"{count} descriptors"


@attack("shm-sparse-regions", "shm")
def sparse_regions(uri, until):
    """Connections that announce a tebibyte each, of nothing."""
    huge = sealed(1 << 40)
    count = 0
    while time.monotonic() < until:
        peers = [peer for peer in (try_peer(uri) for _ in range(17)) if peer]
        for peer in peers:
            try:
                peer.send(message(REGION, region=1, length=1 << 40), huge)
                count += 1
            except OSError:
                pass
        time.sleep(min(1.4, max(0.0, until - time.monotonic())))
        for peer in peers:
            peer.close()
    return f"{count} regions"
