"""Reader of the files of recordings."""

import logging
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from koordinator.foundation.errors import InputError
from koordinator.foundation.files import too_long
from koordinator.simulator.recording import Recording, read_recording
from koordinator.simulator.recording.batch import LONGEST_HEADER_BYTES, LONGEST_LINE_BYTES

_LOGGER = logging.getLogger(__name__)
READ_BYTES = 1 << 18  # per read, compressed
PART_BYTES = 1 << 24  # per part, unpacked; a few parts are in memory
MOST_MEMBERS = 10_000  # gzip members of a file: each copies the rest of the part that was read
_GZIP = 31  # zlib's code for gzip with the largest window


@contextmanager
def opened_recording(
    path: Path, on_notice: Callable[[str], object] = _LOGGER.warning
) -> Iterator[Recording]:
    """Yield a recording that can be iterated once.

    Raises InputError for a file that can't be read, here or during the iteration.
    """
    try:
        with path.open("rb") as file:
            yield read_recording(_lines(file, path, on_notice), str(path))
    except InputError as error:
        raise error.within(source=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=str(path)) from None
    except zlib.error:
        raise InputError("must be a recording, packed by gzip", source=str(path)) from None


def _lines(file: BinaryIO, path: Path, on_notice: Callable[[str], object]) -> Iterator[bytes]:
    """Yield the lines of a recording, up to its end or to where the file was cut off.

    Raises InputError for a line that is longer than a recording allows.
    """
    torn: list[bytes] = []
    number, size = 1, 0  # of the current line; bytes of it read so far
    try:
        for part in _read_ahead(_unpacked(file)):
            *ends, rest = part.split(b"\n")
            for end in ends:
                yield b"".join((*torn, end, b"\n"))
                torn.clear()
                number, size = number + 1, 0
            torn.append(rest)
            size += len(rest)
            if size > (LONGEST_LINE_BYTES if number > 1 else LONGEST_HEADER_BYTES):
                raise too_long(f"{path}:{number}", LONGEST_LINE_BYTES)
    except EOFError:
        on_notice(f"{path} is incomplete; the part that could be read is replayed")
    yield b"".join(torn)


def _read_ahead(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the parts; a thread makes the next part while the caller works on the current one."""
    with ThreadPoolExecutor(1) as thread:
        ahead = thread.submit(next, parts, b"")
        while part := ahead.result():
            ahead = thread.submit(next, parts, b"")
            yield part


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a gzip file in large parts.

    zlib releases the interpreter lock while it unpacks.  The parts of the module gzip are so small
    that the threads would spend more time on waiting for each other than on unpacking.
    Raises EOFError if the file ends in the middle, zlib.error, InputError.
    """
    unpacker = zlib.decompressobj(_GZIP)
    members = 1
    while packed := file.read(READ_BYTES):
        while packed:
            if unpacker.eof:  # a file may have several members, one after the other
                unpacker = zlib.decompressobj(_GZIP)
                members += 1
                if members > MOST_MEMBERS:
                    text = f"must have at most {MOST_MEMBERS:,} gzip members"
                    raise InputError(text)
            if part := unpacker.decompress(packed, PART_BYTES):
                yield part
            packed = unpacker.unconsumed_tail or unpacker.unused_data
    if not unpacker.eof:
        raise EOFError
