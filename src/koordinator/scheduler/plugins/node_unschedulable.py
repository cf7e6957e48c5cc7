"""Cordoned nodes, kept free of pods that do not tolerate the unschedulable taint.

Source: kubernetes pkg/scheduler/framework/plugins/nodeunschedulable.
"""

from typing import ClassVar

from koordinator.domain.node_selection import UNSCHEDULABLE, tolerates
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

REASON = "node(s) were unschedulable"


class NodeUnschedulable:
    """Filter on ``spec.unschedulable``."""

    reads: ClassVar = Reads.NODE
    hints: ClassVar = PluginHints(
        key=lambda _pod: "",  # all pods that it filters are alike
        filters=lambda _snapshot, pod: (
            not any(tolerates(toleration, UNSCHEDULABLE) for toleration in pod.spec.tolerations)
        ),
    )

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
