"""Reading of files of limited size, and names that are safe in a path.

The author of a pod chooses some of its strings, and a string such as ``../../etc`` in a path would
lead outside its folder.  So every string of an API object must become a ``PathComponent`` first.
"""

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NewType

from koordinator.foundation.errors import InputError

MEBI = 1 << 20
LARGEST_BYTES = 1 << 30  # of one file: 150,000 pods in JSON take half of it
LARGEST_CONFIGURATION_BYTES = 16 * MEBI  # of a file that people write
_PART = MEBI
PACKED = ".gz"
_GZIP = b"\x1f\x8b"
_OWNER_ONLY = 0o600

MOST_BYTES: Final = 255  # NAME_MAX of Linux


def read_file(path: Path, largest_bytes: int = LARGEST_BYTES) -> bytes:
    """Return the content of a file.

    Raises OSError if it can't be read, InputError with its name if it is larger than allowed.
    """
    with path.open("rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return read_stream(file, str(path), largest_bytes)
        if status.st_size > largest_bytes:
            raise _too_large(str(path), largest_bytes)
        return file.readall()


def read_stream(
    file: BinaryIO | io.RawIOBase | gzip.GzipFile, source: str, largest_bytes: int = LARGEST_BYTES
) -> bytes:
    """Return the rest of a stream; ``source`` names it.  Raises as ``read_file``."""
    parts: list[bytes] = []
    size = 0
    while part := file.read(_PART):
        parts.append(part)
        size += len(part)
        if size > largest_bytes:
            raise _too_large(source, largest_bytes)
    return b"".join(parts)


def unpacked(content: bytes, source: str, largest_bytes: int = LARGEST_BYTES) -> bytes:
    """Return what gzip has packed, or the content as it is if it is not packed.

    Raises InputError with ``source`` for invalid or too large content.
    """
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return read_stream(file, source, largest_bytes)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be unpacked by gzip: {error}", source=source) from None


def read_packed(path: Path, largest_bytes: int = LARGEST_BYTES) -> bytes:
    """Return the content of a file or, where it is missing, of its copy packed by gzip.

    A file whose name ends in ``.gz`` is unpacked.  Raises InputError.
    """
    is_packed = path.suffix == PACKED
    try:
        if not is_packed and path.exists():
            return read_file(path, largest_bytes)
        with gzip.open(path if is_packed else path.with_name(path.name + PACKED)) as file:
            return read_stream(file, str(path), largest_bytes)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None)
        location = "" if reason else "line 1"  # invalid compressed data has no lines
        problem = f"cannot be read: {reason or error}"
        raise InputError(problem, source=str(path), subject=location) from error


def bounded_lines(file: BinaryIO, source: str, longest_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a file, their ends included.

    Raises InputError with ``source`` and number of a line that is longer than allowed.
    """
    number = 0
    while line := file.readline(longest_bytes + 1):
        number += 1
        if len(line) > longest_bytes:
            raise too_long(f"{source}:{number}", longest_bytes)
        yield line


def too_long(source: str, longest_bytes: int) -> InputError:
    """Return the error of a line that is too long; ``source`` names it."""
    return InputError(
        f"must not have lines longer than {longest_bytes / MEBI:,.0f} MiB",
        source=source,
    )


def open_private(path: Path, flags: int) -> int:
    """Return a descriptor of a file that only its owner may read, regardless of the umask.

    ``flags`` are passed to ``os.open``; a missing file is created.  The mode of an existing regular
    file is changed as well; pipes and terminals keep theirs.
    Raises OSError.
    """
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, _OWNER_ONLY)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _too_large(source: str, largest_bytes: int) -> InputError:
    return InputError(f"must not be larger than {largest_bytes // MEBI:,} MiB", source=source)


#: A string that ``path_component`` has validated; at run time a plain string.
PathComponent = NewType("PathComponent", str)


def path_component(text: str, *, path: str = "") -> PathComponent:
    """Return one name in a path: printable, without slash, neither ``.`` nor ``..``.

    Raises InputError for any other text; ``path`` is the field that it came from.
    """
    if (
        text in {"", ".", ".."}
        or "/" in text
        or not text.isprintable()
        or len(text.encode()) > MOST_BYTES
    ):
        raise InputError(
            f"must be a name of 1 to {MOST_BYTES} printable bytes without '/', not '.' or "
            f"'..', got {text[:80]!r}",
            path=path,
        )
    return PathComponent(text)


def relative_path(text: str, *, path: str = "") -> str:
    """Return components joined by single slashes, without slashes around; empty for none.

    Raises InputError if one of them ``path_component`` refuses.
    """
    return "/".join(path_component(part, path=path) for part in text.split("/") if part)
