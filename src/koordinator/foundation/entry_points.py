"""Objects that other installed packages provide through entry points."""

from importlib.metadata import entry_points
from typing import TypeVar

LoadedT = TypeVar("LoadedT")


def load_entry_points(group: str, wanted: type[LoadedT]) -> tuple[list[LoadedT], list[str]]:
    """Return the objects of a group in order of names, and one message per invalid object."""
    objects: list[LoadedT] = []
    broken: list[str] = []
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "of no package"
        called = f"plugin package {package} ({point.name} = {point.value})"
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a foreign module does
            what = " ".join(str(error).split())
            broken.append(f"{called}: can't be loaded: {type(error).__name__}: {what}")
            continue
        if isinstance(loaded, wanted):
            objects.append(loaded)
        else:
            accepted = f"{wanted.__module__}.{wanted.__name__}"
            broken.append(f"{called}: must be a {accepted}, got {type(loaded).__name__}")
    return objects, broken
