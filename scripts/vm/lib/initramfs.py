"""The guest's initramfs: busybox, the early modules, this run's command and settings.

Written as an uncompressed cpio archive ("newc"), anew for each run: it is small.
"""
import stat
from pathlib import Path


class Archive:
    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.number = 0

    def add(self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        self.number += 1
        fields = [self.number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
        header = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.file.write(pad(header) + pad(data))

    def add_folder(self, name: str) -> None:
        self.add(name, stat.S_IFDIR | 0o755)

    def add_file(self, name: str, data: bytes, mode: int = 0o755) -> None:
        self.add(name, stat.S_IFREG | mode, data)

    def close(self) -> None:
        self.add("TRAILER!!!", 0)
        self.file.close()


def pad(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def write(path: Path, busybox: Path, init: Path, modules: list[Path], files: dict[str, str]) -> None:
    """Writes the archive; `files` are texts to put under /lab, by name."""
    archive = Archive(path)
    for folder in ("bin", "dev", "proc", "sys", "modules", "lab"):
        archive.add_folder(folder)
    # The kernel opens init's standard output here, before init can mount anything on /dev.
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add_file("bin/busybox", busybox.read_bytes())
    archive.add_file("init", init.read_bytes())
    for module in modules:
        archive.add_file(f"modules/{module.name}", module.read_bytes(), 0o644)
    files = {**files, "modules": "".join(f"{module.name}\n" for module in modules)}
    for name, text in files.items():
        archive.add_file(f"lab/{name}", text.encode(), 0o644)
    archive.close()
