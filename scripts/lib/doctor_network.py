"""What scripts/rrdk-doctor.py checks of the network and of RDMA devices."""
import dataclasses
import ipaddress
import os
import re
import shlex

from lib.doctor_host import (DEFAULT_PORT, INFINIBAND, MIB, NODE, bad, check, good, ranges, size, unknown,
                             worse)

BIND_SERVICE = 10  # a capability


@check("network", "descriptors")
def descriptors(host, wanted):
    each = {"iwarp": 1, "verbs": 1}.get(wanted.scheme, 4)  # shm: three, and one more while it connects
    needed = wanted.connections * each + 64
    soft, hard = host.rlimit("Max open files")
    text = f"{soft:.0f} (hard limit {hard:.0f}); {wanted.connections} connections need up to {needed}"
    raise_it = f"ulimit -n {needed}  # in the shell that starts RRDK"
    if hard < needed:
        highest = host.numbers("/proc/sys/fs/nr_open")[0]
        return bad(text, f"connections beyond {max(0, hard - 64) // each:.0f} are refused",
                   *([f"sysctl -w fs.nr_open={needed}"] if highest < needed else []), raise_it,
                   "# to stay: nofile in /etc/security/limits.conf, LimitNOFILE= in a systemd unit, "
                   "docker run --ulimit nofile=")
    used, *_, most = host.numbers("/proc/sys/fs/file-nr", 3)
    if most - used < needed:
        return bad(f"{used} of this host's {most} in use; {needed} more wanted", "connections are refused",
                   f"sysctl -w fs.file-max={used + 2 * needed}")
    if soft < needed:
        return worse(text, f"a program that does not raise its limit, as testrpc does, refuses those beyond "
                     f"{max(0, soft - 64) // each:.0f}", raise_it)
    return good(text)


def address_of(uri):
    """Returns the URI's address, or None if the host is a name, which would have to be looked up."""
    try:
        return ipaddress.ip_address({"localhost": "127.0.0.1"}.get(uri.host, uri.host.split("%")[0]))
    except ValueError:
        return None


MOST_PATH = 107  # bytes of a UNIX socket's path


@check("network", "socket")
def socket(host, wanted):
    if wanted.scheme != "shm":
        return []
    path = wanted.uri.path
    length = len(os.fsencode(path))
    if length > MOST_PATH:
        return bad(f"its path has {length} bytes", f"neither end can use it: {MOST_PATH} are possible",
                   "# choose a shorter one")
    if path.startswith("@"):
        return good("a name without a file")
    here = os.path.abspath(path)
    folder = os.path.dirname(here)
    if not host.exists(folder):
        return bad(f"{folder} is not there", "a server cannot listen there", f"mkdir -p {shlex.quote(folder)}")
    if host.exists(here):
        if host.is_socket(here):
            return good(f"{path} is there")
        return bad(f"{path} exists and is not a socket", "a server does not replace it, and a client cannot connect",
                   "# choose another path, or remove it")
    if not host.may_use(folder):
        return bad(f"{folder} is not ours to write", "a server cannot listen there", "# choose another folder")
    return good(f"{path} is free")


def is_cut_off(host, address):
    """Returns what is wrong if this address cannot be reached from here."""
    if address.is_loopback:
        own = ipaddress.ip_address("127.0.0.1") if address.version == 4 else address
        if host.exists("/proc/net/fib_trie") and not host.has_address(own):
            why = "lo is down" if own.version == 4 else "lo is down, or IPv6 is switched off"
            return bad(f"{own} is no address of this host: {why}", "network is unreachable, at both ends",
                       "ip link set lo up")
    elif not (address.is_unspecified or host.has_address(address)) and host.has_route(address) is False:
        return bad(f"there is no route to {address}", "network is unreachable",
                   "ip link  # is its interface up? ip address, ip route: has it an address, and a route?")
    return None


