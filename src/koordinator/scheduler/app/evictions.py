"""Places kept for pods that make room for themselves, and the pods that go for them."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.cluster.port import Cluster, EventType, WatchEvent
from koordinator.domain.gangs import GangAttempt, GangBook
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import ClusterError, ConflictError, NotFoundError
from koordinator.scheduler.app.binding_cycle import BindingCycle
from koordinator.scheduler.app.gang_rooms import Room
from koordinator.scheduler.app.journal import Journal
from koordinator.scheduler.app.outcomes import Evicted
from koordinator.scheduler.app.reporter import Reporter
from koordinator.scheduler.contract import Action, ClusterEvent, PostFilterResult
from koordinator.scheduler.queue import EVERYTHING, Nominator, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState, PlacedPod


class Evictions:
    """Nominates and evicts for one scheduler."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        state: ClusterState,
        reporter: Reporter,
        *,
        queue: SchedulingQueue,
        nominator: Nominator,
        gangs: Sequence[GangBook],
        bindings: BindingCycle,
        journal: Journal,
    ) -> None:
        self._cluster, self._clock, self._state, self._reporter = cluster, clock, state, reporter
        self._queue, self._nominator, self._gangs = queue, nominator, gangs
        self._bindings, self._journal = bindings, journal
        self.gangs_shrank = False  # one may be short of members now

    def end_stale_nominations(self) -> None:
        """Keep no places for members of a gang that is short of members by now."""
        shrank, self.gangs_shrank = self.gangs_shrank, False
        for node in self._nominator.nodes() if shrank else ():
            for pod in self._nominator.on_node(node):
                if any(g.is_member(pod) and g.shortage(pod) for g in self._gangs):
                    self.end_nomination(pod)

    def heard_group(self, event: WatchEvent) -> ClusterEvent | None:
        """Return what to tell the queue of a PodGroup that has members to spare now, if it has."""
        self.gangs_shrank = True
        before, after = event.previous, event.object
        needs_fewer = (
            isinstance(before, PodGroup)
            and isinstance(after, PodGroup)
            and after.spec.min_member < before.spec.min_member
        )
        if needs_fewer or event.type is EventType.DELETED:
            return ClusterEvent(EVERYTHING, Action.UPDATE)
        return None

    def end_nomination(self, pod: Pod) -> None:
        """Keep no place any more for a pod that could not take it."""
        nominated = self._nominator.node_of(pod.key)
        if nominated or pod.status.nominated_node_name:
            self._nominator.withdraw(pod.key)
            self._reporter.nominated(pod, "")
        if nominated:
            self._queue.on_nomination_ended(pod, self._clock.now_s())

    def forget_nomination(self, pod: Pod, node: str = "") -> None:
        """Keep no place for a pod any more, which has one on a node now, or is gone."""
        nominated = self._nominator.remove(pod.key)
        if nominated and nominated != node:
            self._queue.on_nomination_ended(pod, self._clock.now_s())

    def heard_nomination(self, pod: Pod) -> None:
        """Follow what news say about the node to which a waiting pod is nominated."""
        if self._nominator.update(pod):
            self._queue.on_nomination_ended(pod, self._clock.now_s())

    def preempt(self, pod: Pod, nomination: PostFilterResult) -> ClusterError | None:
        """Nominate the node and delete the victims; return what went wrong.

        Pods that hoped for that node with less right give way.
        """
        node = nomination.node
        self._nominate({pod.key: (pod, node)})
        self._bindings.settle(nomination.victims)
        for victim in nomination.victims:
            its_node = self._state.nodes.names[victim.row]
            error = self._evict(victim, pod, f"pod {pod.key}", its_node)
            if error is not None:
                return error
        return None

    def make_room(self, attempt: GangAttempt, head: Pod, room: Room) -> ClusterError | None:
        """Nominate members to their places and delete the victims; return what went wrong first.

        Whoever could not be deleted is a victim again with the next attempt.
        """
        if not room.places:
            return None
        self._nominate(room.pods)
        self._bindings.settle(room.victims)
        errors = []
        for victim in room.victims:
            node = self._state.nodes.names[victim.row]
            error = self._evict(victim, head, f"gang group {attempt.group_id}", node)
            if error is not None:
                errors.append(error)
        return errors[0] if errors else None

    def _nominate(self, places: Mapping[str, tuple[Pod, str]]) -> None:
        """Keep places for pods, by key; who hoped for their nodes with less right gives way."""
        for key, (pod, node) in places.items():
            priority = pod.spec.priority or 0
            for other in self._nominator.on_node(node):
                if (other.spec.priority or 0) < priority and other.key not in places:
                    self._give_up(other)
            before = self._nominator.node_of(key)
            if before != node or pod.status.nominated_node_name != node:
                self._nominator.add(pod, node)
                self._reporter.nominated(pod, node)
            if before not in ("", node):
                self._queue.on_place_left(pod, self._clock.now_s())

    def _give_up(self, pod: Pod) -> None:
        """End a nomination for the sake of a more important pod, with those of its gang."""
        keys = [pod.key]
        for gangs in self._gangs:
            keys += gangs.mates(pod)
        for key in dict.fromkeys(keys):
            waiting = self._state.unbound.get(key)
            if key == pod.key or self._nominator.node_of(key):
                self.end_nomination(waiting[0] if waiting is not None else pod)
        self._queue.activate(dict.fromkeys(keys), self._clock.now_s())

    def _evict(self, victim: PlacedPod, by: Pod, job: str, node: str) -> ClusterError | None:
        """Delete a victim; return why that failed."""
        if self._bindings.give_up(victim.key):
            return None
        meta = victim.pod.metadata
        self._reporter.preempting(victim.pod, by, job)
        try:
            self._cluster.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFoundError, ConflictError):
            return None  # gone already, or another pod by now
        except ClusterError as error:
            return error
        self._note_leaving(victim)
        self._reporter.preempted(victim.pod, by, job, node)
        self._journal.note(Evicted(victim.key, by.key, f"Preempted by {job} on node {node}"))
        return None

    def _note_leaving(self, victim: PlacedPod) -> None:
        """Note what the news will say: who is evicted next must not count on this pod."""
        if self._state.pods.by_key.get(victim.key) is victim:
            now = to_datetime(self._clock.now_s())
            meta = structs.replace(victim.pod.metadata, deletion_timestamp=now)
            leaving = structs.replace(victim.pod, metadata=meta)
            self._state.update_placed(victim, leaving, self._state.classes.of(leaving))
