"""What the guest needs in user space and the host may not have: a layer over the host's root.

Only the packages that the host lacks are in it, so it is made anew when the host's set changes.
"""
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


def prepare(apt: Apt) -> Path:
    """The layer's folder, downloaded if the one at hand does not fit."""
    layer, made_for = CACHE / "tools", CACHE / "tools.packages"
    recent = made_for.exists() and DPKG_STATUS.exists() and made_for.stat().st_mtime > DPKG_STATUS.stat().st_mtime
    wanted = " ".join(PACKAGES)
    known = made_for.read_text().split("\n") if made_for.exists() else [""]
    if recent and known[0] == wanted and layer.is_dir():
        return layer
    missing = apt.missing(PACKAGES)
    now = "\n".join([wanted, *missing, ""])
    if layer.is_dir() and made_for.exists() and made_for.read_text() == now:
        made_for.touch()
        return layer
    Steps.say(f"getting the guest's tools: {', '.join(p.split('=')[0] for p in missing) or 'all at hand'}")
    fresh = CACHE / "tools.new"
    shutil.rmtree(fresh, ignore_errors=True)
    for folder in ("bin", "sbin", "lib", "lib64"):
        (fresh / "usr" / folder).mkdir(parents=True)
        (fresh / folder).symlink_to(f"usr/{folder}")
    apt.unpack(missing, fresh)
    made_for.unlink(missing_ok=True)
    shutil.rmtree(layer, ignore_errors=True)
    fresh.rename(layer)
    made_for.write_text(now)
    return layer


def find(layer: Path, name: str) -> Path:
    """A program, from the layer or the host."""
    for folder in (layer / "bin", layer / "sbin", Path("/bin"), Path("/sbin")):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(name)


def environment(layer: Path) -> dict[str, str]:
    """For running the layer's programs on the host."""
    libraries = f"{layer}/usr/lib/x86_64-linux-gnu"
    return {**os.environ, "LD_LIBRARY_PATH": libraries, "LC_ALL": "C"}
