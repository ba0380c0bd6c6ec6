#!/usr/bin/env python3
"""scripts/rrdk-doctor.py: its findings about hosts that are correct except for one thing."""
import json
import os
import shutil
import socket
import tempfile
import unittest
from pathlib import Path

from doctor_host_fake import (CPU, FLAGS, HEALTHY, HUGE, IB, INFINIBAND, NODE, FakeHost, Hosts, limits,
                              listening, meminfo, status)


class Cpus(Hosts):
    def test_a_host_as_it_should_be_is_good(self):
        for arguments in ([], ["--uri", "verbs://10.0.0.1?device=mlx5_0", "--memory", "1G"]):
            self.assertEqual([f for f in self.not_good((), *arguments) if f["state"] != "unknown"], [])

    def test_those_that_poll_are_the_isolated_ones_or_all(self):
        _, out, _ = self.run_on(self.host(), "--json", "-")
        self.assertEqual(json.loads(out)["to_poll"], [2, 3])
        _, out, _ = self.run_on(self.host({f"{CPU}/isolated": ""}), "--json", "-")
        self.assertEqual(json.loads(out)["to_poll"], [0, 1], "those that programs start on")

    def test_unavailable_cpus(self):
        self.assertIn("not 9", self.not_good((), "--cpus", "2,9")[0]["found"])
        for cgroup, path in (("0::/box", "cpuset.cpus.effective"),
                             ("3:cpuset:/box", "cpuset/cpuset.effective_cpus")):
            changed = {"/proc/self/cgroup": cgroup, f"/sys/fs/cgroup/{path}": "0-2"}
            found = self.not_good(changed, "--cpus", "2-3")[0]
            self.assertEqual((found["name"], found["state"]), ("usable", "bad"))
            self.assertIn("--cpus 0-2", found["mend"])

    def test_isolation_and_tick_name_the_kernel_parameters(self):
        self.assertIn("isolcpus=managed_irq,domain,3 ",
                      self.only("worse", "isolation", {f"{CPU}/isolated": "2"}, "--cpus", "3")["mend"])
        self.assertIn("reboot", self.only("worse", "tick", {f"{CPU}/nohz_full": " (null)"})["mend"])
        self.only("worse", "tick", {f"{CPU}/nohz_full": None})

    def test_a_cpu_is_left_to_the_rest_of_the_system(self):
        found = {f["name"]: f["mend"] for f in self.not_good({f"{CPU}/isolated": ""}, "--cpus", "0-3")}
        self.assertIn("nohz_full=1-3", found["isolation"])
        self.assertIn("--cpus 1-3", found["interrupts"])

    def test_interrupts_that_may_come(self):
        found = self.only("worse", "interrupts", {"/proc/irq/24/effective_affinity_list": "2"})
        self.assertIn("24 (eth0-rx)", found["found"])
        self.assertIn("echo 0-1 >$i", found["mend"])
        self.assertIn("echo 3 >/proc/irq/default_smp_affinity", found["mend"].replace("0000000", ""))
        self.assertNotIn("irqbalance", found["mend"])
        found = self.only("worse", "interrupts", {"/proc/irq/24/effective_affinity_list": "2",
                                                  "/proc/77/comm": "irqbalance\n"})
        self.assertIn("IRQBALANCE_BANNED_CPULIST=2-3", found["mend"])

    def test_siblings(self):
        pair = {f"{CPU}/cpu{cpu}/topology/thread_siblings_list": "2-3" for cpu in (2, 3)}
        found = self.only("worse", "siblings", pair)
        self.assertIn("2-3", found["found"])
        self.assertIn("--cpus 2", found["mend"])
        self.good("siblings", pair, "--cpus", "2")  # since the other one is isolated
        far = {f"{CPU}/cpu{cpu}/topology/thread_siblings_list": "0,2" for cpu in (0, 2)}
        self.assertIn(f"echo 0 >{CPU}/cpu0/online", self.only("worse", "siblings", far)["mend"])

    def test_frequency(self):
        found = self.only("worse", "governor", {f"{CPU}/cpu2/cpufreq/scaling_governor": "powersave"})
        self.assertEqual(found["found"], "performance on 3, powersave on 2")
        self.assertIn("echo performance", found["mend"])
        self.only("worse", "frequency", {f"{CPU}/cpu3/cpufreq/scaling_max_freq": "1500"})
        self.assertIn("turbo is off", self.good("frequency", {f"{CPU}/intel_pstate/no_turbo": "1"}))

    def test_a_guest_whose_hypervisor_rules_is_not_blamed(self):
        nothing = {path: None for path in HEALTHY if "/cpufreq/" in path or "/cpuidle/" in path}
        guest = {"/proc/cpuinfo": HEALTHY["/proc/cpuinfo"].replace(FLAGS, FLAGS + " hypervisor")}
        found = self.not_good(nothing | guest)
        self.assertEqual([f["name"] for f in found], ["governor", "frequency", "sleep states"])
        for f in found:
            self.assertEqual(f["state"], "unknown")
            self.assertIn("the hypervisor", f["found"])
        self.assertEqual(self.run_on(self.host(nothing | guest))[0], 0)

    def test_deep_sleep_states_that_are_enabled(self):
        found = self.only("worse", "sleep states", {f"{CPU}/cpu2/cpuidle/state1/disable": "0"})
        self.assertIn("C6 (133 us)", found["found"])
        self.assertIn("/cpuidle/state1/disable", found["mend"])

    def test_nodes(self):
        found = [f for f in self.not_good((), "--cpus", "1-3") if f["name"] == "NUMA"]
        self.assertIn("--cpus 2-3", found[0]["mend"])
        self.only("worse", "NUMA", {"/proc/sys/kernel/numa_balancing": "1"})

    def test_load_and_stolen_time_are_those_of_the_moment(self):
        def later(line):
            return {"/proc/stat": HEALTHY["/proc/stat"].replace("cpu3 10 0 10 1000 0 0 0 0", line)}

        found = self.only("worse", "other load", later=later("cpu3 25 0 15 1000 0 0 0 0"))
        self.assertIn("CPU 3 is 100% busy", found["found"])
        self.assertEqual(self.not_good(later=later("cpu3 10 0 11 1019 0 0 0 0")), [])
        guest = {"/proc/cpuinfo": HEALTHY["/proc/cpuinfo"].replace(FLAGS, FLAGS + " hypervisor")}
        found = self.only("worse", "stolen time", guest, later=later("cpu3 10 0 10 1015 0 0 0 5"))
        self.assertIn("25% just now", found["found"])

    def test_cpus_that_rrdk_is_not_built_for(self):
        changed = {"/proc/cpuinfo": HEALTHY["/proc/cpuinfo"].replace("avx2 ", "")}
        self.assertIn("avx2", self.only("bad", "instructions", changed)["found"])


