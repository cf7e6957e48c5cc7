"""Opens what lies below the folders that the agent was given, and nothing else.

Names of pods, containers and disks end up in paths, and whoever made the pod chose some of them.
So no path may lead out of its folder, through a link that somebody made or to anything but a
regular file, and opening one never waits: not for a writer of a FIFO, not for a device.
Source: Linux man 2 openat2 (since 5.6; where it is missing or forbidden every component is opened
on its own), man 5 proc_pid_fd.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordinator.foundation.errors import HostError
from koordinator.host.roots import Roots

#: Takes an open folder, a path below it, whether links are followed, and flags of open(2): those
#: that pin what is there, or those that open a folder.  Raises OSError.
Resolver = Callable[[int, str, bool, int], int]

PIN: Final = os.O_PATH | os.O_CLOEXEC
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ROOT = PIN | os.O_DIRECTORY
_OPENAT2 = 437  # on every architecture
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08  # RESOLVE_…
_MOST_LINKS = 40  # as the kernel
_ATTEMPTS = 8  # while others rename folders the kernel says EAGAIN
_MISSING_CALL = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG})


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder that the operator named; it may be a link itself.

    ``has_kernel_links`` says that only the kernel makes links there, as in /proc and sysfs: those
    that stay below the folder are followed.  Everywhere else none is.
    """

    folder: str
    has_kernel_links: bool = False


#: The whole machine, for who has no folders to name.
EVERYWHERE: Final = (Tree("/"), Tree("/proc", has_kernel_links=True), Tree("/sys", True))


def trees_of(roots: Roots, *own: str) -> tuple[Tree, ...]:
    """Return the folders of an agent: the machine's, and those it keeps files of its own in."""
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
    """Opens by absolute path, below the innermost of its trees that contains it.

    Every method raises OSError for what the kernel refuses, and HostError for a path that is in
    none of the trees, has ``..`` in it, or leads to what is no regular file.
    """

    def __init__(
        self, trees: Sequence[Tree] = EVERYWHERE, resolver: Resolver | None = None
    ) -> None:
        inmost_first = sorted(trees, key=lambda tree: -len(tree.folder))
        self._trees = [(f"{tree.folder.rstrip('/')}/", tree) for tree in inmost_first]
        self._resolve = resolver or find_resolver()

    def open(self, path: str, flags: int) -> int:
        """Open an existing regular file; a file of the kernel is one, too."""
        pin = self._find(path, PIN)  # to open a device may have done something already
        try:
            if not stat.S_ISREG(os.fstat(pin).st_mode):
                raise HostError(f"can't open {path}: it is no regular file")
            return os.open(f"/proc/self/fd/{pin}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(pin)

    def open_folder(self, path: str) -> int:
        """Open an existing folder, to list it or to look into it."""
        return self._find(path, FOLDER)

    def real_path(self, path: str) -> str:
        """Return where something is, behind all links."""
        with self.pinned(path) as pin:
            return str(Path(f"/proc/self/fd/{pin}").readlink())

    @contextmanager
    def pinned(self, path: str) -> Iterator[int]:
        """Hold on to what is at a path, whatever it is; it can't be read or written so."""
        pin = self._find(path, PIN)
        try:
            yield pin
        finally:
            os.close(pin)

    @contextmanager
    def parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Hold on to the folder of a file that may be missing; also return the file's name.

        ``make`` makes the folders above it that are missing.
        """
        tree, below = self._locate(path)
        above, _, name = below.rpartition("/")
        if not name:
            raise HostError(f"can't change {path}: it is the root of a tree")
        if make:
            Path(tree.folder).mkdir(parents=True, exist_ok=True)
            self._make_folders(tree.folder, above)
        folder = f"{tree.folder.rstrip('/')}/{above}" if above else tree.folder
        with self.pinned(folder) as pin:
            yield pin, name

    def _make_folders(self, root: str, below: str) -> None:
        made = root.rstrip("/")
        for name in filter(None, below.split("/")):
            with self.pinned(made or "/") as pin, suppress(FileExistsError):
                os.mkdir(name, dir_fd=pin)
            made = f"{made}/{name}"

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
            raise HostError(f"can't open {path!r}: it is no plain path")
        for above, tree in self._trees:
            if path.startswith(above):
                below = path[len(above) :]
                return tree, _joined(below) if "//" in path or below.endswith("/") else below
            if path == tree.folder:
                return tree, ""
        raise HostError(f"can't open {path}: it is in none of the agent's folders")


def find_resolver() -> Resolver:
    """Return ``resolve_at_once`` where the kernel has it and lets us, else ``resolve_stepwise``."""
    root = os.open("/", _ROOT)
    try:
        os.close(resolve_at_once(root, "proc", False, PIN))
    except OSError as error:
        if error.errno in _MISSING_CALL:
            return resolve_stepwise
    finally:
        os.close(root)
    return resolve_at_once


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_NUMBER: Final = ctypes.c_long(_OPENAT2)
_HOW_SIZE: Final = ctypes.c_size_t(ctypes.sizeof(_OpenHow))
_INSIDE: Final = _BENEATH | _NO_MAGIC_LINKS
_HOW: Final = {
    (has_links, flags): ctypes.byref(_OpenHow(flags, 0, _INSIDE | (0 if has_links else _NO_LINKS)))
    for has_links in (False, True)
    for flags in (PIN, FOLDER)
}


def resolve_at_once(root: int, below: str, has_kernel_links: bool, flags: int) -> int:
    """Resolve a path in the kernel, by openat2."""
    name, how = os.fsencode(below), _HOW[has_kernel_links, flags]
    for _ in range(_ATTEMPTS):
        found: int = _LIBC.syscall(_NUMBER, root, name, how, _HOW_SIZE)
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(number, os.strerror(number))


def resolve_stepwise(root: int, below: str, has_kernel_links: bool, flags: int) -> int:
    """Resolve a path component by component, for kernels without openat2."""
    chain = [os.dup(root)]  # the folders from the root to where we are
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
                if target.startswith("/"):  # also every magic link that leads anywhere
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
