"""Regions of HAMi-core on this machine, read and written without mapping them.

A mapped file that its container cuts off kills whoever touches the pages that are gone (SIGBUS);
``pread`` returns fewer bytes.  Page cache and mapping are one, so both sides see each other.
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

_EVERYBODY = 0o777  # programs in containers are seldom root
_BATCH = 256  # entries of a folder that are looked at together
_INT = struct.Struct("<i")
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


class LinuxRegionFile:
    """Implements ``vgpu_regions.RegionFile``."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    @property
    def size(self) -> int:
        with _telling(self._path):
            return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        with _telling(self._path):
            return os.pread(self._descriptor, size, offset)

    def write_int(self, offset: int, value: int) -> None:
        with _telling(self._path):
            if os.fstat(self._descriptor).st_size < offset + _INT.size:
                raise HostError(f"can't write {self._path}: it ends before {offset}")
            os.pwrite(self._descriptor, _INT.pack(value), offset)

    def close(self) -> None:
        os.close(self._descriptor)


class LinuxRegionFolders:
    """Implements ``vgpu_regions.RegionFolders``; ``folder`` is the operator's."""

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
                found = (each.name for each in entries if each.is_dir(follow_symlinks=False))
                return sorted(islice(found, most))
        finally:
            os.close(descriptor)

    def files(self, name: str, most: int) -> Sequence[str]:
        path = f"{self._folder}/{name}"
        with _telling(path):
            descriptor = self._trees.open_folder(path)
            try:
                with os.scandir(descriptor) as entries:
                    return sorted(each.name for each in islice(entries, most))
            finally:
                os.close(descriptor)

    def open(self, name: str, file: str) -> LinuxRegionFile:
        path = f"{self._folder}/{name}/{file}"
        with _telling(path):
            return LinuxRegionFile(self._trees.open(path, os.O_RDWR), path)

    def renew(self, name: str) -> None:
        path = f"{self._folder}/{name}"
        with _telling(path), self._trees.parent(path, make=True) as (parent, last):
            old = f"before-{os.urandom(8).hex()}_removed"
            with suppress(FileNotFoundError):
                os.rename(last, old, src_dir_fd=parent, dst_dir_fd=parent)
            os.mkdir(last, dir_fd=parent)
            made = os.open(last, FOLDER | os.O_NOFOLLOW, dir_fd=parent)
            try:
                os.fchmod(made, _EVERYBODY)  # mkdir would leave out what the umask says
            finally:
                os.close(made)
        with suppress(HostError):  # what is left is found by who looks for folders of nobody
            self.remove(old, _BATCH)

    def remove(self, name: str, most: int) -> bool:
        path = f"{self._folder}/{name}"
        try:
            with _telling(path), self._trees.parent(path) as (parent, last):
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
    """Take entries out of a folder; return whether none is left.

    Folders in it are not walked down, however deep they are: what is in one is moved up first.
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
    """Remove a folder in a folder if it is empty, else empty it a little; return by how much."""
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
def _telling(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = MissingFileError if error.errno in _GONE else HostError
        raise kind(f"can't use {path}: {error.strerror}") from None