class Memory(Hosts):
    def test_hugepages(self):
        none = {"/proc/meminfo": meminfo(HugePages_Free=0, HugePages_Total=10)}
        self.assertIn("vm.nr_hugepages=522\n", self.not_good(none)[0]["mend"])
        found = self.only("worse", "hugepages", (), "--memory", "3G")
        self.assertIn("vm.nr_hugepages=1536\n", found["mend"])

    def test_hugepages_that_are_reserved_or_of_the_wrong_size_do_not_count(self):
        changed = {"/proc/meminfo": meminfo(HugePages_Rsvd=1024),
                   "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "4"}
        found = self.not_good(changed)[0]
        self.assertEqual((found["name"], found["state"]), ("hugepages", "worse"))
        self.assertIn("4 of 1 GiB, which RRDK does not use", found["found"])

    def test_hugepages_that_can_be_made_count(self):
        self.good("hugepages", {"/proc/meminfo": meminfo(HugePages_Free=0),
                                "/proc/sys/vm/nr_overcommit_hugepages": "64"})

    def test_hugepages_of_the_other_node(self):
        found = self.only("worse", "node's hugepages", {f"{NODE}/node1/{HUGE}/free_hugepages": "0"})
        self.assertIn(f">{NODE}/node1/{HUGE}/nr_hugepages", found["mend"])

    def test_a_budget_that_rrdk_would_refuse(self):
        found = {f["name"]: f["state"] for f in self.not_good((), "--memory", "20G")}
        self.assertEqual(found["free memory"], "bad")
        self.assertEqual(found["memory limit"], "bad")
        in_hugepages = {"/proc/meminfo": meminfo(MemAvailable=1000)}
        self.good("free memory", in_hugepages, "--memory", "2G")
        narrow = {"/proc/self/limits": limits(address_space=(1 << 20, 1 << 20))}
        self.assertIn("ulimit -v unlimited", self.only("bad", "free memory", narrow)["mend"])

    def test_locked_memory_matters_to_verbs(self):
        small = {"/proc/self/limits": limits(locked_memory=(8 << 20, 8 << 20))}
        self.good("locked memory", small, "--uri", "shm:@x")
        found = self.only("worse", "locked memory", small)  # there is a device
        self.assertIn("8 MiB", found["found"])
        found = [f for f in self.not_good(small, "--uri", "verbs://10.0.0.1") if f["state"] == "bad"]
        self.assertEqual([f["name"] for f in found], ["locked memory"])
        self.assertIn("ulimit -l unlimited", found[0]["mend"])
        root = small | {"/proc/self/status": status(CapEff="0000000000004000")}
        self.good("locked memory", root)
        self.only("worse", "locked memory", root | {"/proc/self/uid_map": "0 100000 65536"})

    def test_the_kernels_memory_management(self):
        defrag = "/sys/kernel/mm/transparent_hugepage/defrag"
        self.assertIn(f"echo madvise >{defrag}",
                      self.only("worse", "transparent", {defrag: "[always] defer madvise never"})["mend"])
        swapped = meminfo(SwapTotal=8 << 20, SwapFree=7 << 20)
        self.assertIn("1 GiB of 8 GiB", self.only("worse", "swap", {"/proc/meminfo": swapped})["found"])
        self.good("swap", {"/proc/meminfo": meminfo(SwapTotal=8 << 20, SwapFree=8 << 20)})


class Network(Hosts):
    def test_descriptors(self):
        few = {"/proc/self/limits": limits(open_files=(1024, 4096))}
        found = self.only("bad", "descriptors", few)
        self.assertIn("1008", found["costs"])
        self.assertIn("ulimit -n 4160", found["mend"])
        self.good("descriptors", few, "--uri", "iwarp://10.0.0.1", "--connections", "900")
        found = self.only("worse", "descriptors", few, "--uri", "iwarp://10.0.0.1", "--connections", "2000")
        self.assertIn("960", found["costs"])

    def test_descriptors_that_the_kernel_does_not_have(self):
        few = {"/proc/self/limits": limits(open_files=(1024, 4096)), "/proc/sys/fs/nr_open": "4096"}
        self.assertIn("sysctl -w fs.nr_open=4160", self.only("bad", "descriptors", few)["mend"])
        full = {"/proc/sys/fs/file-nr": "9000 0 10000"}
        self.assertIn("fs.file-max", self.only("bad", "descriptors", full)["mend"])

    def test_a_port_that_is_taken(self):
        taken = {"/proc/net/tcp": listening("00000000", 20049)}
        host = self.host(taken | {"/proc/31/comm": "testrpc\n"})
        os.mkdir(host.at("/proc/31/fd"))
        os.symlink("/dev/null", host.at("/proc/31/fd/0"))
        os.symlink("socket:[99]", host.at("/proc/31/fd/7"))
        self.addCleanup(shutil.rmtree, host.at("/proc/31"))
        found = [f for f in self.findings(host, "--uri", "iwarp://0.0.0.0") if f["name"] == "port"]
        self.assertEqual(found[0]["state"], "bad")
        self.assertEqual(found[0]["found"], "20049 is taken by testrpc (process 31)")
        self.only("worse", "port", taken, "--uri", "iwarp://10.0.0.1")  # may be the one to be called
        self.only("worse", "port", taken)
        self.good("port", taken, "--uri", "iwarp://0.0.0.0:20050")

    def test_whose_port_it_is(self):
        v6 = {"/proc/net/tcp6": listening("000000FD000000000000000001000000", 20049)}
        self.only("worse", "port", v6, "--uri", "iwarp://[fd00::1]")
        elsewhere = {"/proc/net/tcp": listening("0100007F", 20049)}
        self.good("port", elsewhere, "--uri", "iwarp://10.0.0.1")
        self.only("worse", "port", elsewhere, "--uri", "iwarp://localhost")
        self.assertIn("another host", self.good("port", elsewhere, "--uri", "iwarp://10.0.0.9"))
        self.only("unknown", "port", elsewhere, "--uri", "iwarp://server")

    def test_interfaces_that_are_down(self):
        down = {"/proc/net/fib_trie": "  |-- 10.0.0.1\n     /32 host LOCAL\n"}
        for name in ("127.0.0.1", "localhost", "[::1]"):
            self.assertEqual(self.only("bad", "port", down, "--uri", f"iwarp://{name}")["mend"], "ip link set lo up")
        routes = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
        local = {"/proc/net/route": routes + "eth0 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\n"}
        self.assertIn("no route to 192.0.2.7", self.only("bad", "port", local, "--uri", "iwarp://192.0.2.7")["found"])
        self.assertIn("another host", self.good("port", local, "--uri", "iwarp://10.9.9.9"))
        default = {"/proc/net/route": routes + "eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n"}
        self.assertIn("another host", self.good("port", default, "--uri", "iwarp://192.0.2.7"))

    def test_sockets_of_shm(self):
        host = self.host({"/run/rrdk/file": "x"})
        there = host.at("/run/rrdk/socket")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(there)
            self.addCleanup(os.unlink, there)
        for path, state, words in (("/run/rrdk/new", "good", "is free"), ("/run/rrdk/socket", "good", "is there"),
                                   ("@name", "good", "without a file"), ("/run/rrdk/file", "bad", "is not a socket"),
                                   ("/none/x.sock", "bad", "/none is not there"),
                                   ("/run/rrdk/" + "x" * 110, "bad", "120 bytes"), ("@" + "x" * 107, "bad", "108 bytes")):
            [found] = [f for f in self.findings(host, "--uri", f"shm:{path}") if f["name"] == "socket"]
            self.assertEqual(found["state"], state, found)
            self.assertIn(words, found["found"])
        host.closed = ("/run/rrdk",)
        [found] = [f for f in self.findings(host, "--uri", "shm:/run/rrdk/new") if f["name"] == "socket"]
        self.assertEqual(found["state"], "bad")

    def test_a_port_that_only_root_may_have(self):
        found = self.only("bad", "port", (), "--uri", "iwarp://0.0.0.0:80")
        self.assertIn("ip_unprivileged_port_start=80", found["mend"])
        root = {"/proc/self/status": status(CapEff="0000000000000400")}
        self.good("port", root, "--uri", "iwarp://0.0.0.0:80")

    def test_queues_and_buffers(self):
        small = {"/proc/sys/net/core/somaxconn": "128"}
        found = self.only("worse", "listen queue", small)
        self.assertEqual(found["mend"], "sysctl -w net.core.somaxconn=1024")
        self.good("listen queue", small, "--connections", "100")
        found = self.only("worse", "TCP buffers", {"/proc/sys/net/ipv4/tcp_rmem": "4096 87380 174760"})
        self.assertEqual(found["mend"], "sysctl -w net.ipv4.tcp_rmem='4096 87380 4194304'")

    def test_rpcbind_is_asked_for_or_not(self):
        self.good("rpcbind")
        self.assertIn("rpcbind.socket", self.only("bad", "rpcbind", (), "--rpcbind")["mend"])
        self.good("rpcbind", {"/run/rpcbind.sock": "", "/proc/net/unix":
                              "0: 2 0 10000 1 1 7 /run/rpcbind.sock\n"}, "--rpcbind")
        found = self.only("bad", "rpcbind", {"/proc/net/tcp": listening("00000000", 111)}, "--rpcbind")
        self.assertIn("port 111", found["found"])


class Rdma(Hosts):
    NONE = {path: None for path in HEALTHY if "infiniband" in path}

    def test_a_device_is_described(self):
        text = self.good("mlx5_0")
        for word in ("CA", "MT_17", "firmware 20.31.1014", "Ethernet ACTIVE", "1 GIDs", "RoCE v2", "eth7"):
            self.assertIn(word, text)

    def test_no_device_is_wrong_only_for_verbs(self):
        self.assertIn("shm: and iwarp: work", self.good("devices", self.NONE))
        found = self.not_good(self.NONE, "--uri", "verbs://0.0.0.0")
        self.assertEqual([f["name"] for f in found if f["state"] == "bad"], ["devices", "device files"])
        found = self.not_good((), "--uri", "verbs://0.0.0.0?device=rxe0")
        found = [f for f in found if f["name"] == "devices"]
        self.assertEqual((found[0]["state"], found[0]["mend"]), ("bad", "# there are: mlx5_0"))

    def test_a_device_that_reaches_no_peer(self):
        down = {f"{IB}/ports/1/state": "1: DOWN"}
        self.assertIn("ip link set eth7 up", self.only("worse", "mlx5_0", down)["mend"])
        found = [f for f in self.not_good(down, "--uri", "verbs://0.0.0.0") if f["name"] == "mlx5_0"]
        self.assertEqual(found[0]["state"], "bad")
        no_gid = {f"{IB}/ports/1/gids/0": HEALTHY[f"{IB}/ports/1/gids/1"]}
        self.assertIn("ip address add", self.only("worse", "mlx5_0", no_gid)["mend"])
        fabric = {f"{IB}/ports/1/state": "2: INIT", f"{IB}/ports/1/link_layer": "InfiniBand"}
        self.assertIn("opensm", self.only("worse", "mlx5_0", fabric)["mend"])

    def test_one_device_of_two_is_enough(self):
        other = f"{INFINIBAND}/mlx5_1"
        second = {f"{other}/ports/1/state": "1: DOWN", f"{other}/node_type": "1: CA"}
        self.assertNotIn("bad", [f["state"] for f in self.not_good(second, "--uri", "verbs://0.0.0.0")])
        found = self.not_good(second, "--uri", "verbs://0.0.0.0?device=mlx5_1")
        self.assertEqual([f["name"] for f in found if f["state"] == "bad"], ["mlx5_1"])

    def test_device_files(self):
        found = self.only("worse", "device files", {"/dev/infiniband/uverbs0": None})
        self.assertIn("modprobe", found["mend"])
        found = self.not_good((), "--uri", "verbs://0.0.0.0", closed=("/dev/infiniband/rdma_cm",))
        self.assertEqual([f["mend"].splitlines()[0] for f in found if f["state"] == "bad"],
                         ["chmod a+rw /dev/infiniband/rdma_cm"])

    def test_a_device_at_the_other_node(self):
        elsewhere = {f"{IB}/device/numa_node": "0", f"{NODE}/node0/cpulist": "0-1"}
        found = self.only("worse", "device's node", elsewhere)
        self.assertIn("--cpus 0-1", found["mend"])


class Container(Hosts):
    def test_cpu_quota(self):
        tight = {"/sys/fs/cgroup/machine/box/cpu.max": "150000 100000",
                 "/sys/fs/cgroup/machine/box/cpu.stat": "nr_periods 5\nnr_throttled 3"}
        found = self.only("worse", "CPU quota", tight)
        self.assertIn("1.5 CPUs; stopped 3 times", found["found"])
        self.assertIn("echo max >/sys/fs/cgroup/machine/box/cpu.max", found["mend"])
        old = {"/proc/self/cgroup": "4:cpu,cpuacct:/\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
               "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}
        self.assertIn("0.5 CPUs", self.only("worse", "CPU quota", old)["found"])
        self.good("CPU quota", old | {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"})

    def test_limits(self):
        at = "/sys/fs/cgroup/machine/box"
        self.only("worse", "hugepage limit", {f"{at}/hugetlb.2MB.max": "1048576"})
        self.only("bad", "process limit", {f"{at}/pids.max": "20", f"{at}/pids.current": "10"})
        no_hugepages = {"/proc/meminfo": meminfo(HugePages_Free=0), f"{at}/memory.max": f"{96 << 20}",
                        f"{at}/memory.current": f"{90 << 20}"}
        self.assertIn("memory limit", [f["name"] for f in self.not_good(no_hugepages) if f["state"] == "bad"])
        self.good("memory limit", no_hugepages | {f"{at}/memory.stat": f"inactive_file {80 << 20}"})

    def test_system_calls(self):
        host = self.host()
        host.memfd = "Operation not permitted"
        found = [f for f in self.findings(host) if f["state"] != "good"]
        self.assertEqual([(f["name"], f["state"]) for f in found], [("shared memory", "bad")])
        filtered = {"/proc/self/status": status(Seccomp="2")}
        self.assertIn("SYS_NICE", self.only("worse", "system calls", filtered)["mend"])


class Clock(Hosts):
    SOURCE = "/sys/devices/system/clocksource/clocksource0"

    def test_source(self):
        found = self.only("worse", "source", {f"{self.SOURCE}/current_clocksource": "hpet",
                                              f"{self.SOURCE}/available_clocksource": "tsc hpet acpi_pm"})
        self.assertIn("echo tsc >", found["mend"])
        found = self.only("worse", "source", {f"{self.SOURCE}/current_clocksource": "hpet"})
        self.assertIn("does not trust the TSC", found["found"])

    def test_counter(self):
        cpuinfo = HEALTHY["/proc/cpuinfo"].replace(" nonstop_tsc", "")
        self.only("bad", "TSC", {"/proc/cpuinfo": cpuinfo})
        self.only("worse", "TSC", {"/proc/cpuinfo": cpuinfo.replace("avx2", "hypervisor avx2")})


class Program(Hosts):
    BAD = {"/proc/self/limits": limits(open_files=(64, 64))}
    WORSE = {"/proc/sys/kernel/numa_balancing": "1"}

    def test_exit_status_is_of_the_worst(self):
        self.assertEqual(self.run_on(self.host())[0], 0)
        self.assertEqual(self.run_on(self.host(self.WORSE))[0], 1)
        self.assertEqual(self.run_on(self.host(self.BAD))[0], 3)
        self.assertEqual(self.run_on(self.host(self.BAD | self.WORSE))[0], 3)

    def test_the_table_names_the_fault_its_cost_and_the_remedy(self):
        _, out, err = self.run_on(self.host(self.BAD | self.WORSE))
        self.assertEqual(err, "")
        self.assertRegex(out, r"(?m)^CPUs\n")
        mend = "mend:  sysctl -w kernel.numa_balancing=0"
        self.assertRegex(out, rf"(?m)^  worse   NUMA .*\n +costs: .*\n +{mend}$")
        self.assertRegex(out, r"(?m)^  bad     descriptors ")
        self.assertRegex(out.splitlines()[-1], r"^\d+ good, 0 unknown, 1 worse, 1 bad$")
        self.assertLessEqual(max(map(len, out.splitlines())), 100)

    def test_quiet_leaves_out_what_is_good(self):
        _, out, _ = self.run_on(self.host(self.WORSE), "--quiet")
        self.assertNotRegex(out, r"(?m)^  good|^memory")
        self.assertRegex(out, r"(?m)^  worse   NUMA")

    def test_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "found.json")
            code, out, _ = self.run_on(self.host(self.WORSE), "--json", path)
            found = json.loads(Path(path).read_text())
            self.assertIn("worse", out)
            self.assertEqual(self.run_on(self.host(), "--json", folder)[0], 2)
        self.assertEqual((code, found["schema"], found["host"]["name"]), (1, 1, "host"))
        self.assertEqual(found["summary"]["worse"], 1)
        self.assertEqual(found["summary"]["exit_status"], 1)
        for f in found["findings"]:
            self.assertEqual(set(f), {"subject", "name", "state", "found", "costs", "mend"})

    def test_json_on_stdout_has_stdout_for_itself(self):
        _, out, err = self.run_on(self.host(), "--json", "-")
        json.loads(out)
        self.assertRegex(err, r"(?m)^  good ")

    def test_a_bad_option_is_one_line_that_names_it(self):
        for option, value in (("--cpus", "two"), ("--cpus", "3-1"), ("--cpus", ""), ("--connections", "0"),
                              ("--connections", "many"), ("--memory", "4X"), ("--memory", "0"),
                              ("--uri", "tcp://host"), ("--uri", "shm:"),
                              ("--uri", "iwarp://::1"), ("--uri", "iwarp://host:99999"),
                              ("--uri", "verbs://")):
            code, out, err = self.run_on(self.host(), f"{option}={value}")
            self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
            self.assertIn(option, err)
            self.assertIn(f"'{value}'", err)
        self.assertEqual(self.run_on(self.host(), "--nonsense")[0], 2)

    def test_a_host_that_tells_nothing_is_no_error(self):
        with tempfile.TemporaryDirectory() as folder:
            host = FakeHost(folder)
            code, out, err = self.run_on(host, "--uri", "iwarp://[::]:0", "--rpcbind", "--quiet")
        self.assertEqual(err, "")
        self.assertIn("unknown", out)
        self.assertIn(code, (1, 3))

    def test_a_file_that_cannot_be_read_is_unknown_and_named(self):
        path = "/proc/sys/net/core/somaxconn"
        found = self.only("unknown", "listen queue", {path: None, f"{path}/folder": ""})
        self.assertEqual(found["found"], f"{path}: Is a directory")

    def test_nonsense_in_a_file_is_survived(self):
        for text in ("", "nonsense", "-1", "0", "99999999999999999999", ",-,", "3-1"):
            for uri in ("iwarp://10.0.0.1", "verbs://10.0.0.1"):
                host = self.host({path: text for path in HEALTHY})
                self.assertIn(self.run_on(host, "--uri", uri)[0], (0, 1, 3), text)
        for path in ("/proc/interrupts", "/proc/meminfo", "/proc/self/cgroup", "/proc/self/status"):
            for text in (": : :\n\n", "CPU0\n 24: \n", "0::\n", "Hugepagesize: 0 kB\n", "cpu0 1 2\n", "0,8"):
                self.assertIn(self.run_on(self.host({path: text}))[0], (0, 1, 3), path)


if __name__ == "__main__":
    unittest.main()
