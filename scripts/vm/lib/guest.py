"""One run of qemu: starts it, passes the command's output on as it comes, and says how it ended."""
import os
import re
import selectors
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from common import LAB_ERROR, NO_BOOT, OUT_OF_MEMORY, PANIC, TIMED_OUT, LabError, Steps

BOOT_SECONDS = 180  # Seven are usual under TCG; a busy machine takes longer.
PORTS = ("out", "err", "control", "console")
PANIC_LINE = re.compile(r"Kernel panic - not syncing: (.*)")
OUT_OF_MEMORY_LINE = re.compile(r"panic_on_oom|out of memory|deadlocked on memory", re.I)


@dataclass
class Settings:
    qemu: str
    accelerator: str
    image: Path
    initramfs: Path
    memory: int  # MiB
    cpus: int
    timeout: float  # seconds from when the command starts
    niceness: int = 10
    console: bool = False
    boot_timeout: float = BOOT_SECONDS
    folders: dict[str, Path] = field(default_factory=dict)  # 9p tag: folder, read-only
    shares: list[Path] = field(default_factory=list)
    forwards: list[tuple[int, int]] = field(default_factory=list)


def command_line(settings: Settings, ports: dict[str, int]) -> list[str]:
    kvm = settings.accelerator == "kvm"
    line = ["setpriv", "--pdeathsig", "KILL", "nice", "-n", str(settings.niceness), settings.qemu,
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "pc",
            "-accel", "kvm" if kvm else "tcg,thread=multi,tb-size=256",
            # la57: five-level paging is slow to emulate. erms, fsrm: so are string instructions; without
            # these the kernel and libc copy words, not bytes, which is ten times as fast.
            "-cpu", "host" if kvm else "max,la57=off,erms=off,fsrm=off",
            "-smp", str(settings.cpus), "-m", str(settings.memory),
            "-kernel", str(settings.image), "-initrd", str(settings.initramfs),
            # mitigations=off: they are slow to emulate, too, and this kernel is not exposed to attacks.
            # no_timer_check: an emulated timer on a busy machine can be too late for the kernel's timer
            # check, and the kernel would panic.
            "-append", "console=ttyS0 panic=-1 net.ifnames=0 no_timer_check mitigations=off "
                       f"loglevel={7 if settings.console else 4}",
            "-device", "virtio-serial-pci"]
    for number, (name, descriptor) in enumerate(ports.items(), 1):
        line += ["-add-fd", f"fd={descriptor},set={number}",
                 "-chardev", f"file,id={name},path=/dev/fdset/{number},append=on"]
        line += ["-serial", f"chardev:{name}"] if name == "console" else [
            "-device", f"virtserialport,chardev={name},name={name}"]
    forwards = "".join(f",hostfwd=tcp:127.0.0.1:{host}-:{guest}" for host, guest in settings.forwards)
    line += ["-netdev", f"user,id=net{forwards}", "-device", "virtio-net-pci,netdev=net,romfile="]
    for tag, folder in settings.folders.items():
        line += file_system(tag, folder, ",readonly=on")
    for number, folder in enumerate(settings.shares):
        line += file_system(f"share{number}", folder, "")
    return line


def file_system(tag: str, folder: Path, options: str) -> list[str]:
    path = str(folder).replace(",", ",,")
    return ["-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{options}",
            "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


class Guest:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.booted = self.ready = self.timed_out = False
        self.deadline = time.monotonic() + settings.boot_timeout
        self.status: int | None = None
        self.failure = ""  # what the guest's own scripts report
        self.console: deque[str] = deque(maxlen=400)
        self.rest = {"control": b"", "console": b""}

    def run(self) -> int:
        """Returns the command's exit status; raises LabError if the command did not end by itself."""
        return self.verdict(self.boot())

    def boot(self) -> str:
        """Runs qemu to its end. Returns its error output."""
        ends = {name: os.pipe() for name in PORTS}
        line = command_line(self.settings, {name: end[1] for name, end in ends.items()})
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, pass_fds=[end[1] for end in ends.values()])
        for _, writing in ends.values():
            os.close(writing)
        try:
            return self.watch(process, {name: end[0] for name, end in ends.items()})
        finally:
            process.kill()
            process.wait()

    def watch(self, process: subprocess.Popen, ports: dict[str, int]) -> str:
        """Watches the guest until it ends or its time is over. Returns qemu's error output."""
        complaint, killed = b"", False
        with selectors.DefaultSelector() as selector:
            for name, descriptor in ports.items():
                selector.register(descriptor, selectors.EVENT_READ, name)
            selector.register(process.stderr, selectors.EVENT_READ, "qemu")
            while selector.get_map():
                for key, _ in selector.select(max(0, self.deadline - time.monotonic())):
                    data = os.read(key.fd, 65536)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.data == "qemu":
                        complaint += data
                    else:
                        self.take(key.data, data)
                late = time.monotonic() > self.deadline
                if killed and late:
                    break
                if not killed and (late or self.failure or self.status is not None):
                    killed, self.timed_out = True, late
                    process.kill()  # Its output stays in the pipes and is still read.
                    self.deadline = time.monotonic() + 10
        return complaint.decode(errors="replace").strip()

    def take(self, name: str, data: bytes) -> None:
        if name in ("out", "err"):
            stream = sys.stdout.buffer if name == "out" else sys.stderr.buffer
            stream.write(data)
            stream.flush()
            return
        *lines, self.rest[name] = (self.rest[name] + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip()
            if name == "control":
                self.told(text)
            else:
                self.console.append(text)
                if self.settings.console:
                    print(f"console: {text}", file=sys.stderr, flush=True)

    def told(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "booted":
            self.booted = True
            Steps.say("guest: kernel is up")
        elif word == "ready":
            self.ready = True
            self.deadline = time.monotonic() + self.settings.timeout
            Steps.say("guest: running the command")
        elif word == "fail":
            self.failure = rest
        elif word == "exit":
            self.status = int(rest)

    def verdict(self, complaint: str) -> int:
        if self.status is not None:
            return self.status
        if self.failure:
            raise LabError(NO_BOOT, f"the guest could not be set up: {self.failure}")
        at = next((n for n, line in enumerate(self.console) if PANIC_LINE.search(line)), None)
        if at is not None:
            panic = PANIC_LINE.search(self.console[at])[1]
            if OUT_OF_MEMORY_LINE.search(panic):
                raise LabError(OUT_OF_MEMORY, f"the guest ran out of its {self.settings.memory} MiB of memory; "
                                              "give it more with --memory")
            raise LabError(PANIC, f"the guest's kernel panicked: {panic}\n{self.tail(at + 9)}")
        if self.timed_out and self.ready:
            raise LabError(TIMED_OUT, f"the command took more than {self.settings.timeout:g} s (--timeout); "
                                      f"the guest was ended\n{self.tail()}")
        if self.timed_out:
            raise LabError(NO_BOOT, f"the guest did not boot within {self.settings.boot_timeout:g} s\n{self.tail()}")
        if complaint:
            raise LabError(LAB_ERROR, f"qemu ended: {complaint}")
        when = "while the command ran" if self.ready else "before the command ran"
        raise LabError(LAB_ERROR, f"the guest ended {when}\n{self.tail()}")

    def tail(self, end: int | None = None) -> str:
        """Returns the kernel's last messages, or those up to a line, for an error message."""
        lines = [line for line in list(self.console)[:end] if line][-12:]
        return "\n".join(f"  console: {line}" for line in lines) or "  (the kernel said nothing)"
