"""The guest's kernel: Debian's own, with siw.ko built beside it."""
import lzma
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tools
from common import CACHE, LAB_ERROR, UNAVAILABLE, LabError, Steps
from packages import Apt

# --kernel's choices and the meta packages that name the newest kernel of each series.
SERIES = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}
# Modules that our guests never need; they are most of the total size.
UNWANTED = ["sound", "drivers/gpu", "drivers/media", "drivers/staging", "drivers/net/wireless",
            "drivers/net/ethernet", "drivers/scsi", "drivers/iio", "drivers/hid", "drivers/usb"]
# Loaded by the initramfs, before the host's files can be reached.
EARLY = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"]


@dataclass
class Kernel:
    version: str
    folder: Path

    @property
    def packed(self) -> Path:
        return self.folder / f"boot/vmlinuz-{self.version}"

    @property
    def unpacked(self) -> Path:
        return self.folder / f"boot/vmlinux-{self.version}"

    @property
    def image(self) -> Path:
        """The unpacked image for qemu: unpacking itself takes the kernel five seconds on an emulated CPU."""
        return self.unpacked if self.unpacked.exists() else self.packed

    @property
    def modules(self) -> Path:
        return self.folder / f"lib/modules/{self.version}"

    def early_modules(self) -> list[Path]:
        """The early modules and what they depend on, in the order to load them."""
        needs = {}
        for line in (self.modules / "modules.dep").read_text().splitlines():
            path, _, rest = line.partition(":")
            needs[Path(path).name.split(".")[0].replace("-", "_")] = (path, rest.split())
        builtin = {Path(line).name.split(".")[0].replace("-", "_")
                   for line in (self.modules / "modules.builtin").read_text().splitlines()}
        order: list[str] = []
        for name in EARLY:
            if name in builtin:
                continue
            path, before = needs[name]
            # modules.dep lists all that a module needs, the first to load last.
            order += [p for p in [*reversed(before), path] if p not in order]
        return [self.modules / path for path in order]


def prepare(apt: Apt, series: str, layer: Path) -> Kernel:
    folder = CACHE / f"kernel-{series}"
    marker = folder / "version"
    if marker.exists():
        known = Kernel(marker.read_text().strip(), folder)
        if known.packed.exists() and not known.unpacked.exists():
            unpack(known)
        return known
    version = apt.depends(SERIES[series], r"linux-image-[0-9][^\s,]*").removeprefix("linux-image-")
    fresh = Kernel(version, CACHE / f"kernel-{series}.new")
    shutil.rmtree(fresh.folder, ignore_errors=True)
    fresh.folder.mkdir(parents=True)
    Steps.say(f"getting the kernel {version} (70 to 100 MB)")
    apt.unpack([f"linux-image-{version}"], fresh.folder)
    for name in UNWANTED:
        shutil.rmtree(fresh.modules / "kernel" / name, ignore_errors=True)
    unpack(fresh)
    build_siw(apt, series, fresh)
    depmod(fresh, layer)
    (fresh.folder / "version").write_text(version + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    fresh.folder.rename(folder)
    return Kernel(version, folder)


def unpack(kernel: Kernel) -> None:
    """Writes the ELF file that is packed in the kernel's image at the place that the image's header names
    (Linux's x86 boot protocol, 2.08 or later). A kernel packed differently from Debian's stays as it is."""
    image = kernel.packed.read_bytes()
    real_mode = (image[0x1f1] + 1) * 512
    at, length = struct.unpack_from("<II", image, 0x248)
    packed = image[real_mode + at:real_mode + at + length]
    if not packed.startswith(b"\xfd7zXZ\0"):
        return
    fresh = kernel.unpacked.with_suffix(".new")
    fresh.write_bytes(lzma.LZMADecompressor().decompress(packed))
    fresh.rename(kernel.unpacked)


def depmod(kernel: Kernel, layer: Path) -> None:
    done = subprocess.run(["depmod", "-b", kernel.folder, kernel.version], executable=tools.find(layer, "kmod"),
                          env=tools.environment(layer), capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(LAB_ERROR, f"depmod failed: {done.stderr.strip()[-300:]}")


def build_siw(apt: Apt, series: str, kernel: Kernel) -> None:
    """Debian's kernels leave siw out (CONFIG_RDMA_SIW is not set); its source is in linux-source."""
    for tool in ("make", "gcc-12", "xz"):
        if not shutil.which(tool):
            raise LabError(UNAVAILABLE, f"building siw.ko needs {tool} (scripts/install-deps.sh --tests installs it)")
    version = kernel.version
    headers = f"linux-headers-{version}"
    common = apt.depends(headers, r"linux-headers-[^\s,]+-common[^\s,]*")
    kbuild = apt.depends(headers, r"linux-kbuild-[0-9][^\s,]*")
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="siw-") as name:
        build = Path(name)
        Steps.say("getting the kernel's headers and source for siw (about 150 MB)")
        apt.unpack([headers, common, kbuild, f"linux-source-{series}"], build)
        Steps.say("unpacking siw")
        source = f"linux-source-{series}/drivers/infiniband/sw/siw"
        run(["tar", "-xJf", build / f"usr/src/linux-source-{series}.tar.xz", "-C", build, source])
        Steps.say("building siw.ko")
        makefile = build / f"usr/src/{headers}/Makefile"
        makefile.write_text(makefile.read_text().replace("include /usr/src/", f"include {build}/usr/src/"))
        # The module's BTF would need pahole; nothing here reads it.
        run(["make", "-C", makefile.parent, f"M={build / source}", "CONFIG_RDMA_SIW=m",
             "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"])
        (kernel.modules / "updates").mkdir()
        run(["strip", "--strip-debug", "-o", kernel.modules / "updates/siw.ko", build / source / "siw.ko"])


def run(command: list) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise LabError(LAB_ERROR, f"'{command[0]}' failed:\n{tail}")
