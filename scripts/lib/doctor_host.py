"""What scripts/rrdk-doctor.py knows of a host and how, and what its checks share: findings, and the
decorator that makes a function a check."""
import dataclasses
import errno
import functools
import ipaddress
import math
import os
import re
import stat
import time
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30
DEFAULT_PORT = 20049
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
INFINIBAND = "/sys/class/infiniband"
# The errors of reading a file whose subject does not exist.
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENODEV, errno.ESRCH, errno.EOPNOTSUPP}


class Unreadable(Exception):
    """Says why something could not be determined, with the file's name."""


@dataclasses.dataclass
class Finding:
    state: str
    found: str
    costs: str | None = None
    mend: str | None = None
    name: str = ""
    subject: str = ""


def good(found):
    return Finding("good", found)


def worse(found, costs, *mend):
    return Finding("worse", found, costs, "\n".join(mend))


def bad(found, costs, *mend):
    return Finding("bad", found, costs, "\n".join(mend))


def unknown(why):
    return Finding("unknown", why)


def parse_cpus(text):
    """Returns [0, 1, 2, 8] for "0-2,8", or None if it is not such a list."""
    cpus = set()
    for part in filter(None, text.split(",")):
        bounds = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip())
        if not bounds:
            return None
        cpus |= set(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
    return sorted(cpus)


def ranges(cpus):
    """The reverse."""
    parts = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or "none"


def size(number):
    if number == math.inf:
        return "unlimited"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.4g} {name}"
    return f"{number} bytes"


