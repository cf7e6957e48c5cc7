"""Which of the units that wait are let in, and who has to go for them.

Units are looked at in one order over all queues: the queue's priority, the unit's, those that can't
be preempted first, who came first, the name.  What does not fit may keep others of its queue
waiting: that is the queue's policy.

Source: koord-queue, plugin Priority and the queue policies of kube-queue.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from koordinator.api.queue_unit import QueueUnit, UnitPolicy
from koordinator.domain.amounts import Amounts
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.manager.queue_units.accounts import UnitAccount, UnitClaim, UnitPlace
from koordinator.manager.queue_units.jobs import WaitingJob
from koordinator.manager.queue_units.life import (
    IN_BETWEEN,
    LET_IN,
    UnitGates,
    held,
    holds,
    is_candidate,
    phase_of,
)
from koordinator.manager.queue_units.queues import UnitQueue

_Rank = tuple[int, int, bool, float, str]


@dataclass(frozen=True, slots=True)
class WaitingUnit:
    """A unit with its job, its place and its number of importance."""

    unit: QueueUnit
    job: WaitingJob
    place: UnitPlace
    priority: int = 0
    is_preemptible: bool = True  # whether it may be sent back for a more important one

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.place.queue

    @property
    def request(self) -> UnitClaim:
        """What it asks for."""
        return self._claim(self.job.request)

    @property
    def held(self) -> UnitClaim:
        """What it counts, if it does."""
        return self._claim(held(self.unit, self.job))

    def _claim(self, amounts: Amounts) -> UnitClaim:
        return UnitClaim(
            self.unit.key,
            self.unit.metadata.namespace,
            self.place.quota,
            amounts,
            self.priority,
            self.is_preemptible,
        )


@dataclass(slots=True)
class AdmissionPlan:
    """What to do: first send back, then let in.  Units by key."""

    let_in: list[tuple[WaitingUnit, UnitGates]] = field(default_factory=list)
    sent_back: list[tuple[WaitingUnit, str]] = field(default_factory=list)  # and for whom
    reasons: dict[str, str] = field(default_factory=dict)  # why a unit waits
    order: dict[str, list[WaitingUnit]] = field(default_factory=dict)  # who waits, by queue


def plan_admission(
    units: Iterable[WaitingUnit], queues: Mapping[str, UnitQueue], account: UnitAccount
) -> AdmissionPlan:
    """Return who is let in now.

    The account is without usage; what units hold is counted here, so that it can't be forgotten.
    """
    every = list(units)
    admission = _Admission(every, queues, account)
    waiting = [one for one in every if is_candidate(one.unit, one.job)]
    for one in waiting:
        account.expect(one.request)
    waiting.sort(key=lambda one: _rank(one, queues))
    for one in waiting:
        admission.look_at(one)
    return admission.plan


class _Admission:
    """One walk over the units that wait, in their order."""

    def __init__(
        self, every: Sequence[WaitingUnit], queues: Mapping[str, UnitQueue], account: UnitAccount
    ) -> None:
        self.plan = AdmissionPlan()
        self._every, self._queues, self._account = every, queues, account
        self._blocked: dict[UnitPlace, str] = {}
        self._ahead: dict[str, int] = {}  # the highest priority that waits for a scheduler
        for one in every:
            if holds(one.unit, one.job):
                account.take(one.held)
            if phase_of(one.unit) in IN_BETWEEN:
                self._goes_ahead(one)

    def look_at(self, one: WaitingUnit) -> None:
        """Let a unit in, or note why it waits and who has to go or to wait for it."""
        plan, key = self.plan, one.unit.key
        queue = self._queues.get(one.queue) or UnitQueue(one.queue)
        order = plan.order.setdefault(one.queue, [])
        order.append(one)
        why = self._why_not_its_turn(one, queue, len(order))
        if why:
            plan.reasons[key] = why
            return
        try:
            gates = UnitGates(queue.checks_of(one.unit.metadata.labels), queue.is_strict)
        except InputError as error:
            plan.reasons[key] = f"queue {one.queue}: {error}"
            return
        why = self._account.why_not(one.request)
        if not why:
            self._account.take(one.request)
            plan.let_in.append((one, gates))
            if gates.first in IN_BETWEEN:
                self._goes_ahead(one)
            order.pop()
            return
        plan.reasons[key] = why
        preempts = queue.preempts or self._account.preempts(one.request)
        if preempts and self._account.can_have_room(one.request):
            _make_room(one, self._every, self._account, plan)
        if queue.policy is UnitPolicy.BLOCK or (
            queue.policy is UnitPolicy.INTELLIGENT and one.priority >= queue.threshold
        ):
            self._blocked[one.place] = f"{key} is before it and does not fit: {why}"

    def _why_not_its_turn(self, one: WaitingUnit, queue: UnitQueue, position: int) -> str:
        if one.place.problem:
            return one.place.problem
        if one.place in self._blocked:
            return self._blocked[one.place]
        if queue.depth is not None and position > queue.depth:
            return f"only the first {queue.depth} of its queue are looked at"
        first = self._ahead.get(one.queue)
        if queue.is_strict and first is not None and one.priority < first:
            return f"units of its queue of priority {first} wait for a scheduler"
        return ""

    def _goes_ahead(self, one: WaitingUnit) -> None:
        self._ahead[one.queue] = max(one.priority, self._ahead.get(one.queue, one.priority))


def _make_room(
    one: WaitingUnit, every: Sequence[WaitingUnit], account: UnitAccount, plan: AdmissionPlan
) -> None:
    """Send back the least important units without which one fits, and keep the room for it.

    Those that go already are waited for before others have to.
    """
    gone = {victim.unit.key for victim, _ in plan.sent_back}
    leaving = [
        other
        for other in every
        if holds(other.unit, other.job)
        and (phase_of(other.unit) not in LET_IN or other.unit.key in gone)
        and other.place == one.place
    ]
    victims = [
        other
        for other in every
        if other.place == one.place
        and other.unit.key not in gone
        and phase_of(other.unit) in LET_IN
        and not other.job.is_over
        and other.is_preemptible
        and other.priority < one.priority
    ]
    victims.sort(key=_worth)

    def fits_without(others: Sequence[WaitingUnit]) -> bool:
        for other in others:
            account.release(other.held)
        fits = not account.why_not(one.request)
        for other in others:
            account.take(other.held)
        return fits

    chosen: list[WaitingUnit] = []
    while not fits_without([*leaving, *chosen]):
        if not victims:
            return
        chosen.append(victims.pop(0))
    for candidate in list(reversed(chosen)):  # the most important first
        rest = [other for other in chosen if other is not candidate]
        if fits_without([*leaving, *rest]):
            chosen = rest
    plan.sent_back += [(victim, one.unit.key) for victim in chosen]
    account.take(one.request)  # nobody less important takes what becomes free


def _rank(one: WaitingUnit, queues: Mapping[str, UnitQueue]) -> _Rank:
    queue = queues.get(one.queue)
    arrived_s = to_epoch_s(one.unit.metadata.creation_timestamp)
    priority = 0 if queue is None else queue.priority
    return -priority, -one.priority, one.is_preemptible, arrived_s, one.unit.key


def _worth(one: WaitingUnit) -> tuple[int, float, str]:
    """Return a sort key, the least important first: of equals, who was let in last."""
    let_in_s = to_epoch_s(one.unit.status.last_allocate_time)
    return one.priority, -let_in_s, one.unit.key
