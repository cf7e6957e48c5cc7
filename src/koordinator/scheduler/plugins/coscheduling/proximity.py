"""How near each node is to the pods that a pod wants to be near to.

They are those with the same ``network-topology-selector`` annotation: members of an elastic job
that come one by one.

Source: koordinator pkg/scheduler/plugins/coscheduling/core/network_topology_workflow.go
``sortNodesByTopology``.  Different here: without a topology, or for nodes outside of it, upstream
crashes; here the former has no effect and the latter come last.
"""

import numpy as np

from koordinator.api.annotations.gang import NETWORK_TOPOLOGY_SELECTOR
from koordinator.domain.network import OUTSIDE, GatherRules, OfferSlots, Planner
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.snapshot import PodClass, Snapshot


def selector_of(pod: PodClass) -> str:
    """Return the annotation; empty if there is none."""
    return pod.annotations.get(NETWORK_TOPOLOGY_SELECTOR, "")


def places_by_distance(snapshot: Snapshot, pod: PodClass, feasible: IntArray) -> IntArray:
    """Return the place of each feasible row, ``(k,)``, nearest first from 0; 0 without a topology.

    Nearer is, level by level from the node up, where more such pods are; then where fewer nodes are
    left; then the lower name.
    """
    tree = snapshot.network.tree
    places = np.zeros(len(feasible), np.int64)
    if tree is None:
        return places
    count, wanted = len(snapshot.cluster), selector_of(pod)
    slots, near = np.zeros(count, np.int64), np.zeros(count, np.int64)
    slots[feasible] = 1
    for placed in snapshot.pods.values():
        if selector_of(placed.pod_class) == wanted:
            near[placed.row] += 1
    nothing = np.zeros(count, np.int64)
    planner = Planner(tree, GatherRules(), OfferSlots(slots, nothing, nothing, near, nothing))
    inside = tree.domains(count)[0, feasible] != OUTSIDE
    ordered = planner.ordered(tree.depth, feasible[inside])
    rank = np.full(count, len(ordered), np.int64)
    rank[ordered] = np.arange(len(ordered))
    return rank[feasible]
