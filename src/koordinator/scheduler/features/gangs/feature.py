"""Gangs as a feature: members are heard of, decided together, and given back together."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.api.scheduling_pod_group import SchedulingPodGroup
from koordinator.api.scheduling_workload import SchedulingWorkload
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.domain.gangs import GangCache, WorkloadRefs
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.contract import Action, ClusterEvent, QueueGate
from koordinator.scheduler.cycle import NodeChoice, ReserveRefusal, SchedulingCycle
from koordinator.scheduler.features.gangs.attempts import GangScheduler, GangUnit
from koordinator.scheduler.features.gangs.pages import gang_page, gangs_page
from koordinator.scheduler.features.gangs.pod_group_conditions import PodGroupConditions
from koordinator.scheduler.features.gangs.reports import GangReports, JobPlaces
from koordinator.scheduler.loop.feature import Ask, Feature, Page, Step
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import EVERYTHING, QueuedPod
from koordinator.scheduler.snapshot import PodClass

if TYPE_CHECKING:  # what measures is not loaded where nobody asks for figures
    from koordinator.scheduler.features.gangs.metrics import GangMetrics


class GangFeature(Feature):
    """Keeps the gangs of all profiles up to date and decides them; each profile has a cache."""

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
        self._shrank = False  # a gang may be short of members
        self.is_idle = True  # until the first gang
        if metrics is not None:
            metrics.watch(caches)

    # -- events --------------------------------------------------------------------------------

    def needs_own_bind_event(self, pod: Pod) -> bool:
        """Return whether the pod is a member."""
        return any(gangs.is_member(pod) for gangs in self.caches)

    def on_pod_event(self, pod: Pod, previous: Pod | None, *, deleted: bool) -> Sequence[str]:
        """Take in a member; return who should try to enter the queue now."""
        ready: list[str] = []
        self._shrank |= deleted
        changed = self._attempts.waiting.changed
        for gangs in self.caches:
            left = gangs.home_of(pod.key) if gangs.gangs else None
            if deleted:
                self._attempts.forget(left)
            ready += gangs.drop_pod(pod) if deleted else gangs.put_pod(pod)
            home = gangs.home_of(pod.key) if gangs.gangs else None
            if home is left:
                if home is not None:
                    changed(gangs, home, pod, previous)
            else:
                changed(gangs, left, pod, None)
                ready += gangs.representatives_for(pod)  # one more may be the one that fits
            if self.is_idle and gangs.gangs:
                self._end_idleness()
        return ready

    def _end_idleness(self) -> None:
        self.is_idle = False
        self._handle.hooks.refresh()

    def on_object_event(self, event: WatchEvent) -> None:
        """Take in a PodGroup of either kind or a Workload."""
        group = event.object
        if self.is_idle and isinstance(group, SchedulingPodGroup | SchedulingWorkload | PodGroup):
            self._end_idleness()
        if isinstance(group, SchedulingPodGroup):
            self._heard_pod_group(group, event)
        if isinstance(group, SchedulingWorkload):
            self._heard_workload(group, gone=event.type is EventType.DELETED)
        if not isinstance(group, PodGroup):
            return
        queue, now_s = self._handle.queue, self._handle.clock.now_s()
        self._shrank, gone = True, event.type is EventType.DELETED
        for gangs in self.caches:
            queue.activate((gangs.drop_group if gone else gangs.put_group)(group), now_s)
        before = event.previous
        if gone or (
            isinstance(before, PodGroup) and group.spec.min_member < before.spec.min_member
        ):
            queue.on_event(ClusterEvent(EVERYTHING, Action.UPDATE), now_s)  # members to spare

    def _heard_workload(self, workload: SchedulingWorkload, *, gone: bool) -> None:
        queue, now_s = self._handle.queue, self._handle.clock.now_s()
        self._shrank = True
        for gangs in self.caches:
            ready = (gangs.drop_workload if gone else gangs.put_workload)(workload)
            queue.activate(ready, now_s)

    def _heard_pod_group(self, group: SchedulingPodGroup, event: WatchEvent) -> None:
        queue, now_s = self._handle.queue, self._handle.clock.now_s()
        self._shrank, gone = True, event.type is EventType.DELETED
        self._conditions.heard(group.key)
        for gangs in self.caches:
            ready = (gangs.drop_pod_group if gone else gangs.put_pod_group)(group)
            queue.activate(ready, now_s)
        before = event.previous
        if gone or (isinstance(before, SchedulingPodGroup) and _asks_for_less(before, group)):
            queue.on_event(ClusterEvent(EVERYTHING, Action.UPDATE), now_s)  # members to spare

    def after_events(self) -> None:
        """Keep no places for members of a gang that is short of members by now."""
        if not self._shrank or not self._handle.watch.is_synced:
            return
        self._shrank = False
        nominator = self._handle.nominator
        for node in nominator.nodes():
            for pod in nominator.on_node(node):
                if any(g.is_member(pod) and g.shortage(pod) for g in self.caches):
                    self._handle.nominations.end(pod)

    def on_left_queue(self, pod: Pod, *, deleted: bool) -> None:  # noqa: ARG002 -- however it left
        """Forget what was to be told to a pod."""
        self._reports.gone(pod.key)

    def on_gate_result(self, pod: Pod, gate: QueueGate | None) -> None:
        """Note a member for the report of why it waits before the queue."""
        self._reports.seen(pod)
        if gate is not None:
            self._reports.gated(pod)

    def wake(self) -> None:
        """Requeue the gangs for which events may have freed enough room."""
        if self._needs.touched:
            self._attempts.waiting.wake()

    # -- deciding ----------------------------------------------------------------------------

    def unit(self, cycle: SchedulingCycle, head: QueuedPod) -> GangUnit | None:
        """Return the gang group that is decided with a member."""
        return self._attempts.unit(cycle, head)

    def explain_refusal(self, queued: QueuedPod) -> ReserveRefusal | None:
        """Return why no domain takes a member's gang; None: one does, or it needs none."""
        cycle = self._handle.cycles[queued.pod.spec.scheduler_name]
        return self._attempts.why_not_together(cycle, queued)

    def try_together(
        self, cycle: SchedulingCycle, pods: Sequence[tuple[Pod, PodClass]]
    ) -> Sequence[NodeChoice] | ReserveRefusal | None:
        """Return places for members that the caches know to be pending, all in one domain.

        Refused if one of them finds none; None: they ask nothing of the network, or are no gang.
        Everything is as it was afterwards.
        """
        return self._attempts.try_together(cycle, pods)

    def placed(self, pods: Sequence[QueuedPod]) -> None:
        """Hold the places of members until all have theirs."""
        for queued in pods:
            if queued.run_key is None:  # else it is in no gang
                for gangs in self.caches:
                    gangs.hold(queued.pod)
                    gang = gangs.gang_of(queued.pod)
                    if gang is not None and gang.pod_group and gangs.may_start(queued.pod):
                        self._conditions.scheduled(gang)

    def pods_sharing_nomination(self, pod: Pod) -> Sequence[str]:
        """Return the members of a pod's gang that need a place."""
        return [key for gangs in self.caches for key in gangs.mates(pod)]

    def broken(self, head: Pod, lost: Sequence[Pod]) -> Sequence[str]:
        """Let a member whose attempt broke off stand for its gang; return the others."""
        for gangs in self.caches:
            for pod in lost:
                gangs.release(pod)
            gangs.set_representative(head)
        return self.pods_sharing_nomination(head)

    def released(self, assumed: Assumed) -> None:
        """Let the members that wait with one that has lost its place lose theirs."""
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

    # -- beside deciding ---------------------------------------------------------------------

    def steps(self) -> Sequence[Step]:
        """Return the reports to gated members, and the writing of the statuses of PodGroups."""
        writes = (self._reports.write, self._conditions.write)
        return tuple(Step("PodGroup status", write) for write in writes)

    def follow(self) -> None:
        """Forget PodGroups that were deleted; the leader reports them."""
        self._reports.follow()

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when something of a gang is to be written."""
        if not synced:
            return None
        if self._reports.is_behind:
            return self._handle.clock.now_s()
        times = (self._reports.next_wakeup_s(), self._conditions.next_wakeup_s())
        return min((at_s for at_s in times if at_s is not None), default=None)

    def pages(self, ask: Ask) -> Mapping[str, Page]:
        """Return the pages of gangs; those of further profiles know the same."""
        all_spellings = [one for one in self.caches if one.refs is not WorkloadRefs.ONLY]
        gangs, state = (all_spellings or self.caches)[0], self._handle.state

        def one(given: Mapping[str, str]) -> object:
            return ask(partial(gang_page, gangs, state, given["namespace"], given["name"]))

        return {
            "/plugins/Coscheduling/gang/{namespace}/{name}": one,
            "/plugins/Coscheduling/gangs": lambda _: ask(partial(gangs_page, gangs, state)),
        }

    def validate(self) -> None:
        """Raise BugError unless what is counted of gangs is what their members are."""
        for gangs in self.caches:
            gangs.validate()


def _asks_for_less(old: SchedulingPodGroup, new: SchedulingPodGroup) -> bool:
    """Return whether fewer members have to start together than before."""
    before, after = old.spec.scheduling_policy.gang, new.spec.scheduling_policy.gang
    return before is not None and (after is None or after.min_count < before.min_count)
