"""Feature for gangs: members are tracked, decided and released together."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from koordinator.api.pod import Pod
from koordinator.api.pod_groups import (
    CompositePodGroup,
    PodGroup,
    SchedulingPodGroup,
    SchedulingWorkload,
)
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.domain.gangs import GangCache, WorkloadRefs
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.contract import Action, ClusterEvent, QueueGate
from koordinator.scheduler.cycle import NodeChoice, ReserveRefusal, SchedulingCycle
from koordinator.scheduler.features.gangs.attempts import GangScheduler, GangUnit
from koordinator.scheduler.features.gangs.pod_group_conditions import PodGroupConditions
from koordinator.scheduler.features.gangs.reports import (
    GangReports,
    JobPlaces,
    gang_page,
    gangs_page,
)
from koordinator.scheduler.loop.feature import CallInLoop, StatePage, Step
from koordinator.scheduler.loop.feature_kinds import GroupDryRun, GroupFeature
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import EVERYTHING, QueuedPod
from koordinator.scheduler.snapshot import PodClass

if TYPE_CHECKING:  # the metrics client is optional
    from koordinator.scheduler.features.gangs.metrics import GangMetrics


_KINDS = SchedulingPodGroup | SchedulingWorkload | PodGroup | CompositePodGroup


class GangFeature(GroupFeature):
    """Gang caches of all profiles, with the scheduling and reporting of gangs."""

    def __init__(
        self,
        handle: SchedulerHandle,
        caches: Sequence[GangCache],
        places: JobPlaces,
        metrics: "GangMetrics | None" = None,
    ) -> None:
        self.caches, self._needs = caches, handle.queue.needs
        self._handle = handle
        self._reports = GangReports(
            handle.cluster,
            handle.clock,
            handle.state,
            caches,
            handle.reporter,
            places=places,
            enabled=handle.options.report,
        )
        self._conditions = PodGroupConditions(
            handle.cluster, handle.clock, caches, enabled=handle.options.report
        )
        self._attempts = GangScheduler(handle, self._reports, self._conditions, metrics)
        self._shrank = False  # a gang may be short of members now
        self.is_idle = True  # until the first gang
        if metrics is not None:
            metrics.watch(caches)

    # -- events --------------------------------------------------------------------------------

    def needs_own_bind_event(self, pod: Pod) -> bool:
        """Return whether the pod is a member of a gang."""
        return any(gangs.is_member(pod) for gangs in self.caches)

    def on_pod_event(self, pod: Pod, previous: Pod | None, *, deleted: bool) -> Sequence[str]:
        """Update the gang of a pod; return the pods that should try to enter the queue."""
        ready: list[str] = []
        self._shrank |= deleted
        changed = self._attempts.waiting.changed
        for gangs in self.caches:
            left = gangs.gang_of_key(pod.key) if gangs.gangs else None
            if deleted:
                self._attempts.forget(left)
            ready += gangs.drop_pod(pod) if deleted else gangs.put_pod(pod)
            home = gangs.gang_of_key(pod.key) if gangs.gangs else None
            if home is left:
                if home is not None:
                    changed(gangs, home, pod, previous)
            else:
                changed(gangs, left, pod, None)
                ready += gangs.representatives_for(pod)  # the new member may be the one that fits
            if self.is_idle and gangs.gangs:
                self._end_idleness()
        return ready

    def _end_idleness(self) -> None:
        self.is_idle = False
        self._handle.hooks.refresh()

    def on_object_event(self, event: WatchEvent) -> None:
        """Update gangs from a PodGroup of either kind or a Workload."""
        group = event.object
        if self.is_idle and isinstance(group, _KINDS):
            self._end_idleness()
        if isinstance(group, SchedulingPodGroup):
            self._on_pod_group(group, event)
        if isinstance(group, CompositePodGroup):
            self._on_composite(group, deleted=event.type is EventType.DELETED)
        if isinstance(group, SchedulingWorkload):
            self._on_workload(group, deleted=event.type is EventType.DELETED)
        if not isinstance(group, PodGroup):
            return
        queue, now_s = self._handle.queue, self._handle.clock.now_s()
        self._shrank, deleted = True, event.type is EventType.DELETED
        for gangs in self.caches:
            queue.activate((gangs.drop_group if deleted else gangs.put_group)(group), now_s)
        before = event.previous
        if deleted or (
            isinstance(before, PodGroup) and group.spec.min_member < before.spec.min_member
        ):
            queue.on_event(
                ClusterEvent(EVERYTHING, Action.UPDATE), now_s
            )  # some members may start alone now

    def _on_workload(self, workload: SchedulingWorkload, *, deleted: bool) -> None:
        queue, now_s = self._handle.queue, self._handle.clock.now_s()
        self._shrank = True
        for gangs in self.caches:
            ready = (gangs.drop_workload if deleted else gangs.put_workload)(workload)
            queue.activate(ready, now_s)

    def _on_composite(self, composite: CompositePodGroup, *, deleted: bool) -> None:
        self._shrank = True
        for gangs in self.caches:
            (gangs.drop_composite if deleted else gangs.put_composite)(composite)

    def _on_pod_group(self, group: SchedulingPodGroup, event: WatchEvent) -> None:
        queue, now_s = self._handle.queue, self._handle.clock.now_s()
        self._shrank, deleted = True, event.type is EventType.DELETED
        self._conditions.recheck(group.key)
        for gangs in self.caches:
            ready = (gangs.drop_pod_group if deleted else gangs.put_pod_group)(group)
            queue.activate(ready, now_s)
        before = event.previous
        if deleted or (isinstance(before, SchedulingPodGroup) and _needs_fewer(before, group)):
            queue.on_event(
                ClusterEvent(EVERYTHING, Action.UPDATE), now_s
            )  # some members may start alone now

    def after_events(self) -> None:
        """Requeue members of changed trees; clear nominations of gangs that became incomplete."""
        for gangs in self.caches:
            ready = gangs.take_enqueueable()
            if ready:
                self._handle.queue.activate(ready, self._handle.clock.now_s())
        if not self._shrank or not self._handle.watch.is_synced:
            return
        self._shrank = False
        nominator = self._handle.nominator
        for node in nominator.nodes():
            for pod in nominator.on_node(node):
                if any(g.is_member(pod) and g.shortage(pod) for g in self.caches):
                    self._handle.nominations.end(pod)

    def on_left_queue(self, pod: Pod, *, deleted: bool) -> None:  # noqa: ARG002 -- however it left
        """Drop pending reports of a pod."""
        self._reports.forget(pod.key)

    def on_gate_result(self, pod: Pod, gate: QueueGate | None) -> None:
        """Record the gate result of a pod for the reports."""
        self._reports.check(pod)
        if gate is not None:
            self._reports.note_gated(pod)

    def wake(self) -> None:
        """Requeue the gangs for which capacity may have been freed."""
        if self._needs.touched:
            self._attempts.waiting.wake()

    # -- decisions -----------------------------------------------------------------------------

    def unit(self, cycle: SchedulingCycle, head: QueuedPod) -> GangUnit | None:
        """Return the gang group to decide with a member."""
        return self._attempts.unit(cycle, head)

    def try_group(self, queued: QueuedPod) -> GroupDryRun | None:
        """Return the nodes of a member's gang in one domain, or why none takes it.

        None if the gang needs no domain.
        """
        cycle = self._handle.cycles[queued.pod.spec.scheduler_name]
        return self._attempts.dry_runs.run(cycle, queued)

    def try_together(
        self, cycle: SchedulingCycle, pods: Sequence[tuple[Pod, PodClass]]
    ) -> Sequence[NodeChoice] | ReserveRefusal | None:
        """Return nodes in one domain for pending members, without changing the state.

        Return a refusal if one member finds none, and None if they need no domain.
        """
        return self._attempts.dry_runs.try_together(cycle, pods)

    def on_placed(self, pods: Sequence[QueuedPod]) -> None:
        """Hold the nodes of members until enough members have one."""
        members = [one.pod for one in pods if one.run_key is None]  # others are in no gang
        for gangs in self.caches:
            for pod in members:
                gangs.hold(pod)
            starts: dict[str, bool] = {}  # by group id: whether enough members have nodes
            for pod in members:
                gang = gangs.gang_of(pod)
                if gang is None or gang.terms is None or not gang.pod_group:
                    continue
                group_id = gang.terms.group_id
                if group_id not in starts:
                    starts[group_id] = gangs.may_start(pod)
                if starts[group_id]:
                    self._conditions.scheduled(gang)

    def pods_sharing_nomination(self, pod: Pod) -> Sequence[str]:
        """Return the members of a pod's gang without a node."""
        return [key for gangs in self.caches for key in gangs.unplaced_members(pod)]

    def on_aborted_attempt(self, head: Pod, lost: Sequence[Pod]) -> Sequence[str]:
        """Make a member represent its gang after its attempt crashed; return the others."""
        for gangs in self.caches:
            for pod in lost:
                gangs.release(pod)
            gangs.set_representative(head)
        return self.pods_sharing_nomination(head)

    def on_released(self, assumed: Assumed) -> None:
        """Unreserve the members that wait together with an unreserved one."""
        pod, bindings = assumed.queued.pod, self._handle.bindings
        for gangs in self.caches:
            companions = gangs.companions(pod)
            gangs.release(pod)
            for key in companions:
                other = bindings.withdraw(key)
                if other is not None:
                    gangs.release(other.queued.pod)
                    gang = gangs.gang_of(pod)
                    name = gang.id if gang is not None else ""
                    why = f'Gang "{name}" gets rejected due to Pod "{pod.key}" in Unreserve'
                    bindings.fail(other, why)

    # -- reports -------------------------------------------------------------------------------

    def steps(self) -> Sequence[Step]:
        """Return the steps that report incomplete gangs, and update PodGroup statuses."""
        writes = (self._reports.write, self._conditions.write)
        return tuple(Step("PodGroup status", write) for write in writes)

    def follow(self) -> None:
        """Drop the reports of deleted PodGroups, which the leader reports."""
        self._reports.follow()

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when the next status or report is due."""
        if not synced:
            return None
        if self._reports.is_behind:
            return self._handle.clock.now_s()
        times = (self._reports.next_wakeup_s(), self._conditions.next_wakeup_s())
        return min((at_s for at_s in times if at_s is not None), default=None)

    def pages(self, in_loop: CallInLoop) -> Mapping[str, StatePage]:
        """Return the pages of gangs; the caches of all profiles hold the same gangs."""
        all_spellings = [one for one in self.caches if one.refs is not WorkloadRefs.ONLY]
        gangs, state = (all_spellings or self.caches)[0], self._handle.state

        def one(given: Mapping[str, str]) -> object:
            return in_loop(partial(gang_page, gangs, state, given["namespace"], given["name"]))

        return {
            "/plugins/Coscheduling/gang/{namespace}/{name}": one,
            "/plugins/Coscheduling/gangs": lambda _: in_loop(partial(gangs_page, gangs, state)),
        }

    def validate(self) -> None:
        """Raise BugError unless the counters of gangs match their members."""
        for gangs in self.caches:
            gangs.validate()


def _needs_fewer(old: SchedulingPodGroup, new: SchedulingPodGroup) -> bool:
    """Return whether fewer members must start together than before."""
    before, after = old.spec.scheduling_policy.gang, new.spec.scheduling_policy.gang
    return before is not None and (after is None or after.min_count < before.min_count)
