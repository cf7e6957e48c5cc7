"""Attempts to schedule a gang group: nodes for all its members, or for none.

One member represents the group in the queue; an attempt decides and reports all members.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from koordinator.api.pod import Pod
from koordinator.domain.gangs import Gang, GangAttempt, GangCache
from koordinator.foundation.errors import ClusterError, ExtenderError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.contract import EXTENDER, NOTHING, ActivePlugin, AllocationResult
from koordinator.scheduler.cycle import (
    NodeChoice,
    NominatedPods,
    ReserveRefusal,
    SchedulingCycle,
    Scorecard,
)
from koordinator.scheduler.diagnosis import Diagnosis, never_fits
from koordinator.scheduler.features.gangs.dry_runs import GangDryRuns
from koordinator.scheduler.features.gangs.placement import (
    GangDecision,
    GangGroupAttempt,
    GangPlacer,
    Verdict,
    Wanted,
    rejectors_of,
)
from koordinator.scheduler.features.gangs.pod_group_attempts import (
    DOMAIN_UNKNOWN,
    PodGroupAttempts,
    RejectionTexts,
    order_as_kube_scheduler,
    verdict_reason,
)
from koordinator.scheduler.features.gangs.pod_group_conditions import PodGroupConditions
from koordinator.scheduler.features.gangs.preemption import (
    GangHeadroom,
    GangPreemption,
    headroom_message,
)
from koordinator.scheduler.features.gangs.reports import GangReports
from koordinator.scheduler.features.gangs.topology import TopologyDemand, TopologyPlacer
from koordinator.scheduler.features.gangs.topology_placements import (
    PlacementConflict,
    PlacementPlacer,
    TopologyPlacement,
)
from koordinator.scheduler.features.gangs.topology_preemption import (
    TopologyPreemption,
    TreePreemption,
)
from koordinator.scheduler.features.gangs.tree_placement import TreePlacer, has_constraint_below
from koordinator.scheduler.features.gangs.waiting_gangs import WaitingGangs
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import Need, QueuedPod, QueueState
from koordinator.scheduler.snapshot import PodClass, Snapshot

if TYPE_CHECKING:  # the metrics client is optional
    from koordinator.scheduler.features.gangs.metrics import GangMetrics


@dataclass(frozen=True, slots=True)
class GangUnit:
    """Members of a gang group, or one member that must be near to placed ones."""

    gang_scheduler: "GangScheduler"
    cycle: SchedulingCycle
    head: QueuedPod  # the representative from the queue
    gangs: GangCache
    demand: TopologyDemand | None

    def decide(self) -> int:
        """Decide all members without a node; return how many were tried."""
        return self.gang_scheduler.decide(self.cycle, self.head, self.gangs, self.demand)


class GangScheduler:
    """Scheduler of the gangs of all profiles."""

    def __init__(
        self,
        handle: SchedulerHandle,
        reports: GangReports,
        conditions: PodGroupConditions,
        metrics: "GangMetrics | None",
    ) -> None:
        self._handle, self._reports, self._metrics = handle, reports, metrics
        state, binder = handle.state, handle.binder
        self._placer = GangPlacer(binder, self._choose_member, self._diagnose_member, self._card)
        self._topology_placer = TopologyPlacer(state, binder, self._placer, self._card)
        groups = metrics.pod_groups if metrics is not None else None
        self._placements = PlacementPlacer(
            state, binder, self._placer, handle.attempts.now_s, groups
        )
        self._trees = TreePlacer(binder, self._placer, self._placements)
        self._tree_preemption = TreePreemption(state, binder, self._trees)
        self._headrooms = GangPreemption(state)
        self._pod_groups = PodGroupAttempts(handle, self._headrooms, conditions, groups)
        self._topology_preemption = TopologyPreemption(
            state, binder, self._headrooms, self._topology_placer
        )
        self.dry_runs = GangDryRuns(handle, self._pod_groups)
        self.waiting = WaitingGangs(handle, self._headrooms)
        self._nominations: NominatedPods = {}  # without the members of the current gang

    def forget(self, gang: Gang | None) -> None:
        """Drop the cached failure of a gang that lost a member or was deleted."""
        if gang is not None and gang.terms is not None:
            self._placer.forget(gang.terms.group_id)
            self._headrooms.forget(gang.terms.group_id)

    def unit(self, cycle: SchedulingCycle, head: QueuedPod) -> GangUnit | None:
        """Return the unit to decide with a popped member; None if it is scheduled individually."""
        active = next(iter(cycle.profile.gangs), None)
        if active is None:
            return None
        gangs: GangCache = active.plugin.gangs
        demand = self._topology_placer.demand(gangs, head.pod)
        is_free = not self._pod_groups.topology_key(cycle, head.pod)
        if demand is None and is_free and gangs.starts_alone(head.pod):
            return None
        return GangUnit(self, cycle, head, gangs, demand)

    def decide(
        self,
        cycle: SchedulingCycle,
        head: QueuedPod,
        gangs: GangCache,
        demand: TopologyDemand | None,
    ) -> int:
        """Decide all members of a group without a node; return how many were tried."""
        handle, active = self._handle, cycle.profile.gangs[0]
        alone = gangs.starts_alone(head.pod)
        if not alone and gangs.why_gated(head.pod):
            handle.queue.postpone(head, handle.clock.now_s())
            return 0
        group = self._pod_groups.gang_of(gangs, head.pod)
        if group is not None and self._pod_groups.contradicts(gangs, head):
            return 0
        # The version keys a cached failure: members are not tried again while neither the gang nor
        # its topology has changed and no preemption can help.
        version = (gangs.version(head.pod), demand and self._topology_placer.version(demand))
        attempt = gangs.attempt_alone(head.pod) if alone else gangs.attempt(head.pod)
        group_attempt = GangGroupAttempt(attempt, head, version)
        topology_key = self._pod_groups.topology_key(cycle, head.pod)
        known_failure = (
            None
            if alone or topology_key
            else self._placer.still_lost(cycle, attempt.group_id, version)
        )
        if known_failure is not None and self._headrooms.is_futile(
            cycle, group_attempt, known_failure, self._handle.diagnoses.world()
        ):
            need = self.waiting.need_of(cycle, attempt, head, known_failure.level)
            self._reject_member(
                cycle,
                head,
                known_failure.pod_class,
                known_failure.verdict,
                "",
                again=True,
                need=need,
            )
            return 0
        queued_members = {
            queued.key: queued for queued in self._handle.queue.peek(attempt.members, active.name)
        }
        queued_members[head.key] = head
        members = [
            (queued_members[key], self._handle.intake.class_of(queued_members[key]))
            for key in attempt.members
            if key in queued_members
        ]
        self._clean_up(cycle, members)
        # Nominated members first: each takes its own node before the others could.
        members.sort(key=lambda member: not self._handle.nominator.node_of(member[0].key))
        self._nominations = self._handle.nominations.by_node(but=attempt.members)
        placements: Sequence[TopologyPlacement] | None = ()
        if topology_key or attempt.tree is not None:
            demand = demand if attempt.tree is None else None
            try:
                decision, placements = self._place_constrained(
                    cycle, gangs, group_attempt, members, topology_key
                )
            except PlacementConflict as error:
                self._pod_groups.fail(gangs, head, f"{DOMAIN_UNKNOWN}: {error}")
                return 0
        else:
            decision = self._place(cycle, gangs, group_attempt, members, demand)
        if self._metrics is not None:
            took_s = handle.attempts.elapsed_s()
            self._metrics.gang_decided(len(members), took_s, placed=not decision.is_lost)
        self._pod_groups.note_decision(gangs, head)
        if decision.is_lost:
            self._undo_gang(
                cycle,
                gangs,
                group_attempt,
                decision,
                members,
                demand=demand,
                placements=placements,
            )
        else:
            self._start_gang(cycle, gangs, group_attempt, decision, demand)
            self._pod_groups.note_start(gangs, head, decision)
        return len(members)

    def _place_constrained(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        topology_key: str,
    ) -> tuple[GangDecision, Sequence[TopologyPlacement] | None]:
        """Place a tree, or a group in one domain; return where to make room if that fails.

        Raises PlacementConflict.
        """
        tree = group_attempt.attempt.tree
        if tree is None:
            placements = self._placements.placements(cycle, gangs, members[0], topology_key)
            decision = self._placements.place(cycle, gangs, group_attempt, members, placements)
            return decision, placements
        decision = self._trees.place(cycle, gangs, group_attempt, members)
        if not decision.is_lost:
            return decision, ()
        return decision, self._trees.preemption_placements(cycle, gangs, tree)

    def _undo_gang(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        decision: GangDecision,
        members: Sequence[Wanted],
        *,
        demand: TopologyDemand | None,
        placements: Sequence[TopologyPlacement] | None,
    ) -> None:
        """Make room for a gang whose attempt failed, and requeue it."""
        attempt, head = group_attempt.attempt, group_attempt.head
        if attempt.tree is None and self._pod_groups.gang_of(gangs, head.pod) is not None:
            order_as_kube_scheduler(cycle, attempt, decision, members)
        frees = self._pod_groups.free_claims(cycle, gangs, decision, members, self._nominations)
        headroom = GangHeadroom()
        if placements is not None:
            headroom = self._headroom_for(
                cycle, group_attempt, decision, members, demand, placements=placements
            )
        has_network = demand is None or not demand.refusal
        level = demand.must if demand is not None else None
        is_bounded = has_network and not headroom.pods and decision.placements is None
        need = None
        if decision.failed and is_bounded and not frees:
            need = self.waiting.need_of(cycle, attempt, decision.failed[0][0], level)
        self._reject_gang(cycle, gangs, group_attempt, decision, headroom, need=need)
        self._pod_groups.note_rejection(gangs, head, headroom)

    def _place(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        demand: TopologyDemand | None,
    ) -> GangDecision:
        """Assume enough members on nodes, or none of them."""
        own_keys = [queued.key for queued, _ in members]
        merges = len(cycle.profile.permit) == 1 and self._handle.options.merges
        merges = merges and not cycle.distinguishes(own_keys)
        nominated = self._handle.nominations.by_node()
        if demand is None:
            merges = merges and not nominated
            return self._placer.place(cycle, group_attempt, members, merges=merges)
        return self._topology_placer.place(
            cycle, gangs, group_attempt, members, demand, nominated=nominated, merges=merges
        )

    def _clean_up(self, cycle: SchedulingCycle, members: Sequence[Wanted]) -> None:
        """Remove leftovers of earlier attempts; members whose leftovers remain will wait."""
        snapshot = Snapshot(self._handle.state)
        for _, pod_class in members:
            for active in cycle.applicable_plugins(pod_class).post_filter:
                if "cleanup_before_retry" in active.has:
                    change = active.plugin.cleanup_before_retry(snapshot, pod_class)
                    self._handle.evictions.change([change] if change is not None else [])

    def _headroom_for(
        self,
        cycle: SchedulingCycle,
        group_attempt: GangGroupAttempt,
        decision: GangDecision,
        members: Sequence[Wanted],
        demand: TopologyDemand | None,
        *,
        placements: Sequence[TopologyPlacement] = (),
    ) -> GangHeadroom:
        """Run the PostFilter plugins for these members and record the attempt."""
        plugins = self._pod_groups.post_filter(cycle, group_attempt.head.pod)
        if not plugins:
            return GangHeadroom()
        began_s = self._handle.attempts.now_s()
        attempt = group_attempt.attempt
        find = partial(
            self._headrooms.find,
            cycle,
            attempt,
            decision,
            members,
            self._nominations,
            plugins=plugins,
        )
        if attempt.tree is not None and has_constraint_below(attempt.tree):
            gangs: GangCache = cycle.profile.gangs[0].plugin.gangs
            headroom = self._tree_preemption.find(cycle, gangs, group_attempt, members)
        elif placements:
            headrooms = [find(rows=placement.rows) for placement in placements]
            with_pods = [headroom for headroom in headrooms if headroom.pods]
            headroom = (
                min(with_pods, key=lambda one: len(one.victims)) if with_pods else headrooms[0]
            )
        elif demand is None:
            headroom = find()
        else:
            headroom = self._topology_preemption.find(
                cycle,
                cycle.profile.gangs[0].plugin.gangs,
                group_attempt,
                members,
                demand=demand,
                decision=decision,
                nominations=self._nominations,
            )
        if self._metrics is not None and headroom.was_tried:
            took_s = self._handle.attempts.now_s() - began_s
            gangs = cycle.profile.gangs[0].plugin.gangs
            outcome = self._pod_groups.preemption_attempt(
                gangs, group_attempt.head, headroom, took_s
            )
            self._handle.attempts.note(outcome)
            self._metrics.preempted(attempt.group_id, headroom.result, took_s)
            self._pod_groups.note_preemption(cycle, group_attempt.head, headroom)
        return headroom

    def _start_gang(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        decision: GangDecision,
        demand: TopologyDemand | None,
    ) -> None:
        """Start the members with nodes, and requeue the members without."""
        now_s, gate = self._handle.clock.now_s(), cycle.profile.gangs[0]
        placed, failed = decision.placed, decision.failed
        pods = [assumed.queued for assumed in placed] + [queued for queued, _, _ in failed]
        self._handle.queue.take_all(pods, now_s)
        for assumed in placed:
            self._handle.nominations.forget(assumed.queued.pod, assumed.node)
        for on_placed in self._handle.hooks.on_placed:
            on_placed([assumed.queued for assumed in placed])
        if len(cycle.profile.permit) > 1 or not (placed and self._permit_all(cycle, placed)):
            for assumed in placed:
                self._handle.bindings.permit(assumed)
        headroom = GangHeadroom()
        if failed and not gangs.may_start(failed[0][0].pod):  # the placed members wait for them
            short = [(queued, pod_class) for queued, pod_class, _ in failed]
            headroom = self._headroom_for(cycle, group_attempt, decision, short, demand)
        error = (
            self._execute_preemption(group_attempt.attempt, failed[0][0].pod, headroom, gangs)
            if failed
            else None
        )
        reported: set[int] = set()
        for queued, pod_class, verdict in failed:
            node = headroom.places.get(queued.key, "")
            keeps_nomination = bool(node) or headroom.keeps
            preemption_text = headroom_message(headroom, node, error)
            if not reported:
                gangs.set_representative(queued.pod)
            if id(verdict) in reported:
                message = f"{verdict_reason(verdict)} {preemption_text}".rstrip()
                self._notify_member(queued, gate, message, keeps_nomination=keeps_nomination)
            else:
                self._reject_member(
                    cycle,
                    queued,
                    pod_class,
                    verdict,
                    preemption_text,
                    nominated=node,
                    keeps_nomination=keeps_nomination,
                    again_soon=error is not None or bool(decision.reasons),
                )
            reported.add(id(verdict))
        self._handle.bindings.decide_waiting()

    def _execute_preemption(
        self, attempt: GangAttempt, by: Pod, headroom: GangHeadroom, gangs: GangCache
    ) -> ClusterError | None:
        """Nominate members to their nodes and evict the victims; return the first error."""
        if not headroom.places:
            return None
        job = f"gang group {attempt.group_id}"
        group = self._pod_groups.preemptor(gangs, by)
        evictions = self._handle.evictions
        return evictions.free_headroom(headroom.pods, headroom.victims, by, job, group)

    def _permit_all(self, cycle: SchedulingCycle, placed: Sequence[Assumed]) -> bool:
        """Permit all members if the gang allows it; its permit is the same for each member."""
        first = placed[0]
        permit = cycle.profile.permit[0].plugin.permit(first.queued.pod, first.node)
        if permit.refusal is not None or permit.wait_s > 0:
            return False
        note = AllocationResult(annotations=permit.annotations)
        for assumed in placed:
            allocation = assumed.allocation
            assumed.allocation = note if allocation is NOTHING else allocation.joined(note)
        self._handle.bindings.permit_all(placed)
        return True

    def _reject_gang(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        decision: GangDecision,
        headroom: GangHeadroom,
        *,
        need: Need | None,
    ) -> None:
        """Requeue the member that found no node; the other members wait for it."""
        attempt, head = group_attempt.attempt, group_attempt.head
        gate = cycle.profile.gangs[0]
        prefix = f'GangGroup "{attempt.group_id}" gets rejected due to member Pod '
        others = [queued for queued, _, _ in decision.failed[1:]] + decision.others
        gang = gangs.gang_of(head.pod)
        own_id = gang.id if gang is not None else ""
        left = []
        for key in gangs.companions(head.pod):
            waiting = self._handle.bindings.withdraw(key)
            if waiting is not None:
                gangs.release(waiting.queued.pod)
                others.append(waiting.queued)
                left.append(waiting.queued.pod)
                headroom.keep_place(waiting.queued.pod, waiting.node)
        group = self._pod_groups.rejection(cycle, gangs, group_attempt, decision, headroom)
        error = self._execute_preemption(attempt, head.pod, headroom, gangs)
        for pod in left:
            if pod.key not in headroom.pods:
                self._handle.queue.on_place_left(pod, self._handle.clock.now_s())
        verdicts = {queued.key: verdict for queued, _, verdict in decision.failed}
        texts = RejectionTexts(headroom, error, group, verdicts, decision.untried)
        if decision.failed:
            queued, pod_class, verdict = decision.failed[0]
            self._handle.queue.take_all([queued], self._handle.clock.now_s())
            gangs.set_representative(queued.pod)
            node = headroom.places.get(queued.key, "")
            prefix_of_refused = f'Gang "{own_id}" gets rejected due to pod is unschedulable'
            prefix_of_refused = "" if attempt.is_alone else prefix_of_refused
            details = texts.of_refused(prefix_of_refused, node)
            self._reject_member(
                cycle,
                queued,
                pod_class,
                verdict,
                details,
                nominated=node,
                keeps_nomination=bool(node) or headroom.keeps,
                again_soon=error is not None or bool(decision.reasons),
                need=need,
                other_plugins=decision.rejectors,
            )
            message = (
                f"0/{self._handle.state.nodes.count} nodes are available: "
                f'{prefix}"{queued.key}" is unschedulable with reason "{verdict_reason(verdict)}", '
                f"alreadyWaitForBound: {decision.had_place + attempt.waiting}."
            )
        else:  # some members cannot be tried now
            message = f'{prefix}"{head.key}": other members can not be tried now'
            others = [other for other in others if other is not head]
            gangs.set_representative(head.pod)
            self._handle.attempts.fail(head, message)
        for other in others:
            node = headroom.places.get(other.key, "")
            text = texts.of_other(other, message, node)
            self._notify_member(other, gate, text, keeps_nomination=bool(node) or headroom.keeps)
        if decision.failed and error is None:
            self._headrooms.note_failure(group_attempt, self._handle.diagnoses.world())

    def _reject_member(
        self,
        cycle: SchedulingCycle,
        queued: QueuedPod,
        pod_class: PodClass,
        verdict: Verdict,
        details: str,
        *,
        again: bool = False,
        nominated: str = "",
        keeps_nomination: bool = False,
        again_soon: bool = False,
        need: Need | None = None,
        other_plugins: frozenset[str] = frozenset(),
    ) -> None:
        """Reject a member that fits no node; ``again`` repeats a reported failure silently.

        ``other_plugins`` are the plugins that rejected the gang in other placements.
        """
        card = cycle.scorecard(pod_class) if self._handle.options.explain else None
        plugins = rejectors_of(verdict) | other_plugins
        if isinstance(verdict, ReserveRefusal):
            main, message = (verdict.plugin, verdict.reason), verdict.reason
        else:
            plugin, reason = verdict.main
            never = never_fits(verdict, self._handle.state, pod_class)
            main = (plugin, f"{reason}; {never}" if never else reason)
            message = verdict.message(details)
            if verdict.refused_by and not verdict.behind and cycle.profile.post_filter:
                # Preemption in the quota may follow as soon as a node fits.
                plugins |= {active.name for active in cycle.profile.filter}
        if again:
            now_s = self._handle.clock.now_s()
            self._handle.queue.reject(
                queued, plugins, frozenset(), queued.message, now_s, need=need
            )
            self._handle.attempts.wait(queued, main, queued.message)
        else:
            if not keeps_nomination:
                self._handle.nominations.end(queued.pod)
            if again_soon:  # retry after any event
                plugins = frozenset()
            self._handle.attempts.reject(
                queued, main, plugins, message, card, nominated=nominated, need=need
            )

    def _notify_member(
        self, queued: QueuedPod, gate: ActivePlugin, message: str, *, keeps_nomination: bool = False
    ) -> None:
        """Report another member's failure to a member and gate it again."""
        if not keeps_nomination:
            self._handle.nominations.end(queued.pod)
        if gate.plugin.gangs.defaults.notifies_all_members:
            self._handle.attempts.report_waiting(queued.pod, message)
        if queued.state is QueueState.IN_FLIGHT:
            self._handle.queue.postpone(queued, self._handle.clock.now_s())
        self._reports.mark_reported(queued.pod)
        self._handle.attempts.wait(queued, (gate.name, message), message)

    def _card(self, cycle: SchedulingCycle, pod_class: PodClass) -> Scorecard | None:
        return cycle.scorecard(pod_class) if self._handle.options.explain else None

    def _choose_member(
        self, cycle: SchedulingCycle, queued: QueuedPod, pod_class: PodClass
    ) -> NodeChoice | Verdict:
        known = None
        if not cycle.is_restricted:
            known = self._handle.diagnoses.known(cycle, pod_class)
        if known is not None:
            return known
        try:
            choice = cycle.choose(
                queued.pod,
                pod_class,
                self._nominations,
                nominated_node=self._handle.nominator.node_of(queued.key),
                first_attempt=queued.attempts <= 1,
            )
        except ExtenderError as error:
            return ReserveRefusal(EXTENDER, str(error))
        return choice or self._diagnose_member(cycle, queued, pod_class)

    def _diagnose_member(
        self, cycle: SchedulingCycle, queued: QueuedPod, pod_class: PodClass
    ) -> Diagnosis:
        if cycle.is_restricted:
            return cycle.diagnose(queued.pod, pod_class, self._nominations)
        known = self._handle.diagnoses.known(cycle, pod_class)
        return known or self._handle.diagnoses.diagnose(cycle, queued.pod, pod_class)
