"""Whether a pod fits into a reservation and what its node has besides.

Source: koordinator pkg/scheduler/plugins/reservation/plugin.go, ``fitsNode``, ``fitsReservation``;
scoring.go, ``ScoreReservation``.  One difference: what owners took beyond the reservation stays
charged to the node; the original takes it off, too.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from koordinator.api.resource_names import GPU, GPU_CORE, GPU_MEMORY_RATIO
from koordinator.scheduler.rules.reservations.offer import AllocatePolicy, Amounts, ReservationOffer

PODS = "pods"
BY_NODE = " by node"  # ends what is said of a node that lacks something beside its reservations
CPU = "cpu"
PREFIX = "Reservation(s) "
GPU_SPELLINGS = frozenset((GPU, GPU_CORE, GPU_MEMORY_RATIO))


@dataclass(frozen=True, slots=True)
class IgnoredResources:
    """Extended resources that are not compared, by name and by what is before the slash."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self.names or ("/" in name and name.partition("/")[0] in self.groups)


def in_terms_of(offered: Collection[str], requests: Amounts) -> Amounts:
    """Return requests with what they ask of GPUs also by the resource names that are offered.

    ``koordinator.sh/gpu: 200`` is 200 percent of cores and of memory, and that is how the pod
    webhook spells it; a reservation keeps the spelling of its author.  Returns ``requests`` itself
    if the names meet as they are.
    """
    if GPU_SPELLINGS.isdisjoint(offered) or GPU_SPELLINGS.isdisjoint(requests):
        return requests
    if GPU in requests:
        percent = requests[GPU]
        missing = [name for name in (GPU_CORE, GPU_MEMORY_RATIO) if name not in requests]
    else:
        percent = max(requests.get(GPU_CORE, 0), requests.get(GPU_MEMORY_RATIO, 0))
        missing = [GPU]
    more = {name: percent for name in missing if name in offered}
    return {**requests, **more} if more else requests


def remaining(offer: ReservationOffer, used: Amounts) -> Amounts:
    """Return what owners may still take of what is reserved."""
    if not used and not offer.withheld:
        return offer.amounts
    return {
        name: max(amount - used.get(name, 0) - offer.withheld.get(name, 0), 0)
        for name, amount in offer.amounts.items()
    }


def short_on_node(
    requests: Amounts, free: Mapping[str, int], given: Amounts, ignored: IgnoredResources
) -> tuple[str, ...]:
    """Return the resources of which node and reservation together have too little.

    ``free`` is what the node has left (``pods``: how many more), ``given`` comes on top of it.
    """
    short = [PODS] if free.get(PODS, 0) < 1 else []
    short += [
        name
        for name, amount in requests.items()
        if name != PODS
        and name not in ignored
        and amount > 0
        and amount > free.get(name, 0) + given.get(name, 0)
    ]
    return tuple(short)


def short_in_reservation(
    requests: Amounts,
    offer: ReservationOffer,
    used: Amounts,
    users: int,
    ignored: IgnoredResources,
    *,
    detailed: bool,
) -> tuple[str, ...]:
    """Return why the reservation refuses: the number of its pods, and amounts under Restricted.

    ``used`` is what the ``users`` pods take of it.  ``detailed``: with amounts, milli for cpu.
    """
    reasons = []
    most = offer.amounts.get(PODS)
    if most is not None and users + 1 > most:
        text = f", requested: 1, used: {users}, capacity: {most}" if detailed else ""
        reasons.append(f"{PREFIX}Too many pods{text}")
    if offer.policy is not AllocatePolicy.RESTRICTED:
        return tuple(reasons)
    for name in sorted(offer.restricted):
        amount = requests.get(name, 0)
        if name == PODS or not amount or name in ignored:
            continue
        capacity = offer.amounts.get(name, 0) - offer.withheld.get(name, 0)
        taken = used.get(name, 0)
        if amount > capacity - taken:
            text = f", requested: {amount}, used: {taken}, capacity: {capacity}" if detailed else ""
            reasons.append(f"{PREFIX}Insufficient {name}{text}")
    return tuple(reasons)


def score(offer: ReservationOffer, used: Amounts, requests: Amounts) -> int:
    """Return how full the reservation would be, 0..100: the mean over what it reserves.

    A resource of which there is not enough counts as 0.
    """
    terms = [
        0 if (full := used.get(name, 0) + requests.get(name, 0)) > amount else full * 100 // amount
        for name, amount in offer.amounts.items()
        if amount > 0
    ]
    return sum(terms) // len(terms) if terms else 0


def first_by_order(offers: Iterable[ReservationOffer]) -> ReservationOffer | None:
    """Return the one with the smallest order label; None if none has one."""
    ordered = [offer for offer in offers if offer.order]
    return min(ordered, key=lambda offer: offer.order, default=None)
