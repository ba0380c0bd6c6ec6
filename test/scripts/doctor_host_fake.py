"""Hosts for doctor_test.py: a folder in place of /, with the files of a correct host, except for what a test
changes."""
import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from lib.doctor_host import CPU, INFINIBAND, NODE, Host  # noqa: E402: found by the line above

SPEC = importlib.util.spec_from_file_location("rrdk_doctor", SCRIPTS / "rrdk-doctor.py")
doctor = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(doctor)

IB = f"{INFINIBAND}/mlx5_0"
HUGE = "hugepages/hugepages-2048kB"
FLAGS = "avx2 bmi1 bmi2 fma f16c movbe abm constant_tsc nonstop_tsc"
LIMITS = {"Max file size": ("unlimited", "unlimited"), "Max open files": (524288, 1048576),
          "Max locked memory": ("unlimited", "unlimited"), "Max address space": ("unlimited", "unlimited")}
MEMINFO = {"MemTotal": 32 << 20, "MemAvailable": 16 << 20, "SwapTotal": 0, "SwapFree": 0,
           "HugePages_Total": 1024, "HugePages_Free": 1024, "HugePages_Rsvd": 0, "HugePages_Surp": 0,
           "Hugepagesize": 2048}
STATUS = {"Cpus_allowed_list": "0-1", "CapEff": "0000000000000000", "Seccomp": "0"}
# Bare metal: four CPUs on two nodes, CPUs 2 and 3 isolated, an RDMA device at the node of these.
HEALTHY = {
    f"{CPU}/online": "0-3", f"{CPU}/isolated": "2-3", f"{CPU}/nohz_full": "2-3",
    f"{CPU}/intel_pstate/no_turbo": "0", f"{NODE}/online": "0-1", f"{NODE}/node1/cpulist": "2-3",
    "/proc/irq/24/effective_affinity_list": "0",
    "/proc/interrupts": " CPU0 CPU1 CPU2 CPU3\n 24:  900 0 3 4  PCI-MSI 1-edge eth0-rx\nNMI: 1 1 1 1 NMI\n",
    "/proc/cpuinfo": f"processor\t: 0\nmodel name\t: Tester 9000\nflags\t\t: {FLAGS}\n",
    "/proc/loadavg": "0.01 0.02 0.03 1/99 17",
    "/proc/stat": "".join(f"cpu{cpu} 10 0 10 1000 0 0 0 0 0 0\n" for cpu in range(4)),
    "/proc/self/cgroup": "0::/machine/box\n",
    "/proc/self/uid_map": "0 0 4294967295",
    "/proc/net/tcp": "head\n", "/proc/net/tcp6": "head\n", "/proc/net/unix": "",
    "/proc/net/if_inet6": "fd000000000000000000000000000001 02 40 00 80 eth0\n",
    "/proc/net/fib_trie": "  |-- 127.0.0.1\n     /32 host LOCAL\n"
                          "  |-- 10.0.0.1\n     /32 host LOCAL\n  |-- 10.0.0.255\n     /32 link BROADCAST\n",
    "/proc/sys/kernel/hostname": "host", "/proc/sys/kernel/osrelease": "6.1.0",
    "/proc/sys/kernel/numa_balancing": "0", "/proc/sys/vm/swappiness": "60",
    "/proc/sys/fs/nr_open": "1048576", "/proc/sys/fs/file-nr": "2000 0 2000000",
    "/proc/sys/net/core/somaxconn": "4096", "/proc/sys/net/ipv4/tcp_max_syn_backlog": "4096",
    "/proc/sys/net/ipv4/tcp_rmem": "4096 131072 6291456", "/proc/sys/net/ipv4/tcp_wmem": "4096 16384 4194304",
    "/proc/sys/net/ipv4/ip_unprivileged_port_start": "1024",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always defer [madvise] never",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "/sys/fs/cgroup/machine/cpu.max": "400000 100000", "/sys/fs/cgroup/machine/cpu.stat": "nr_throttled 0",
    "/sys/fs/cgroup/machine/memory.max": f"{8 << 30}", "/sys/fs/cgroup/machine/memory.current": f"{1 << 30}",
    "/sys/fs/cgroup/machine/box/pids.max": "max", "/sys/fs/cgroup/machine/box/hugetlb.2MB.max": "max",
    f"{IB}/node_type": "1: CA", f"{IB}/fw_ver": "20.31.1014", f"{IB}/board_id": "MT_17",
    f"{IB}/device/numa_node": "1", f"{IB}/ports/1/state": "4: ACTIVE", f"{IB}/ports/1/link_layer": "Ethernet",
    f"{IB}/ports/1/gids/0": "fe80:0000:0000:0000:0000:0000:0000:0001",
    f"{IB}/ports/1/gids/1": "0000:0000:0000:0000:0000:0000:0000:0000",
    f"{IB}/ports/1/gid_attrs/types/0": "RoCE v2", f"{IB}/ports/1/gid_attrs/ndevs/0": "eth7",
    "/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0",
    "/dev/infiniband/uverbs0": "", "/dev/infiniband/rdma_cm": "",
}
for number in range(4):
    HEALTHY |= {
        f"{CPU}/cpu{number}/topology/thread_siblings_list": str(number),
        f"{CPU}/cpu{number}/node{number // 2}/cpulist": "",
        f"{CPU}/cpu{number}/cpufreq/scaling_governor": "performance",
        f"{CPU}/cpu{number}/cpufreq/scaling_max_freq": "3000",
        f"{CPU}/cpu{number}/cpufreq/cpuinfo_max_freq": "3000",
        f"{CPU}/cpu{number}/cpuidle/state0/latency": "2", f"{CPU}/cpu{number}/cpuidle/state1/latency": "133",
        f"{CPU}/cpu{number}/cpuidle/state1/name": "C6", f"{CPU}/cpu{number}/cpuidle/state1/disable": "1"}
