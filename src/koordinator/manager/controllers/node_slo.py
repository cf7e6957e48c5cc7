"""Controller of NodeSLOs, the QoS configuration of koordlet per node.

Source: koordinator pkg/slo-controller/nodeslo/nodeslo_controller.go.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.api.codec import merge_patch
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_slo import NodeSlo
from koordinator.manager.configuration.reader import SloConfig
from koordinator.manager.configuration.strategies import render_slo
from koordinator.manager.writes import Create, Delete, Patch, Write


@dataclass(frozen=True, slots=True)
class SloOutcome:
    """Writes, and the problem of the node's annotations; empty if there is none."""

    writes: Sequence[Write] = ()
    problem: str = ""


def reconcile_node_slo(node: Node | None, slo: NodeSlo | None, config: SloConfig) -> SloOutcome:
    """Return the writes that create, update or delete the NodeSLO of a node."""
    if node is None:
        if slo is None:
            return SloOutcome()
        return SloOutcome((Delete(NodeSlo, slo.metadata.name, slo.metadata.uid),))
    rendered = render_slo(config, node, slo.spec if slo is not None else None)
    if slo is None:
        new = NodeSlo(metadata=ObjectMeta(name=node.metadata.name), spec=rendered.spec)
        return SloOutcome((Create(new),), rendered.problem)
    if rendered.spec == slo.spec:
        return SloOutcome((), rendered.problem)
    wanted = NodeSlo(metadata=slo.metadata, spec=rendered.spec, status=slo.status)
    return SloOutcome(
        (Patch(NodeSlo, slo.metadata.name, merge_patch(slo, wanted)),), rendered.problem
    )
