"""Batch, mid and device resources, CPU normalization and amplification of one node.

``calculation`` what the node should show
``preparation`` the node as it would show it
``reconciler``  whether that is worth a write, and the write

Source: koordinator pkg/slo-controller/noderesource.
"""

from koordinator.manager.controllers.node_resource.calculation import (
    ALL_PLUGINS,
    ManagedNode,
)
from koordinator.manager.controllers.node_resource.reconciler import (
    NodeOutcome,
    Synced,
    reconcile_node_resource,
)

__all__ = [
    "ALL_PLUGINS",
    "ManagedNode",
    "NodeOutcome",
    "Synced",
    "reconcile_node_resource",
]
