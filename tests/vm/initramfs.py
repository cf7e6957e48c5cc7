"""The archive that the kernel starts from: busybox, a few modules, and a script for the root."""

import gzip
import stat
from collections.abc import Iterator
from pathlib import Path

_SCRIPT = Path(__file__).with_name("init.sh")
#: Modules for the root: the folder of the host, and an overlay over it.
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
#: The format "newc" of cpio: after the magic number 13 numbers of 8 hexadecimal digits.
_MAGIC = "070701"
_LAST = "TRAILER!!!"


def write_initramfs(modules: Path, busybox: Path, path: Path) -> None:
    """Write the archive for the kernel of a folder of modules."""
    entries = [("bin", stat.S_IFDIR | 0o755, b""), ("modules", stat.S_IFDIR | 0o755, b"")]
    entries.append(("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes()))
    names = []
    for module in _in_order(modules):
        names.append(module.name)
        entries.append((f"modules/{module.name}", stat.S_IFREG | 0o644, module.read_bytes()))
    entries.append(("modules/order", stat.S_IFREG | 0o644, "\n".join([*names, ""]).encode()))
    entries.append(("init", stat.S_IFREG | 0o755, _SCRIPT.read_bytes()))
    entries.append((_LAST, 0, b""))
    data = b"".join(
        _entry(number, name, mode, content) for number, (name, mode, content) in enumerate(entries)
    )
    path.write_bytes(gzip.compress(data, 1))


def _in_order(modules: Path) -> Iterator[Path]:
    """Yield the modules and what they depend on, each after what it needs."""
    needs: dict[str, list[str]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, needed = line.partition(":")
        needs[path] = needed.split()
    paths = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    wanted = [
        each
        for name in _MODULES
        if name in paths  # otherwise it is a part of the kernel
        for each in (*reversed(needs[paths[name]]), paths[name])
    ]
    for path in dict.fromkeys(wanted):
        yield modules / path


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    numbers = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
    head = (_MAGIC + "".join(f"{it:08x}" for it in numbers)).encode() + encoded
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
