"""The way back from an attempt that broke off: everything is as it was before it."""

from collections.abc import Callable, Sequence

from koordinator.api.codec import subject_of
from koordinator.domain.gangs import GangBook
from koordinator.foundation.faults import Fault
from koordinator.scheduler.app.binding import Binder
from koordinator.scheduler.app.binding_cycle import BindingCycle
from koordinator.scheduler.app.isolation import Isolation
from koordinator.scheduler.app.journal import Journal
from koordinator.scheduler.queue import QueuedPod, QueueState, SchedulingQueue


class Recovery:
    """Takes back the attempts of one scheduler; ``decide`` tries pods, ``fail`` ends an attempt."""

    def __init__(
        self,
        isolation: Isolation,
        binder: Binder,
        bindings: BindingCycle,
        journal: Journal,
        *,
        queue: SchedulingQueue,
        gangs: Sequence[GangBook],
        decide: Callable[[list[QueuedPod]], None],
        fail: Callable[[QueuedPod, str], None],
    ) -> None:
        self._isolation, self._binder, self._bindings = isolation, binder, bindings
        self._journal, self._queue, self._gangs = journal, queue, gangs
        self._decide, self._fail = decide, fail

    def recover(self, run: Sequence[QueuedPod], error: Exception) -> None:
        """Take back what was decided about pods whose attempt broke off; each may try again.

        Of a run each is decided on its own, so that only those fail that break it; of a gang
        nobody keeps a place.  Raises what is no fault of ours, when all is as it was.
        """
        lost = self._bindings.abandon(self._binder.assumed)
        self._journal.end(run)
        left = self._undecided([*run, *lost, *self._mates(run[0])])
        if len(run) > 1:
            for queued in left:
                self._decide([queued])
            return
        fault: Fault | None = None
        try:
            fault = self._isolation.fault("schedule", error, subject_of(run[0].pod))
        finally:
            for queued in left:
                self._fail(queued, fault.problem if fault is not None else str(error))
        self._isolation.tell(fault)

    def _mates(self, head: QueuedPod) -> list[QueuedPod]:
        """Return the members without places of the gang that a pod stands for, as it goes on."""
        found = []
        for gangs in self._gangs:
            gangs.set_representative(head.pod)
            found += [self._queue.get(key) for key in gangs.mates(head.pod)]
        return [queued for queued in found if queued is not None]

    def _undecided(self, pods: Sequence[QueuedPod]) -> list[QueuedPod]:
        different = {queued.key: queued for queued in pods}.values()
        return [
            queued
            for queued in different
            if queued.state is QueueState.IN_FLIGHT and not self._bindings.has(queued.key)
        ]
