"""Dry runs of gangs whose members need one domain or contradict each other, to explain them.

Dry runs use the in-memory state and separate placers, and are rolled back: metrics and caches do
not change.
"""

from collections.abc import Callable, Sequence
from functools import partial

from koordinator.api.pod import Pod
from koordinator.domain.gangs import Gang, GangAttempt, GangCache, GroupTree
from koordinator.foundation.errors import ExtenderError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import EXTENDER
from koordinator.scheduler.cycle import NodeChoice, NominatedPods, ReserveRefusal, SchedulingCycle
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.features.gangs.placement import (
    GangDecision,
    GangGroupAttempt,
    GangPlacer,
    Verdict,
    Wanted,
)
from koordinator.scheduler.features.gangs.pod_group_attempts import (
    DOMAIN_UNKNOWN,
    PodGroupAttempts,
    verdict_reason,
)
from koordinator.scheduler.features.gangs.pod_group_conditions import UNSCHEDULABLE
from koordinator.scheduler.features.gangs.topology import TopologyPlacer
from koordinator.scheduler.features.gangs.topology_placements import (
    PlacementConflict,
    PlacementPlacer,
)
from koordinator.scheduler.features.gangs.tree_placement import TreePlacer, has_constraint
from koordinator.scheduler.loop.feature_kinds import GroupDryRun
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import PodClass

_Why = Callable[[GangDecision], GroupDryRun | None]  # why a failed attempt has no place


@dataclass(frozen=True, slots=True)
class _Trial:
    """A gang to place."""

    cycle: SchedulingCycle
    gangs: GangCache
    gang: Gang
    attempt: GangAttempt

    @property
    def gate(self) -> str:
        """The plugin of the gangs."""
        return self.cycle.profile.gangs[0].name

    @property
    def is_alone(self) -> bool:
        """Whether one member is tried, whose gang has started."""
        return self.attempt.is_alone


class GangDryRuns:
    """Dry runs of the gangs of one scheduler."""

    def __init__(self, handle: SchedulerHandle, pod_groups: PodGroupAttempts) -> None:
        self._handle, self._pod_groups = handle, pod_groups
        state, binder = handle.state, handle.binder
        placer = GangPlacer(binder, self._choose, self._diagnose, _no_card)
        self._topology = TopologyPlacer(state, binder, placer, _no_card)
        self._placements = PlacementPlacer(state, binder, placer, handle.attempts.now_s)
        self._trees = TreePlacer(binder, placer, self._placements)
        self._nominations: NominatedPods = {}  # without the members of the current gang

    def run(self, cycle: SchedulingCycle, queued: QueuedPod) -> GroupDryRun | None:
        """Return the nodes of a member's gang in one domain, or why none takes it.

        None if it needs no domain or is incomplete.
        """
        trial = self._trial(cycle, queued.pod)
        if trial is None or (not trial.is_alone and trial.gangs.shortage(queued.pod)):
            return None
        contradiction = self._pod_groups.contradiction(trial.gangs, queued.pod)
        if contradiction:
            return GroupDryRun(trial.gate, contradiction)
        members = self._members(trial, queued)
        try:
            tried = self._tried(trial, queued, members)
        except PlacementConflict as error:
            return GroupDryRun(trial.gate, f"{DOMAIN_UNKNOWN}: {error}")
        if tried is None:
            return None
        decision, why = tried
        nodes = {assumed.queued.key: assumed.node for assumed in decision.placed}
        self._undo(decision)
        return why(decision) if decision.is_lost else GroupDryRun(trial.gate, nodes=nodes)

    def try_together(
        self, cycle: SchedulingCycle, pods: Sequence[tuple[Pod, PodClass]]
    ) -> Sequence[NodeChoice] | ReserveRefusal | None:
        """Return nodes in one domain for pending members, without changing the state.

        Return a refusal if one member finds none, and None if they need no domain.
        """
        trial = self._trial(cycle, pods[0][0], count=len(pods))
        if trial is None:
            return None
        members = [
            (QueuedPod(pod.key, pod, None, pod.spec.priority or 0, 0.0, number), kind)
            for number, (pod, kind) in enumerate(pods)
        ]
        try:
            tried = self._tried(trial, members[0][0], members)
        except PlacementConflict as error:
            return ReserveRefusal(trial.gate, f"{DOMAIN_UNKNOWN}: {error}")
        if tried is None:
            return None
        decision, why = tried
        choices = {
            assumed.queued.key: NodeChoice(
                assumed.placed.row,
                assumed.node,
                assumed.allocation,
                cycle.applicable_plugins(assumed.placed.pod_class),
            )
            for assumed in decision.placed
        }
        self._undo(decision)
        if not decision.is_lost and len(choices) == len(members):
            return [choices[queued.key] for queued, _ in members]
        answer = why(decision) if decision.is_lost else None
        if answer is not None:
            return ReserveRefusal(answer.plugin, answer.reason)
        reasons = (verdict_reason(verdict) for _, _, verdict in decision.failed)
        return ReserveRefusal(trial.gate, next(reasons, "its gang has too few members"))

    def _trial(self, cycle: SchedulingCycle, pod: Pod, *, count: int = 1) -> "_Trial | None":
        """Return what to try for ``count`` members of a pod's gang; None without one."""
        active = next(iter(cycle.profile.gangs), None)
        if active is None:
            return None
        gangs: GangCache = active.plugin.gangs
        gang = gangs.gang_of(pod)
        if gang is None or gang.terms is None:
            return None
        alone = count == 1 and gangs.starts_alone(pod)
        attempt = gangs.attempt_alone(pod) if alone else gangs.attempt(pod)
        self._nominations = self._handle.nominations.by_node(but=attempt.members)
        return _Trial(cycle, gangs, gang, attempt)

    def _members(self, trial: _Trial, head: QueuedPod) -> list[Wanted]:
        keys = trial.attempt.members
        queued_members = {one.key: one for one in self._handle.queue.peek(keys, trial.gate)}
        queued_members[head.key] = head
        class_of = self._handle.intake.class_of
        return [
            (queued_members[key], class_of(queued_members[key]))
            for key in keys
            if key in queued_members
        ]

    def _tried(
        self, trial: _Trial, head: QueuedPod, members: Sequence[Wanted]
    ) -> tuple[GangDecision, _Why] | None:
        """Assume the members by the constraint of their gang; None if it has none.

        Return as well why they have no place, if the attempt fails.  Raises PlacementConflict.
        """
        cycle, gangs, tree = trial.cycle, trial.gangs, trial.attempt.tree
        attempt = GangGroupAttempt(trial.attempt, head, gangs.version(head.pod))
        if tree is not None:
            if not has_constraint(tree):
                return None
            decision = self._trees.place(cycle, gangs, attempt, members)
            return decision, partial(_why_no_place_of_tree, trial, tree)
        key = self._pod_groups.topology_key(cycle, head.pod)
        if key:
            wanted = next(one for one in members if one[0] is head)
            placements = self._placements.placements(cycle, gangs, wanted, key)
            decision = self._placements.place(cycle, gangs, attempt, members, placements)
            earlier = len(gangs.with_places(head.pod))
            return decision, partial(_why_no_placement, trial, key, earlier)
        demand = self._topology.demand(gangs, head.pod)
        if demand is None:
            return None
        nominated = self._handle.nominations.by_node()
        decision = self._topology.place(
            cycle, gangs, attempt, members, demand, nominated=nominated, merges=False
        )
        return decision, _why_no_domain

    def _undo(self, decision: GangDecision) -> None:
        for assumed in reversed(decision.placed):
            self._handle.binder.forget(assumed)

    def _choose(
        self, cycle: SchedulingCycle, queued: QueuedPod, pod_class: PodClass
    ) -> NodeChoice | Verdict:
        node = self._handle.nominator.node_of(queued.key)
        try:
            choice = cycle.choose(
                queued.pod,
                pod_class,
                self._nominations,
                nominated_node=node,
                first_attempt=False,
            )
        except ExtenderError as error:
            return ReserveRefusal(EXTENDER, str(error))
        return choice or self._diagnose(cycle, queued, pod_class)

    def _diagnose(
        self, cycle: SchedulingCycle, queued: QueuedPod, pod_class: PodClass
    ) -> Diagnosis:
        return cycle.diagnose(queued.pod, pod_class, self._nominations)


