"""Files with names of pods and nodes or with keys, readable by their owner only."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordinator.foundation.clock import SystemClock, VirtualClock
from koordinator.process.certificates import context_of_directory
from koordinator.process.logs import RotatedFile
from koordinator.simulator.recorder import RecordingFile


@pytest.fixture(autouse=True, params=[0o000, 0o177], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set a umask that permits all users, or only the owner, to read and write new files."""
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    made.chmod(0o755)
    return made


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_recordings_are_readable_by_their_owner_only(folder: Path) -> None:
    """A recording over an older file is private as well, and does not contain the file's name."""
    path = folder / "secret-name.gz"
    path.touch()
    path.chmod(0o644)
    with RecordingFile(path, VirtualClock(0.0)) as file:
        file.write(b"line\n")

    assert rights(path) == 0o600
    assert gzip.decompress(path.read_bytes()) == b"line\n"
    assert b"secret-name" not in path.read_bytes()


def test_audit_files_are_readable_by_their_owner_only(folder: Path) -> None:
    """The current file, rotated files, and files of another version."""
    for name in ("audit.jsonl", "audit.jsonl.1"):
        (folder / name).touch()
        (folder / name).chmod(0o644)
    kept = RotatedFile(folder, "audit.jsonl", largest_bytes=10, kept=3)
    for number in range(9):
        kept.write(b"12345 %d\n" % number)
    kept.close()

    assert {path.name: rights(path) for path in folder.iterdir()} == {
        "audit.jsonl": 0o600,
        "audit.jsonl.1": 0o600,
        "audit.jsonl.2": 0o600,
        "audit.jsonl.3": 0o600,
    }


def test_private_key_is_readable_by_its_owner_only(folder: Path) -> None:
    """The key is readable by its owner only; the certificate may be public."""
    context_of_directory(folder, "tls", ["localhost"], SystemClock())

    assert rights(folder / "tls.key") == 0o600
