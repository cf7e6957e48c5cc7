"""Objects and pods that the loop leaves out: faulty ones, and pods above a limit."""

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from msgspec import structs

from koordinator.api.codec import subject_of
from koordinator.api.meta import KubeObject
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import Fault
from koordinator.scheduler.contract import ActivePlugin
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.queue import QueuedPod, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState

KindT = TypeVar("KindT", bound=KubeObject)

_FIRST_AGAIN_S, _LAST_AGAIN_S = 1.0, 300.0


class Quarantine:
    """Objects whose events could not be handled: they are ignored, and retried with a backoff.

    ``handle`` applies an event; ``leave_out`` removes an object from the state.
    """

    def __init__(
        self,
        clock: Clock,
        isolation: PluginIsolation,
        handle: Callable[[WatchEvent], None],
        leave_out: Callable[[KubeObject, Fault], None],
    ) -> None:
        self._clock, self._isolation = clock, isolation
        self._handle, self._quarantine_object = handle, leave_out
        #: by kind and key: the events, when to try again, and how long that was waited for
        self.events: dict[tuple[type[KubeObject], str], tuple[WatchEvent, float, float]] = {}

    def forget(self, obj: KubeObject) -> None:
        """Release an object that was replaced or deleted."""
        self.events.pop((type(obj), obj.key), None)

    def add(self, event: WatchEvent, error: Exception, waited_s: float = 0.0) -> None:
        """Quarantine an object; the backoff doubles each time."""
        obj = event.object
        fault = self._isolation.fault("ingest", error, subject_of(obj))
        if event.type is not EventType.DELETED:
            wait_s = min(max(waited_s * 2, _FIRST_AGAIN_S), _LAST_AGAIN_S)
            retried = WatchEvent(EventType.ADDED, obj)
            self.events[type(obj), obj.key] = (retried, self._clock.now_s() + wait_s, wait_s)
        self._quarantine_object(obj, fault)
        self._isolation.report(fault)

    def step(self) -> None:
        """Retry the objects whose backoff is over."""
        now_s = self._clock.now_s()
        for event, due_s, waited_s in list(self.events.values()):
            if due_s <= now_s:
                self.forget(event.object)
                try:
                    self._handle(event)
                except Exception as error:  # noqa: BLE001 -- reported
                    self.add(event, error, waited_s)

    def next_wakeup_s(self) -> float | None:
        """Return when the next one is due."""
        return min((due_s for _, due_s, _ in self.events.values()), default=None)


def stripped(obj: KindT) -> KindT:
    """Return an object without the free-form fields of its writer: labels and annotations."""
    return structs.replace(obj, metadata=structs.replace(obj.metadata, labels={}, annotations={}))


class LimitedPods:
    """Wakes for one scheduler as many pods as there is room for."""

    def __init__(
        self,
        clock: Clock,
        state: ClusterState,
        queue: SchedulingQueue,
        cycles: Mapping[str, SchedulingCycle],
        isolation: PluginIsolation,
    ) -> None:
        self._clock, self._state, self._queue, self._cycles = clock, state, queue, cycles
        self._isolation = isolation
        #: by scheduler name and plugin: the version of the plugin at its last call
        self._seen_versions: dict[tuple[str, str], Hashable] = {}

    def wake(self) -> None:
        """Wake pods for which plugins with cluster-wide limits have room after the events.

        A plugin is called once for all events, and once for pods with the same limit.
        """
        for cycle in self._cycles.values():
            for active in cycle.limiting:
                try:
                    self._wake_if_changed(cycle, active)
                except Exception as error:  # noqa: BLE001 -- reported
                    self._isolation.note("run_limit", error)

    def _wake_if_changed(self, cycle: SchedulingCycle, active: ActivePlugin) -> None:
        key = (cycle.profile.scheduler_name, active.name)
        version = cycle.version(active)
        if version != self._seen_versions.get(key):
            self._wake_limited_by(cycle, active)
            self._seen_versions[key] = version

    def _wake_limited_by(self, cycle: SchedulingCycle, active: ActivePlugin) -> None:
        """Wake as many pods of a kind as the plugin has room for; gangs are many in one."""
        left: dict[Hashable, int] = {}

        def helps(queued: QueuedPod) -> bool:
            if queued.pod.spec.scheduler_name != cycle.profile.scheduler_name:
                return False
            try:
                pod_class = self._state.unbound[queued.key][1]
                run_key = cycle.run_key(pod_class)
                if run_key not in left:
                    left[run_key] = cycle.headroom_for(active, pod_class, len(self._state.unbound))
            except Exception as error:  # noqa: BLE001 -- reported; the pod's attempt will show
                self._isolation.note("run_limit", error, f"Pod {queued.key}")
                return True
            if left[run_key] <= 0:
                return False
            if queued.run_key is not None:
                left[run_key] -= 1
            return True

        self._queue.wake_rejected(active.name, helps, self._clock.now_s())
