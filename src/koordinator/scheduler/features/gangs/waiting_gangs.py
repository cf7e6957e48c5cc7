"""Requeueing of gangs that wait for capacity.

Gangs of one kind share an upper bound of the pods that may fit at present, so a gang that cannot
start is not requeued for every change.
"""

from collections.abc import Hashable
from dataclasses import field

from koordinator.api.pod import Pod
from koordinator.domain.gangs import Gang, GangAttempt, GangCache
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.cycle import UNBOUNDED, HeadroomBound, SchedulingCycle, priority_of
from koordinator.scheduler.features.gangs.preemption import GangPreemption
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import Need, QueuedPod
from koordinator.scheduler.snapshot import PodClass


@dataclass(frozen=True, slots=True)
class _Kind:
    """Key of gangs that the same events help."""

    event_key: Hashable  # pods whose queueing hints are evaluated
    run_keys: tuple[Hashable, ...]  # run keys of their members
    below: int  # priority of the most important member
    level: int | None  # level of the network domain that all must share; None: any
    network: int  # generation of the network of that level
    classes: tuple[PodClass, ...] = field(compare=False)  # a sample per run key

    @property
    def shape(self) -> Hashable:
        """Key without the priority."""
        return self.run_keys, self.level, self.network


@dataclass(frozen=True, slots=True)
class _Headroom:
    """Bounds of capacity for all members of some gangs, and for each run key."""

    bounds: tuple[HeadroomBound | None, ...]
    of_row: IntArray | None  # the domain of each row
    now: tuple[int, ...]  # upper bound of members that fit now


class WaitingGangs:
    """Needs of the gangs of one scheduler, and their requeueing."""

    def __init__(self, handle: SchedulerHandle, headrooms: GangPreemption) -> None:
        self._clock, self._state, self._queue = handle.clock, handle.state, handle.queue
        self._cycles, self._headrooms = handle.cycles, headrooms

    def need_of(
        self,
        cycle: SchedulingCycle,
        attempt: GangAttempt,
        representative: QueuedPod,
        level: int | None,
    ) -> Need | None:
        """Return the need of a gang that did not fit; None if any event may help.

        The ``representative`` is queued for the gang.  With ``level`` all members must share a
        network domain of that level.
        """
        pending = {key: self._state.unbound.get(key) for key in attempt.members}
        members = {key: one for key, one in pending.items() if one is not None}
        if len(members) < len(pending):
            return None
        run_keys = {key: cycle.run_key(pod_class) for key, (_, pod_class) in members.items()}
        least, total = attempt.least(run_keys), attempt.enough
        if not total or representative.key not in members:
            return None
        order = sorted(least, key=str)
        class_of = {run_keys[key]: one for key, (_, one) in members.items()}
        own_class = members[representative.key][1]
        kind = _Kind(
            (
                run_keys[representative.key],
                None if cycle.takes_amounts_only(own_class) else own_class.id,
            ),
            tuple(order),
            max(priority_of(pod) for pod, _ in members.values()),
            level,
            self._state.network.generation if level is not None else 0,
            tuple(class_of[run_key] for run_key in order),
        )
        return Need(kind, (total,) if len(order) == 1 else (total, *(least[key] for key in order)))

    def changed(self, gangs: GangCache, gang: Gang | None, pod: Pod, previous: Pod | None) -> None:
        """Requeue a gang that a pod joined or left, or with a changed member.

        Its need changes, which voids the events counted so far.  Status updates of the scheduler
        are no change.
        """
        if gang is None or gang.terms is None:
            return
        key = gangs.representative(gang.terms.group_id)
        if key and _is_other(pod, previous):
            self._queue.release([key], self._clock.now_s(), "GangUpdate")

    def wake(self) -> None:
        """Requeue the gangs for which events may have freed enough capacity."""
        now_s, known = self._clock.now_s(), dict[Hashable, _Headroom | None]()
        for group, queued in self._queue.take_needs():
            cycle, kind = self._cycles[queued.pod.spec.scheduler_name], group[0]
            if not isinstance(kind, _Kind):
                raise BugError(f"{queued.key} waits for {kind}.")
            if kind.shape not in known:
                known[kind.shape] = self._headroom(cycle, kind)
            headroom = known[kind.shape]
            most = (UNBOUNDED,) * (1 + len(kind.run_keys))
            if headroom is not None:
                made = (
                    self._headrooms.most(cycle, bound, kind.below, headroom.of_row)
                    for bound in headroom.bounds
                )
                most = tuple(map(max, headroom.now, made))
            self._queue.wake_needing(group, most, now_s)

    def _headroom(self, cycle: SchedulingCycle, kind: _Kind) -> _Headroom | None:
        """Return the current bounds; None if they are unlimited."""
        if kind.level is not None and kind.network != self._state.network.generation:
            return None
        classes = kind.classes
        bounds = [cycle.bound(*classes)]
        if len(classes) > 1:
            bounds += [cycle.bound(pod_class) for pod_class in classes]
        of_row = cycle.domains_at(kind.level)
        now = [UNBOUNDED if bound is None else bound.most(of_row=of_row) for bound in bounds]
        if len(classes) == 1:
            now[0] = cycle.limit(classes[0], now[0])
        return _Headroom(tuple(bounds), of_row, tuple(now))


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
