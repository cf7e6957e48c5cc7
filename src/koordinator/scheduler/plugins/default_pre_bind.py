"""Koordinator's own PreBind plugin merges the patches of all others into one write.

Here what they have to write travels with the bind, so nothing is left for it to do; configurations
name it all the same.

Source: koordinator pkg/scheduler/plugins/defaultprebind.
"""

from koordinator.scheduler.contract import NoArgs, PluginSpec
from koordinator.scheduler.plugin_lists import DEFAULT_PRE_BIND
from koordinator.scheduler.snapshot import ResourceAxis


class DefaultPreBind:
    """Does nothing."""


def build(_args: NoArgs, _axis: ResourceAxis) -> DefaultPreBind:
    return DefaultPreBind()


PLUGIN = PluginSpec(DEFAULT_PRE_BIND, NoArgs, build)
