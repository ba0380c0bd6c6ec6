"""Attacks over shm:, by peers that use its handshake (drivers/shm/handshake.h) in any way."""
import array
import collections
import ctypes
import fcntl
import mmap
import os
import random
import socket
import struct
import threading
import time

from attacks import attack

_libc = ctypes.CDLL(None, use_errno=True)

MAGIC = 0x6d68734b44525231
VERSION = 9
HELLO, CONNECT, ACCEPT, REJECT, REGION, REGION_GONE = range(1, 7)

F_ADD_SEALS = 1033
SIZE_SEALS = 0x2 | 0x4  # no shrinking, no growing
SEALS = 0x1 | 0x2 | 0x4 | 0x10  # no sealing, shrinking, growing, and no new writers or holes

# These attacks do not concern connections.
ROOM = ["--max-size", "1M"]
SLOTS, KEYS, COPIES = 16, 16, 4096
SEGMENT_BYTES = (192 + SLOTS * 256 + KEYS * 64 + COPIES + 4095) // 4096 * 4096


def message(kind, slots=0, keys=0, reads=0, bell=0, region=0xFFFFFFFF, offset=0, length=0):
    return struct.pack("<QIIIIIIIIQQQ56s", MAGIC, VERSION, kind, slots, keys, reads, bell, region, 0, offset,
                       length, COPIES, b"")


def sealed(size, seals=SEALS, fill=False):
    """A memfd; with `fill` it has memory."""
    fd = os.memfd_create("attack", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if fill:
        os.posix_fallocate(fd, 0, size)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


class Peer:
    """A connection, and the steps until it is accepted."""

    def __init__(self, uri):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(1)
        self.socket.connect(uri.removeprefix("shm:"))

    def send(self, data, *fds):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], rights)

    def receive(self):
        """The type of the next packet and its descriptors; None if there are no more."""
        data, fds, _, _ = socket.recv_fds(self.socket, 4096, 16)
        return (struct.unpack_from("<I", data, 12)[0], fds) if data else (None, fds)

    def connect(self):
        """Becomes an accepted connection; returns the descriptors of the server's segment, doorbells and
        wake-up socket. The segment `self.segment` is ours to write."""
        fd = os.memfd_create("attack", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, SEGMENT_BYTES)
        os.posix_fallocate(fd, 0, SEGMENT_BYTES)
        self.segment = mmap.mmap(fd, SEGMENT_BYTES)
        fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
        doorbells = sealed(4096, SIZE_SEALS, fill=True)
        wake = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.send(message(CONNECT, slots=SLOTS, keys=KEYS, reads=1), fd, doorbells, wake.fileno())
        os.close(fd)
        os.close(doorbells)
        wake.close()
        while True:
            kind, fds = self.receive()
            if kind == ACCEPT:
                return fds
            close_all(fds)
            if kind != HELLO:
                raise OSError("not accepted")

    def close(self):
        self.socket.close()


def close_all(fds):
    for fd in fds:
        os.close(fd)


def try_peer(uri):
    """A peer, or None if the server's backlog is full or it has closed already."""
    try:
        return Peer(uri)
    except OSError:
        return None


@attack("shm-silent-visitors", "shm", *ROOM)
def silent_visitors(uri, until):
    """300 silent connections, again and again."""
    count = 0
    while time.monotonic() < until:
        peers = [peer for peer in (try_peer(uri) for _ in range(300)) if peer]
        count += len(peers)
        time.sleep(min(2.5, max(0.0, until - time.monotonic())))
        for peer in peers:
            peer.close()
    return f"{count} connections"