class Host:
    """Everything that checks look at. Tests give it another root."""

    def __init__(self, root="/"):
        self.root = root

    def at(self, path):
        return os.path.join(self.root, path.lstrip("/"))

    def find(self, path):
        """Returns the file's text, empty if there is no such file."""
        try:
            return Path(self.at(path)).read_text(errors="replace").strip()
        except OSError as error:
            if error.errno in ABSENT:
                return ""
            raise Unreadable(f"{path}: {error.strerror}") from error

    def numbers(self, path, how_many=1):
        """Returns the file's numbers; raises Unreadable if there are fewer than `how_many`."""
        found = re.findall(r"\d+", self.find(path))
        if len(found) < how_many:
            raise Unreadable(f"{path} is not there, or has less than {how_many} number{'s' * (how_many > 1)}")
        return [int(n) for n in found]

    def fields(self, path):
        """Returns the numbers of a file with lines such as "Name: 17 kB", by name."""
        lines = re.findall(r"^([\w()]+):?\s+(\d+)", self.find(path), re.M)
        return {name: int(value) for name, value in lines}

    def cpu_list(self, path):
        """Returns the file's CPUs; empty if the file does not exist or says "(null)"."""
        return parse_cpus(self.find(path)) or []

    def names(self, folder, pattern=""):
        try:
            return sorted((name for name in os.listdir(self.at(folder)) if re.match(pattern, name)),
                          key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
        except OSError as error:
            if error.errno in ABSENT:
                return []
            raise Unreadable(f"{folder}: {error.strerror}") from error

    def exists(self, path):
        return os.path.exists(self.at(path))

    def may_use(self, path):
        return os.access(self.at(path), os.R_OK | os.W_OK)

    def is_socket(self, path):
        return stat.S_ISSOCK(os.stat(self.at(path)).st_mode)

    def memfd_error(self):
        try:
            os.close(os.memfd_create("rrdk-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        except OSError as error:
            return error.strerror
        return None

    def space(self, folder):
        """Returns the bytes of the folder's file system, or None if the folder does not exist."""
        if not self.exists(folder):
            return None
        of = os.statvfs(self.at(folder))
        return of.f_blocks * of.f_frsize

    def wait(self, seconds):
        time.sleep(seconds)

    @functools.cached_property
    def online(self):
        return self.cpu_list(f"{CPU}/online") or [0]

    @functools.cached_property
    def allowed(self):
        """The CPUs of the cpuset. A process can change its initial affinity, but not these."""
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            for _, text in self.limits("cpuset", name):
                if cpus := set(parse_cpus(text) or []) & set(self.online):
                    return sorted(cpus)
        return self.online

    @functools.cached_property
    def affinity(self):
        return parse_cpus(self.status("Cpus_allowed_list")) or self.allowed

    @functools.cached_property
    def isolated(self):
        by_cgroup = self.cpu_list("/sys/fs/cgroup/cpuset.cpus.isolated")
        return sorted(set(self.cpu_list(f"{CPU}/isolated") + by_cgroup))

    @functools.cached_property
    def flags(self):
        line = re.search(r"^flags\s*:(.*)", self.find("/proc/cpuinfo"), re.M)
        if not line:
            raise Unreadable("/proc/cpuinfo has no flags")
        return set(line[1].split())

    @functools.cached_property
    def nodes(self):
        return self.cpu_list(f"{NODE}/online") or [0]

    def nodes_of(self, cpus):
        """{node: CPUs}"""
        found = {}
        for cpu in cpus:
            nodes = self.names(f"{CPU}/cpu{cpu}", r"node\d+$")
            found.setdefault(int(nodes[0][4:]) if nodes else 0, []).append(cpu)
        return found

    def status(self, name):
        line = re.search(rf"^{name}:\s*(\S+)", self.find("/proc/self/status"), re.M)
        return line[1] if line else ""

    def has_capability(self, bit):
        bits = self.status("CapEff")
        return bool(re.fullmatch("[0-9a-f]+", bits)) and int(bits, 16) >> bit & 1 == 1

    def rlimit(self, name):
        """Returns the soft and the hard limit."""
        text = self.find("/proc/self/limits")
        line = re.search(rf"^{name}\s+(\d+|unlimited)\s+(\d+|unlimited)", text, re.M)
        if not line:
            raise Unreadable(f"/proc/self/limits does not list {name}")
        return [math.inf if value == "unlimited" else int(value) for value in line.groups()]

    def limits(self, controller, name):
        """Returns [(folder, text of the file `name`)] of this process's cgroup and of those above it. In a
        container the path may begin above what is visible; then only the root's limit counts."""
        found = {}
        for controllers, path in re.findall(r"^\d+:([^:]*):/?(.*)$", self.find("/proc/self/cgroup"), re.M):
            tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            if controllers:
                tops = [f"/sys/fs/cgroup/{controller}"] if controller in controllers.split(",") else []
            for top in tops:
                folders = [top, *path.split("/")] if path else [top]
                for depth in range(len(folders), 0, -1):
                    folder = "/".join(folders[:depth])
                    if text := self.find(f"{folder}/{name}"):
                        found[folder] = text
        return list(found.items())

    def least(self, controller, *names):
        """Returns (limit, folder, name) of the lowest limit, or None if there is no limit."""
        return min(((int(text), folder, name) for name in names
                    for folder, text in self.limits(controller, name)
                    if text.isdecimal() and int(text) < 1 << 60), default=None)

    @functools.cached_property
    def shares(self):
        """Returns {CPU: (busy just now, stolen just now, stolen since boot)}, as fractions of the time."""
        def times():
            return {int(cpu): [int(n) for n in rest.split()] for cpu, rest in
                    re.findall(r"^cpu(\d+)((?: \d+){8})", self.find("/proc/stat"), re.M)}
        before = times()
        self.wait(0.2)
        found = {}
        for cpu, after in times().items():
            spent = [new - old for new, old in zip(after, before.get(cpu, after))]
            user, nice, system, _, _, irq, softirq, steal = spent
            total = max(1, sum(spent))
            busy = user + nice + system + irq + softirq
            found[cpu] = (busy / total, steal / total, after[7] / max(1, sum(after)))
        return found

    def shares_of(self, cpus):
        found = {cpu: self.shares[cpu] for cpu in cpus if cpu in self.shares}
        if not found:
            raise Unreadable("/proc/stat does not list these CPUs")
        return found

    def has_address(self, address):
        v4 = re.findall(r"\|-- (\S+)\s+/32 host LOCAL", self.find("/proc/net/fib_trie"))
        v6 = re.findall(r"^([0-9a-f]{32}) ", self.find("/proc/net/if_inet6"), re.M)
        return str(address) in v4 or address.packed.hex() in v6

    def has_route(self, address):
        """Returns whether there is a route to the address, or None if that is not known."""
        routes = [line.split() for line in self.find("/proc/net/route").splitlines()[1:]]
        if address.version != 4 or not self.exists("/proc/net/route"):
            return None
        number = int.from_bytes(address.packed, "little")  # the file's byte order
        return any(len(route) > 7 and number & int(route[7], 16) == int(route[1], 16) for route in routes)

    def listeners(self, port):
        """Returns [(address, inode)] of the TCP sockets that listen at the port."""
        found = []
        pattern = r"^ *\d+: ([0-9A-F]{8}|[0-9A-F]{32}):%04X \S+ 0A (?:\S+ +){5}(\d+)" % port
        for path in ("/proc/net/tcp", "/proc/net/tcp6"):
            for address, inode in re.findall(pattern, self.find(path), re.M):
                raw = bytes.fromhex(address)
                words = [raw[i:i + 4][::-1] for i in range(0, len(raw), 4)]
                found.append((ipaddress.ip_address(b"".join(words)), inode))
        return found

    def owner(self, inode):
        for pid in self.names("/proc", r"\d+$"):
            folder = self.at(f"/proc/{pid}/fd")
            try:
                if any(os.readlink(f"{folder}/{fd}") == f"socket:[{inode}]" for fd in os.listdir(folder)):
                    return f"{self.find(f'/proc/{pid}/comm')} (process {pid})"
            except (PermissionError, FileNotFoundError, ProcessLookupError):
                continue  # another user's process, or one that has just ended
        return "the kernel, or a process of another user"

    def runs(self, program):
        return any(self.find(f"/proc/{pid}/comm") == program for pid in self.names("/proc", r"\d+$"))


@dataclasses.dataclass
class Uri:
    scheme: str
    host: str = ""
    port: int = DEFAULT_PORT
    device: str | None = None
    path: str = ""  # of shm:


@dataclasses.dataclass
class Wanted:
    """What the host is to be used for."""
    cpus: list
    connections: int = 1024
    memory: int | None = None
    uri: Uri | None = None
    rpcbind: bool = False

    @property
    def scheme(self):
        return self.uri.scheme if self.uri else None

    @property
    def bytes(self):
        return self.memory or 64 * MIB  # RRDK uses hugepages by default for this size and more

    @property
    def for_verbs(self):
        """The kind of finding for something that only verbs: needs: bad if verbs: is asked for, else worse."""
        return bad if self.scheme == "verbs" else worse


CHECKS = []  # (subject, name, function): the function returns a Finding or a list of Findings


def check(subject, name):
    def add(function):
        CHECKS.append((subject, name, function))
        return function
    return add
