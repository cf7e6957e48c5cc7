"""Page of a node: its pods, its allocated and its free amounts.

Source: koordinator pkg/scheduler/frameworkext/services/services.go (fields; some are spelled as in
Go).  Terms of a pod's affinity stay in its spec.  The generation for copies is left out.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from koordinator.api.codec import to_manifest
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.loop.go_amounts import go_amounts
from koordinator.scheduler.rules.volumes import named_claims
from koordinator.scheduler.snapshot import ClusterState, PlacedPod


def node_page(state: ClusterState, name: str) -> dict[str, Any]:
    """Return the page of a node.  Raises NotFoundError."""
    row = state.nodes.rows.get(name)
    node = state.nodes.objects[row] if row is not None else None
    if row is None or node is None:
        raise NotFoundError(f"cannot find node {name}")
    pods = [placed for _, placed in sorted(state.pods.on_row[row].items())]
    allocatable, requested = state.nodes.allocatable[:, row], state.nodes.requested[:, row]
    cpu, memory = state.nodes.nonzero[:, row].tolist()
    page = {
        "node": to_manifest(node),
        "pods": _infos(pods),
        "podsWithAffinity": _infos(p for p in pods if _has_affinity(p.pod)),
        "podsWithRequiredAntiAffinity": _infos(
            p for p in pods if _has_required_anti_affinity(p.pod)
        ),
        "usedPorts": _ports(pods),
        "requested": _amounts(state, requested),
        "nonZeroRequested": go_amounts({"cpu": cpu, "memory": memory}),
        "remaining": _amounts(state, allocatable - requested),
        "allocatable": _amounts(state, allocatable),
        "imageStates": _images(state, row),
        "pvcRefCounts": dict(Counter(claim for placed in pods for claim in _claims(placed.pod))),
    }
    return {field: value for field, value in page.items() if value}


def _amounts(state: ClusterState, column: IntArray) -> dict[str, Any]:
    named = zip(state.axis.names, column.tolist(), strict=False)
    return go_amounts({name: amount for name, amount in named if amount})


def _infos(pods: Iterable[PlacedPod]) -> list[dict[str, Any]]:
    return [{"Pod": to_manifest(placed.pod)} for placed in pods]


def _has_affinity(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )


def _has_required_anti_affinity(pod: Pod) -> bool:
    apart = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity is not None else None
    return apart is not None and bool(apart.required_during_scheduling_ignored_during_execution)


def _ports(pods: Iterable[PlacedPod]) -> dict[str, list[dict[str, Any]]]:
    """Return the host ports in use, by address."""
    taken = sorted({port for placed in pods for port in placed.pod_class.host_ports})
    found: dict[str, list[dict[str, Any]]] = {}
    for address, protocol, port in taken:
        found.setdefault(address, []).append({"Protocol": protocol, "Port": port})
    return found


def _images(state: ClusterState, row: int) -> dict[str, Any]:
    """Return the images of the node with all nodes that have them."""
    shown = {}
    for name, image in sorted(state.nodes.images.items()):
        if image.present[row]:
            nodes = [state.nodes.names[there] for there in np.flatnonzero(image.present).tolist()]
            shown[name] = {
                "Size": image.size,
                "NumNodes": len(nodes),
                "Nodes": {node: {} for node in nodes},
            }
    return shown


def _claims(pod: Pod) -> list[str]:
    return [f"{pod.metadata.namespace}/{name}" for name in named_claims(pod.spec.volumes)]
