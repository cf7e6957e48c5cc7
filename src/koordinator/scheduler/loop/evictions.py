"""Evictions for preemption, and the nominations that go with them."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from koordinator.api.kube_version import DEFAULT_LEVEL, V1_36, KubeVersion
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import CompositePodGroup
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import ClusterError, ConflictError, NotFoundError
from koordinator.scheduler.binding import Bindings, write_change
from koordinator.scheduler.contract import Action, ClusterEvent
from koordinator.scheduler.loop.attempts import Attempts
from koordinator.scheduler.loop.nominations import Nominations
from koordinator.scheduler.loop.outcomes import (
    COMPOSITE_POD_GROUP,
    POD,
    POD_GROUP,
    Evicted,
    VictimsEvicted,
)
from koordinator.scheduler.loop.reporter import Reporter
from koordinator.scheduler.post_filter import PostFilterResult
from koordinator.scheduler.queue import SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState, ObjectChange, PlacedPod


class PreemptionExecutor:
    """Evictions and nominations of one scheduler."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        state: ClusterState,
        reporter: Reporter,
        *,
        queue: SchedulingQueue,
        nominations: Nominations,
        bindings: Bindings,
        attempts: Attempts,
        level: KubeVersion = DEFAULT_LEVEL,
    ) -> None:
        self._cluster, self._clock, self._state, self._reporter = cluster, clock, state, reporter
        self._queue = queue
        self._nominations, self._bindings, self._attempts = nominations, bindings, attempts
        self._in_memory = " (in kube-scheduler memory)." if level >= V1_36 else ""

    def preempt(self, pod: Pod, nomination: PostFilterResult) -> ClusterError | None:
        """Nominate the pod to the node and delete the victims; return the error, if any.

        Ends the nominations of pods with lower priority to that node.
        """
        self._nominations.nominate({pod.key: (pod, nomination.node)})
        return self._evict_for(pod, nomination.victims)

    def preempt_in_place(self, pod: PlacedPod, victims: Sequence[PlacedPod]) -> ClusterError | None:
        """Delete the victims of a pod that grows on its node; return the error, if any.

        Ends the nominations of pods with lower priority to that node.
        """
        self._nominations.end_less_important(self._state.nodes.names[pod.row], pod.priority)
        return self._evict_for(pod.pod, victims)

    def _evict_for(self, pod: Pod, victims: Sequence[PlacedPod]) -> ClusterError | None:
        """Delete victims until a deletion fails; return the error, if any."""
        self._bindings.wait_for_binds(victims)
        began_s, error = self._attempts.now_s(), None
        is_pending = any(map(_is_to_delete, victims))
        for victim in victims:
            error = self._evict(victim, pod, f"pod {pod.key}")
            if error is not None:
                break
        if is_pending:
            took_s = self._attempts.now_s() - began_s
            self._attempts.note(VictimsEvicted(POD, took_s, succeeded=error is None))
        return error

    def change(self, changes: Iterable[ObjectChange]) -> ClusterError | None:
        """Write the changes of other objects that make room; return the error, if any.

        Where the outcome of a write is unknown, the watch shows it.
        """
        for change in changes:
            old = self._state.objects.get(change.kind, change.key)
            try:
                new = write_change(self._cluster, change)
            except ClusterError as error:
                if old is None or not (change.deletes and isinstance(error, NotFoundError)):
                    return error
                new = structs.replace(
                    old, metadata=structs.replace(old.metadata, finalizers=())
                )  # it was deleted
            if change.deletes and not new.metadata.finalizers:
                self._state.objects.drop(new)
                event = ClusterEvent(change.kind.KIND, Action.DELETE, old, None)
            else:
                self._state.objects.put(new)
                event = ClusterEvent(change.kind.KIND, Action.UPDATE_OTHER, old, new)
            self._queue.on_event(event, self._clock.now_s())
        return None

    def free_headroom(
        self,
        places: Mapping[str, tuple[Pod, str]],
        victims: Sequence[PlacedPod],
        by: Pod,
        job: str,
        group: KubeObject | None = None,
    ) -> ClusterError | None:
        """Nominate pods, by key, to their places and delete the victims; return the first error.

        A victim that could not be deleted is one again in the next attempt.  Events name the
        ``job`` that needs the room; ``by`` is its pod and ``group`` its PodGroup of
        scheduling.k8s.io.
        """
        self._nominations.nominate(places)
        self._bindings.wait_for_binds(victims)
        errors, began_s = [], self._attempts.now_s()
        is_pending = any(map(_is_to_delete, victims))
        for victim in victims:
            error = self._evict(victim, by, job, group)
            if error is not None:
                errors.append(error)
        if is_pending and group is not None:
            took_s = self._attempts.now_s() - began_s
            kind = preemptor_of(group)
            self._attempts.note(VictimsEvicted(kind, took_s, succeeded=not errors))
        return errors[0] if errors else None

    def _evict(
        self, victim: PlacedPod, by: Pod, job: str, group: KubeObject | None = None
    ) -> ClusterError | None:
        """Delete a victim; return why that failed.

        One that is not bound yet loses its place and is tried again; one that is being deleted
        goes anyway.
        """
        node = self._state.nodes.names[victim.row]
        if self._bindings.preempt(victim.key):
            self._reporter.report_preemption(
                victim.pod, by, job, node, group, suffix=self._in_memory
            )
            return None
        meta = victim.pod.metadata
        if meta.deletion_timestamp is not None:
            return None
        self._reporter.write_disruption_target(victim.pod, by, job, group)
        try:
            self._cluster.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFoundError, ConflictError):
            return None  # deleted already, or another pod by now
        except ClusterError as error:
            return error
        self._note_leaving(victim)
        self._reporter.report_preemption(victim.pod, by, job, node, group)
        self._attempts.note_eviction(
            Evicted(victim.key, by.key, f"Preempted by {job} on node {node}")
        )
        return None

    def _note_leaving(self, victim: PlacedPod) -> None:
        """Mark the pod as terminating before its event arrives; it is no victim twice."""
        if self._state.pods.by_key.get(victim.key) is victim:
            now = to_datetime(self._clock.now_s())
            meta = structs.replace(victim.pod.metadata, deletion_timestamp=now)
            leaving = structs.replace(victim.pod, metadata=meta)
            self._state.update_placed(victim, leaving, self._state.classes.of(leaving))


def preemptor_of(group: KubeObject) -> str:
    """Return the value of the ``preemptor`` label for a group of scheduling.k8s.io."""
    return COMPOSITE_POD_GROUP if isinstance(group, CompositePodGroup) else POD_GROUP


def _is_to_delete(victim: PlacedPod) -> bool:
    return victim.pod.metadata.deletion_timestamp is None
