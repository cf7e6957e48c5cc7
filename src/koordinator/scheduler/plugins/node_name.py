"""Honour a node named in the pod before scheduling.

The scheduler itself never sees bound pods here.

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
    """Stays out of the way until something sets a node name: a pending pod has none."""

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


EXAMPLE = PluginExample(silent="the scheduler takes the node name off pods that it looks at")

PLUGIN = PluginSpec(
    "NodeName", NoArgs, build, events=(EventHint("Node", Action.ADD),), example=EXAMPLE
)
