#!/usr/bin/env python3
"""scripts/vm/run without a guest: its arguments, and how it reports the ways a guest can end. A program replaces
qemu, and writes to the guest's ports what a guest would."""
import lzma
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts/vm/lib"))
import tools  # pylint: disable=wrong-import-position

QEMU = """#!{python}
import os, re, sys, time
line = " ".join(sys.argv)
fds = dict((s, int(f)) for f, s in re.findall(r"fd=(\\d+),set=(\\d+)", line))
ports = dict((name, fds[s]) for name, s in re.findall(r"id=(\\w+),path=/dev/fdset/(\\d+)", line))
def say(port, text): os.write(ports[port], text.encode())
{guest}
"""
UP = 'say("control", "booted\\nready\\n")\n'


class Lab(unittest.TestCase):
    def setUp(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's children ignore it
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.cache = self.folder / "cache"
        self.files({"bin/python3": None, "bin/setpriv": None, "bin/nice": None})
        packages = " ".join(tools.PACKAGES) + "\n"
        modules = self.cache / "kernel-6.1/lib/modules/6.1-test"
        self.files({
            f"cache/{tools.folder_for(packages).name}/bin/busybox": "", "cache/kernel-6.1/version": "6.1-test\n",
            f"{modules}/modules.dep": "a/x.ko:\n" + "".join(
                f"a/{name}.ko: a/x.ko\n" for name in ("virtio_pci", "virtio_console", "9pnet_virtio", "9p")),
            f"{modules}/modules.builtin": "kernel/fs/overlay.ko\n",
            **{f"{modules}/a/{name}.ko": "" for name in ("x", "virtio_pci", "virtio_console", "9pnet_virtio", "9p")},
            "cache/tools.packages": packages})
        os.utime(self.cache / "tools.packages", (2**32, 2**32))  # newer than any package

    def files(self, texts):
        """Writes files; None stands for the host's program of that name."""
        for name, text in texts.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                found = subprocess.run(["which", path.name], capture_output=True, text=True, check=True)
                path.symlink_to(sys.executable if path.name == "python3" else found.stdout.strip())
            else:
                path.write_text(text)

    def start_lab(self, *arguments, guest=None):
        if guest is not None:
            qemu = self.folder / "bin/qemu-system-x86_64"
            qemu.write_text(QEMU.format(python=sys.executable, guest=guest))
            qemu.chmod(0o755)
        environment = {**os.environ, "PATH": str(self.folder / "bin"), "RRDK_VM_CACHE": str(self.cache)}
        return subprocess.Popen([sys.executable, ROOT / "scripts/vm/run", *arguments], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)

    def run_lab(self, *arguments, guest=None):
        with self.start_lab(*arguments, guest=guest) as run:
            out, err = run.communicate(timeout=60)
        return subprocess.CompletedProcess(run.args, run.returncode, out, err)

    def expect(self, status, text, *arguments, guest=None):
        run = self.run_lab(*arguments, guest=guest)
        self.assertEqual(run.returncode, status, run.stderr)
        self.assertIn(text, run.stderr)
        return run

    def test_arguments_that_make_no_sense_are_named(self):
        for arguments, text in [
                ([], "no command"), (["--siw", "dummy", "true"], "dummy"), (["--rxe", "lo", "true"], "lo"),
                (["--forward", "1:99999", "true"], "HOSTPORT:GUESTPORT"), (["--forward", "80", "true"], "'80'"),
                (["--share", "/does/not/exist", "true"], "/does/not/exist"), (["--timeout", "0", "true"], "'0'"),
                (["--memory", "64", "true"], "256 MiB"), (["--kernel", "5.0", "true"], "5.0"),
                (["--siw", "eth0", "--rxe", "eth0", "true"], "cannot both"), (["--wrong", "true"], "--wrong")]:
            with self.subTest(arguments=arguments):
                self.expect(125, text, *arguments, guest="")

    def test_without_qemu_or_packages_it_counts_as_skipped(self):
        self.expect(77, "no qemu-system-x86_64", "true")
        (self.cache / "tools.packages").unlink()
        self.expect(77, "no apt-get", "true", guest="")

    def test_output_and_exit_status_come_back(self):
        run = self.expect(42, "to stderr", "--accel", "tcg", "true", guest=UP + '''
say("out", "to stdout\\n"); say("err", "to stderr\\n"); say("control", "exit 42\\n"); time.sleep(60)''')
        self.assertEqual(run.stdout, "to stdout\n")

    def test_options_reach_qemu(self):
        run = self.run_lab("--accel", "tcg", "--quiet", "--memory", "777", "--cpus", "3", "--forward", "2000:20049",
                           "--share", str(self.folder), "true", guest=UP + '''
say("out", line + "\\n"); say("control", "exit 0\\n")''')
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        for text in ("-m 777", "-smp 3", "hostfwd=tcp:127.0.0.1:2000-:20049", f"path={self.folder.resolve()},",
                     "path=/,security_model=none,multidevs=remap,readonly=on", "-accel tcg"):
            self.assertIn(text, run.stdout)

    def test_the_kernel_is_unpacked_before_it_boots(self):
        packed = lzma.compress(b"the kernel")
        head = bytearray(1024)
        head[0x1f1] = 1
        struct.pack_into("<II", head, 0x248, 8, len(packed))
        for image, booted in [(b"packed in another way", "vmlinuz"), (bytes(head) + bytes(8) + packed, "vmlinux")]:
            boot = self.cache / "kernel-6.1/boot"
            boot.mkdir(exist_ok=True)
            (boot / "vmlinuz-6.1-test").write_bytes(image.ljust(2048, b"."))
            run = self.run_lab("--accel", "tcg", "true", guest=UP + '''
say("out", re.search(r"-kernel (\\S+)", line)[1]); say("control", "exit 0\\n")''')
            self.assertEqual(run.stdout, f"{boot}/{booted}-6.1-test", run.stderr)
        self.assertEqual((boot / "vmlinux-6.1-test").read_bytes(), b"the kernel")

    def test_every_end_without_a_status_has_its_own(self):
        panic = 'say("console", "[ 1.0] Kernel panic - not syncing: %s\\n")'
        for guest, status, text in [
                (UP + panic % "the reason", 122, "panicked: the reason"),
                (panic % "early", 122, "panicked: early"),
                (UP + panic % "Out of memory: system-wide panic_on_oom is enabled", 123, "--memory"),
                (UP + "time.sleep(60)", 124, "more than 1 s"),
                ('say("control", "booted\\nfail siw on lo: because\\n"); time.sleep(60)', 121, "siw on lo: because"),
                (UP, 125, "ended while the command ran"),
                ("", 125, "ended before the command ran"),
                ('sys.exit("no such accelerator")', 125, "no such accelerator")]:
            with self.subTest(guest=guest):
                self.expect(status, text, "--accel", "tcg", "--timeout", "1", "true", guest=guest)

    def test_nothing_is_left_behind(self):
        self.expect(0, "", "--accel", "tcg", "true", guest=UP + 'say("control", "exit 0\\n")')
        self.assertEqual(list(self.cache.glob("run-*")), [])

    def test_the_guest_ends_with_its_starter(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            with self.subTest(number=number), self.start_lab("--accel", "tcg", "true", guest=UP + """
say("out", "%d\\n" % os.getpid()); time.sleep(60)""") as run:
                qemu = os.pidfd_open(int(run.stdout.readline()))
                run.send_signal(number)
                self.assertEqual(select.select([qemu], [], [], 30)[0], [qemu])  # readable when it ended
                os.close(qemu)
                run.communicate(timeout=30)
                self.assertNotEqual(run.returncode, 0)


if __name__ == "__main__":
    unittest.main()