class Slow:
    """Makes TCP sockets whose close() waits for minutes, until 200 more were made."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.far = collections.deque(maxlen=200)  # they read nothing

    def make(self):
        slow = socket.create_connection(self.listener.getsockname())
        self.far.append(self.listener.accept()[0])
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
        slow.setblocking(False)
        try:
            while True:
                slow.send(bytes(65536))
        except BlockingIOError:
            pass
        return slow


@attack("shm-lingering-descriptors", "shm", *ROOM)
def lingering_descriptors(uri, until):
    """Garbage with hundreds of descriptors, among them TCP sockets whose close() waits for minutes."""
    slow_ones = Slow()
    null = os.open("/dev/null", os.O_RDONLY)
    count = 0
    while time.monotonic() < until:
        peer = try_peer(uri)
        if peer is None:
            time.sleep(0.01)
            continue
        slow = slow_ones.make()
        try:
            peer.send(message(REGION, region=1, length=4096), slow.fileno(), *[null] * 200)
            count += 201
        except OSError:
            pass
        # The server's copy may be the last; if ours is, this waits.
        threading.Thread(target=slow.close, daemon=True).start()
        peer.close()
        time.sleep(0.02)
    return f"{count} descriptors"


def connections(uri, until, count=8):
    """Accepted connections, `count` at a time. An attack that gets none shows nothing."""
    accepted = 0
    while time.monotonic() < until:
        peers = []
        for _ in range(count):
            peer = try_peer(uri)
            try:
                if peer:
                    peers.append((peer, peer.connect()))
            except OSError:
                peer.close()
        if not peers:
            time.sleep(0.05)
        accepted += len(peers)
        yield peers
        for peer, fds in peers:
            close_all(fds)
            peer.close()
    if not accepted:
        raise AssertionError("the server accepted none of the attack's connections")


def pour(peer, packets):
    """Sends until the server has closed the connection; returns how many it took."""
    sent = 0
    try:
        for data, fd in packets:
            peer.send(data, fd)
            sent += 1
    except OSError:
        pass
    return sent


@attack("shm-sparse-regions", "shm", *ROOM)
def sparse_regions(uri, until):
    """Connections that show a tebibyte each, of nothing, before they are accepted and afterwards."""
    huge = sealed(1 << 40)
    count = 0
    for peers in connections(uri, until, 17):
        for peer, _ in peers:
            count += pour(peer, [(message(REGION, region=1, length=1 << 40), huge)])
        early = [peer for peer in (try_peer(uri) for _ in range(17)) if peer]
        for peer in early:
            count += pour(peer, [(message(REGION, region=1, length=1 << 40), huge)])
        time.sleep(min(0.5, max(0.0, until - time.monotonic())))
        for peer in early:
            peer.close()
    return f"{count} regions"


@attack("shm-many-regions", "shm", *ROOM)
def many_regions(uri, until):
    """Connections whose 256 regions are all of one file of 256 MiB, which is not even written."""
    size = 256 << 20
    file = sealed(size, fill=True)
    count = 0
    for peers in connections(uri, until, 2):
        for peer, _ in peers:
            count += pour(peer, [(message(REGION, region=i, length=size), file) for i in range(256)])
        time.sleep(min(0.2, max(0.0, until - time.monotonic())))
    os.close(file)
    return f"{count} regions"


@attack("shm-takes-pages-away", "shm", *ROOM)
def takes_pages_away(uri, until):
    """Tries to write the server's memory and to punch holes into it, by every descriptor that it gets."""
    done = tried = 0
    for peers in connections(uri, until, 2):
        for peer, fds in peers:
            got = [fds[0]]
            peer.socket.setblocking(False)
            try:
                while True:
                    kind, more = peer.receive()
                    got += more if kind == REGION else []
            except OSError:
                pass
            for fd in got:
                tried += 1
                for way in (lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR), lambda: fd):
                    try:
                        writable = way()
                        size = os.fstat(writable).st_size
                        if _libc.fallocate(writable, 3, ctypes.c_long(0), ctypes.c_long(size)) == 0:
                            done += 1
                        mmap.mmap(writable, size)
                        done += 1
                    except OSError:
                        pass
            close_all(got[1:])
        time.sleep(min(0.1, max(0.0, until - time.monotonic())))
    if done:
        raise AssertionError(f"{done} of {tried} descriptors let us")
    return f"{tried} descriptors tried"


@attack("shm-wake-ups-shut", "shm", *ROOM)
def wake_ups_shut(uri, until):
    """Shuts down the wake-up sockets that it is given, leaves, and scribbles on the doorbells after that."""
    pages = []
    for peers in connections(uri, until, 4):
        for _, fds in peers:
            socket.socket(fileno=os.dup(fds[2])).shutdown(socket.SHUT_RDWR)
            if len(pages) < 16:
                pages.append(mmap.mmap(fds[1], 4096))
        for page in pages:
            page[:] = bytes(4096)
        time.sleep(0.01)
    return f"{len(pages)} pages of doorbells"


@attack("shm-wake-ups-linger", "shm", *ROOM)
def wake_ups_linger(uri, until):
    """Sends TCP sockets whose close() waits for minutes to the server's wake-up sockets."""
    slow_ones = Slow()
    count = 0
    for peers in connections(uri, until, 4):
        for _, fds in peers:
            slow = slow_ones.make()
            with socket.socket(fileno=os.dup(fds[2])) as wake_up:
                socket.send_fds(wake_up, [b"x"], [slow.fileno()])
                count += 1
            threading.Thread(target=slow.close, daemon=True).start()
        time.sleep(0.02)
    return f"{count} descriptors"


@attack("shm-forged-slots", "shm", *ROOM)
def forged_slots(uri, until):
    """Slots of the ring, region messages and consumed counts at random."""
    dice = random.Random(1)
    file = sealed(8192, fill=True)
    count = 0
    for peers in connections(uri, until, 8):
        for peer, _ in peers:
            pour(peer, [(message(REGION, region=7, length=8192), file)])
            flags = dice.choice([0, 1, 2, 3, 4, 8, 12, 16, 18, dice.getrandbits(8)])
            sge = struct.pack("<QII", dice.choice([0, 8000, 1 << 63]), dice.choice([7, 7, 99]),
                              dice.choice([8, 4096, 0xFFFFFFFF]))
            room = struct.pack("<IIQ", dice.getrandbits(32), dice.choice([8, 100, 4096, 0xFFFFFFFF]),
                               dice.choice([0, 8, COPIES - 8, COPIES, dice.getrandbits(64)])) + sge * 2
            word = struct.pack("<IHBB", dice.choice([1, 1, 1, 2, 17, 1 << 31]), dice.choice([0, 68, 244, 0xFFFF]),
                               flags, dice.choice([0, 1, 2, 13, 0xFF]))
            peer.segment[200:200 + len(room)] = room
            peer.segment[192:200] = word
            peer.segment[64:72] = struct.pack("<Q", dice.choice([0, 0, 5]))
            peer.segment[128:132] = struct.pack("<I", dice.choice([0, 1, 77]))
            count += 1
        time.sleep(0.01)
    return f"{count} slots"
