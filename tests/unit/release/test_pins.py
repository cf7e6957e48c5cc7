"""Pinned packages: their file, and downloads from a mirror or snapshot.debian.org."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from release.pins import ARCHITECTURES, Downloads, PackageError, read_pins, write_pins
from tests.unit.release.debian_files import Files, pin, serving

DATA = b"package"
PACKAGE = pin("libb1", DATA, "1:1.5.0-3+b1~deb13u1")
SHA1 = "0123456789abcdef0123456789abcdef01234567"
BINFILES = "/mr/binary/libb1/1%3A1.5.0-3%2Bb1~deb13u1/binfiles?fileinfo=1"


@pytest.fixture
def mirror() -> Iterator[Files]:
    with serving() as running:
        yield running


@pytest.fixture
def snapshot() -> Iterator[Files]:
    """Serve a snapshot.debian.org with the package of two architectures."""
    with serving() as running:
        files = {
            "f" * 40: [{"name": "libb1_1.5.0-3+b1~deb13u1_arm64.deb"}],
            SHA1: [{"name": "libb1_1.5.0-3+b1~deb13u1_amd64.deb"}],
        }
        running.contents = {
            BINFILES: json.dumps({"result": [], "fileinfo": files}).encode(),
            f"/file/{SHA1}": DATA,
        }
        yield running


def test_package_comes_from_the_mirror_once(mirror: Files, tmp_path: Path) -> None:
    """Later builds need no network."""
    mirror.contents[f"/{PACKAGE.path}"] = DATA
    downloads = Downloads(tmp_path / "kept", mirror.url, "http://127.0.0.1:1")

    assert [downloads.fetch(PACKAGE), downloads.fetch(PACKAGE)] == [DATA, DATA]
    assert mirror.requests == [f"/{PACKAGE.path}"]


@pytest.mark.parametrize("on_mirror", [None, b"another"])
def test_package_that_left_the_mirror_comes_from_the_archive_of_all_versions(
    mirror: Files, snapshot: Files, tmp_path: Path, on_mirror: bytes | None
) -> None:
    """By its version and the name of its file; also if the mirror has other bytes there."""
    if on_mirror is not None:
        mirror.contents[f"/{PACKAGE.path}"] = on_mirror

    assert Downloads(tmp_path, mirror.url, snapshot.url).fetch(PACKAGE) == DATA
    assert snapshot.requests == [BINFILES, f"/file/{SHA1}"]


def test_other_bytes_are_rejected_wherever_they_come_from(
    mirror: Files, snapshot: Files, tmp_path: Path
) -> None:
    """The error names the package, both addresses and the digests; nothing is kept."""
    mirror.contents[f"/{PACKAGE.path}"] = b"another"
    snapshot.contents[f"/file/{SHA1}"] = b"another"

    with pytest.raises(PackageError) as caught:
        Downloads(tmp_path, mirror.url, snapshot.url).fetch(PACKAGE)
    text = str(caught.value)
    assert f"libb1 1:1.5.0-3+b1~deb13u1 (amd64), SHA-256 {PACKAGE.sha256}" in text
    assert f"{mirror.url}/{PACKAGE.path}: has the SHA-256 digest" in text
    assert f"{snapshot.url}/file/{SHA1}: has the SHA-256 digest" in text
    assert not list(tmp_path.iterdir())


def test_changed_download_is_fetched_again(mirror: Files, tmp_path: Path) -> None:
    """Cached downloads are verified at each build."""
    mirror.contents[f"/{PACKAGE.path}"] = DATA
    (tmp_path / f"{PACKAGE.sha256}.deb").write_bytes(b"changed")

    assert Downloads(tmp_path, mirror.url).fetch(PACKAGE) == DATA
    assert (tmp_path / f"{PACKAGE.sha256}.deb").read_bytes() == DATA


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b'{"fileinfo": {}}', "has no file libb1_1.5.0-3+b1~deb13u1_amd64.deb"),
        (b"<html>", "is not an answer of snapshot.debian.org"),
        (b"[]", "is not an answer of snapshot.debian.org"),
        (b'{"fileinfo": []}', "is not an answer of snapshot.debian.org"),
        (b'{"fileinfo": {"a": [{}]}}', "is not an answer of snapshot.debian.org"),
        (None, "HTTP Error 404"),
    ],
)
def test_package_that_is_nowhere_is_an_error(
    mirror: Files, snapshot: Files, tmp_path: Path, answer: bytes | None, problem: str
) -> None:
    """The message has the reason of each source."""
    if answer is None:
        del snapshot.contents[BINFILES]
    else:
        snapshot.contents[BINFILES] = answer

    with pytest.raises(PackageError) as caught:
        Downloads(tmp_path, mirror.url, snapshot.url).fetch(PACKAGE)
    assert f"{mirror.url}/{PACKAGE.path}: HTTP Error 404" in str(caught.value)
    assert f"{BINFILES}: {problem}" in str(caught.value)


def test_pins_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Sorted, so that an update changes the lines of changed packages only."""
    file = tmp_path / "base.txt"
    packages = [PACKAGE, pin("liba1", b"")]
    write_pins(packages, file)

    assert read_pins("amd64", file) == sorted(packages)
    assert not read_pins("arm64", file)


@pytest.mark.parametrize(
    "line",
    [
        "amd64 libb1 1-1",
        f"riscv64 libb1 1-1 {'0' * 64} debian/pool/main/libb1_1-1_riscv64.deb",
        f"amd64 libb1 1-1 {'0' * 63} debian/pool/main/libb1_1-1_amd64.deb",
        f"amd64 libb1 1-1 {'0' * 64} debian/pool/../libb1_1-1_amd64.deb",
        f"amd64 ../b1 1-1 {'0' * 64} debian/pool/main/libb1_1-1_amd64.deb",
    ],
)
def test_malformed_pin_is_rejected(tmp_path: Path, line: str) -> None:
    """The error names the line."""
    file = tmp_path / "base.txt"
    file.write_text(f"# comment\n{line}\n")

    with pytest.raises(PackageError, match=r"base.txt:2: must be ARCHITECTURE PACKAGE"):
        read_pins("amd64", file)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_base_of_each_architecture_is_pinned(architecture: str) -> None:
    """Python, its libraries, certificates and time zones are among its packages."""
    names = {package.name for package in read_pins(architecture)}

    assert names > {"ca-certificates", "libc6", "libssl3t64", "python3.13-minimal", "tzdata"}
