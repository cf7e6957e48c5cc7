"""Host ports: two pods cannot listen on the same host port of a node.

Source: kubernetes pkg/scheduler/framework/plugins/nodeports.
"""

from typing import ClassVar

import numpy as np

from koordinator.scheduler.contract import (
    Action,
    EventHint,
    NoArgs,
    PluginHints,
    PluginSpec,
    Reads,
    Rejections,
)
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

REASON = "node(s) didn't have free ports for the requested pod ports"


class NodePorts:
    """Filter on (ip, protocol, port)."""

    reads: ClassVar = Reads.PLACED
    hints: ClassVar = PluginHints(
        key=lambda pod: pod.host_ports,
        filters=lambda _snapshot, pod: bool(pod.host_ports),
    )

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        taken = np.zeros(len(snapshot), bool)
        for port in pod.host_ports:
            taken |= snapshot.port_conflicts(port)
        return Rejections.where(taken, REASON)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Name the ports that are taken."""
        taken = [port for port in pod.host_ports if view.port_conflicts(port)[0]]
        return ", ".join(f"{protocol} {number} is taken" for _, protocol, number in taken)


def build(_args: NoArgs, _axis: ResourceAxis) -> NodePorts:
    return NodePorts()


PLUGIN = PluginSpec(
    "NodePorts",
    NoArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.DELETE),
        EventHint("Node", Action.ADD),
    ),
)
