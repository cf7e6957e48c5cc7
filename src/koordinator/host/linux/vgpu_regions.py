"""Regions of HAMi-core on this machine, read and written without mapping them.

If a container truncates a mapped file, access to the missing pages kills the process (SIGBUS);
``pread`` returns fewer bytes instead.  File I/O and mappings share the page cache, so each side
sees the writes of the other.
Source: Linux man 2 mmap, 2 pread, 2 fcntl (leases), 2 rename.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice

from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.linux.trees import FOLDER, Tree, Trees

_WORLD_WRITABLE = 0o777  # programs in containers often run as other users
_BATCH = 256  # entries of a folder per listing
_INT = struct.Struct("<i")
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


class LinuxRegionFile:
    """Implementation of ``RegionFile``."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    @property
    def size(self) -> int:
        with _host_errors(self._path):
            return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        with _host_errors(self._path):
            return os.pread(self._descriptor, size, offset)

    def write_int(self, offset: int, value: int) -> None:
        with _host_errors(self._path):
            if os.fstat(self._descriptor).st_size < offset + _INT.size:
                raise HostError(f"cannot write {self._path}: it ends before {offset}")
            os.pwrite(self._descriptor, _INT.pack(value), offset)

    def close(self) -> None:
        os.close(self._descriptor)


class LinuxRegionFolders:
    """Implementation of ``RegionFolders``; ``folder`` is configured by the operator."""

    def __init__(self, folder: str) -> None:
        self._folder = folder.rstrip("/")
        self._trees = Trees((Tree(self._folder),))

    def names(self, most: int) -> Sequence[str]:
        try:
            descriptor = self._trees.open_folder(self._folder)
        except OSError:
            return ()
        try:
            with os.scandir(descriptor) as entries:
                names = (each.name for each in entries if each.is_dir(follow_symlinks=False))
                return sorted(islice(names, most))
        finally:
            os.close(descriptor)

    def files(self, name: str, most: int) -> Sequence[str]:
        path = f"{self._folder}/{name}"
        with _host_errors(path):
            descriptor = self._trees.open_folder(path)
            try:
                with os.scandir(descriptor) as entries:
                    return sorted(each.name for each in islice(entries, most))
            finally:
                os.close(descriptor)

    def open(self, name: str, file: str) -> LinuxRegionFile:
        path = f"{self._folder}/{name}/{file}"
        with _host_errors(path):
            return LinuxRegionFile(self._trees.open(path, os.O_RDWR), path)

    def renew(self, name: str) -> None:
        path = f"{self._folder}/{name}"
        with _host_errors(path), self._trees.parent(path, make=True) as (parent, last):
            old = f"before-{os.urandom(8).hex()}_removed"
            with suppress(FileNotFoundError):
                os.rename(last, old, src_dir_fd=parent, dst_dir_fd=parent)
            os.mkdir(last, dir_fd=parent)
            created = os.open(last, FOLDER | os.O_NOFOLLOW, dir_fd=parent)
            try:
                os.fchmod(created, _WORLD_WRITABLE)  # the umask restricts the mode of mkdir
            finally:
                os.close(created)
        with suppress(HostError):  # the monitor removes the rest
            self.remove(old, _BATCH)

    def remove(self, name: str, most: int) -> bool:
        path = f"{self._folder}/{name}"
        try:
            with _host_errors(path), self._trees.parent(path) as (parent, last):
                descriptor = self._trees.open_folder(path)
                try:
                    if not _is_emptied(descriptor, most):
                        return False
                finally:
                    os.close(descriptor)
                os.rmdir(last, dir_fd=parent)
        except MissingFileError:
            return True
        return True


def _is_emptied(folder: int, most: int) -> bool:
    """Remove entries of a folder; return whether it is empty now.

    There is no recursion, however deep the folder is: the content of a subfolder is moved up
    first.
    """
    while most > 0:
        batch = _some(folder)
        if not batch:
            return True
        for entry in batch:
            if entry.is_dir(follow_symlinks=False):
                most -= _move_up(folder, entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
            most -= 1
    return False


def _move_up(folder: int, name: str) -> int:
    """Remove an empty subfolder, or move a batch of its entries up; return their number."""
    below = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        batch = _some(below)
        for entry in batch:
            if entry.is_dir(follow_symlinks=False):
                unused = f".removed-{os.urandom(8).hex()}"
                os.rename(entry.name, unused, src_dir_fd=below, dst_dir_fd=folder)
            else:
                os.unlink(entry.name, dir_fd=below)
    finally:
        os.close(below)
    if not batch:
        os.rmdir(name, dir_fd=folder)
    return len(batch)


def _some(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(islice(entries, _BATCH))


@contextmanager
def _host_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = MissingFileError if error.errno in _MISSING else HostError
        raise kind(f"cannot use {path}: {error.strerror}") from None
