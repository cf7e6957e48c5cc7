"""Files are read within bounds; what is private stays so."""

import gzip
import io
import os
from pathlib import Path

import pytest

from koordinator.foundation.errors import InputError
from koordinator.foundation.files import (
    bounded_lines,
    open_private,
    read_file,
    read_packed,
    read_stream,
)


def test_a_file_within_the_bound_is_read(tmp_path: Path) -> None:
    """To the last byte."""
    path = tmp_path / "f"
    path.write_bytes(b"abc")

    assert read_file(path, 3) == b"abc"
    assert read_stream(io.BytesIO(b"abc"), "f", 3) == b"abc"


def test_a_larger_one_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """By its name; streams without end are, too."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(InputError, match=r"sparse: must not be larger than 1,024 MiB"):
        read_file(path)
    with pytest.raises(InputError, match=r"/dev/zero: must not be larger than 8 MiB"):
        read_file(Path("/dev/zero"), 8 << 20)


def test_lines_have_a_bound() -> None:
    """The error has the number of the long line."""
    lines = bounded_lines(io.BytesIO(b"abc\nabcdef"), "f", 4)

    assert next(lines) == b"abc\n"
    with pytest.raises(InputError, match=r"f:2: must not have lines longer than"):
        next(lines)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_private_files_are_the_owners_alone(tmp_path: Path, umask: int) -> None:
    """New ones and those that were open to others before, whatever the umask."""
    new, old = tmp_path / "new", tmp_path / "old"
    old.touch()
    old.chmod(0o666)
    before = os.umask(umask)
    try:
        for path in (new, old):
            os.close(open_private(path, os.O_WRONLY))
    finally:
        os.umask(before)

    assert [path.stat().st_mode & 0o777 for path in (new, old)] == [0o600, 0o600]


def test_pipe_keeps_its_permissions(tmp_path: Path) -> None:
    """A pipe is others' as well."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)

    os.close(open_private(pipe, os.O_RDWR))

    assert pipe.stat().st_mode & 0o777 == 0o666


def test_missing_file_is_read_from_its_packed_twin(tmp_path: Path) -> None:
    """A name that ends in .gz is unpacked, too."""
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress(b"a,b"))
    (tmp_path / "plain.csv").write_bytes(b"c")

    assert read_packed(tmp_path / "trace.csv") == b"a,b"
    assert read_packed(tmp_path / "trace.csv.gz") == b"a,b"
    assert read_packed(tmp_path / "plain.csv") == b"c"


@pytest.mark.parametrize("broken", ["data", "end", "header", "missing"])
def test_corrupt_packed_file_is_an_input_error_with_its_name(tmp_path: Path, broken: str) -> None:
    """Each layer of gzip raises an error of its own, zlib.error for the data."""
    packed = bytearray(gzip.compress(bytes(range(256)) * 40))
    if broken == "data":
        packed[12:40] = b"\xff" * 28
    elif broken == "end":
        del packed[-12:]
    elif broken == "header":
        packed[:2] = b"PK"
    path = tmp_path / "trace.csv.gz"
    if broken != "missing":
        path.write_bytes(bytes(packed))

    with pytest.raises(InputError, match=r"trace\.csv\.gz: .*cannot be read"):
        read_packed(path)
