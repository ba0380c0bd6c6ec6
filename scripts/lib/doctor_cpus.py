"""What scripts/rrdk-doctor.py checks of CPUs and of the clock."""
import re

from lib.doctor_host import CPU, bad, check, good, parse_cpus, ranges, unknown, worse

MORE_CPUS = "# a host, guest or container with more CPUs"


def mask(cpus):
    """Returns the mask in the kernel's format: hexadecimal, with a comma after each 32 CPUs."""
    digits = f"{sum(1 << cpu for cpu in cpus):x}"
    digits = digits.zfill(-(-len(digits) // 8) * 8)
    return ",".join(digits[i:i + 8] for i in range(0, len(digits), 8))


def each_cpu(host, wanted, path):
    """Returns {CPU: text} for the CPUs that have the file."""
    return {cpu: text for cpu in wanted.cpus if (text := host.find(f"{CPU}/cpu{cpu}/{path}"))}


def but_one(host, wanted):
    """Returns the CPUs that are to poll, for --cpus and similar options; without the first if these are all."""
    chosen = set(wanted.cpus) & set(host.online)
    return ranges(chosen - {host.online[0]} if len(chosen) == len(host.online) else chosen)


def boot_with(host, wanted, words):
    """Returns how to add parameters to the kernel's command line; CPUS stands for the CPUs that are to poll."""
    if len(host.online) == 1:
        return [MORE_CPUS]
    return ["# on the kernel's command line (/etc/default/grub, update-grub), then reboot:",
            "# " + words.replace("CPUS", but_one(host, wanted))]


@check("CPUs", "instructions")
def instructions(host, wanted):
    missing = {"avx2", "bmi1", "bmi2", "fma", "f16c", "movbe", "abm"} - host.flags
    if missing:
        return bad(f"without {', '.join(sorted(missing))}",
                   "RRDK is built for x86-64-v3: its programs die of SIGILL",
                   "# another host; for a guest, the CPU model \"host\"")
    return good("x86-64-v3, with AVX2")


@check("CPUs", "usable")
def usable(host, wanted):
    text = f"online {ranges(host.online)}"
    if host.allowed != host.online:
        text += f", the cpuset leaves {ranges(host.allowed)}"
    if host.affinity != host.allowed:
        text += f", programs start on {ranges(host.affinity)}"
    lacking = set(wanted.cpus) - set(host.allowed)
    if lacking:
        return bad(f"not {ranges(lacking)}: {text}", "threads cannot be pinned there",
                   f"# others: --cpus {ranges(host.allowed)}; or widen the cpuset (docker --cpuset-cpus)")
    if len(host.allowed) == 1:
        return worse(f"{text}: only one",
                     "client, server and everything else take turns: a call waits for the time slices of the others",
                     MORE_CPUS)
    return good(text)


@check("CPUs", "isolation")
def isolation(host, wanted):
    others = set(wanted.cpus) - set(host.isolated)
    if not others:
        return good(f"CPU {ranges(wanted.cpus)} isolated")
    return worse(f"CPU {ranges(others)} not isolated",
                 "the scheduler may put other work on a CPU that polls: calls then wait for milliseconds",
                 *boot_with(host, wanted, "isolcpus=managed_irq,domain,CPUS nohz_full=CPUS"))


@check("CPUs", "tick")
def tick(host, wanted):
    ticking = set(wanted.cpus) - set(host.cpu_list(f"{CPU}/nohz_full"))
    if not ticking:
        return good(f"stopped on CPU {ranges(wanted.cpus)} while one thread runs there")
    costs = "the kernel takes some microseconds of a polling CPU, 100 to 1000 times a second"
    if not host.exists(f"{CPU}/nohz_full"):
        return worse("this kernel cannot stop it", costs, "# a kernel with CONFIG_NO_HZ_FULL")
    return worse(f"not stopped on CPU {ranges(ticking)}", costs, *boot_with(host, wanted, "nohz_full=CPUS"))


def interrupts_at(host, cpus):
    """Returns the names of interrupts that came to these CPUs and may come again, the most frequent first."""
    lines = host.find("/proc/interrupts").splitlines() or [""]
    columns = [int(n) for n in re.findall(r"CPU(\d+)", lines[0])]
    found = []
    for line in lines[1:]:
        words = re.match(r"\s*(\d+):((?:\s+\d+)*)\s+(.*)", line)
        if not words:
            continue
        count = sum(int(n) for cpu, n in zip(columns, words[2].split()) if cpu in cpus)
        at = f"/proc/irq/{words[1]}"
        where = host.cpu_list(f"{at}/effective_affinity_list") or host.cpu_list(f"{at}/smp_affinity_list")
        if count and set(where) & set(cpus):
            found.append((count, f"{words[1]} ({words[3].split()[-1]})" if words[3] else words[1]))
    return [name for _, name in sorted(found, reverse=True)]


@check("CPUs", "interrupts")
def interrupts(host, wanted):
    found = interrupts_at(host, wanted.cpus)
    if not found:
        return good(f"none of a device come to CPU {ranges(wanted.cpus)}")
    rest = set(host.online) - set(wanted.cpus)
    mend = [f"for i in /proc/irq/*/smp_affinity_list; do echo {ranges(rest)} >$i; done  # some refuse",
            f"echo {mask(rest)} >/proc/irq/default_smp_affinity"]
    if host.runs("irqbalance"):
        mend = [f"echo IRQBALANCE_BANNED_CPULIST={ranges(wanted.cpus)} >>/etc/default/irqbalance",
                "systemctl restart irqbalance", *mend]
    if not rest:
        mend = [f"# leave them a CPU: --cpus {but_one(host, wanted)}" if len(host.online) > 1 else MORE_CPUS]
    return worse(f"{len(found)} come to CPU {ranges(wanted.cpus)}, most often {', '.join(found[:3])}",
                 "each takes microseconds of a polling CPU, and some of its cache", *mend)


@check("CPUs", "siblings")
def siblings(host, wanted):
    lists = each_cpu(host, wanted, "topology/thread_siblings_list").values()
    cores = {tuple(parse_cpus(text) or []) for text in lists} - {()}
    if not cores:
        return unknown(f"{CPU}/cpu*/topology does not say")
    shared = [ranges(core) for core in sorted(cores) if len(set(core) & set(wanted.cpus)) > 1]
    if shared:
        return worse(f"of one core: {', '.join(shared[:8])}{', ...' if len(shared) > 8 else ''}",
                     "threads that poll on one core get about half of its speed each",
                     f"# one of each core: --cpus {ranges({core[0] for core in cores})}")
    others = {cpu for core in cores for cpu in core} - set(wanted.cpus) - set(host.isolated)
    if others:
        return worse(f"CPU {ranges(others)}, of the same cores, may have other work",
                     "it takes up to half of a core that polls",
                     *[f"echo 0 >{CPU}/cpu{cpu}/online" for cpu in sorted(others)])
    return good("each has a core for itself")


def not_told(host, what, who):
    by = "the hypervisor" if "hypervisor" in host.flags else f"this kernel has no {who} driver: the firmware"
    return unknown(f"{by} {what}")


@check("CPUs", "governor")
def governor(host, wanted):
    found = each_cpu(host, wanted, "cpufreq/scaling_governor")
    if not found:
        return not_told(host, "sets the frequency", "cpufreq")
    text = ", ".join(f"{name} on {ranges(cpu for cpu in found if found[cpu] == name)}"
                     for name in sorted(set(found.values())))
    if set(found.values()) == {"performance"}:
        return good(text)
    return worse(text, "a core is slow until the governor has seen it busy: calls after a pause take longer",
                 f"echo performance | tee {CPU}/cpu*/cpufreq/scaling_governor")


@check("CPUs", "frequency")
def frequency(host, wanted):
    limit, most = (each_cpu(host, wanted, f"cpufreq/{name}_max_freq") for name in ("scaling", "cpuinfo"))
    if not most:
        return not_told(host, "sets the frequency", "cpufreq")
    lowered = [cpu for cpu in limit if limit[cpu] != most.get(cpu)]
    if lowered:
        return worse(f"CPU {ranges(lowered)} limited to less than can be", "each call takes that much longer",
                     f"for c in {CPU}/cpu*/cpufreq; do cat $c/cpuinfo_max_freq >$c/scaling_max_freq; done")
    off = host.find(f"{CPU}/intel_pstate/no_turbo") == "1" or host.find(f"{CPU}/cpufreq/boost") == "0"
    return good("not limited; " + ("turbo is off: slower, but steady" if off else
                                   "turbo, if there is any, is on: faster while other cores idle"))


@check("CPUs", "sleep states")
def sleep_states(host, wanted):
    folders = [f"{CPU}/cpu{cpu}/cpuidle" for cpu in wanted.cpus]
    states = [(folder, state) for folder in folders for state in host.names(folder, r"state\d+$")]
    if not states:
        return not_told(host, "decides how a CPU sleeps", "cpuidle")
    deep = {}
    for folder, state in states:
        at = f"{folder}/{state}"
        latency = host.numbers(f"{at}/latency")[0]
        if latency > 10 and host.find(f"{at}/disable") != "1":
            deep[state] = f"{host.find(f'{at}/name')} ({latency} us)"
    if not deep:
        return good("none takes more than 10 us to leave")
    return worse(f"enabled: {', '.join(deep.values())}",
                 "a CPU that sleeps (--idle adaptive, or a client between calls) answers that much later",
                 *[f"echo 1 | tee {CPU}/cpu*/cpuidle/{state}/disable" for state in deep],
                 "# or a program that holds /dev/cpu_dma_latency open, with 10 written to it")


@check("CPUs", "NUMA")
def numa(host, wanted):
    nodes = host.nodes_of(wanted.cpus)
    if len(host.nodes) == 1:
        return good("there is one node")
    if len(nodes) > 1:
        return worse("; ".join(f"{ranges(cpus)} on node {node}" for node, cpus in sorted(nodes.items())),
                     "a cache line from the other node takes two to three times as long",
                     f"# of one node: --cpus {ranges(max(nodes.values(), key=len))}")
    if host.find("/proc/sys/kernel/numa_balancing") not in ("", "0"):
        return worse("numa_balancing is on",
                     "the kernel unmaps pages to see which threads use them: each then costs a fault",
                     "sysctl -w kernel.numa_balancing=0")
    return good(f"{ranges(wanted.cpus)} on node {ranges(nodes)}; numa_balancing is off")


@check("CPUs", "other load")
def other_load(host, wanted):
    busy = {cpu: share[0] for cpu, share in host.shares_of(wanted.cpus).items() if share[0] > 0.1}
    average = "load average " + " ".join(host.find("/proc/loadavg").split()[:3])
    if not busy:
        return good(f"next to none on CPU {ranges(wanted.cpus)}; {average}")
    return worse(", ".join(f"CPU {cpu} is {share:.0%} busy" for cpu, share in busy.items()) + f"; {average}",
                 "figures that are taken now are not RRDK's alone (unless it is RRDK that polls there)",
                 "top -b -n 1 | head -20  # which programs")


@check("CPUs", "stolen time")
def stolen(host, wanted):
    if "hypervisor" not in host.flags:
        return good("not a virtual machine")
    shares = host.shares_of(wanted.cpus).values()
    now, since_boot = max(share[1] for share in shares), max(share[2] for share in shares)
    text = f"{now:.0%} just now, {since_boot:.1%} since boot"
    if now < 0.02 and since_boot < 0.01:
        return good(text)
    return worse(text, "the hypervisor runs others there: calls wait, and figures change from run to run",
                 "# on the hypervisor: dedicated CPUs for this guest")


# clock

@check("clock", "source")
def clock_source(host, wanted):
    at = "/sys/devices/system/clocksource/clocksource0"
    source = host.find(f"{at}/current_clocksource")
    if not source:
        return unknown(f"{at}/current_clocksource is not there")
    if source in ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page"):
        return good(f"{source}, which is read without a system call")
    costs = "programs that ask the kernel for the time make a system call for it"
    if "tsc" in host.find(f"{at}/available_clocksource").split():
        return worse(source, costs, f"echo tsc >{at}/current_clocksource")
    return worse(f"{source}; the kernel does not trust the TSC",
                 f"{costs}; RRDK reads the TSC, and may measure wrong times",
                 "dmesg | grep -i -e tsc -e clocksource  # why")


@check("clock", "TSC")
def tsc(host, wanted):
    missing = {"constant_tsc", "nonstop_tsc"} - host.flags
    if not missing:
        return good("constant rate, also while CPUs sleep")
    text = f"without {' and '.join(sorted(missing))}"
    costs = "RRDK takes it for constant: its times and timeouts "
    if "hypervisor" in host.flags:
        return worse(text, costs + "may be wrong, at the latest when the guest moves",
                     "# on the hypervisor (qemu): -cpu host,migratable=no,+invtsc")
    return bad(text, costs + "are wrong", "# another host")
