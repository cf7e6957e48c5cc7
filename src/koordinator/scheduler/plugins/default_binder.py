"""Binds pods through the binding subresource; the shell sends what this plugin takes on.

Source: kubernetes pkg/scheduler/framework/plugins/defaultbinder.
"""

from koordinator.api.pod import Pod
from koordinator.scheduler.contract import NoArgs, PluginSpec
from koordinator.scheduler.snapshot import ResourceAxis


class DefaultBinder:
    """Takes every pod."""

    def bind(self, _pod: Pod) -> bool:
        """Return whether this plugin is the one to bind the pod."""
        return True


def build(_args: NoArgs, _axis: ResourceAxis) -> DefaultBinder:
    return DefaultBinder()


PLUGIN = PluginSpec("DefaultBinder", NoArgs, build)
