"""Out-of-tree plugins of the descheduler: entry points of the group ``koordinator.descheduler``."""

from typing import TypeVar

from koordinator.cli.output import warn
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.descheduler.profile import DESCHEDULER_PLUGINS, Spec
from koordinator.foundation.entry_points import entry_points
from koordinator.foundation.errors import InputError

LoadedT = TypeVar("LoadedT")


def load_entry_points(group: str, wanted: type[LoadedT]) -> tuple[list[LoadedT], list[str]]:
    """Return the objects of a group in order of names, and one message per invalid object."""
    objects: list[LoadedT] = []
    broken: list[str] = []
    for point in entry_points(group):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "of no package"
        called = f"plugin package {package} ({point.name} = {point.value})"
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a foreign module does
            what = " ".join(str(error).split())
            broken.append(f"{called}: cannot be loaded: {type(error).__name__}: {what}")
            continue
        if isinstance(loaded, wanted):
            objects.append(loaded)
        else:
            accepted = f"{wanted.__module__}.{wanted.__name__}"
            broken.append(f"{called}: must be a {accepted}, got {type(loaded).__name__}")
    return objects, broken


ENTRY_POINTS = "koordinator.descheduler"


def descheduler_plugins_for(configuration: DeschedulerConfiguration) -> tuple[Spec, ...]:
    """Return the out-of-tree plugins of this Python environment.

    A package that can't be loaded is skipped with a warning.  Raises InputError with the name of
    the package if the configuration enables a plugin that no other package provides.
    """
    loaded, broken = load_entry_points(ENTRY_POINTS, DeschedulerPluginSpec)
    known = {spec.name for spec in (*DESCHEDULER_PLUGINS, *loaded)}
    unknown = sorted(configuration.plugin_names() - known)
    if broken and unknown:
        raise InputError(f"{'; '.join(broken)}; is {', '.join(unknown)} in it?")
    for sentence in broken:
        warn(f"{sentence}; the package is skipped")
    return tuple(loaded)
