"""Placeholder for Koordinator's PreBind plugin, which merges the patches of all others.

In this scheduler those patches travel with the bind, so the plugin has nothing to do.  It exists
because configurations name it.

Source: koordinator pkg/scheduler/plugins/defaultprebind.
"""

from koordinator.scheduler.contract import NoArgs, PluginSpec
from koordinator.scheduler.plugin_lists import DEFAULT_PRE_BIND
from koordinator.scheduler.snapshot import ResourceAxis


class DefaultPreBind:
    """PreBind plugin without methods."""


def build(_args: NoArgs, _axis: ResourceAxis) -> DefaultPreBind:
    return DefaultPreBind()


PLUGIN = PluginSpec(DEFAULT_PRE_BIND, NoArgs, build)
