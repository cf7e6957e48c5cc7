"""Pending pods that a plugin limits across nodes, for example by a full quota."""

from collections.abc import Hashable, Mapping

from koordinator.foundation.clock import Clock
from koordinator.scheduler.contract import ActivePlugin
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.queue import QueuedPod, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState


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
        #: by scheduler name and plugin: the version of the plugin when it was asked last
        self._asked_at: dict[tuple[str, str], Hashable] = {}

    def wake(self) -> None:
        """Ask plugins that limit pods across nodes whom the events have given room.

        Asked once for all events, and once for pods that are limited alike.
        """
        for cycle in self._cycles.values():
            for active in cycle.limiting:
                try:
                    self._wake_if_changed(cycle, active)
                except Exception as error:  # noqa: BLE001 -- reported
                    self._isolation.note("run_limit", error)

    def _wake_if_changed(self, cycle: SchedulingCycle, active: ActivePlugin) -> None:
        asked = (cycle.profile.scheduler_name, active.name)
        version = cycle.version(active)
        if version != self._asked_at.get(asked):
            self._wake_limited_by(cycle, active)
            self._asked_at[asked] = version

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
