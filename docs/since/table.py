"""The recorded releases: a file with names by release and scope."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = Path(__file__).with_name("names.json")
#: Release of names that no release has yet; ``make changelog`` sets the version.
UNRELEASED: Final = "unreleased"

#: Names by scope, such as "label" or "gate koordlet", then by name: the release.
Names = Mapping[tuple[str, str], str]


class SinceTable:
    """Releases that introduced names; it notes which names the reference has."""

    def __init__(self, names: Names) -> None:
        """Take the recorded names."""
        self._names = names
        self.shown: set[tuple[str, str]] = set()

    def release(self, scope: str, name: str) -> str:
        """Return the release that introduced a name; one that is not recorded is unreleased."""
        self.shown.add((scope, name))
        return self._names.get((scope, name), UNRELEASED)

    def missing(self) -> list[tuple[str, str]]:
        """Return the names of the reference that are not recorded."""
        return sorted(self.shown - self._names.keys())

    def unused(self) -> list[tuple[str, str]]:
        """Return the recorded names that the reference does not have."""
        return sorted(self._names.keys() - self.shown)


def read_names(path: Path = FILE) -> Names:
    """Return the recorded names."""
    scopes = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, list[str]]])  # noqa: TID251 -- a script
    return {
        (scope, name): release
        for scope, releases in scopes.items()
        for release, names in releases.items()
        for name in names
    }


def write_names(names: Names, path: Path = FILE) -> None:
    """Write names, by scope and release in order."""
    scopes: dict[str, dict[str, list[str]]] = {}
    for (scope, name), release in sorted(names.items(), key=_place):
        scopes.setdefault(scope, {}).setdefault(release, []).append(name)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(scopes), indent=1) + b"\n")


def _place(item: tuple[tuple[str, str], str]) -> tuple[str, bool, str, Iterable[int], str]:
    (scope, name), release = item
    project, _, version = release.rpartition(" ")
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return scope, not project, project, numbers, name
