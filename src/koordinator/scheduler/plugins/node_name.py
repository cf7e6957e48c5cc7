"""Node that the pod names in ``spec.nodeName`` before scheduling.

The scheduler does not pass bound pods to this plugin.

Source: kubernetes pkg/scheduler/framework/plugins/nodename.
"""

from typing import ClassVar

from koordinator.scheduler.contract import (
    Action,
    EventHint,
    NoArgs,
    PluginExample,
    PluginHints,
    PluginSpec,
    Reads,
    Rejections,
)
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

REASON = "node(s) didn't match the requested node name"


class NodeName:
    """Filter on ``spec.nodeName``; skipped for pending pods, which have none."""

    reads: ClassVar = Reads.NODE
    hints: ClassVar = PluginHints(
        key=lambda pod: pod.spec.node_name,
        filters=lambda _snapshot, pod: bool(pod.spec.node_name),
    )

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        ids, values = snapshot.names
        wanted = values.get(pod.spec.node_name, -1)
        return Rejections.where(ids != wanted, REASON, unresolvable=True)


def build(_args: NoArgs, _axis: ResourceAxis) -> NodeName:
    return NodeName()


EXAMPLE = PluginExample(silent="the scheduler removes the node name from pods that it schedules")

PLUGIN = PluginSpec(
    "NodeName", NoArgs, build, events=(EventHint("Node", Action.ADD),), example=EXAMPLE
)
