"""Debian packages, fetched and unpacked without being installed."""
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from common import CACHE, UNAVAILABLE, LabError, Steps


class Apt:
    """apt-get without installing anything; works as an ordinary user.

    Starts with the host's package lists. If they lack a package, or name files that the mirror no longer
    has, it gets lists of its own into the cache.
    """

    def __init__(self) -> None:
        self.options = ["-o", "Debug::NoLocking=1"]
        if os.getuid() == 0:
            self.options += ["-o", "APT::Sandbox::User=root"]
        self.own_lists = False

    def run(self, tool: str, *arguments: str, cwd: Path | None = None) -> str:
        if not shutil.which(tool):
            raise LabError(UNAVAILABLE, f"no {tool} here, and the guest's kernel and tools come as Debian packages")
        done = subprocess.run([tool, *self.options, *arguments], cwd=cwd, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"}, check=False)
        if done.returncode:
            why = [line for line in done.stderr.splitlines() if line.startswith("E:")] or ["no reason given"]
            raise LabError(UNAVAILABLE, f"'{tool} {' '.join(arguments)[:200]}' failed: {why[0]}")
        return done.stdout

    def with_lists(self, action):
        """Runs action(), and again with fresh package lists if the host's do not suffice."""
        try:
            return action()
        except LabError:
            if self.own_lists:
                raise
        Steps.say("getting fresh package lists (the host's do not suffice)")
        for folder in ("lists", "archives"):
            (CACHE / "apt" / folder / "partial").mkdir(parents=True, exist_ok=True)
        self.options += ["-o", f"Dir::State::lists={CACHE}/apt/lists", "-o", f"Dir::Cache={CACHE}/apt"]
        self.own_lists = True
        self.run("apt-get", "-q", "update")
        return action()

    def depends(self, meta: str, pattern: str) -> str:
        """Returns the name of the package that a meta package depends on."""
        def look() -> str:
            found = re.search(rf"^Depends:.*?\b({pattern})", self.run("apt-cache", "show", "--no-all-versions", meta), re.M)
            if not found:
                raise LabError(UNAVAILABLE, f"the package lists do not say what '{meta}' depends on")
            return found[1]
        return self.with_lists(look)

    def missing(self, wanted: list[str]) -> list[str]:
        """Returns NAME=VERSION of everything that installing the wanted packages on this host would add."""
        def look() -> list[str]:
            plan = self.run("apt-get", "-s", "--no-install-recommends", "install", *wanted)
            return sorted("=".join(p) for p in re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", plan, re.M))
        return self.with_lists(look)

    def unpack(self, packages: list[str], target: Path) -> None:
        """Downloads packages and unpacks them under target."""
        if not packages:
            return
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="download-") as folder:
            self.with_lists(lambda: self.run("apt-get", "-q", "download", *packages, cwd=Path(folder)))
            for archive in sorted(Path(folder).glob("*.deb")):
                unpack_archive(archive, target)


def unpack_archive(archive: Path, target: Path) -> None:
    # --keep-directory-symlink: a package with files in /sbin must not replace the link /sbin -> usr/sbin.
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as source:
        done = subprocess.run(["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(target)],
                              stdin=source.stdout, capture_output=True, text=True, check=False)
    if done.returncode or source.returncode:
        raise LabError(UNAVAILABLE, f"unpacking {archive.name} failed: {done.stderr.strip()[-300:]}")
