"""The guest's user-space tools that the host may lack, as a layer over the host's root.

The layer contains only the packages that the host lacks, so it is made anew when the host's set changes.
"""
import hashlib
import os
import shutil
from pathlib import Path

from common import CACHE, Steps
from packages import Apt

PACKAGES = [
    "busybox-static",                              # the initramfs
    "kmod", "iproute2", "netbase", "procps",
    "rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "perftest",
    "rpcbind", "nfs-common", "nfs-kernel-server",
    "tcpdump",
]
DPKG_STATUS = Path("/var/lib/dpkg/status")


def folder_for(made_for: str) -> Path:
    """Returns the folder for a set of packages. Each set has its own, since running guests may use another one."""
    return CACHE / f"tools-{hashlib.sha256(made_for.encode()).hexdigest()[:12]}"


def prepare(apt: Apt) -> Path:
    """Returns the layer's folder, after downloading it if the existing one does not fit."""
    record = CACHE / "tools.packages"
    wanted = " ".join(PACKAGES)
    known = record.read_text() if record.exists() else ""
    unchanged = known and DPKG_STATUS.exists() and record.stat().st_mtime > DPKG_STATUS.stat().st_mtime
    if unchanged and known.split("\n")[0] == wanted and folder_for(known).is_dir():
        return folder_for(known)
    missing = apt.missing(PACKAGES)
    now = "\n".join([wanted, *missing, ""])
    if not folder_for(now).is_dir():
        Steps.say(f"getting the guest's tools: {', '.join(p.split('=')[0] for p in missing) or 'all at hand'}")
        make_layer(apt, missing, folder_for(now))
    record.write_text(now)
    return folder_for(now)


def make_layer(apt: Apt, packages: list[str], layer: Path) -> None:
    fresh = CACHE / "tools.new"
    shutil.rmtree(fresh, ignore_errors=True)
    for folder in ("bin", "sbin", "lib", "lib64"):
        (fresh / "usr" / folder).mkdir(parents=True)
        (fresh / folder).symlink_to(f"usr/{folder}")
    apt.unpack(packages, fresh)
    fresh.rename(layer)


def find(layer: Path, name: str) -> Path:
    """Returns the path of a program in the layer or on the host."""
    for folder in (layer / "bin", layer / "sbin", Path("/bin"), Path("/sbin")):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(name)


def environment(layer: Path) -> dict[str, str]:
    """Returns the environment for running the layer's programs on the host."""
    libraries = f"{layer}/usr/lib/x86_64-linux-gnu"
    return {**os.environ, "LD_LIBRARY_PATH": libraries, "LC_ALL": "C"}
