"""Queue order by priority, then by waiting time.

Source: kubernetes pkg/scheduler/framework/plugins/queuesort.
"""

from koordinator.api.pod import Pod
from koordinator.scheduler.contract import NoArgs, PluginSpec
from koordinator.scheduler.snapshot import ResourceAxis


class PrioritySort:
    """QueueSort by priority; the queue breaks ties by time, then by order of arrival."""

    def queue_sort(self, pod: Pod) -> int:
        """Return the sort key of a pod; smaller comes first."""
        return -(pod.spec.priority or 0)


def build(_args: NoArgs, _axis: ResourceAxis) -> PrioritySort:
    return PrioritySort()


PLUGIN = PluginSpec("PrioritySort", NoArgs, build)
