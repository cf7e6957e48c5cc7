"""Binding of pods through the binding subresource.

The loop sends the bind of each pod that this plugin accepts.

Source: kubernetes pkg/scheduler/framework/plugins/defaultbinder.
"""

from koordinator.api.pod import Pod
from koordinator.scheduler.contract import NoArgs, PluginSpec
from koordinator.scheduler.snapshot import ResourceAxis


class DefaultBinder:
    """Bind plugin that accepts every pod."""

    def bind(self, _pod: Pod) -> bool:
        """Return whether this plugin binds the pod."""
        return True


def build(_args: NoArgs, _axis: ResourceAxis) -> DefaultBinder:
    return DefaultBinder()


PLUGIN = PluginSpec("DefaultBinder", NoArgs, build)
