"""Files below the configured folders, and no others.

Names of pods, containers and disks are parts of paths, and the author of a pod chooses some of
them.  Therefore no path may leave its folder, follow a link that a user created, or lead to
anything but a regular file; and opening must not block, neither on a FIFO nor on a device.
Source: Linux man 2 openat2 (since 5.6; if it is missing or forbidden, each component is opened
separately), man 5 proc_pid_fd.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from koordinator.foundation.errors import HostError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import Roots

#: Arguments: an open folder, a path below it, whether to follow links, and flags of open(2) that
#: pin the file or open a folder.  Raises OSError.
Resolver = Callable[[int, str, bool, int], int]

PIN: Final = os.O_PATH | os.O_CLOEXEC
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ROOT = PIN | os.O_DIRECTORY
_OPENAT2 = 437  # on every architecture
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08  # RESOLVE_…
_MOST_LINKS = 40  # the limit of the kernel
_ATTEMPTS = 8  # the kernel returns EAGAIN while folders are being renamed
_MISSING_CALL = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG})

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_NUMBER: Final = ctypes.c_long(_OPENAT2)

_INSIDE: Final = _BENEATH | _NO_MAGIC_LINKS


@dataclass(frozen=True, slots=True)
class Tree:
    """Folder configured by the operator; it may be a link itself.

    ``has_kernel_links`` means that only the kernel creates links there, as in /proc and sysfs:
    links that stay below the folder are followed.  Elsewhere no link is followed.
    """

    folder: str
    has_kernel_links: bool = False


#: The whole machine, for callers without configured folders.
EVERYWHERE: Final = (Tree("/"), Tree("/proc", has_kernel_links=True), Tree("/sys", True))


def trees_of(roots: Roots, *own: str) -> tuple[Tree, ...]:
    """Return the folders of an agent: the machine's trees, and the folders of its own files."""
    return (
        Tree(roots.cgroup),
        *(Tree(folder) for folder in roots.hierarchies),
        Tree(roots.resctrl),
        Tree(roots.sys, has_kernel_links=True),
        Tree(roots.proc, has_kernel_links=True),
        Tree(roots.kubelet),
        *(Tree(folder.rstrip("/")) for folder in own if folder),
    )


