"""Files and processes of this machine.

The kernel generates the text of its files with each read at offset 0, so files of cgroups and /proc
are opened once and kept open: that saves two thirds of the cost of reading a thousand of them per
second.  Reading a kept file of a removed cgroup fails with ENODEV; the file is then opened again.
``trees`` determines which files may be opened.
"""

import ctypes
import errno
import os
import signal
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.linux.trees import Tree, Trees

KEPT_OPEN = 4096  # files, well below the limit of a service
_CHUNK = 1 << 14  # bytes; larger than almost all files
_MISSING = {errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.ENOTDIR}
_LINKS = {  # errors whose standard text misleads
    errno.ELOOP: "it leads through a link",
    errno.EXDEV: "it leads out of its folder",
}
_COMPARED = 2  # names at the end of a cgroup's path
_OWN_MODE = 0o600  # of the agent's files, which name pods and the actions on them


class LinuxHost:
    """Implementation of ``port.Host``.

    ``kept_open`` bounds the files that stay open between reads; with 0, several threads may share
    the host.  Only files below ``trees`` are opened; by default that is the whole machine, without
    following links except the kernel's.
    """

    def __init__(self, kept_open: int = KEPT_OPEN, trees: Trees | None = None) -> None:
        self._kept_open = kept_open
        self._trees = trees or Trees()
        self._processes = Trees((Tree("/proc", has_kernel_links=True),))
        self._open: OrderedDict[str, int] = OrderedDict()

    def close(self) -> None:
        """Close the files that were kept open."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def read(self, path: str) -> str:
        descriptor = self._open.get(path)
        try:
            if descriptor is not None:
                try:
                    return _content(descriptor)
                except OSError as error:
                    self._drop(path)
                    if error.errno not in _MISSING:
                        raise
            descriptor = self._trees.open(path, os.O_RDONLY)
            is_kept = False
            try:
                text = _content(descriptor)
                # Files of the kernel have size 0.  A file on a disk may be replaced by another.
                is_kept = bool(text) and self._kept_open > 0 and not os.fstat(descriptor).st_size
            finally:
                if not is_kept:
                    os.close(descriptor)
            if is_kept:
                self._keep(path, descriptor)
        except OSError as error:
            self._drop(path)
            raise _failure(error, path, "read") from None
        return text

    def write(self, path: str, text: str) -> None:
        try:
            descriptor = self._trees.open(path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(descriptor, text.encode() or b"\n")
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _failure(error, path, "write") from None

    def replace(self, path: str, text: str) -> None:
        try:
            with self._trees.parent(path, make=True) as (folder, name):
                temporary = f"{name}.tmp"
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)  # left by a killed process
                _store(folder, temporary, os.O_CREAT | os.O_EXCL, text, synced=True)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            raise _failure(error, path, "replace") from None
        self._drop(path)

    def append(self, path: str, text: str) -> None:
        try:
            with (
                self._trees.parent(path, make=True) as (folder, name),
                suppress(FileExistsError),
            ):
                _store(folder, name, os.O_CREAT | os.O_EXCL, "")
            descriptor = self._trees.open(path, os.O_WRONLY | os.O_APPEND)
            with open(descriptor, "a", encoding="utf-8") as file:  # noqa: PTH123 -- a descriptor
                file.write(text)
        except OSError as error:
            raise _failure(error, path, "append to") from None

    def exists(self, path: str) -> bool:
        try:
            with self._trees.pinned(path):
                return True
        except (OSError, HostError):
            return False

    def folders(self, path: str) -> Sequence[str]:
        try:
            folder = self._trees.open_folder(path)
            try:
                with os.scandir(folder) as entries:
                    return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
            finally:
                os.close(folder)
        except (OSError, HostError):
            return ()

    def names(self, path: str) -> Sequence[str]:
        try:
            folder = self._trees.open_folder(path)
            try:
                return sorted(os.listdir(folder))  # noqa: PTH208 -- pathlib takes no descriptor
            finally:
                os.close(folder)
        except (OSError, HostError):
            return ()

    def target(self, path: str) -> str:
        try:
            return self._trees.real_path(path)
        except OSError as error:
            raise _failure(error, path, "resolve") from None

    def make_folder(self, path: str) -> None:
        try:
            with (
                self._trees.parent(path) as (folder, name),
                suppress(FileExistsError),
            ):
                os.mkdir(name, dir_fd=folder)
        except OSError as error:
            raise _failure(error, path, "make") from None

    def remove_folder(self, path: str) -> None:
        try:
            with (
                suppress(FileNotFoundError),
                self._trees.parent(path) as (folder, name),
            ):
                os.rmdir(name, dir_fd=folder)
        except OSError as error:
            raise _failure(error, path, "remove") from None

    def remove(self, path: str) -> None:
        self._drop(path)
        try:
            with (
                suppress(FileNotFoundError),
                self._trees.parent(path) as (folder, name),
            ):
                os.unlink(name, dir_fd=folder)
        except OSError as error:
            raise _failure(error, path, "remove") from None

    def mount(self, kind: str, folder: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(kind.encode(), folder.encode(), kind.encode(), 0, None):
            problem = os.strerror(ctypes.get_errno())
            raise HostError(f"cannot mount {kind} on {folder}: {problem}")

    def kill(self, pid: int, cgroup: str) -> bool:
        try:
            process = os.pidfd_open(pid)  # the number may be reused later
        except ProcessLookupError:
            return False
        except OSError as error:
            raise HostError(f"cannot kill process {pid}: {error.strerror}") from None
        try:
            descriptor = self._processes.open(f"/proc/{pid}/cgroup", os.O_RDONLY)
            try:
                text = _content(descriptor)
            finally:
                os.close(descriptor)
            if not _is_in_cgroup(text, cgroup):
                raise HostError(f"cannot kill process {pid}: it is not in {cgroup}")
            signal.pidfd_send_signal(process, signal.SIGKILL)
        except OSError as error:
            if error.errno in _MISSING:
                return False
            raise HostError(f"cannot kill process {pid}: {error.strerror}") from None
        finally:
            os.close(process)
        return True

    def _keep(self, path: str, descriptor: int) -> None:
        self._open[path] = descriptor
        if len(self._open) > self._kept_open:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)

    def _drop(self, path: str) -> None:
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)


def _content(descriptor: int) -> str:
    data = os.pread(descriptor, _CHUNK, 0)
    if len(data) == _CHUNK:
        parts, offset = [data], _CHUNK
        while part := os.pread(descriptor, _CHUNK, offset):
            parts.append(part)
            offset += len(part)
        data = b"".join(parts)
    return data.decode(errors="replace")


def _store(folder: int, name: str, flags: int, text: str, *, synced: bool = False) -> None:
    """Write a file that must not exist yet, unless ``flags`` say otherwise."""
    flags |= os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, _OWN_MODE, dir_fd=folder)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 -- a descriptor
        file.write(text)
        file.flush()
        if synced:
            os.fsync(descriptor)


def _is_in_cgroup(text: str, cgroup: str) -> bool:
    """Return whether the text of /proc/PID/cgroup names a cgroup of a pod.

    In a cgroup namespace the agent sees paths relative to its own cgroup, so only the last two
    names are compared: the container's, and the pod's, which contains its UID.
    """
    wanted = cgroup.split("/")[-_COMPARED:]
    return any(
        line.split(":", 2)[-1].split("/")[-_COMPARED:] == wanted for line in text.splitlines()
    )


def _failure(error: OSError, path: str, verb: str) -> HostError:
    kind = MissingFileError if error.errno in _MISSING else HostError
    return kind(f"cannot {verb} {path}: {_LINKS.get(error.errno or 0, error.strerror)}")
