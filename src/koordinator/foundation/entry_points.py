"""Entry points of installed packages.

``importlib.metadata`` and the packages behind it take a twentieth of the start of a command, and
most environments have no entry point for this program: it is imported where there may be one.
"""

import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
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
            what = " ".join(str(error).split())
            broken.append(f"{called}: cannot be loaded: {type(error).__name__}: {what}")
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


def _places() -> Iterator[Path]:
    """Yield the archives of the import path, and the metadata of packages in its folders."""
    for entry in sys.path:
        place = Path(entry or ".")
        if place.suffix == ".egg" or not place.is_dir():
            yield place
            continue
        for package in place.iterdir():
            if package.suffix.lower() in {".dist-info", ".egg-info", ".egg"}:
                yield package


def _is_archive(place: Path) -> bool:
    if place.suffix == ".egg":
        return True
    return place.is_file() and not place.name.lower().endswith(".egg-info")


def _declared(place: Path) -> bytes:
    try:
        return (place / "entry_points.txt").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
