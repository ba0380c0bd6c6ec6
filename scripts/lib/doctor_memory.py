"""What scripts/rrdk-doctor.py checks of memory and of a container's limits."""
import math
import re

from lib.doctor_host import GIB, INFINIBAND, MIB, NODE, bad, check, good, ranges, size, unknown, worse

IPC_LOCK, SYS_NICE = 14, 23  # capabilities


@check("memory", "hugepages")
def hugepages(host, wanted):
    info = host.fields("/proc/meminfo")
    page = info.get("Hugepagesize", 0) << 10
    if not page:
        return worse("this kernel has none", "buffers are in ordinary pages: slower with large calls",
                     "# a kernel with CONFIG_HUGETLBFS")
    surplus = info.get("HugePages_Surp", 0)
    extra = host.find("/proc/sys/vm/nr_overcommit_hugepages")  # made when they are asked for
    free = max(0, info.get("HugePages_Free", 0) - info.get("HugePages_Rsvd", 0))
    free += max(0, int(extra) - surplus) if extra.isdecimal() else 0
    text = f"{free} of {size(page)} free"
    gigantic = host.find("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages")
    if page != GIB and gigantic not in ("", "0"):
        text += f" ({gigantic} of 1 GiB, which RRDK does not use: only those of the default size)"
    if free * page >= wanted.bytes:
        return good(text)
    missing = max(1, math.ceil((wanted.memory or GIB) / page) - free)
    number = max(0, info.get("HugePages_Total", 0) - surplus) + missing
    return worse(f"{text}; {size(wanted.bytes)} wanted",
                 "buffers are in ordinary pages: slower with large calls",
                 f"sysctl -w vm.nr_hugepages={number}",
                 f"# if the kernel finds fewer: hugepages={number} on its command line, then reboot")


@check("memory", "node's hugepages")
def node_hugepages(host, wanted):
    page = host.fields("/proc/meminfo").get("Hugepagesize", 2048)
    files = {node: f"{NODE}/node{node}/hugepages/hugepages-{page}kB" for node in host.nodes}
    free = {node: host.numbers(f"{at}/free_hugepages")[0] for node, at in files.items() if len(files) > 1}
    if sum(free.values()) * page << 10 < wanted.bytes:
        return []  # there is one node, or the check before this one has said it
    text = ", ".join(f"node {node}: {number} free" for node, number in free.items())
    polled = host.nodes_of(wanted.cpus)
    each = math.ceil(wanted.bytes / (page << 10) / len(polled))
    lacking = [node for node in sorted(polled) if free.get(node, 0) < each]
    if not lacking:
        return good(text)
    return worse(f"{text}; {each} wanted on node {ranges(lacking)}",
                 "buffers lie on another node than the CPUs that use them: two to three times as far",
                 *[f"echo {each + host.numbers(f'{files[node]}/nr_hugepages')[0]} >{files[node]}/nr_hugepages"
                   for node in lacking if node in files])


def refused(host, wanted, room):
    """Returns whether RRDK would refuse the budget: neither free hugepages nor `room` bytes hold it."""
    info = host.fields("/proc/meminfo")
    in_hugepages = info.get("HugePages_Free", 0) * info.get("Hugepagesize", 0) << 10
    return in_hugepages < wanted.bytes and room * 31 // 32 < wanted.bytes  # RRDK spares a 32nd


@check("memory", "free memory")
def free_memory(host, wanted):
    available = host.fields("/proc/meminfo").get("MemAvailable")
    if available is None:
        return unknown("/proc/meminfo does not list MemAvailable")
    for name, command in (("Max address space", "ulimit -v"), ("Max file size", "ulimit -f")):
        if (limit := host.rlimit(name)[0]) < wanted.bytes:
            return bad(f"{command} allows {size(limit)}; {size(wanted.bytes)} wanted",
                       "RRDK refuses such a budget", f"{command} unlimited")
    if refused(host, wanted, available << 10):
        return bad(f"{size(available << 10)} available; {size(wanted.bytes)} wanted",
                   "RRDK refuses such a budget",
                   "ps axk -rss o rss,pid,comm | head  # which programs have it; or ask for less")
    return good(f"{size(available << 10)} available")


@check("memory", "locked memory")
def locked_memory(host, wanted):
    soft, hard = host.rlimit("Max locked memory")
    if wanted.scheme in ("shm", "iwarp") or not (wanted.scheme or host.names(INFINIBAND)):
        return good(f"{size(soft)} may be locked; only verbs: needs it")
    # Only a capability of the first user namespace counts.
    if host.has_capability(IPC_LOCK) and re.match(r"0\s+0\s+4294967295", host.find("/proc/self/uid_map")):
        return good("as much as there is, with CAP_IPC_LOCK")
    if soft >= wanted.bytes:
        return good(f"{size(soft)} may be locked")
    return wanted.for_verbs(
        f"{size(soft)} may be locked (hard limit {size(hard)}); {size(wanted.bytes)} wanted",
        "verbs: cannot register its buffers", "ulimit -l unlimited  # in the shell that starts RRDK",
        "# to stay: memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity in a systemd unit, "
        "docker run --ulimit memlock=-1")


