"""Dry runs of gangs whose members need one domain or contradict each other, to explain them.

Everything is tried on the in-memory state with placers of its own, and undone: nothing is counted
or remembered.
"""

from collections.abc import Sequence

from koordinator.domain.gangs import Gang, GangAttempt, GangCache, GroupTree
from koordinator.foundation.errors import ExtenderError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import EXTENDER
from koordinator.scheduler.cycle import NodeChoice, Nominations, ReserveRefusal, SchedulingCycle
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.explain import minimum_setting
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
)
from koordinator.scheduler.features.gangs.pod_group_conditions import UNSCHEDULABLE
from koordinator.scheduler.features.gangs.topology import TopologyDemand, TopologyPlacer
from koordinator.scheduler.features.gangs.topology_placements import (
    PlacementConflict,
    PlacementPlacer,
)
from koordinator.scheduler.features.gangs.tree_placement import TreePlacer, has_constraint
from koordinator.scheduler.loop.feature_kinds import GroupDryRun
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import PodClass


@dataclass(frozen=True, slots=True)
class _Trial:
    """A gang to place: its cache, attempt and members without a node."""

    cycle: SchedulingCycle
    gangs: GangCache
    gang: Gang
    attempt: GangGroupAttempt
    members: Sequence[Wanted]

    @property
    def gate(self) -> str:
        """The plugin of the gangs."""
        return self.cycle.profile.gangs[0].name


class GangDryRuns:
    """Dry runs of the gangs of one scheduler."""

    def __init__(self, handle: SchedulerHandle, pod_groups: PodGroupAttempts) -> None:
        self._handle, self._pod_groups = handle, pod_groups
        state, binder = handle.state, handle.binder
        placer = GangPlacer(binder, self._choose, self._diagnose, _no_card)
        self._topology = TopologyPlacer(state, binder, placer, _no_card)
        self._placements = PlacementPlacer(state, binder, placer, handle.attempts.now_s)
        self._trees = TreePlacer(binder, placer, self._placements)
        self._nominations: Nominations = {}  # without the members of the current gang

    def run(self, cycle: SchedulingCycle, queued: QueuedPod) -> GroupDryRun | None:
        """Return the nodes of a member's gang in one domain, or why none takes it.

        None if it needs no domain or is incomplete.
        """
        active, pod = next(iter(cycle.profile.gangs), None), queued.pod
        if active is None:
            return None
        gangs: GangCache = active.plugin.gangs
        gang, alone = gangs.gang_of(pod), gangs.starts_alone(pod)
        if gang is None or gang.terms is None or (not alone and gangs.shortage(pod)):
            return None
        contradiction = self._pod_groups.contradiction(gangs, pod)
        if contradiction:
            return GroupDryRun(active.name, contradiction)
        attempt = gangs.attempt_alone(pod) if alone else gangs.attempt(pod)
        group_attempt = GangGroupAttempt(attempt, queued, gangs.version(pod))
        members = self._members(attempt, queued, active.name)
        trial = _Trial(cycle, gangs, gang, group_attempt, members)
        self._nominations = self._handle.diagnoses.nominated(but=attempt.members)
        try:
            return self._tried(trial)
        except PlacementConflict as error:
            return GroupDryRun(active.name, f"{DOMAIN_UNKNOWN}: {error}")

    def _tried(self, trial: _Trial) -> GroupDryRun | None:
        """Try the constraint that the gang has, if any.  Raises PlacementConflict."""
        pod, tree = trial.attempt.head.pod, trial.attempt.attempt.tree
        key = self._pod_groups.topology_key(trial.cycle, pod)
        if tree is not None:
            return self._of_tree(trial, tree) if has_constraint(tree) else None
        if key:
            return self._of_placements(trial, key)
        demand = self._topology.demand(trial.gangs, pod)
        return self._of_network(trial, demand) if demand is not None else None

    def _members(self, attempt: GangAttempt, head: QueuedPod, gate: str) -> list[Wanted]:
        here = {one.key: one for one in self._handle.queue.peek(attempt.members, gate)}
        here[head.key] = head
        class_of = self._handle.intake.class_of
        return [(here[key], class_of(here[key])) for key in attempt.members if key in here]

    def _of_network(self, trial: _Trial, demand: TopologyDemand) -> GroupDryRun | None:
        decision = self._topology.place(
            trial.cycle,
            trial.gangs,
            trial.attempt,
            trial.members,
            demand,
            nominated=self._handle.diagnoses.nominated(),
            merges=False,
        )
        placed = self._places(trial, decision)
        if placed is not None or not decision.failed:
            return placed
        verdict = decision.failed[0][2]
        if isinstance(verdict, ReserveRefusal):
            return GroupDryRun(verdict.plugin, verdict.reason)
        return GroupDryRun(verdict.refused_by, verdict.refusal or verdict.message())

    def _of_tree(self, trial: _Trial, tree: GroupTree) -> GroupDryRun | None:
        decision = self._trees.place(trial.cycle, trial.gangs, trial.attempt, trial.members)
        placed = self._places(trial, decision)
        if placed is not None:
            return placed
        why = decision.reasons[tree.id].removeprefix(f"{UNSCHEDULABLE}, ")
        return GroupDryRun(trial.gate, f"CompositePodGroup {tree.key}: {why}")

    def _of_placements(self, trial: _Trial, key: str) -> GroupDryRun | None:
        """Return that no nodes with one value of a label have room for a PodGroup."""
        head, gangs = trial.attempt.head, trial.gangs
        wanted = next(one for one in trial.members if one[0] is head)
        placements = self._placements.placements(trial.cycle, gangs, wanted, key)
        decision = self._placements.place(
            trial.cycle, gangs, trial.attempt, trial.members, placements
        )
        placed = self._places(trial, decision)
        if placed is not None:
            return placed
        gang, earlier = trial.gang, len(gangs.with_places(head.pod))
        name, least = gang.pod_group, gang.terms.min_member if gang.terms is not None else 0
        needed = max(least - earlier, 1)
        if not placements:
            text = f"no node has the label {key} that nodes of PodGroup {name} must share"
            return GroupDryRun(trial.gate, text)
        value, count = decision.best
        room = f"room for {count} of {needed}"
        if earlier:
            text = f"members of PodGroup {name} are on nodes with {key}={value}, which have {room}"
        else:
            text = f"no value of the label {key} has enough nodes for PodGroup {name}"
            text += f"; best was {value} with {room}"
        smaller = (
            f"set {minimum_setting(gang)} to {earlier + count}: nodes with {key}={value} take "
            "that many members"
        )
        remedies = (("gang", smaller),) if 0 < count < needed else ()
        return GroupDryRun(trial.gate, text, remedies)

    def _places(self, trial: _Trial, decision: GangDecision) -> GroupDryRun | None:
        """Undo a decision; return the nodes of the members, None if the gang failed."""
        nodes = {assumed.queued.key: assumed.node for assumed in decision.placed}
        for assumed in reversed(decision.placed):
            self._handle.binder.forget(assumed)
        return None if decision.is_lost else GroupDryRun(trial.gate, nodes=nodes)

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


def _no_card(_cycle: SchedulingCycle, _pod_class: PodClass) -> None:
    """Keep no scorecard of a trial."""
