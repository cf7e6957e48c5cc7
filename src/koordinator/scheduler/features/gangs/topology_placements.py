"""Placements of PodGroups of scheduling.k8s.io whose nodes must share a label value.

Each value is tried in the in-memory state; the best one is kept.
Source: kubernetes pkg/scheduler/schedule_one_podgroup.go ``podGroupSchedulingPlacementAlgorithm``,
framework/plugins/topologyaware, podgrouppodscount, noderesources ``scorePlacement``.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from koordinator.domain.gangs import GangCache
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Binder
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.features.gangs.placement import (
    GangDecision,
    GangGroupAttempt,
    GangPlacer,
    Wanted,
    rejectors_of,
)
from koordinator.scheduler.snapshot import ClusterState, Snapshot

if TYPE_CHECKING:  # the metrics client is optional
    from koordinator.scheduler.features.gangs.metrics import PodGroupMetrics


@dataclass(frozen=True, slots=True)
class TopologyPlacement:
    """Rows of the nodes with one value of a label."""

    value: str
    rows: IntArray


class PlacementConflict(Exception):  # noqa: N818 -- a state of the cluster, not a fault
    """Placed members of a PodGroup are in no common placement."""


class PlacementPlacer:
    """Placement of PodGroups with a topology constraint."""

    def __init__(
        self,
        state: ClusterState,
        binder: Binder,
        placer: GangPlacer,
        now_s: Callable[[], float],
        metrics: "PodGroupMetrics | None" = None,
    ) -> None:
        """``now_s`` is the stopwatch of attempts."""
        self._state, self._binder, self._placer = state, binder, placer
        self._now_s, self._metrics = now_s, metrics

    def placements(
        self, cycle: SchedulingCycle, gangs: GangCache, head: Wanted, key: str
    ) -> list[TopologyPlacement]:
        """Return the placements of a member's group, in the order of their first nodes.

        Only the placement of already placed members is returned.  Raises PlacementConflict.
        """
        return self.generate(cycle, gangs.with_places(head[0].pod), key)

    def generate(
        self, cycle: SchedulingCycle, placed: Iterable[str], key: str
    ) -> list[TopologyPlacement]:
        """Return the placements of a group whose members ``placed``, by key, have nodes.

        Raises PlacementConflict.
        """
        generator = cycle.profile.placement_generate[0].plugin
        domain = self._domain_of(placed, key)
        return [
            TopologyPlacement(value, rows)
            for value, rows in generator.placements(Snapshot(self._state), key).items()
            if domain is None or value == domain
        ]

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
        rejectors = {generator.name for generator in cycle.profile.placement_generate}
        best = ("", 0)
        feasible: list[TopologyPlacement] = []
        scores: list[list[int]] = []  # of each able placement, by plugin
        profile = cycle.profile.scheduler_name
        if self._metrics is not None:
            self._metrics.generated(profile, len(placements))
        for placement in placements:
            began_s = self._now_s()
            decision = self._try(cycle, group_attempt, members, placement)
            first = first or decision
            for _, _, verdict in decision.failed:
                rejectors |= rejectors_of(verdict)
            if not best[0] or decision.had_place > best[1]:
                best = placement.value, decision.had_place
            is_able = not decision.is_lost and bool(decision.placed)
            if self._metrics is not None:
                self._metrics.tried(profile, self._now_s() - began_s, feasible=is_able)
            if is_able:
                count = already + len(decision.placed)
                feasible.append(placement)
                scores.append(self.scores(cycle, placement.rows, count))
            for assumed in reversed(decision.placed):
                self._binder.forget(assumed)
            decision.placed.clear()
        if not feasible:
            if first is None or not first.is_lost:
                first = self._none(cycle, group_attempt, members, first)
            first.placements, first.best = len(placements), best
            first.rejectors = frozenset(rejectors)
            return first
        return self._try(cycle, group_attempt, members, feasible[best_placement(cycle, scores)])

    def _domain_of(self, members: Iterable[str], key: str) -> str | None:
        """Return the label value of placed members' nodes; None without any."""
        domains: dict[str, None] = {}
        for member in members:
            placed = self._state.pods.by_key.get(member)
            node = None if placed is None else self._state.nodes.objects[placed.row]
            if node is None:
                continue
            if key not in node.metadata.labels:
                raise PlacementConflict(f"no topology domain found for pod {member}")
            domains[node.metadata.labels[key]] = None
        if len(domains) > 1:
            names = ", ".join(list(domains)[:2])
            raise PlacementConflict(f"more than 1 domain found for pod group: {names}")
        return next(iter(domains), None)

    def _try(
        self,
        cycle: SchedulingCycle,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        placement: TopologyPlacement,
    ) -> GangDecision:
        mask = np.zeros(len(self._state.nodes), bool)
        mask[placement.rows] = True
        with cycle.restricted_to(mask):
            return self._placer.place(cycle, group_attempt, members, merges=False)

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
        no_rows = np.zeros(len(self._state.nodes), bool)
        head = next(one for one in members if one[0] is group_attempt.head)
        with cycle.restricted_to(no_rows):
            verdict = cycle.diagnose(head[0].pod, head[1], {})
        others = [queued for queued, _ in members if queued is not head[0]]
        return GangDecision(failed=[(*head, verdict)], others=others, is_lost=True)

    def scores(self, cycle: SchedulingCycle, rows: IntArray, members: int) -> list[int]:
        """Return the raw scores of a placement whose members are assumed, by plugin."""
        snapshot = Snapshot(self._state)
        return [
            active.plugin.score_placement(snapshot, rows, members)
            for active in cycle.profile.placement_score
        ]


def best_placement(cycle: SchedulingCycle, scores: Sequence[Sequence[int]]) -> int:
    """Return the index of the placement with the highest weighted score; the first of equals."""
    totals = [0] * len(scores)
    for active, of_plugin in zip(
        cycle.profile.placement_score, zip(*scores, strict=True), strict=True
    ):
        raw = list(of_plugin)
        normalizes = "normalize_placements" in active.has
        final = active.plugin.normalize_placements(raw) if normalizes else raw
        totals = [total + active.weight * score for total, score in zip(totals, final, strict=True)]
    return totals.index(max(totals))