def _why_no_domain(decision: GangDecision) -> GroupDryRun | None:
    """Return why no network domain takes a gang; None if members are missing."""
    if not decision.failed:
        return None
    verdict = decision.failed[0][2]
    if isinstance(verdict, ReserveRefusal):
        return GroupDryRun(verdict.plugin, verdict.reason)
    return GroupDryRun(verdict.refused_by, verdict.refusal or verdict.message())


def _why_no_place_of_tree(trial: _Trial, tree: GroupTree, decision: GangDecision) -> GroupDryRun:
    why = decision.reasons[tree.id].removeprefix(f"{UNSCHEDULABLE}, ")
    return GroupDryRun(trial.gate, f"CompositePodGroup {tree.key}: {why}")


def _why_no_placement(trial: _Trial, key: str, earlier: int, decision: GangDecision) -> GroupDryRun:
    """Return that no nodes with one value of a label have room for a PodGroup.

    ``earlier`` members have nodes.
    """
    gang = trial.gang
    name, least = gang.pod_group, gang.terms.min_member if gang.terms is not None else 0
    if not decision.placements:
        text = f"no node has the label {key} that nodes of PodGroup {name} must share"
        return GroupDryRun(trial.gate, text)
    value, count = decision.best
    needed = max(least - earlier, 1)
    room = f"room for {count} of {needed}"
    if earlier:
        text = f"members of PodGroup {name} are on nodes with {key}={value}, which have {room}"
    else:
        text = f"no value of the label {key} has enough nodes for PodGroup {name}"
        text += f"; best was {value} with {room}"
    smaller = (
        f"set {gang.minimum_setting} to {earlier + count}: nodes with {key}={value} take "
        "that many members"
    )
    remedies = (("gang", smaller),) if 0 < count < needed else ()
    return GroupDryRun(trial.gate, text, remedies)


def _no_card(_cycle: SchedulingCycle, _pod_class: PodClass) -> None:
    """Keep no scorecard of a trial."""
