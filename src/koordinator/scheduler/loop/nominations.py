"""Nominated nodes of preemptors: the nominator, ``status.nominatedNodeName``, requeueing."""

from collections.abc import Container, Hashable, Mapping
from collections.abc import Set as AbstractSet

from msgspec import structs

from koordinator.api.pod import Pod
from koordinator.foundation.clock import Clock
from koordinator.scheduler.cycle import NominatedPods, priority_of
from koordinator.scheduler.loop.hooks import Hooks
from koordinator.scheduler.loop.reporter import Reporter
from koordinator.scheduler.queue import Nominator, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState


class Nominations:
    """Nominations of one process: keeps nominator, queue and statuses of pods in step.

    Nominations of other schedulers' pods are known from their statuses only.
    """

    def __init__(
        self,
        clock: Clock,
        state: ClusterState,
        queue: SchedulingQueue,
        nominator: Nominator,
        *,
        reporter: Reporter,
        hooks: Hooks,
        schedulers: AbstractSet[str],
    ) -> None:
        self._clock, self._state, self._queue = clock, state, queue
        self._nominator, self._reporter, self._hooks = nominator, reporter, hooks
        self.known = nominator.known
        self._schedulers = schedulers  # names of this process's schedulers
        self._foreign = Nominator()  # pods of other schedulers
        self._by_node_at: tuple[Hashable, NominatedPods] = ((0, 0), {})  # with versions

    def by_node(self, but: Container[str] = ()) -> NominatedPods:
        """Return the pods nominated to each node, except those with the keys in ``but``."""
        version = (self._nominator.version, self._foreign.version)
        known_at, every = self._by_node_at
        if version != known_at:
            every = {
                node: [
                    (pod, self._state.classes.of(pod))
                    for pod in (*self._nominator.on_node(node), *self._foreign.on_node(node))
                ]
                for node in (*self._nominator.nodes(), *self._foreign.nodes())
            }
            self._by_node_at = (version, every)
        if not but:
            return every
        remaining = {
            node: [it for it in pods if it[0].key not in but] for node, pods in every.items()
        }
        return {node: pods for node, pods in remaining.items() if pods}

    def update_foreign(self, pod: Pod, *, ended: bool) -> bool:
        """Update the nomination of a pod of another scheduler; return whether it has ended.

        Only more important pods count, not equals: these may have been nominated after ours.
        Source: koordinator pkg/scheduler/frameworkext, gate CrossSchedulerNomination.
        """
        if pod.spec.scheduler_name in self._schedulers:
            return False
        before = self._foreign.node_of(pod.key)
        self._foreign.remove(pod.key)
        if not (ended or pod.spec.node_name or pod.metadata.deletion_timestamp):
            spec = structs.replace(pod.spec, priority=priority_of(pod) - 1)
            self._foreign.add(structs.replace(pod, spec=spec))
        return bool(before) and self._foreign.node_of(pod.key) != before

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

    def apply_status(self, pod: Pod) -> None:
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
