"""Events of pods: bound pods go to the state, pending pods to the queue."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from koordinator.api.codec import subject_of
from koordinator.api.pod import TERMINAL_PHASES, Pod
from koordinator.api.pod_groups import (
    CompositePodGroup,
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha2,
    SchedulingPodGroupV1Alpha3,
)
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.cluster.reconcile import SyncedWatch
from koordinator.domain.transforms import as_scheduled
from koordinator.foundation.clock import Clock, to_epoch_s
from koordinator.scheduler.binding import Bindings
from koordinator.scheduler.contract import Action, ClusterEvent
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.loop.hooks import Hooks
from koordinator.scheduler.loop.kubelet_rejections import KubeletRejections
from koordinator.scheduler.loop.nominations import Nominations
from koordinator.scheduler.queue import QueuedPod, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState, PlacedPod, PodClass

#: Kinds of the objects in trees of PodGroups.
_GROUPS = (
    CompositePodGroup,
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha2,
    SchedulingPodGroupV1Alpha3,
)


class PodIntake:
    """Applies pod events to the state and the queue of one scheduler.

    ``transforms`` change pods before they are scheduled.  With ``tracks_foreign_pods`` the
    nominations of pods of other schedulers are kept as well.
    """

    def __init__(
        self,
        watch: SyncedWatch,
        clock: Clock,
        state: ClusterState,
        queue: SchedulingQueue,
        ingest: Ingest,
        *,
        cycles: Mapping[str, SchedulingCycle],
        isolation: PluginIsolation,
        hooks: Hooks,
        nominations: Nominations,
        bindings: Bindings,
        kubelet_rejections: KubeletRejections,
        tracks_foreign_pods: bool,
        transforms: Sequence[Callable[[Pod], Pod]],
    ) -> None:
        self._watch = watch
        self._clock, self._state, self._queue, self._ingest = clock, state, queue, ingest
        self._cycles, self._isolation, self._hooks = cycles, isolation, hooks
        self._nominations, self._bindings = nominations, bindings
        self._kubelet_rejections = kubelet_rejections
        self._tracks_foreign_pods, self._transforms = tracks_foreign_pods, transforms
        self.now_s = clock.now_s()  # time of the exchange whose events are applied
        self._class_of: dict[str, tuple[Pod, PodClass]] = {}  # of pods not tried yet
        self._classes_as_of = 0  # version of what DeviceClasses serve

    def apply_own_binds(self, events: Iterable[WatchEvent]) -> Iterator[WatchEvent]:
        """Apply the events that only confirm binds of this scheduler; yield the others in turn.

        Most events in a busy cluster confirm the bind of a pod that is still the same object.
        """
        by_key = self._state.pods.by_key
        for event in events:
            pod = event.object
            placed = by_key.get(pod.key) if isinstance(pod, Pod) else None
            try:
                if (
                    placed is not None
                    and isinstance(pod, Pod)
                    and placed.pod is event.previous
                    and self._is_known_bind(event, placed, pod)
                ):
                    continue
            except Exception as error:  # noqa: BLE001 -- reported; ``take`` tries again
                self._isolation.note("ingest", error, subject_of(pod))
            yield event

    def take(self, event: WatchEvent, pod: Pod) -> None:
        """Apply an event of a pod."""
        if self._transforms:
            event, pod = self._transformed(event, pod)
        by_key, key = self._state.pods.by_key, pod.key
        placed = by_key.get(key)
        if placed is not None and self._is_known_bind(event, placed, pod):
            return
        previous, new = event.previous, as_scheduled(pod)
        old = as_scheduled(previous) if isinstance(previous, Pod) else None
        used = placed.pod_allocation.uses if placed is not None else ""
        for label, consume in self._hooks.consume_pod_event:
            if label in new.metadata.labels:
                consume(event.type, new, old)
                break
        else:
            self.put(event.type, new, old)
        if self._tracks_foreign_pods:
            self._track_foreign_pod(event.type, new)
        placed = by_key.get(key)
        uses = placed.pod_allocation.uses if placed is not None else ""
        if uses and uses != used and old is not None and old.spec.node_name:
            # Amounts outside the reservation are counted as part of it from here on.
            self._publish(ClusterEvent("AssignedPod", Action.DELETE, old, None))
        if used or uses:
            for uid in {used, uses} - {""}:
                for hook in self._hooks.on_reservation_use:
                    hook(uid)

    def _transformed(self, event: WatchEvent, pod: Pod) -> tuple[WatchEvent, Pod]:
        """Return an event and its pod as pods are to be seen."""
        previous = event.previous
        for transform in self._transforms:
            pod = transform(pod)
            previous = transform(previous) if isinstance(previous, Pod) else previous
        return WatchEvent(event.type, pod, previous), pod

    def put(self, kind: EventType, pod: Pod, previous: Pod | None) -> None:
        """Apply a transformed pod to the state and the queue."""
        key, deleted = pod.key, kind is EventType.DELETED
        ended = deleted or pod.status.phase in TERMINAL_PHASES
        waited = (ended or bool(pod.spec.node_name)) and self._bindings.forget(key, ended=ended)
        ready: list[str] = []
        for hook in self._hooks.on_pod_event:
            ready += hook(pod, previous, deleted=deleted)
        placed = self._state.pods.by_key.get(key)
        if ended or pod.spec.node_name:
            self._state.drop_unbound(key)
        if ended:
            self._kubelet_rejections.record(pod, deleted=deleted)
            self._leave_queue(pod, deleted=deleted)
            if waited or self._state.has_place(key) or pod.spec.node_name:
                self._publish(self._ingest.drop_placed(pod))
        elif pod.spec.node_name:
            if placed is None:
                self._leave_queue(pod)
            old = previous if previous is not None and previous.spec.node_name else None
            change = self._ingest.put_placed(pod, placed, old)
            if change is not None:
                self._leave_queue(pod)
                self._publish(change)
        elif pod.spec.scheduler_name in self._cycles and not pod.metadata.deletion_timestamp:
            self._put_unplaced(key, pod, pod if previous is None else previous)
        else:
            self._state.put_unbound(key, pod, self._state.classes.of(pod))
            self._leave_queue(pod)
        if ready:
            self._queue.activate(ready, self._clock.now_s())

    def class_of(self, queued: QueuedPod) -> PodClass:
        """Return the pod's class; looked up when the pod came, unless it has been tried since."""
        if self._classes_as_of != self._state.extended.version:
            self._class_of.clear()
            self._classes_as_of = self._state.extended.version
        pod, pod_class = self._class_of.pop(queued.key, (None, None))
        is_stale = pod is not queued.pod or bool(self._state.holds.named)
        return self._state.classes.of(queued.pod) if pod_class is None or is_stale else pod_class

    def _put_unplaced(self, key: str, pod: Pod, old: Pod) -> None:
        """Queue a pod without a node, or apply its update.

        A version that is older than the pod's own bind is ignored.
        """
        cycle = self._cycles[pod.spec.scheduler_name]
        for active in cycle.profile.transform:
            pod, old = active.plugin.transform(pod), active.plugin.transform(old)
        pod_class = self._state.classes.of(pod)
        known = self._state.unbound.get(key)
        has_place = self._state.put_unbound(key, pod, pod_class)
        if has_place and self._queue.get(key) is None:
            return
        self._class_of[key] = (pod, pod_class)
        try:
            run_key = cycle.queue_key(pod_class)
        except Exception as error:  # noqa: BLE001 -- reported; its attempt will show
            self._isolation.note("ingest", error, subject_of(pod))
            run_key = None
        is_other = known is not None and known[1] is not pod_class
        self._queue.update(old, pod, run_key, self._arrived_s(pod), is_other=is_other)
        if not has_place and (pod.status.nominated_node_name or self._nominations.known):
            self._nominations.apply_status(pod)

    def _is_known_bind(self, event: WatchEvent, placed: PlacedPod, pod: Pod) -> bool:
        """Apply an event that only confirms a bind of this scheduler; return whether it does.

        Most events in a busy cluster are of this kind.
        """
        if (
            placed.pod is not event.previous
            or not self._ingest.is_bare_bind(placed, pod)
            or self._bindings.is_before_bind(placed.key)
            or self._tracks_foreign_pods
        ):
            return False
        for needs_event in self._hooks.needs_own_bind_event:
            if needs_event(pod):
                return False
        self._state.confirm(placed, pod)
        return True

    def _track_foreign_pod(self, kind: EventType, pod: Pod) -> None:
        """Update the nominated node of a pod of another scheduler."""
        if self._nominations.update_foreign(
            pod, ended=kind is EventType.DELETED or pod.status.phase in TERMINAL_PHASES
        ):
            self._publish(ClusterEvent("AssignedPod", Action.DELETE, pod, None))

    def _arrived_s(self, pod: Pod) -> float:
        """Return when the pod joined the queue: a restart doesn't cost it its place."""
        if self._watch.is_synced:
            return self.now_s
        return min(self.now_s, to_epoch_s(pod.metadata.creation_timestamp, self.now_s))

    def _leave_queue(self, pod: Pod, *, deleted: bool = False) -> None:
        key = pod.key
        self._class_of.pop(key, None)
        self._queue.remove(key)
        self._nominations.forget(pod, pod.spec.node_name)
        for on_left_queue in self._hooks.on_left_queue:
            on_left_queue(pod, deleted=deleted)

    def _publish(self, event: ClusterEvent) -> None:
        self._queue.on_event(event, self._clock.now_s())


def groups_first(events: Iterable[WatchEvent]) -> Iterable[WatchEvent]:
    """Return a batch of events with PodGroups first, as the client of Kubernetes delivers them.

    Each kind has its own watch, so the order between kinds is arbitrary.  The tree is rebuilt for
    the first pod after a change, so alternating events would take time quadratic in their
    number.  Events that are still being listed keep their order.
    """
    if not isinstance(events, list):
        return events
    groups = [event for event in events if isinstance(event.object, _GROUPS)]
    if not groups:
        return events
    return groups + [event for event in events if not isinstance(event.object, _GROUPS)]
