"""Nominated nodes of preemptors: the nominator, ``status.nominatedNodeName``, requeueing."""

from collections.abc import Container, Mapping

from koordinator.api.pod import Pod
from koordinator.foundation.clock import Clock
from koordinator.scheduler.loop.hooks import Hooks
from koordinator.scheduler.loop.reporter import Reporter
from koordinator.scheduler.queue import Nominator, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState


class Nominations:
    """Keeps the nominator, the queue and the pods' statuses in step."""

    def __init__(
        self,
        clock: Clock,
        state: ClusterState,
        queue: SchedulingQueue,
        nominator: Nominator,
        *,
        reporter: Reporter,
        hooks: Hooks,
    ) -> None:
        self._clock, self._state, self._queue = clock, state, queue
        self._nominator, self._reporter, self._hooks = nominator, reporter, hooks
        self.known = nominator.known

    def end(self, pod: Pod) -> None:
        """Withdraw the nomination of a pod that could not use its node."""
        nominated = self._nominator.node_of(pod.key)
        if nominated or pod.status.nominated_node_name:
            self._nominator.withdraw(pod.key)
            self._reporter.write_nominated_node(pod, "")
        if nominated:
            self._queue.on_nomination_ended(pod, self._clock.now_s())

    def forget(self, pod: Pod, node: str = "") -> None:
        """End the nomination of a pod that has a node or was deleted."""
        nominated = self._nominator.remove(pod.key)
        if nominated and nominated != node:
            self._queue.on_nomination_ended(pod, self._clock.now_s())

    def follow(self, pod: Pod) -> None:
        """Apply ``status.nominatedNodeName`` of a pending pod from an event."""
        if self._nominator.update(pod):
            self._queue.on_nomination_ended(pod, self._clock.now_s())

    def nominate(self, places: Mapping[str, tuple[Pod, str]]) -> None:
        """Nominate pods, by key, to nodes; end the nominations of less important pods there."""
        for key, (pod, node) in places.items():
            self.end_less_important(node, pod.spec.priority or 0, but=places)
            before = self._nominator.node_of(key)
            if before != node or pod.status.nominated_node_name != node:
                self._nominator.add(pod, node)
                self._reporter.write_nominated_node(pod, node)
            if before not in ("", node):
                self._queue.on_place_left(pod, self._clock.now_s())

    def end_less_important(self, node: str, priority: int, but: Container[str] = ()) -> None:
        """End the nominations to a node of pods below a priority; ``but`` are keys that stay."""
        for other in self._nominator.on_node(node):
            if (other.spec.priority or 0) < priority and other.key not in but:
                self._yield_nomination(other)

    def _yield_nomination(self, pod: Pod) -> None:
        """End a nomination in favour of a more important pod, with the nominations of its gang."""
        keys = [pod.key]
        for hook in self._hooks.pods_sharing_nomination:
            keys += hook(pod)
        for key in dict.fromkeys(keys):
            waiting = self._state.unbound.get(key)
            if key == pod.key or self._nominator.node_of(key):
                self.end(waiting[0] if waiting is not None else pod)
        self._queue.activate(dict.fromkeys(keys), self._clock.now_s())
