"""Debian packages that ``release/base.txt`` pins, and their downloads.

A package has a version and a SHA-256 digest, so its bytes may come from anywhere: from an earlier
download, from a mirror, or from snapshot.debian.org after the version has left the mirrors.
Source: snapshot.debian.org, machine-usable interface: ``/mr/binary/…/binfiles`` and ``/file/…``.
"""

import hashlib
import json
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "release/base.txt"
MIRROR: Final = "https://deb.debian.org"
SNAPSHOT: Final = "https://snapshot.debian.org"
ARCHITECTURES: Final = ("amd64", "arm64")
_HEADER: Final = """\
# Debian packages of the image's base; "make base" writes the current versions of Debian.
# Architecture of the image, package, version, SHA-256, path below the root of a mirror.
"""
_LINE: Final = re.compile(
    rf"(?P<architecture>{'|'.join(ARCHITECTURES)}) (?P<name>[a-z0-9][a-z0-9+.-]+) "
    r"(?P<version>[\w.+:~-]+) (?P<sha256>[0-9a-f]{64}) "
    r"(?P<path>debian(?:-security)?/pool(?:/[\w+~-][\w.+~-]*)+\.deb)"
)
_TIMEOUT_S: Final = 60


class PackageError(Exception):
    """The packages of the base image are not pinned, or a pinned one can't be had."""


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """A package of the base image of an architecture, which may itself be of all of them."""

    architecture: str
    name: str
    version: str
    sha256: str
    path: str  # below the root of a mirror

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.architecture})"


def read_pins(architecture: str, file: Path = FILE) -> list[Package]:
    """Return the packages of an architecture.  Raises PackageError if a line is malformed."""
    packages = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise PackageError(
                f"{file.name}:{number}: must be ARCHITECTURE PACKAGE VERSION SHA256 PATH, "
                f"got {line!r}"
            )
        packages.append(Package(**found.groupdict()))
    return [package for package in packages if package.architecture == architecture]


def write_pins(packages: Iterable[Package], file: Path = FILE) -> None:
    """Write the packages of all architectures."""
    lines = (
        f"{each.architecture} {each.name} {each.version} {each.sha256} {each.path}\n"
        for each in sorted(packages)
    )
    file.write_text(_HEADER + "".join(lines), "utf-8")


@dataclass(frozen=True, slots=True)
class Downloads:
    """A folder of packages by digest, and where those come from that it lacks."""

    folder: Path
    mirror: str = MIRROR
    snapshot: str = SNAPSHOT

    def fetch(self, package: Package) -> bytes:
        """Return the file of a package.

        Raises PackageError if neither mirror nor snapshot.debian.org has it with its digest.
        """
        kept = self.folder / f"{package.sha256}.deb"
        if kept.exists() and _sha256(data := kept.read_bytes()) == package.sha256:
            return data
        sources: tuple[Callable[[Package], str], ...] = (self._on_mirror, self._in_snapshot)
        problems = []
        for source in sources:
            try:
                url = source(package)
                data = read_url(url)
            except PackageError as error:
                problems.append(str(error))
                continue
            if _sha256(data) == package.sha256:
                self.folder.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(data)
                return data
            problems.append(f"{url}: has the SHA-256 digest {_sha256(data)}")
        raise PackageError(f"{package}, SHA-256 {package.sha256}: {'; '.join(problems)}")

    def _on_mirror(self, package: Package) -> str:
        return f"{self.mirror}/{package.path}"

    def _in_snapshot(self, package: Package) -> str:
        """Return the address of a file by its SHA-1 digest, which only the archive knows."""
        version = urllib.parse.quote(package.version, safe="")
        url = f"{self.snapshot}/mr/binary/{package.name}/{version}/binfiles?fileinfo=1"
        name = package.path.rpartition("/")[2]
        try:
            answer: Any = json.loads(read_url(url))
            for sha1, files in answer["fileinfo"].items():
                if any(file["name"] == name for file in files):
                    return f"{self.snapshot}/file/{sha1}"
        except (ValueError, LookupError, TypeError, AttributeError):
            raise PackageError(f"{url}: is not an answer of snapshot.debian.org") from None
        raise PackageError(f"{url}: has no file {name}")


def read_url(url: str) -> bytes:
    """Return what an address serves.  Raises PackageError if it can't be read."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:  # noqa: S310 -- of the caller
            data: bytes = response.read()
    except (OSError, HTTPException, ValueError) as error:
        raise PackageError(f"{url}: {error}") from None
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
