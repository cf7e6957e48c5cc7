"""Lines on disk, in files that are exchanged before they grow too large."""

import logging
import os
from io import FileIO
from pathlib import Path

from koordinator.foundation.errors import InputError
from koordinator.foundation.files import open_private

LARGEST_BYTES = 64 << 20
KEPT = 8  # former files

log = logging.getLogger(__name__)


class RotatedFile:
    """Appends to a file; at ``largest_bytes`` it becomes ``NAME.1``, that ``NAME.2``, and so on.

    The oldest of ``kept`` former files is deleted.  Lines that can't be written, such as on a full
    disk, are dropped, and the failure is logged once.  A line that was truncated by a full disk or
    by the end of a process is terminated before the next.  Only the owner may read the files.
    Raises InputError if the folder can't be used.
    """

    def __init__(
        self, folder: Path, name: str, *, largest_bytes: int = LARGEST_BYTES, kept: int = KEPT
    ) -> None:
        self._path, self._largest_bytes, self._kept = folder / name, largest_bytes, kept
        self._failed = self._is_torn = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
            for number in range(1, kept + 1):
                if self._former(number).is_file():  # as another version has left it
                    self._former(number).chmod(0o600)
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror}", source=str(folder)) from None

    def write(self, lines: bytes) -> None:
        """Append whole lines."""
        try:
            if self._file.tell() and self._file.tell() + len(lines) > self._largest_bytes:
                self._rotate()
            if self._is_torn:
                lines = b"\n" + lines
            written = self._file.write(lines)
        except OSError as error:
            self._lose(error.strerror)
        else:
            self._is_torn = written < len(lines)
            if self._is_torn:
                self._lose("the disk is full")
            else:
                self._failed = False

    def _lose(self, why: str | None) -> None:
        if not self._failed:
            log.warning("lines are lost", extra={"path": str(self._path), "error": why})
        self._failed = True

    def close(self) -> None:
        self._file.close()

    def _open(self) -> FileIO:
        flags = os.O_RDWR | os.O_APPEND
        file = FileIO(open_private(self._path, flags), "a+")
        size = file.tell()
        if size:
            file.seek(size - 1)
        self._is_torn = bool(size) and file.read(1) != b"\n"
        return file

    def _rotate(self) -> None:
        for number in range(self._kept - 1, 0, -1):
            former = self._former(number)
            if former.exists():
                former.replace(self._former(number + 1))
        self._path.replace(self._former(1))
        self._file.close()
        self._file = self._open()

    def _former(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
