"""Keep pods off cordoned nodes, unless they tolerate the unschedulable taint.

Source: kubernetes pkg/scheduler/framework/plugins/nodeunschedulable.
"""

from typing import ClassVar

from koordinator.domain.tolerations import UNSCHEDULABLE, tolerates
from koordinator.scheduler.contract import (
    Action,
    EventHint,
    NoArgs,
    PluginExample,
    PluginSpec,
    Reads,
    Rejections,
)
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

REASON = "node(s) were unschedulable"


class NodeUnschedulable:
    """Filter on ``spec.unschedulable``."""

    reads: ClassVar = Reads.NODE

    def filters(self, _snapshot: Snapshot, pod: PodClass) -> bool:
        return not any(tolerates(t, UNSCHEDULABLE) for t in pod.spec.tolerations)

    def key(self, _pod: PodClass) -> str:
        """All pods that it filters are alike."""
        return ""

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections.where(snapshot.unschedulable, REASON, unresolvable=True)

    def node_remedy(self, view: Snapshot, _pod: PodClass) -> str:
        return f"uncordon {view.node_names[0]}"


def build(_args: NoArgs, _axis: ResourceAxis) -> NodeUnschedulable:
    return NodeUnschedulable()


EXAMPLE = PluginExample(
    nodes=({}, {"spec": {"unschedulable": True}}),
)

PLUGIN = PluginSpec(
    "NodeUnschedulable",
    NoArgs,
    build,
    events=(
        EventHint("Node", Action.ADD | Action.UPDATE_TAINTS | Action.UPDATE_OTHER),
        EventHint("Pod", Action.UPDATE_TOLERATIONS),
    ),
    example=EXAMPLE,
)
