"""Out-of-tree plugins of the descheduler: entry points of the group ``koordinator.descheduler``."""

from koordinator.cli.output import warn
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.descheduler.profile import DESCHEDULER_PLUGINS, Spec
from koordinator.foundation.entry_points import load_entry_points
from koordinator.foundation.errors import InputError

ENTRY_POINTS = "koordinator.descheduler"


def descheduler_plugins_for(configuration: DeschedulerConfiguration) -> tuple[Spec, ...]:
    """Return the out-of-tree plugins of this Python environment.

    A package that can't be loaded is skipped with a warning.  Raises InputError with the name of
    the package if the configuration enables a plugin that no other package provides.
    """
    loaded, broken = load_entry_points(
        ENTRY_POINTS,
        DeschedulerPluginSpec,
        "koordinator.descheduler.contract.DeschedulerPluginSpec",
    )
    known = {spec.name for spec in (*DESCHEDULER_PLUGINS, *loaded)}
    unknown = sorted(configuration.plugin_names() - known)
    if broken and unknown:
        raise InputError(f"{'; '.join(broken)}; is {', '.join(unknown)} in it?")
    for sentence in broken:
        warn(f"{sentence}; the package is skipped")
    return tuple(loaded)
