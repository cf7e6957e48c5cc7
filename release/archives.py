"""Archives whose bytes depend on names and contents of their files only.

libdeflate compresses them, whose version is locked: zlib differs from machine to machine.
Source: GNU tar manual, 8.4 Reproducibility; https://reproducible-builds.org/docs/archives/;
APPNOTE.TXT of PKWARE 6.3.10, 4.3 (ZIP).
"""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import deflate

PROGRAM: Final = 0o755
_LEVEL: Final = 9
_FOLDER_MODE, _FILE_MODE, _LINK_MODE = 0o755, 0o644, 0o777
_ZIP_VERSION: Final = 20  # that a reader needs for deflate
_ZIP_UTF8: Final = 1 << 11  # of names
_ZIP_UNIX: Final = 3 << 8  # modes are those of Unix


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of an archive, a symbolic link if ``target`` is set, or a folder without content."""

    path: str  # relative
    content: bytes | None = None
    target: str = ""
    mode: int | None = None  # None: of a folder that everybody can read, or of such a file


def entries_below(folder: Path, prefix: str) -> list[Entry]:
    """Return the files below a folder under a prefix."""
    return [
        Entry(
            f"{prefix}/{path.relative_to(folder).as_posix()}",
            path.read_bytes(),
            mode=PROGRAM if path.stat().st_mode & 0o100 else None,
        )
        for path in folder.rglob("*")
        if path.is_file()
    ]


def tar(entries: Iterable[Entry], time_s: int) -> bytes:
    """Return an archive of the entries and the folders around them, by path, all owned by root."""
    by_path = {entry.path: entry for entry in entries}
    for path in list(by_path):
        for parent in PurePosixPath(path).parents:
            if str(parent) != ".":
                by_path.setdefault(str(parent), Entry(str(parent)))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(by_path):
            entry = by_path[path]
            info = tarfile.TarInfo(path)
            info.mtime = time_s
            if entry.target:
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, _LINK_MODE
            elif entry.content is None:
                info.type, info.mode = tarfile.DIRTYPE, entry.mode or _FOLDER_MODE
            else:
                info.size, info.mode = len(entry.content), entry.mode or _FILE_MODE
            archive.addfile(info, io.BytesIO(entry.content or b""))
    return buffer.getvalue()


def compressed(data: bytes) -> bytes:
    """Return data compressed by gzip, without name and time, and the same with any zlib."""
    return bytes(deflate.gzip_compress(data, _LEVEL))


def recompress_gzip(file: Path) -> None:
    """Compress a file in place that gzip has compressed."""
    file.write_bytes(compressed(gzip.decompress(file.read_bytes())))


def recompress_zip(file: Path) -> None:
    """Compress the members of a ZIP archive in place; order, times and modes stay."""
    data, directory, count = b"", b"", 0
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            content = archive.read(info)
            stored = bytes(deflate.deflate_compress(content, _LEVEL))
            name = info.filename.encode()
            year, month, day, hour, minute, second = info.date_time
            common = struct.pack(
                "<5H3L2H",
                _ZIP_VERSION,
                _ZIP_UTF8,
                zipfile.ZIP_DEFLATED,
                hour << 11 | minute << 5 | second // 2,
                year - 1980 << 9 | month << 5 | day,
                info.CRC,
                len(stored),
                len(content),
                len(name),
                0,  # no further fields
            )
            place = struct.pack("<3H2L", 0, 0, 0, info.external_attr, len(data))
            made_by = struct.pack("<H", _ZIP_UNIX | _ZIP_VERSION)
            directory += b"PK\1\2" + made_by + common + place + name
            data += b"PK\3\4" + common + name + stored
            count += 1
    end = struct.pack("<4H2LH", 0, 0, count, count, len(directory), len(data), 0)
    file.write_bytes(data + directory + b"PK\5\6" + end)
