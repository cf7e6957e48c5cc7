"""Which of the units that wait are let in, and who has to go for them.

Units are looked at in one order over all queues: the queue's priority, the unit's, those that can't
be preempted first, who came first, the name.  What does not fit may keep others of its queue
waiting: that is the queue's policy.

Source: koord-queue, plugin Priority and the queue policies of kube-queue.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from koordinator.api.queue_unit import QueueUnit, UnitPolicy
from koordinator.domain.queue_units.jobs import WaitingJob
from koordinator.domain.queue_units.life import LET_IN, held, holds, is_candidate, phase_of
from koordinator.domain.queue_units.queues import UnitQueue
from koordinator.domain.queue_units.quotas import UnitQuotas
from koordinator.foundation.clock import to_epoch_s

_Rank = tuple[int, int, bool, float, str]


@dataclass(frozen=True, slots=True)
class WaitingUnit:
    """A unit with its job and its number of importance."""

    unit: QueueUnit
    job: WaitingJob
    priority: int = 0
    is_preemptible: bool = True  # whether it may be sent back for a more important one

    @property
    def queue(self) -> str:
        """The name of its queue, which is that of its quota."""
        return self.unit.spec.queue


@dataclass(slots=True)
class AdmissionPlan:
    """What to do: first send back, then let in.  Units by key."""

    let_in: list[WaitingUnit] = field(default_factory=list)
    sent_back: list[tuple[WaitingUnit, str]] = field(default_factory=list)  # and for whom
    reasons: dict[str, str] = field(default_factory=dict)  # why a unit waits
    order: dict[str, list[WaitingUnit]] = field(default_factory=dict)  # who waits, by queue


def plan_admission(
    units: Iterable[WaitingUnit], queues: Mapping[str, UnitQueue], quotas: UnitQuotas
) -> AdmissionPlan:
    """Return who is let in now.

    ``quotas`` are without usage; what units hold is counted here, so that it can't be forgotten.
    """
    plan = AdmissionPlan()
    every = list(units)
    for one in every:
        if holds(one.unit, one.job):
            quotas.take(one.queue, held(one.unit, one.job))
    waiting = [one for one in every if is_candidate(one.unit, one.job)]
    waiting.sort(key=lambda one: _rank(one, queues))
    blocked: dict[str, str] = {}
    for one in waiting:
        queue = queues.get(one.queue) or UnitQueue(one.queue)
        order = plan.order.setdefault(one.queue, [])
        order.append(one)
        key = one.unit.key
        if one.queue in blocked:
            plan.reasons[key] = blocked[one.queue]
            continue
        if queue.depth is not None and len(order) > queue.depth:
            plan.reasons[key] = f"only the first {queue.depth} of its queue are looked at"
            continue
        why = quotas.why_not(one.queue, one.job.request)
        if not why:
            quotas.take(one.queue, one.job.request)
            plan.let_in.append(one)
            order.pop()
            continue
        plan.reasons[key] = why
        if queue.preempts and isinstance(quotas.path(one.queue), tuple):
            _make_room(one, every, quotas, plan)
        if queue.policy is UnitPolicy.BLOCK or (
            queue.policy is UnitPolicy.INTELLIGENT and one.priority >= queue.threshold
        ):
            blocked[one.queue] = f"{key} is before it and does not fit: {why}"
    return plan


def _make_room(
    one: WaitingUnit, every: Sequence[WaitingUnit], quotas: UnitQuotas, plan: AdmissionPlan
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
        and other.queue == one.queue
    ]
    victims = [
        other
        for other in every
        if other.queue == one.queue
        and other.unit.key not in gone
        and phase_of(other.unit) in LET_IN
        and not other.job.is_over
        and other.is_preemptible
        and other.priority < one.priority
    ]
    victims.sort(key=_worth)

    def fits_without(others: Sequence[WaitingUnit]) -> bool:
        for other in others:
            quotas.release(other.queue, held(other.unit, other.job))
        fits = not quotas.why_not(one.queue, one.job.request)
        for other in others:
            quotas.take(other.queue, held(other.unit, other.job))
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
    quotas.take(one.queue, one.job.request)  # nobody less important takes what becomes free


def _rank(one: WaitingUnit, queues: Mapping[str, UnitQueue]) -> _Rank:
    queue = queues.get(one.queue)
    arrived_s = to_epoch_s(one.unit.metadata.creation_timestamp)
    priority = 0 if queue is None else queue.priority
    return -priority, -one.priority, one.is_preemptible, arrived_s, one.unit.key


def _worth(one: WaitingUnit) -> tuple[int, float, str]:
    """Return a sort key, the least important first: of equals, who was let in last."""
    let_in_s = to_epoch_s(one.unit.status.last_allocate_time)
    return one.priority, -let_in_s, one.unit.key
