"""Attempts of PodGroups of scheduling.k8s.io: validation before and messages after.

Source: kubernetes pkg/scheduler/schedule_one_podgroup.go ``validatePodGroup``,
``submitPodGroupAlgorithmResult``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from koordinator.api.kube_version import V1_37
from koordinator.api.kubescheduler.gates import GANG_SCHEDULING, TOPOLOGY_PLACEMENTS
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.domain.gangs import Gang, GangAttempt, GangCache, PodGroupTerms
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import ActivePlugin
from koordinator.scheduler.cycle import (
    NominatedPods,
    ReserveRefusal,
    SchedulingCycle,
    priority_of,
)
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.features.gangs.placement import (
    GangDecision,
    GangGroupAttempt,
    Verdict,
    Wanted,
)
from koordinator.scheduler.features.gangs.pod_group_conditions import (
    UNSCHEDULABLE,
    GroupRejection,
    PodGroupConditions,
    inconsistency,
    preemption_result,
    rejection,
)
from koordinator.scheduler.features.gangs.preemption import (
    GangHeadroom,
    GangPreemption,
    headroom_message,
)
from koordinator.scheduler.loop.evictions import preemptor_of
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.loop.outcomes import PreemptionAttempt
from koordinator.scheduler.preemption.single_node import PREEMPT_NEVER, violations_of
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import PlacedPod

if TYPE_CHECKING:  # the metrics client is optional
    from koordinator.scheduler.features.gangs.metrics import PodGroupMetrics

DOMAIN_UNKNOWN: Final = "cannot determine domain for already scheduled pods"


class PodGroupAttempts:
    """Rules of kube-scheduler that apply to PodGroups only."""

    def __init__(
        self,
        handle: SchedulerHandle,
        headrooms: GangPreemption,
        conditions: PodGroupConditions,
        metrics: "PodGroupMetrics | None" = None,
    ) -> None:
        self._handle, self._headrooms, self._conditions = handle, headrooms, conditions
        self._metrics = metrics

    def gang_of(self, gangs: GangCache, pod: Pod) -> Gang | None:
        """Return the gang of a PodGroup of scheduling.k8s.io, alone in its group or in a tree."""
        gang = gangs.gang_of(pod)
        if gang is None or gang.terms is None or gang.terms.pod_group is None:
            return None
        return gang if len(gang.terms.group) == 1 or gang.terms.tree is not None else None

    def topology_key(self, cycle: SchedulingCycle, pod: Pod) -> str:
        """Return the label whose value the nodes of the PodGroup must share; empty without one.

        Without a plugin that generates placements, the constraint has no effect.
        """
        profile = cycle.profile
        if not profile.placement_generate or TOPOLOGY_PLACEMENTS not in self._handle.options.gates:
            return ""
        gang = self.gang_of(profile.gangs[0].plugin.gangs, pod)
        if gang is None or gang.terms is None or gang.terms.tree is not None:
            return ""  # a tree has a constraint per group
        return gang.terms.pod_group.topology_key if gang.terms.pod_group is not None else ""

    def post_filter(self, cycle: SchedulingCycle, pod: Pod) -> Sequence[ActivePlugin]:
        """Return the plugins that make room for a member's gang.

        From Kubernetes 1.37 on, PodGroups have an extension point of their own. Koordinator's
        Coscheduling makes room for all its gangs at PostFilter.
        """
        profile = cycle.profile
        gate = profile.gangs[0]
        is_group = gate.name == GANG_SCHEDULING and self.gang_of(gate.plugin.gangs, pod) is not None
        if is_group and self._handle.options.gates.level >= V1_37:
            return profile.pod_group_post_filter
        return profile.post_filter

    def contradicts(self, gangs: GangCache, head: QueuedPod) -> bool:
        """Report members that contradict their PodGroup or each other; return whether any do."""
        text = self.contradiction(gangs, head.pod)
        if text:
            self.fail(gangs, head, text)
        return bool(text)

    def contradiction(self, gangs: GangCache, pod: Pod) -> str:
        """Return how members contradict their PodGroup or each other; empty if they do not."""
        gang, terms = self.gang_of(gangs, pod), self._terms(gangs, pod)
        if gang is None or terms is None:
            return ""
        keys = sorted(key for one in _all_gangs(gangs, gang) for key in one.members)
        stored = (self._handle.state.pod_named(key) for key in keys)
        pods = [pod for pod in stored if pod is not None]
        pods.sort(key=lambda pod: bool(pod.spec.node_name))  # pods without a node first
        return inconsistency(terms, self._handle.options.gates, pods)

    def fail(self, gangs: GangCache, head: QueuedPod, text: str) -> None:
        """Fail an attempt that cannot be decided; the PodGroup is retried later."""
        handle, gang = self._handle, gangs.gang_of(head.pod)
        gangs.set_representative(head.pod)
        handle.attempts.fail(head, text)
        self._note_attempt(gangs, head, "error")
        if gang is None:
            return
        for key in gangs.unplaced_members(head.pod):
            pod = handle.state.pod_named(key)
            if pod is not None and key != head.key:
                handle.reporter.report_unschedulable(pod, text, "SchedulerError")
        for one in _all_gangs(gangs, gang):
            self._conditions.failed(one, text)

    def free_claims(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        decision: GangDecision,
        members: Sequence[Wanted],
        nominations: NominatedPods,
    ) -> bool:
        """Free a claim that may keep a PodGroup without placed members from all its nodes.

        Return whether a claim was freed.  PodGroups with a topology constraint are left out.
        """
        head = members[0][0].pod
        gang = self.gang_of(gangs, head)
        group = None if gang is None else gangs.pod_group(gang.pod_group)
        if gang is None or group is None or not decision.failed or gangs.with_places(head):
            return False
        if gang.terms is None or gang.terms.tree is not None:
            return False
        queued, pod_class, verdict = decision.failed[0]
        if self.topology_key(cycle, head) or not isinstance(verdict, Diagnosis):
            return False
        attempt = cycle.attempt(queued.pod, pod_class, verdict, nominations)
        classes = [one for _, one in members]
        for active in self.post_filter(cycle, head):
            if "free_group_claim" in active.has:
                change = active.plugin.free_group_claim(attempt.what_if, classes, group)
                if change is not None:
                    return self._handle.evictions.change([change]) is None
        return False

    # -- metrics -------------------------------------------------------------------------------

    def note_decision(self, gangs: GangCache, head: QueuedPod) -> None:
        """Record that the members of a PodGroup have been decided; of other gangs nothing."""
        if self._metrics is not None and self.gang_of(gangs, head.pod) is not None:
            self._metrics.decided(self._handle.attempts.elapsed_s())

    def note_start(self, gangs: GangCache, head: QueuedPod, decision: GangDecision) -> None:
        """Record that a PodGroup, or enough of a tree, has enough nodes."""
        self._note_attempt(gangs, head, "scheduled")
        self._note_reasons(gangs, decision)

    def _note_reasons(self, gangs: GangCache, decision: GangDecision) -> None:
        """Record why PodGroups of a tree have no nodes."""
        for own_id, text in decision.reasons.items():
            gang = gangs.gangs.get(own_id)
            if gang is not None:
                self._conditions.refused(gang, text)

    def note_rejection(self, gangs: GangCache, head: QueuedPod, headroom: GangHeadroom) -> None:
        """Record that a PodGroup has too few nodes, and whether preemption makes room for it."""
        result = "waiting_on_preemption" if headroom.pods else "unschedulable"
        self._note_attempt(gangs, head, result)

    def preemptor(self, gangs: GangCache, head: Pod) -> KubeObject | None:
        """Return the topmost group of scheduling.k8s.io of a pod; None for other gangs."""
        gang = self.gang_of(gangs, head)
        if gang is not None and gang.terms is not None and gang.terms.tree is not None:
            return gangs.forest.composite(gang.terms.tree.key)
        return gangs.pod_group(gang.pod_group) if gang is not None else None

    def preemption_attempt(
        self, gangs: GangCache, head: QueuedPod, headroom: GangHeadroom, took_s: float
    ) -> PreemptionAttempt:
        """Return the record of preemption for a gang."""
        group, victims = self.preemptor(gangs, head.pod), headroom.victims
        if group is None:
            return PreemptionAttempt(len(victims), took_s, bool(headroom.pods))
        budgets = self._handle.state.objects.all(PodDisruptionBudget)
        return PreemptionAttempt(
            len(victims),
            took_s,
            bool(headroom.pods),
            preemptor_of(group),
            violations_of(victims, budgets),
            len(set(_units_of(gangs, victims))),
        )

    def note_preemption(
        self, cycle: SchedulingCycle, head: QueuedPod, headroom: GangHeadroom
    ) -> None:
        """Record preemption for a PodGroup; other gangs have metrics of their own."""
        gangs: GangCache = cycle.profile.gangs[0].plugin.gangs
        if self._metrics is not None and self.gang_of(gangs, head.pod) is not None:
            self._metrics.preempted(len(headroom.victims), succeeded=bool(headroom.pods))

    def _note_attempt(self, gangs: GangCache, head: QueuedPod, result: str) -> None:
        if self._metrics is not None and self.gang_of(gangs, head.pod) is not None:
            profile = head.pod.spec.scheduler_name
            self._metrics.attempted(profile, result, self._handle.attempts.elapsed_s())

    # -- messages ------------------------------------------------------------------------------

    def rejection(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        decision: GangDecision,
        headroom: GangHeadroom,
    ) -> GroupRejection | None:
        """Record a failed attempt and return kube-scheduler's messages for it.

        Return None for other kinds of gangs.
        """
        gang = self.gang_of(gangs, group_attempt.head.pod)
        is_alone = group_attempt.attempt.is_alone
        if gang is None or gang.terms is None or is_alone or not decision.failed:
            return None
        tree = gang.terms.tree
        had_places = gang.bound + gang.waiting
        least, scheduled = gang.terms.min_member, had_places + decision.had_place
        post_filter = [active.name for active in self.post_filter(cycle, group_attempt.head.pod)]
        below = max((priority_of(queued.pod) for queued, _, _ in decision.failed), default=0)
        has_victims = self._headrooms.has_pods_below(below)
        most: int | None = None if tree is None else 0
        if tree is None and has_victims and not headroom.pods:
            bound = cycle.bound(decision.failed[0][1])
            room = self._headrooms.most(cycle, bound, below, None)
            most = max(scheduled, min(had_places + room, least - 1))
        preemption = ""
        if {"DefaultPreemption", "Coscheduling"}.intersection(post_filter):
            preemption = preemption_result(
                headroom,
                least,
                most,
                has_victims=has_victims,
                is_eligible=group_attempt.head.pod.spec.preemption_policy != PREEMPT_NEVER,
                again=decision.reasons.get(tree.id, "") if tree is not None else "",
            )
        if tree is not None:
            return self._tree_rejection(cycle, gangs, decision, preemption)
        gates = self._handle.options.gates
        result = rejection(
            gates, least, scheduled, preemption, post_filter, placements=decision.placements
        )
        self._conditions.refused(gang, result.group)
        return result

    def _tree_rejection(
        self, cycle: SchedulingCycle, gangs: GangCache, decision: GangDecision, preemption: str
    ) -> GroupRejection:
        """Record why each PodGroup of a tree failed; add the result of preemption to the texts."""
        suffix = f", pod group preemption: {preemption}" if preemption else ""
        plugin, twice = cycle.profile.gangs[0].name, f"{UNSCHEDULABLE}, {UNSCHEDULABLE}"
        decision.failed = [
            (queued, pod_class, replace(why, reason=f"{why.reason}{suffix}"))
            if isinstance(why, ReserveRefusal)
            and why.plugin == plugin
            and why.reason.startswith(twice)  # other members have kube-scheduler's earlier text
            else (queued, pod_class, why)
            for queued, pod_class, why in decision.failed
        ]
        decision.reasons = {own_id: text + suffix for own_id, text in decision.reasons.items()}
        self._note_reasons(gangs, decision)
        return GroupRejection("", "", "", "")

    def _terms(self, gangs: GangCache, pod: Pod) -> PodGroupTerms | None:
        gang = self.gang_of(gangs, pod)
        return gang.terms.pod_group if gang is not None and gang.terms is not None else None


def _all_gangs(gangs: GangCache, gang: Gang) -> list[Gang]:
    """Return the gangs that start together with one."""
    group = gang.terms.group if gang.terms is not None else ()
    return [gangs.gangs[own_id] for own_id in group if own_id in gangs.gangs]


@dataclass(frozen=True, slots=True)
class RejectionTexts:
    """Messages for members of a gang whose attempt failed.

    ``group`` has the messages of kube-scheduler for PodGroups of scheduling.k8s.io.
    """

    headroom: GangHeadroom
    error: ClusterError | None
    group: GroupRejection | None
    verdicts: Mapping[str, Verdict]  # by key of members that fit no node
    untried: Collection[str] = ()  # keys of members that were not tried

    def of_refused(self, prefix: str, node: str) -> str:
        """Return the text after the reason of the member that fits no node."""
        if self.group is not None:
            return self.group.refused
        return f"{prefix} {headroom_message(self.headroom, node, self.error)}".strip()

    def of_other(self, queued: QueuedPod, message: str, node: str) -> str:
        """Return the message for another member; ``message`` is about the failed one."""
        if self.group is None:
            return f"{message} {headroom_message(self.headroom, node, self.error)}".rstrip()
        verdict = self.verdicts.get(queued.key)
        if verdict is None:
            return self.group.untried if queued.key in self.untried else self.group.others
        return f"{verdict_reason(verdict)} {self.group.refused}".rstrip()


def order_as_kube_scheduler(
    cycle: SchedulingCycle,
    attempt: GangAttempt,
    decision: GangDecision,
    members: Sequence[Wanted],
) -> None:
    """Reorder a failed attempt so that kube-scheduler's choice of members fails.

    Identical members are tried by priority and arrival until too many have failed.
    """
    if not decision.failed or len({cycle.run_key(kind) for _, kind in members}) > 1:
        return
    numbers = {key: number for number, key in enumerate(attempt.members)}
    ordered = sorted(members, key=lambda one: (-priority_of(one[0].pod), numbers[one[0].key]))
    first, spare = decision.had_place, max(min(attempt.spare.values(), default=0), 0)
    verdict = decision.failed[0][2]
    failed = ordered[first : first + spare + 1] or ordered[-1:]
    decision.untried = frozenset(one[0].key for one in ordered[first + spare + 1 :])
    decision.failed = [(queued, pod_class, verdict) for queued, pod_class in failed]
    keys = {queued.key for queued, _ in failed}
    decision.others = [queued for queued, _ in members if queued.key not in keys]


def verdict_reason(verdict: Verdict) -> str:
    """Return why a member fits no node."""
    return verdict.reason if isinstance(verdict, ReserveRefusal) else verdict.message()


def _units_of(gangs: GangCache, victims: Iterable[PlacedPod]) -> Iterator[tuple[str, ...]]:
    """Yield the groups that go as a whole among the victims, by the ids of their gangs."""
    for victim in victims:
        gang = gangs.gang_of_key(victim.key)
        terms = gang.terms if gang is not None else None
        if terms is None or terms.pod_group is None or not terms.pod_group.goes_as_whole:
            continue
        yield terms.tree.units[terms.id] if terms.tree is not None else (terms.id,)
