"""Gangs that wait for room: who of them is tried again when something has happened.

All gangs of one kind of pod share a bound of how many such pods could find a place by now.  So a
gang that can't start whatever was freed is not even taken out of the queue.
"""

from collections.abc import Callable, Hashable

from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangBook
from koordinator.foundation.clock import Clock
from koordinator.scheduler.app.gang_placing import GangPlacer, GangTurn
from koordinator.scheduler.app.gang_rooms import GangRooms
from koordinator.scheduler.cycle import UNBOUNDED, Cycle, priority_of
from koordinator.scheduler.queue import Need, QueuedPod, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState, PodClass


class WaitingGangs:
    """Tells the queue of one scheduler what its gangs need, and when there may be enough."""

    def __init__(
        self,
        clock: Clock,
        state: ClusterState,
        queue: SchedulingQueue,
        *,
        placer: GangPlacer,
        rooms: GangRooms,
        cycle_of: Callable[[QueuedPod], Cycle],
    ) -> None:
        self._clock, self._state, self._queue = clock, state, queue
        self._placer, self._rooms, self._cycle_of = placer, rooms, cycle_of
        self._class_of: dict[Hashable, PodClass] = {}  # one of each run key

    def need_of(self, cycle: Cycle, turn: GangTurn) -> Need | None:
        """Return what a gang waits for that found too little room; None: it may be anything."""
        shortage = self._placer.shortage_of(turn)
        members = [self._state.unbound.get(key) for key in turn.attempt.members]
        pods = [found[0] for found in members if found is not None]
        if shortage is None or len(pods) < len(members):
            return None
        pod_class, least = shortage
        run_key = cycle.run_key(pod_class)
        self._class_of[run_key] = pod_class
        return Need((run_key, min(map(priority_of, pods))), least)

    def changed(self, gangs: GangBook, pod: Pod, previous: Pod | None) -> None:
        """Let the gang of a pod that came, changed or went be asked about every event again.

        What we write ourselves of why it waits is no change.
        """
        gang = gangs.gang_of(pod)
        if gang is None or gang.terms is None:
            return
        queued = self._queue.get(gangs.representative(gang.terms.group_id))
        if queued is not None and queued.need is not None and _is_other(pod, previous):
            self._queue.forget_need(queued.key)

    def wake(self) -> None:
        """Requeue the gangs for which there may be room, or room to be made, since the news."""
        if not self._queue.has_news_for_needs:
            return
        now_s, known = self._clock.now_s(), dict[Hashable, int]()
        for group, queued in self._queue.take_needs():
            cycle, (run_key, below) = self._cycle_of(queued), group[0]
            pod_class = self._class_of[run_key]
            if run_key not in known:
                known[run_key] = self._placer.most(cycle, pod_class)
            most = known[run_key]
            if most < UNBOUNDED:
                most = max(most, self._rooms.most(cycle, pod_class, below))
            self._queue.wake_needing(group, most, now_s)


def _is_other(pod: Pod, previous: Pod | None) -> bool:
    """Return whether more than the status differs."""
    if previous is None or previous.spec != pod.spec:
        return True
    old, new = previous.metadata, pod.metadata
    return (
        old.labels != new.labels
        or old.annotations != new.annotations
        or old.deletion_timestamp != new.deletion_timestamp
        or old.uid != new.uid
        or previous.status.phase != pod.status.phase
    )
