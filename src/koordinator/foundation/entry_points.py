"""Entry points of installed packages.

``importlib.metadata`` and the packages behind it take a twentieth of the start of a command, and
most environments have no entry point for this program: it is imported where there may be one.
A search among a hundred packages with ``pathlib`` takes three times as long as with ``os``.
"""

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

LoadedT = TypeVar("LoadedT")


def entry_points(group: str) -> "list[EntryPoint]":
    """Return the entry points of a group, by name."""
    if not _may_exist(group):
        return []
    from importlib import metadata  # noqa: PLC0415 -- see above

    return sorted(metadata.entry_points(group=group), key=lambda point: point.name)


def load_entry_points(
    group: str, wanted: type[LoadedT], path: str
) -> tuple[list[LoadedT], list[str]]:
    """Return the objects of a group in order of names, and one message per invalid object.

    ``path`` is where the authors of packages import ``wanted`` from, for the messages.
    """
    objects: list[LoadedT] = []
    broken: list[str] = []
    for point in entry_points(group):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "of no package"
        called = f"plugin package {package} ({point.name} = {point.value})"
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a foreign module does when it is loaded
            problem = " ".join(str(error).split())
            broken.append(f"{called}: cannot be loaded: {type(error).__name__}: {problem}")
            continue
        if isinstance(loaded, wanted):
            objects.append(loaded)
        else:
            broken.append(f"{called}: must be a {path}, got {type(loaded).__name__}")
    return objects, broken


def _may_exist(group: str) -> bool:
    """Return False if no package on the import path declares an entry point of the group."""
    others = (finder for finder in sys.meta_path if finder is not PathFinder)
    if any(hasattr(finder, "find_distributions") for finder in others):
        return True
    wanted = group.encode()
    try:
        return any(_is_archive(place) or wanted in _declared(place) for place in _places())
    except OSError:
        return True


def _places() -> Iterator[str]:
    """Yield the archives of the import path, and the metadata of packages in its folders."""
    for entry in sys.path:
        place = entry or "."
        if place.endswith(".egg") or not os.path.isdir(place):  # noqa: PTH112 -- see above
            yield place
            continue
        for package in os.listdir(place):  # noqa: PTH208 -- see above
            if package.lower().endswith((".dist-info", ".egg-info", ".egg")):
                yield f"{place}/{package}"


def _is_archive(place: str) -> bool:
    if place.endswith(".egg"):
        return True
    return not place.lower().endswith((".dist-info", ".egg-info")) and os.path.isfile(place)  # noqa: PTH113 -- see above


def _declared(place: str) -> bytes:
    try:
        with open(f"{place}/entry_points.txt", "rb") as file:  # noqa: PTH123 -- see above
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return b""
