"""Files and processes of this machine.

The kernel makes the text of its files anew with every read at offset 0, so the files of cgroups
and /proc are opened once and kept: that is a third of the cost of reading a thousand of them each
second.  A kept file of a cgroup that was removed says ENODEV, and is then looked for again.
"""

import ctypes
import errno
import os
import signal
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from koordinator.foundation.errors import HostError, MissingFileError

KEPT_OPEN = 4096  # files; far below the limit of a service
_CHUNK = 1 << 14  # bytes; all but a few files fit
_GONE = {errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.ENOTDIR}


class LinuxHost:
    """Implements ``port.Host``.  ``kept_open`` bounds the files that stay open between reads."""

    def __init__(self, kept_open: int = KEPT_OPEN) -> None:
        self._kept_open = kept_open
        self._open: OrderedDict[str, int] = OrderedDict()

    def close(self) -> None:
        """Close what was kept open."""
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
                    if error.errno not in _GONE:
                        raise
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            is_kept = False
            try:
                text = _content(descriptor)
                # The kernel's files have no size.  One on a disk may be replaced by another.
                is_kept = bool(text) and os.fstat(descriptor).st_size == 0
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
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(descriptor, text.encode() or b"\n")
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _failure(error, path, "write") from None

    def replace(self, path: str, text: str) -> None:
        temporary = f"{path}.tmp"
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with Path(temporary).open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except OSError as error:
            raise _failure(error, path, "replace") from None
        self._drop(path)

    def append(self, path: str, text: str) -> None:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise _failure(error, path, "append to") from None

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def folders(self, path: str) -> Sequence[str]:
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except OSError:
            return ()

    def names(self, path: str) -> Sequence[str]:
        try:
            return sorted(entry.name for entry in Path(path).iterdir())
        except OSError:
            return ()

    def target(self, path: str) -> str:
        try:
            return str(Path(path).resolve(strict=True))
        except OSError as error:
            raise _failure(error, path, "resolve") from None

    def make_folder(self, path: str) -> None:
        try:
            Path(path).mkdir(exist_ok=True)
        except OSError as error:
            raise _failure(error, path, "make") from None

    def remove_folder(self, path: str) -> None:
        try:
            with suppress(FileNotFoundError):
                Path(path).rmdir()
        except OSError as error:
            raise _failure(error, path, "remove") from None

    def remove(self, path: str) -> None:
        self._drop(path)
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise _failure(error, path, "remove") from None

    def mount(self, kind: str, folder: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(kind.encode(), folder.encode(), kind.encode(), 0, None):
            problem = os.strerror(ctypes.get_errno())
            raise HostError(f"can't mount {kind} on {folder}: {problem}")

    def kill(self, pid: int) -> bool:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        except OSError as error:
            raise HostError(f"can't end process {pid}: {error.strerror}") from None
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


def _failure(error: OSError, path: str, verb: str) -> HostError:
    kind = MissingFileError if error.errno in _GONE else HostError
    return kind(f"can't {verb} {path}: {error.strerror}")
