"""Admission of pending units, and preemption of admitted units for them.

Pending units of all queues are processed in one order: priority of the queue, priority of the
unit, units that can't be preempted first, creation time, name.  A unit that does not fit may block
later units of its queue, depending on the queue's policy.

Source: koord-queue, plugin Priority and the queue policies of kube-queue.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from koordinator.api.queue_unit import QueueUnit, UnitPolicy
from koordinator.domain.amounts import Amounts
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.queue_units.jobs import WaitingJob
from koordinator.manager.queue_units.ledgers import (
    UnitLedger,
    UnitPlace,
    UnitQueue,
    UnitResources,
)
from koordinator.manager.queue_units.life import (
    ADMITTED_PHASES,
    GATED_PHASES,
    UnitGates,
    admitted_amounts,
    is_candidate,
    is_counted,
    phase_of,
)

_Rank = tuple[int, int, bool, float, str]


@dataclass(frozen=True, slots=True)
class WaitingUnit:
    """A unit with its job, its queue and quota, and its priority."""

    unit: QueueUnit
    job: WaitingJob
    place: UnitPlace
    priority: int = 0
    is_preemptible: bool = True  # by a unit of higher priority

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.place.queue

    @property
    def request(self) -> UnitResources:
        """The resources that it requests."""
        return self._resources(self.job.request)

    @property
    def admitted(self) -> UnitResources:
        """The resources that it holds, if it is admitted."""
        return self._resources(admitted_amounts(self.unit, self.job))

    def _resources(self, amounts: Amounts) -> UnitResources:
        return UnitResources(
            self.unit.key,
            self.unit.metadata.namespace,
            self.place.quota,
            amounts,
            self.priority,
            self.is_preemptible,
        )


@dataclass(slots=True)
class AdmissionPlan:
    """Units to preempt and then to admit."""

    admitted: list[tuple[WaitingUnit, UnitGates]] = field(default_factory=list)
    #: Victims, each with the key of its preemptor.
    preempted: list[tuple[WaitingUnit, str]] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # reason of each pending unit, by key
    order: dict[str, list[WaitingUnit]] = field(default_factory=dict)  # pending units, by queue


def plan_admission(
    units: Iterable[WaitingUnit], queues: Mapping[str, UnitQueue], ledger: UnitLedger
) -> AdmissionPlan:
    """Return the units to admit and to preempt now.

    ``ledger`` must be empty; this function adds the usage of all admitted units.
    """
    every = list(units)
    admission = _Admission(every, queues, ledger)
    waiting = [one for one in every if is_candidate(one.unit, one.job)]
    for one in waiting:
        ledger.expect(one.request)
    waiting.sort(key=lambda one: _rank(one, queues))
    for one in waiting:
        admission.process(one)
    return admission.plan


class _Admission:
    """One pass over the pending units, in order."""

    def __init__(
        self, every: Sequence[WaitingUnit], queues: Mapping[str, UnitQueue], ledger: UnitLedger
    ) -> None:
        self.plan = AdmissionPlan()
        self._every, self._queues, self._ledger = every, queues, ledger
        self._blocked: dict[UnitPlace, str] = {}
        #: Highest priority that waits for a scheduler, by queue.
        self._gated_priority: dict[str, int] = {}
        for one in every:
            if is_counted(one.unit, one.job):
                ledger.take(one.admitted)
            if phase_of(one.unit) in GATED_PHASES:
                self._record_gated(one)

    def process(self, one: WaitingUnit) -> None:
        """Admit a unit, or record why it is pending, and its victims or the units that it blocks.

        Call it once per pending unit, in order.
        """
        plan, key = self.plan, one.unit.key
        queue = self._queues.get(one.queue) or UnitQueue(one.queue)
        order = plan.order.setdefault(one.queue, [])
        order.append(one)
        reason = self._blocking_reason(one, queue, len(order))
        if reason:
            plan.reasons[key] = reason
            return
        try:
            gates = UnitGates(queue.checks_of(one.unit.metadata.labels), queue.is_strict)
        except InputError as error:
            plan.reasons[key] = f"queue {one.queue}: {error}"
            return
        reason = self._ledger.shortfall(one.request)
        if not reason:
            self._ledger.take(one.request)
            plan.admitted.append((one, gates))
            if gates.first in GATED_PHASES:
                self._record_gated(one)
            order.pop()
            return
        plan.reasons[key] = reason
        preempts = queue.preempts or self._ledger.preempts(one.request)
        if preempts and self._ledger.is_satisfiable(one.request):
            _preempt(one, self._every, self._ledger, plan)
        if queue.policy is UnitPolicy.BLOCK or (
            queue.policy is UnitPolicy.INTELLIGENT and one.priority >= queue.threshold
        ):
            self._blocked[one.place] = f"unit {key} is ahead and does not fit: {reason}"

    def _blocking_reason(self, one: WaitingUnit, queue: UnitQueue, position: int) -> str:
        """Return why a unit is not considered at its position; empty if it is."""
        if one.place.problem:
            return one.place.problem
        if one.place in self._blocked:
            return self._blocked[one.place]
        if queue.depth is not None and position > queue.depth:
            return f"only the first {queue.depth} units of the queue are considered"
        first = self._gated_priority.get(one.queue)
        if queue.is_strict and first is not None and one.priority < first:
            return f"units of priority {first} in the same queue are waiting for a scheduler"
        return ""

    def _record_gated(self, one: WaitingUnit) -> None:
        highest = self._gated_priority.get(one.queue, one.priority)
        self._gated_priority[one.queue] = max(one.priority, highest)


def _preempt(
    one: WaitingUnit, every: Sequence[WaitingUnit], ledger: UnitLedger, plan: AdmissionPlan
) -> None:
    """Add the units of lowest priority that must be preempted for ``one``, and reserve its room.

    Units that are terminating already count as released; further victims are chosen only if that
    is not enough.
    """
    preempted = {victim.unit.key for victim, _ in plan.preempted}
    terminating = [
        other
        for other in every
        if is_counted(other.unit, other.job)
        and (phase_of(other.unit) not in ADMITTED_PHASES or other.unit.key in preempted)
        and other.place == one.place
    ]
    victims = [
        other
        for other in every
        if other.place == one.place
        and other.unit.key not in preempted
        and phase_of(other.unit) in ADMITTED_PHASES
        and not other.job.is_over
        and other.is_preemptible
        and other.priority < one.priority
    ]
    victims.sort(key=_victim_rank)

    def fits_without(others: Sequence[WaitingUnit]) -> bool:
        for other in others:
            ledger.release(other.admitted)
        fits = not ledger.shortfall(one.request)
        for other in others:
            ledger.take(other.admitted)
        return fits

    chosen: list[WaitingUnit] = []
    while not fits_without([*terminating, *chosen]):
        if not victims:
            return
        chosen.append(victims.pop(0))
    for candidate in list(reversed(chosen)):  # reprieve victims, the highest priority first
        rest = [other for other in chosen if other is not candidate]
        if fits_without([*terminating, *rest]):
            chosen = rest
    plan.preempted += [(victim, one.unit.key) for victim in chosen]
    ledger.take(one.request)  # reserved: units of lower priority must not use the released room


def _rank(one: WaitingUnit, queues: Mapping[str, UnitQueue]) -> _Rank:
    queue = queues.get(one.queue)
    arrived_s = to_epoch_s(one.unit.metadata.creation_timestamp)
    priority = 0 if queue is None else queue.priority
    return -priority, -one.priority, one.is_preemptible, arrived_s, one.unit.key


def _victim_rank(one: WaitingUnit) -> tuple[int, float, str]:
    """Return the sort key of a victim: lowest priority first, then the latest admission."""
    admitted_s = to_epoch_s(one.unit.status.last_allocate_time)
    return one.priority, -admitted_s, one.unit.key
