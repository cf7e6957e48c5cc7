"""Placements of PodGroups of scheduling.k8s.io whose nodes must share a label value.

Each value is tried in the in-memory state; the best one is kept.
Source: kubernetes pkg/scheduler/schedule_one_podgroup.go ``podGroupSchedulingPlacementAlgorithm``,
framework/plugins/topologyaware, podgrouppodscount, noderesources ``scorePlacement``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.domain.gangs import GangCache
from koordinator.foundation.arrays import BoolArray
from koordinator.scheduler.binding import Binder
from koordinator.scheduler.contract import MAX_SCORE
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.features.gangs.placement import (
    GangDecision,
    GangGroupAttempt,
    GangPlacer,
    Wanted,
)
from koordinator.scheduler.plugins.node_resources_fit import NodeResourcesFit
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.snapshot.axis import CPU, MEMORY

_SCORED = {CPU: 0, MEMORY: 1}  # columns scored by non-zero requests


@dataclass(frozen=True, slots=True)
class TopologyPlacement:
    """Nodes with one value of a label, ``(n_rows,)``."""

    value: str
    mask: BoolArray


class PlacementConflict(Exception):  # noqa: N818 -- a state of the cluster, not a fault
    """Placed members of a PodGroup are in no common placement."""


class PlacementPlacer:
    """Placement of PodGroups with a topology constraint."""

    def __init__(self, state: ClusterState, binder: Binder, placer: GangPlacer) -> None:
        self._state, self._binder, self._placer = state, binder, placer

    def placements(self, gangs: GangCache, head: Wanted, key: str) -> list[TopologyPlacement]:
        """Return the placements of a member's group, in the order of their first nodes.

        Only the placement of already placed members is returned.  Raises PlacementConflict.
        """
        nodes, count = self._state.nodes, len(self._state.nodes)
        values: dict[str, list[int]] = {}
        for row in np.flatnonzero(nodes.alive[:count]).tolist():
            node = nodes.objects[row]
            value = node.metadata.labels.get(key) if node is not None else None
            if value is not None:
                values.setdefault(value, []).append(row)
        held = self._held(gangs, head, key)
        masks = []
        for value, rows in values.items():
            if held is None or value == held:
                mask = np.zeros(count, bool)
                mask[rows] = True
                masks.append(TopologyPlacement(value, mask))
        return masks

    def place(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        placements: Sequence[TopologyPlacement],
    ) -> GangDecision:
        """Assume the members in the best placement that fits enough of them, or none."""
        already = len(gangs.with_places(group_attempt.head.pod))
        first: GangDecision | None = None
        scores: list[tuple[int, int, TopologyPlacement]] = []  # members, share used
        for placement in placements:
            decision = self._try(cycle, group_attempt, members, placement)
            first = first or decision
            if not decision.is_lost and decision.placed:
                share = self._share_used(cycle, placement)
                scores.append((already + len(decision.placed), share, placement))
            self._forget(decision)
        if not scores:
            if first is None or not first.is_lost:
                first = self._none(cycle, group_attempt, members, first)
            first.placements = len(placements)
            return first
        most = max(count for count, _, _ in scores)
        best = max(scores, key=lambda one: one[0] * MAX_SCORE // most + one[1])
        return self._try(cycle, group_attempt, members, best[2])

    def _held(self, gangs: GangCache, head: Wanted, key: str) -> str | None:
        """Return the label value of placed members' nodes; None without any."""
        found: dict[str, None] = {}
        for member in gangs.with_places(head[0].pod):
            placed = self._state.pods.by_key.get(member)
            node = None if placed is None else self._state.nodes.objects[placed.row]
            if node is None:
                continue
            if key not in node.metadata.labels:
                raise PlacementConflict(f"no topology domain found for pod {member}")
            found[node.metadata.labels[key]] = None
        if len(found) > 1:
            names = ", ".join(list(found)[:2])
            raise PlacementConflict(f"more than 1 domain found for pod group: {names}")
        return next(iter(found), None)

    def _try(
        self,
        cycle: SchedulingCycle,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        placement: TopologyPlacement,
    ) -> GangDecision:
        with cycle.restricted_to(placement.mask):
            return self._placer.place(cycle, group_attempt, members, merges=False)

    def _forget(self, decision: GangDecision) -> None:
        for assumed in reversed(decision.placed):
            self._binder.forget(assumed)
        decision.placed.clear()

    def _none(
        self,
        cycle: SchedulingCycle,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        first: GangDecision | None,
    ) -> GangDecision:
        """Return the failed decision of a group without placements, or with none placed."""
        if first is not None and first.failed:
            first.is_lost = True
            return first
        nowhere = np.zeros(len(self._state.nodes), bool)
        head = next(one for one in members if one[0] is group_attempt.head)
        with cycle.restricted_to(nowhere):
            verdict = cycle.diagnose(head[0].pod, head[1], {})
        others = [queued for queued, _ in members if queued is not head[0]]
        return GangDecision(failed=[(*head, verdict)], others=others, is_lost=True)

    def _share_used(self, cycle: SchedulingCycle, placement: TopologyPlacement) -> int:
        """Return the current utilisation of the placement's nodes, 0..100."""
        weights = next(
            (
                active.plugin.weights
                for active in cycle.profile.score
                if isinstance(active.plugin, NodeResourcesFit)
            ),
            (),
        )
        nodes, rows = self._state.nodes, np.flatnonzero(placement.mask)
        total = weight_sum = 0
        for column, weight in weights:
            has = int(nodes.allocatable[column, rows].sum())
            if not has:
                continue
            amounts = nodes.nonzero[_SCORED[column]] if column in _SCORED else None
            used = int((nodes.requested[column] if amounts is None else amounts)[rows].sum())
            total += weight * (min(used, has) * MAX_SCORE // has)
            weight_sum += weight
        return total // weight_sum if weight_sum else 0