for number in range(2):
    HEALTHY |= {f"{NODE}/node{number}/{HUGE}/{what}_hugepages": "512" for what in ("free", "nr")}


def meminfo(**changed):
    return "".join(f"{name}: {value} kB\n" for name, value in (MEMINFO | changed).items())


def limits(**changed):
    named = LIMITS | {f"Max {name.replace('_', ' ')}": pair for name, pair in changed.items()}
    return "".join(f"{name:25} {soft:<20} {hard:<20} units\n" for name, (soft, hard) in named.items())


def status(**changed):
    return "".join(f"{name}:\t{value}\n" for name, value in (STATUS | changed).items())


HEALTHY |= {"/proc/meminfo": meminfo(), "/proc/self/limits": limits(), "/proc/self/status": status()}


def listening(address, port, inode=99):
    queues = "00000000:00000000 00:00000000 00000000"
    return f"head\n   0: {address}:{port:04X} 00000000:0000 0A {queues}  0 0 {inode} 1 0\n"


class FakeHost(Host):
    """A folder in place of /."""
    closed, memfd = (), None

    def __init__(self, root, files=(), later=()):
        super().__init__(root)
        self.later = dict(later)
        self.write(dict(files))

    def write(self, files):
        """With None, neither the file nor a folder for it alone exists."""
        for at in [Path(self.at(path)) for path, text in files.items() if text is None]:
            at.unlink(missing_ok=True)
            for folder in at.parents:
                if not folder.exists() or any(folder.iterdir()):
                    break
                folder.rmdir()
        for path, text in files.items():
            if text is not None:
                at = Path(self.at(path))
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_text(text)

    def wait(self, seconds):
        self.write(self.later)

    def may_use(self, path):
        return path not in self.closed

    def memfd_error(self):
        return self.memfd

    def space(self, folder):
        return None


class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root, cls.changed = folder.name, set()
        FakeHost(cls.root, HEALTHY)

    def host(self, changed=(), later=()):
        """Replaces the one that was made before."""
        FakeHost(self.root, {path: HEALTHY.get(path) for path in self.changed})
        self.changed.clear()
        self.changed.update(changed, later)
        return FakeHost(self.root, changed, later)

    def run_on(self, host, *arguments):
        """Exit status, stdout, stderr."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = doctor.main(list(arguments), host)
            except SystemExit as ended:
                code = ended.code
        return code, out.getvalue(), err.getvalue()

    def findings(self, host, *arguments):
        code, out, err = self.run_on(host, "--json", "-", *arguments)
        self.assertIn(code, (0, 1, 3), err)
        return json.loads(out)["findings"]

    def not_good(self, changed=(), *arguments, later=(), closed=()):
        host = self.host(changed, later)
        host.closed = closed
        return [f for f in self.findings(host, *arguments) if f["state"] != "good"]

    def only(self, state, name, changed=(), *arguments, **more):
        """The one finding that is not good."""
        found = self.not_good(changed, *arguments, **more)
        self.assertEqual([(f["name"], f["state"]) for f in found], [(name, state)], found)
        self.assertTrue(found[0]["found"])
        if state in ("worse", "bad"):
            self.assertTrue(found[0]["costs"] and found[0]["mend"], found)
        return found[0]

    def good(self, name, changed=(), *arguments):
        found = [f for f in self.findings(self.host(changed), *arguments) if f["name"] == name]
        self.assertEqual([f["state"] for f in found], ["good"], found)
        return found[0]["found"]
