"""Preemption for trees of PodGroups with topology constraints below their topmost group.

The tree is placed as if no pod of lower priority existed; then these pods come back one by one, and
those with which a member would lose its place are the victims.

Source: kubernetes pkg/scheduler/framework/preemption/podgrouppreemption.go.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from koordinator.api.labels import is_preemptible, is_quota_preemptible
from koordinator.api.policy import PodDisruptionBudget
from koordinator.domain.gangs import GangCache
from koordinator.scheduler.binding import Assumed, Binder
from koordinator.scheduler.cycle import SchedulingCycle, priority_of
from koordinator.scheduler.cycle.job_dry_run import reads_other_nodes
from koordinator.scheduler.cycle.what_if import MOST_MEMBERS, MOST_PODS, rejection
from koordinator.scheduler.features.gangs.placement import GangGroupAttempt, Wanted
from koordinator.scheduler.features.gangs.preemption import GangHeadroom
from koordinator.scheduler.features.gangs.topology_placements import PlacementConflict
from koordinator.scheduler.features.gangs.tree_placement import TreePlacer
from koordinator.scheduler.job_preemption import broken_gangs
from koordinator.scheduler.preemption import PREEMPT_NEVER, by_importance, split_by_budget
from koordinator.scheduler.snapshot import ClusterState, PlacedPod

log = logging.getLogger(__name__)

#: Checks of members whose filters read other nodes, in one attempt; no pod is decided meanwhile.
MOST_CHECKS: Final = MOST_MEMBERS * MOST_PODS


class TreePreemption:
    """Preemption for trees of one scheduler."""

    def __init__(self, state: ClusterState, binder: Binder, trees: TreePlacer) -> None:
        self._state, self._binder, self._trees = state, binder, trees

    def find(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
    ) -> GangHeadroom:
        """Return places for enough members of a tree, and the victims."""
        if any(queued.pod.spec.preemption_policy == PREEMPT_NEVER for queued, _ in members):
            return GangHeadroom()
        below = min(priority_of(queued.pod) for queued, _ in members)
        own = group_attempt.attempt.group_id.split(",")
        lower = [
            placed
            for placed in self._state.pods.by_key.values()
            if placed.row >= 0
            and placed.priority < below
            and is_preemptible(placed.pod_class.labels)
            and is_quota_preemptible(placed.pod_class.labels)
            and gangs.id_of(placed.pod) not in own
        ]
        leaving = [one for one in lower if one.pod.metadata.deletion_timestamp is not None]
        lower = [one for one in lower if one.pod.metadata.deletion_timestamp is None]
        caches = [active.plugin.gangs for active in cycle.profile.gangs]
        if len(members) * len(lower) > MOST_CHECKS and any(
            reads_other_nodes(cycle.profile, self._state, kind)
            for kind in {kind for _, kind in members}
        ):
            counts = {"members": len(members), "pods": len(lower)}
            log.info("preemption for a tree of PodGroups would take too long", extra=counts)
            return GangHeadroom()
        while lower or leaving:
            if len(lower) > MOST_PODS:
                break
            found = self._try(cycle, gangs, group_attempt, members, leaving=leaving, lower=lower)
            if not found.pods:
                break
            broken = [*broken_gangs(self._state, caches, found.victims)]
            spared = {
                one.key
                for gang in broken
                if any(member.priority >= below for member in gang)
                for one in gang
            }
            if not spared:
                mates = {one.key: one for gang in broken for one in gang}
                victims = {one.key: one for one in found.victims} | mates
                return GangHeadroom(found.pods, tuple(victims.values()), was_tried=True)
            lower = [one for one in lower if one.key not in spared]
        return GangHeadroom(was_tried=bool(lower))

    def _try(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        *,
        leaving: Sequence[PlacedPod],
        lower: Sequence[PlacedPod],
    ) -> GangHeadroom:
        """Place the tree without some pods, and keep away only those that must go.

        The state is restored.
        """
        state, assumed = self._state, list[Assumed]()
        away = {placed.key: placed for placed in (*leaving, *lower)}
        for key in away:
            state.displace(key)
        try:
            decision = self._trees.place(cycle, gangs, group_attempt, members)
            assumed += decision.placed
            if decision.is_lost or not assumed:
                return GangHeadroom()
            for placed in self._order(lower):
                state.put_back(placed)
                del away[placed.key]
                if not self._all_fit(cycle, assumed, placed.row):
                    state.displace(placed.key)
                    away[placed.key] = placed
            victims = tuple(placed for placed in lower if placed.key in away)
            pods = {one.queued.key: (one.queued.pod, one.node) for one in assumed}
            return GangHeadroom(pods, victims)
        except PlacementConflict:
            return GangHeadroom()
        finally:
            for one in reversed(assumed):
                self._binder.forget(one)
            for placed in reversed(away.values()):
                state.put_back(placed)

    def _order(self, lower: Iterable[PlacedPod]) -> list[PlacedPod]:
        """Return pods in the order in which they come back: those with a budget first."""
        important = sorted(lower, key=by_importance)
        by_key = {placed.key: placed for placed in important}
        budgets = sorted(self._state.objects.all(PodDisruptionBudget), key=lambda one: one.key)
        pods = [placed.pod for placed in important]
        violating, others = split_by_budget(pods, budgets, to_first_exhausted=True)
        return [by_key[pod.key] for pod in (*violating, *others)]

    def _all_fit(self, cycle: SchedulingCycle, assumed: Sequence[Assumed], row: int) -> bool:
        """Return whether members keep their places with one more pod on a row.

        Only members whose filters read other nodes are checked elsewhere.
        """
        state, profile = self._state, cycle.profile
        elsewhere = {one.placed.pod_class for one in assumed if one.placed.row != row}
        checked = {kind for kind in elsewhere if reads_other_nodes(profile, state, kind)}
        for one in assumed:
            placed = one.placed
            if placed.row != row and placed.pod_class not in checked:
                continue
            state.displace(placed.key)
            try:
                refused, _ = rejection(profile, state, placed.pod_class, placed.row)
            finally:
                state.put_back(placed)
            if refused:
                return False
        return True