@check("network", "port")
def port(host, wanted):
    if wanted.scheme == "shm":
        return []
    if wanted.scheme == "verbs":
        return unknown("rdma_cm has ports of its own, which \"rdma resource show cm_id\" lists")
    address = address_of(wanted.uri) if wanted.uri else ipaddress.ip_address("0.0.0.0")
    if address is None:
        return unknown(f"{wanted.uri.host} was not looked up: it may be this host's name, or another's")
    if cut_off := is_cut_off(host, address):
        return cut_off
    if not (address.is_unspecified or address.is_loopback or host.has_address(address)):
        return good(f"{address} is another host's")
    number = wanted.uri.port if wanted.uri else DEFAULT_PORT
    first = host.find("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if number and first.isdecimal() and number < int(first) and not host.has_capability(BIND_SERVICE):
        return bad(f"{number} is for root, as all below {first}", "a server cannot listen there",
                   f"sysctl -w net.ipv4.ip_unprivileged_port_start={number}")
    holders = [inode for at, inode in host.listeners(number)
               if at == address or at.is_unspecified or address.is_unspecified]
    if not holders:
        return good(f"{number} is free" if number else "any")
    text = f"{number} is taken by {host.owner(holders[0])}"
    mend = "# end that process, or choose another port"
    if wanted.uri and address.is_unspecified:
        return bad(text, "a server cannot listen there", mend)
    return worse(text, "another server cannot listen there; all is well if this one is to be called", mend)


@check("network", "listen queue")
def listen_queue(host, wanted):
    if wanted.scheme in ("shm", "verbs"):
        return []
    needed = min(wanted.connections, 1024)  # what RRDK asks for
    values = {name: host.numbers(f"/proc/sys/{name.replace('.', '/')}")[0]
              for name in ("net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog")}
    text = ", ".join(f"{name.split('.')[-1]} {value}" for name, value in values.items())
    short = [name for name, value in values.items() if value < needed]
    if not short:
        return good(text)
    return worse(f"{text}; {needed} wanted", "connections that come at once may wait for a second",
                 *[f"sysctl -w {name}={needed}" for name in short])


@check("network", "TCP buffers")
def tcp_buffers(host, wanted):
    if wanted.scheme in ("shm", "verbs"):
        return []
    values = {name: host.numbers(f"/proc/sys/net/ipv4/{name}") for name in ("tcp_rmem", "tcp_wmem")}
    text = ", ".join(f"{name} up to {size(of[-1])}" for name, of in values.items())
    small = [name for name, of in values.items() if of[-1] < MIB]
    if not small:
        return good(text)  # net.core.rmem_max is for programs that set a size, which RRDK does not
    return worse(text, "large calls over iwarp: wait for buffer space, the more the farther the peer is",
                 *[f"sysctl -w net.ipv4.{name}='{' '.join(map(str, values[name][:-1]))} {4 * MIB}'"
                   for name in small])


@check("network", "rpcbind")
def rpcbind(host, wanted):
    path = "/run/rpcbind.sock"
    if host.exists(path) and re.search(rf" (?:/var)?{path}$", host.find("/proc/net/unix"), re.M):
        return good(f"listens at {path}")
    text = f"listens at port 111, but not at {path}" if host.listeners(111) else "does not run"
    if not wanted.rpcbind:
        return good(f"{text}; only --rpcbind needs it")
    return bad(text, "a server cannot register: its clients need to know its port",
               "apt-get install rpcbind && systemctl enable --now rpcbind.socket",
               f"# in a container: docker run -v {path}:{path}")


# RDMA

@dataclasses.dataclass
class Port:
    number: str
    state: str
    link: str
    gids: int
    types: list  # of the GIDs
    interfaces: list

    def is_ready(self):
        return self.state == "ACTIVE" and self.gids > 0

    def __str__(self):
        of = [*self.types, *(f"on {name}" for name in self.interfaces)]
        link = f" {self.link}" if self.link else ""
        details = f" ({', '.join(of)})" if of else ""
        return f"port {self.number}{link} {self.state}, {self.gids} GIDs{details}"

    def mend(self):
        interface = self.interfaces[0] if self.interfaces else "INTERFACE"
        if self.state == "ACTIVE":
            return f"ip address add ADDRESS/24 dev {interface}"
        if self.link == "InfiniBand":
            return "opensm --daemon  # if the cable is in: the fabric needs a subnet manager, on one host"
        return f"ip link set {interface} up  # \"rdma link\" names the interface; is the cable in?"


def ports_of(host, device):
    found = []
    for number in host.names(f"{INFINIBAND}/{device}/ports", r"\d+$"):
        at = f"{INFINIBAND}/{device}/ports/{number}"
        gids = [n for n in host.names(f"{at}/gids") if re.search("[1-9a-f]", host.find(f"{at}/gids/{n}"))]
        types, interfaces = (sorted({host.find(f"{at}/gid_attrs/{what}/{gid}") for gid in gids} - {""})
                             for what in ("types", "ndevs"))
        state = (host.find(f"{at}/state").split() or ["of unknown state"])[-1]
        found.append(Port(number, state, host.find(f"{at}/link_layer"), len(gids), types, interfaces))
    return found


@check("RDMA", "devices")
def devices(host, wanted):
    ports = {name: ports_of(host, name) for name in host.names(INFINIBAND)}
    ready = [name for name, of in ports.items() if any(port.is_ready() for port in of)]
    if not ports and wanted.scheme != "verbs":
        return good("none; shm: and iwarp: work at once, without any")
    if not ports:
        return bad("none", "verbs: cannot be used",
                   "# load a device's driver (modprobe mlx5_ib), or make a software device on an interface:",
                   "rdma link add rxe0 type rxe netdev eth0")
    asked = wanted.uri.device if wanted.scheme == "verbs" else None
    if asked and asked not in ports:
        return bad(f"{asked} is not there", "the URI cannot be used", f"# there are: {', '.join(ports)}")
    findings = []
    for name, of in ports.items():
        kind, model, board, firmware = (host.find(f"{INFINIBAND}/{name}/{file}")
                                        for file in ("node_type", "hca_type", "board_id", "fw_ver"))
        firmware = f"firmware {firmware}" if firmware.strip("0. ") else "no firmware"
        text = "; ".join(filter(None, [kind.split(": ")[-1], model, board, firmware, *map(str, of)]))
        fault = wanted.for_verbs if asked == name or (not asked and not ready) else worse
        mend = of[0].mend() if of else "dmesg | tail  # its driver shows no port"
        finding = good(text) if name in ready else fault(text, "nothing can be reached through it", mend)
        findings.append(dataclasses.replace(finding, name=name))
    return findings


@check("RDMA", "device files")
def device_files(host, wanted):
    if not host.names(INFINIBAND) and wanted.scheme != "verbs":
        return []
    verbs = host.names("/sys/class/infiniband_verbs", r"uverbs\d+$") or ["uverbs0"]
    files = [f"/dev/infiniband/{name}" for name in ["rdma_cm", *verbs]]
    costs = "programs cannot use the devices"
    if absent := [path for path in files if not host.exists(path)]:
        return wanted.for_verbs(f"not there: {', '.join(absent)}", costs, "modprobe -a ib_uverbs rdma_ucm",
                                "# in a container: docker run --device=/dev/infiniband")
    if closed := [path for path in files if not host.may_use(path)]:
        return wanted.for_verbs(f"not for this user: {', '.join(closed)}", costs,
                                f"chmod a+rw {' '.join(closed)}",
                                "# to stay: a udev rule, or this user in the files' group")
    return good(f"{', '.join(files)} may be used")


@check("RDMA", "device's node")
def device_node(host, wanted):
    asked = wanted.uri.device if wanted.scheme == "verbs" else None
    polled = host.nodes_of(wanted.cpus)
    findings = []
    for name in host.names(INFINIBAND):
        node = host.find(f"{INFINIBAND}/{name}/device/numa_node")  # -1, or no file: on none
        if len(host.nodes) == 1 or asked not in (None, name) or not node.isdecimal():
            continue
        text = f"{name} on node {node}, {ranges(wanted.cpus)} on node {ranges(polled)}"
        findings.append(good(text) if list(polled) == [int(node)] else worse(
            text, "each completion and each byte crosses from one node to the other",
            f"# some of these: --cpus {host.find(f'{NODE}/node{node}/cpulist')}"))
    return findings