@check("memory", "transparent")
def transparent(host, wanted):
    at = "/sys/kernel/mm/transparent_hugepage"
    enabled, defrag = ((re.findall(r"\[(\w+)\]", host.find(f"{at}/{name}")) or ["none"])[0]
                       for name in ("enabled", "defrag"))
    text = f"hugepages {enabled}, defrag {defrag}"
    if enabled in ("none", "never") or defrag != "always":
        return good(text)
    return worse(text, "a thread that touches new memory may wait for milliseconds until the kernel has free memory",
                 f"echo madvise >{at}/defrag")


@check("memory", "swap")
def swap(host, wanted):
    info = host.fields("/proc/meminfo")
    total, unused = (info.get(name, 0) << 10 for name in ("SwapTotal", "SwapFree"))
    if not total:
        return good("there is none")
    text = f"{size(total - unused)} of {size(total)} used; swappiness {host.find('/proc/sys/vm/swappiness')}"
    if total - unused <= 64 * MIB:
        return good(text)
    return worse(text, "memory that comes back from disk takes milliseconds", "sysctl -w vm.swappiness=1",
                 "swapoff -a && swapon -a  # if what is there fits into memory")


# container

@check("container", "CPU quota")
def cpu_quota(host, wanted):
    quotas = []
    for folder, text in host.limits("cpu", "cpu.max"):
        if words := re.fullmatch(r"(\d+) (\d+)", text):
            quotas.append((int(words[1]) / max(1, int(words[2])), folder, f"echo max >{folder}/cpu.max"))
    for folder, text in host.limits("cpu", "cpu.cfs_quota_us"):
        if text.isdecimal():
            period = max(1, host.numbers(f"{folder}/cpu.cfs_period_us")[0])
            quotas.append((int(text) / period, folder, f"echo -1 >{folder}/cpu.cfs_quota_us"))
    if not quotas:
        return good("none")
    cpus, folder, mend = min(quotas)
    text = f"{cpus:.3g} CPUs; stopped {host.fields(f'{folder}/cpu.stat').get('nr_throttled', 0)} times so far"
    if cpus >= len(wanted.cpus):
        return good(text)
    return worse(f"{text}; {len(wanted.cpus)} are to poll",
                 "threads that poll use it up, and then stand still for up to 100 ms, again and again",
                 f"{mend}  # docker update --cpus, Kubernetes limits.cpu")


@check("container", "memory limit")
def memory_limit(host, wanted):
    rooms = []
    for name, usage, cache in (("memory.max", "memory.current", "inactive_file"),
                               ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")):
        for folder, text in host.limits("memory", name):
            if text.isdecimal() and int(text) < 1 << 60:
                dropped_first = host.fields(f"{folder}/memory.stat").get(cache, 0)
                used = max(0, host.numbers(f"{folder}/{usage}")[0] - dropped_first)
                rooms.append((max(0, int(text) - used), int(text), f"{folder}/{name}"))
    if not rooms:
        return good("none")
    room, limit, path = min(rooms)
    if refused(host, wanted, room):
        return bad(f"{size(room)} left of {size(limit)}; {size(wanted.bytes)} wanted",
                   "RRDK refuses such a budget",
                   f"echo {limit + wanted.bytes} >{path}  # docker update --memory, Kubernetes limits.memory")
    return good(f"{size(room)} left of {size(limit)}")


@check("container", "hugepage limit")
def hugepage_limit(host, wanted):
    page = host.fields("/proc/meminfo").get("Hugepagesize", 2048)
    name = "hugetlb." + (f"{page >> 20}GB" if page >= 1 << 20 else f"{page >> 10}MB")
    least = host.least("hugetlb", f"{name}.max", f"{name}.limit_in_bytes")
    if least is None or least[0] >= wanted.bytes:
        return good(size(least[0]) if least else "none")
    return worse(f"{size(least[0])}; {size(wanted.bytes)} wanted",
                 "buffers are in ordinary pages although hugepages are free",
                 f"echo {wanted.bytes} >{least[1]}/{least[2]}  # Kubernetes limits.hugepages-2Mi")


@check("container", "process limit")
def process_limit(host, wanted):
    least = host.least("pids", "pids.max")
    if least is None:
        return good("none")
    used, needed = host.numbers(f"{least[1]}/pids.current")[0], len(wanted.cpus) + 16
    if least[0] - used >= needed:
        return good(f"{used} of {least[0]}")
    return bad(f"{used} of {least[0]}; {needed} more wanted", "threads cannot be started",
               f"echo {used + 4 * needed} >{least[1]}/pids.max  # docker update --pids-limit")


@check("container", "shared memory")
def shared_memory(host, wanted):
    if reason := host.memfd_error():
        return bad(f"memfd_create: {reason}", "RRDK can have no buffers",
                   "# a seccomp profile that allows memfd_create, as docker's own does")
    space = host.space("/dev/shm")
    return good("memfds can be made" + (f"; /dev/shm ({size(space)}) does not limit RRDK" if space else ""))


@check("container", "system calls")
def system_calls(host, wanted):
    if host.status("Seccomp") != "2":
        return good("not filtered")
    if len(host.nodes) > 1 and not host.has_capability(SYS_NICE):
        return worse("filtered, and there is no CAP_SYS_NICE",
                     "mbind is usually forbidden then: buffers may lie on the far node",
                     "# docker run --cap-add SYS_NICE")
    return good("filtered; RRDK needs nothing that usually is")