class Trees:
    """Access by absolute path, below the innermost tree that contains it.

    All methods raise OSError for errors of the kernel, and HostError for a path that is in no
    tree, contains ``..``, or is not a regular file.
    """

    def __init__(
        self, trees: Sequence[Tree] = EVERYWHERE, resolver: Resolver | None = None
    ) -> None:
        innermost_first = sorted(trees, key=lambda tree: -len(tree.folder))
        self._trees = [(f"{tree.folder.rstrip('/')}/", tree) for tree in innermost_first]
        self._resolve = resolver or find_resolver()

    def open(self, path: str, flags: int) -> int:
        """Open an existing regular file; files of the kernel count as regular."""
        pin = self._find(path, PIN)  # opening a device directly could have side effects
        try:
            if not stat.S_ISREG(os.fstat(pin).st_mode):
                raise HostError(f"cannot open {path}: it is not a regular file")
            return os.open(f"/proc/self/fd/{pin}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(pin)

    def open_folder(self, path: str) -> int:
        """Open an existing folder for listing or lookups."""
        return self._find(path, FOLDER)

    def real_path(self, path: str) -> str:
        """Return the real path behind all links."""
        with self.pinned(path) as pin:
            return str(Path(f"/proc/self/fd/{pin}").readlink())

    @contextmanager
    def pinned(self, path: str) -> Iterator[int]:
        """Pin a file or folder of any type; a pin can't be read or written."""
        pin = self._find(path, PIN)
        try:
            yield pin
        finally:
            os.close(pin)

    @contextmanager
    def parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Pin the folder of a file that may be missing; also yield the file's name.

        ``make`` creates missing folders above it.
        """
        tree, below = self._locate(path)
        above, _, name = below.rpartition("/")
        if not name:
            raise HostError(f"cannot change {path}: it is the root of a tree")
        if make:
            Path(tree.folder).mkdir(parents=True, exist_ok=True)
            self._make_folders(tree.folder, above)
        folder = f"{tree.folder.rstrip('/')}/{above}" if above else tree.folder
        with self.pinned(folder) as pin:
            yield pin, name

    def _make_folders(self, root: str, below: str) -> None:
        current = root.rstrip("/")
        for name in filter(None, below.split("/")):
            with self.pinned(current or "/") as pin, suppress(FileExistsError):
                os.mkdir(name, dir_fd=pin)
            current = f"{current}/{name}"

    def _find(self, path: str, flags: int) -> int:
        tree, below = self._locate(path)
        if not below:
            return os.open(tree.folder, flags)
        root = os.open(tree.folder, _ROOT)
        try:
            return self._resolve(root, below, tree.has_kernel_links, flags)
        finally:
            os.close(root)

    def _locate(self, path: str) -> tuple[Tree, str]:
        if "\0" in path or ("/." in path and not {".", ".."}.isdisjoint(path.split("/"))):
            raise HostError(f"cannot open {path!r}: '.', '..' and zero bytes are not allowed")
        for above, tree in self._trees:
            if path.startswith(above):
                below = path[len(above) :]
                return tree, _joined(below) if "//" in path or below.endswith("/") else below
            if path == tree.folder:
                return tree, ""
        raise HostError(f"cannot open {path}: it is not below a folder of the agent")


def find_resolver() -> Resolver:
    """Return ``resolve_in_kernel`` if openat2 is available, otherwise ``resolve_stepwise``."""
    root = os.open("/", _ROOT)
    try:
        os.close(resolve_in_kernel(root, "proc", False, PIN))
    except OSError as error:
        if error.errno in _MISSING_CALL:
            return resolve_stepwise
    finally:
        os.close(root)
    return resolve_in_kernel


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_HOW_SIZE: Final = ctypes.c_size_t(ctypes.sizeof(_OpenHow))
_HOW: Final = {
    (has_links, flags): ctypes.byref(_OpenHow(flags, 0, _INSIDE | (0 if has_links else _NO_LINKS)))
    for has_links in (False, True)
    for flags in (PIN, FOLDER)
}


def resolve_in_kernel(root: int, below: str, has_kernel_links: bool, flags: int) -> int:
    """Resolve a path with openat2."""
    name, how = os.fsencode(below), _HOW[has_kernel_links, flags]
    for _ in range(_ATTEMPTS):
        descriptor: int = _LIBC.syscall(_NUMBER, root, name, how, _HOW_SIZE)
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(number, os.strerror(number))


def resolve_stepwise(root: int, below: str, has_kernel_links: bool, flags: int) -> int:
    """Resolve a path component by component, for kernels without openat2."""
    chain = [os.dup(root)]  # folders from the root to the current one
    rest = below.split("/")[::-1]
    links = 0
    try:
        while rest:
            name = rest.pop()
            if name in {"", "."}:
                continue
            if name == "..":
                if len(chain) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                os.close(chain.pop())
                continue
            chain.append(os.open(name, PIN | os.O_NOFOLLOW, dir_fd=chain[-1]))
            if stat.S_ISLNK(os.fstat(chain[-1]).st_mode):
                links += 1
                if not has_kernel_links or links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = os.readlink("", dir_fd=chain[-1])
                if target.startswith("/"):  # includes magic links
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                os.close(chain.pop())
                rest += target.split("/")[::-1]
        if flags == PIN:
            return chain.pop()
        return os.open(f"/proc/self/fd/{chain[-1]}", flags)
    finally:
        for descriptor in chain:
            os.close(descriptor)


def _joined(below: str) -> str:
    return "/".join(filter(None, below.split("/")))
