"""The newest packages of a Debian release: ``python -m release.debian`` writes release/base.txt.

The lists of packages have the digests of a signed list, whose signature gpgv checks with Debian's
own keys; every package has the digest of its list.
Source: Debian Repository Format (wiki.debian.org/DebianRepository/Format), ``InRelease``.
"""

import argparse
import hashlib
import lzma
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from itertools import chain
from pathlib import Path
from typing import Final

from debian.deb822 import Packages, Release
from debian.debian_support import Version

from koordinator.foundation.clock import WallClock
from release.pins import (
    ARCHITECTURES,
    MIRROR,
    Package,
    PackageError,
    read_url,
    write_pins,
)

KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_SUITES: Final = (
    ("debian", "trixie"),
    ("debian", "trixie-updates"),
    ("debian-security", "trixie-security"),
)
#: What the image runs with; packages that these depend on are added.
_WANTED: Final = (
    "base-files",  # the folders, and the names of system and release
    "ca-certificates",
    "iproute2",  # node agent, gate TCNetworkQoS, like the next two
    "ipset",
    "iptables",
    "libpython3.13-stdlib",
    "libstdc++6",  # wheels
    "netbase",
    "python3.13-minimal",
    "tzdata",
)
#: What others depend on for scripts that run at an installation only; nothing is installed here.
_LEFT_OUT: Final = frozenset({"awk", "debconf", "libcap2-bin", "openssl"})


def newest(
    lists: Sequence[Mapping[str, str]], architecture: str, wanted: Iterable[str] = _WANTED
) -> list[tuple[str, Packages]]:
    """Return wanted packages and what they depend on, with the folder of the archive of each.

    ``lists`` has the paragraphs of each suite by package.  Raises PackageError if none has one.
    """
    found: dict[str, tuple[str, Packages]] = {}
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        candidates = [
            (archive, Packages(paragraphs[name]))
            for (archive, _), paragraphs in zip(_SUITES, lists, strict=True)
            if name in paragraphs
        ]
        if not candidates:
            raise PackageError(f"{name} ({architecture}): no suite has this package")
        found[name] = max(candidates, key=lambda it: Version(it[1]["Version"]))
        relations = found[name][1].relations
        for alternatives in chain(relations["depends"] or (), relations["pre-depends"] or ()):
            first = alternatives[0]["name"]
            if first not in _LEFT_OUT:
                waiting.append(first)
    return list(found.values())


def update(mirror: str, keys: Path, now_s: float) -> list[Package]:
    """Return the newest packages of every architecture.

    Raises PackageError if a list can't be read or is not Debian's.
    """
    releases = [
        (archive, suite, read_release(mirror, archive, suite, keys, now_s))
        for archive, suite in _SUITES
    ]
    packages = []
    for architecture in ARCHITECTURES:
        lists = [
            _paragraphs(mirror, archive, suite, release, architecture)
            for archive, suite, release in releases
        ]
        packages += [
            Package(
                architecture=architecture,
                name=each["Package"],
                version=each["Version"],
                sha256=each["SHA256"],
                path=f"{archive}/{each['Filename']}",
            )
            for archive, each in newest(lists, architecture)
        ]
    return packages


def read_release(mirror: str, archive: str, suite: str, keys: Path, now_s: float) -> Release:
    """Return the signed description of a suite.

    Raises PackageError if Debian hasn't signed it, or it is another suite's or too old.
    """
    url = f"{mirror}/{archive}/dists/{suite}/InRelease"
    release = Release(_signed(read_url(url), url, keys))
    if release.get("Codename") != suite:
        raise PackageError(f"{url}: must be of {suite}, is of {release.get('Codename')}")
    until = release.get("Valid-Until")
    if until is not None and parsedate_to_datetime(until).timestamp() < now_s:
        raise PackageError(f"{url}: was valid until {until}: take another mirror")
    return release


def _signed(data: bytes, url: str, keys: Path) -> bytes:
    """Return the text that a signature belongs to."""
    if not keys.exists():
        raise PackageError(
            f"{keys}: Debian's keys are not there: install debian-archive-keyring, or set KEYS"
        )
    with tempfile.TemporaryDirectory() as folder:
        signed, text = Path(folder, "InRelease"), Path(folder, "Release")
        signed.write_bytes(data)
        command = ["gpgv", "--keyring", str(keys.resolve()), "--output", str(text), str(signed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise PackageError(f"gpgv: {error.strerror}: it checks Debian's signature") from None
        if done.returncode:
            raise PackageError(f"{url}: the signature is not Debian's: {done.stderr}")
        return text.read_bytes()


def _paragraphs(
    mirror: str, archive: str, suite: str, release: Release, architecture: str
) -> dict[str, str]:
    """Return the paragraph of each package of a suite."""
    name = f"main/binary-{architecture}/Packages.xz"
    digests = {each["name"]: each["sha256"] for each in release["SHA256"]}
    digest = digests.get(name)
    if digest is None:
        raise PackageError(f"{suite}: has no {name}")
    folder = f"{mirror}/{archive}/dists/{suite}/{name.rpartition('/')[0]}"
    url = f"{folder}/by-hash/SHA256/{digest}"
    data = read_url(url)
    if hashlib.sha256(data).hexdigest() != digest:
        raise PackageError(f"{url}: has another digest")
    paragraphs = lzma.decompress(data).decode().strip().split("\n\n")
    return {it.partition("\n")[0].removeprefix("Package: "): it for it in paragraphs if it}


def main() -> None:
    """Write the newest packages of all architectures to release/base.txt."""
    parser = argparse.ArgumentParser(prog="python -m release.debian", description=__doc__)
    parser.add_argument("--mirror", default=MIRROR)
    parser.add_argument("--keys", type=Path, default=KEYS, help="keyring with Debian's keys")
    flags = parser.parse_args()
    try:
        write_pins(update(flags.mirror, flags.keys, WallClock().now_s()))
    except PackageError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
