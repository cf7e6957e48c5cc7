"""Holds on a node that a pod fits into, or why it fits into none.

Source: koordinator pkg/scheduler/plugins/reservation/plugin.go, ``filterWithReservations``;
nominator.go, ``NominateReservation``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.rules.reservations.match import (
    BY_NODE,
    PODS,
    PREFIX,
    IgnoredResources,
    ReservationRequester,
    first_by_order,
    in_terms_of,
    remaining,
    score,
    short_in_reservation,
    short_on_node,
)
from koordinator.scheduler.snapshot import Hold, PodClass, Snapshot
from koordinator.scheduler.snapshot.axis import PODS as PODS_COLUMN

NOT_ENOUGH: Final = "node(s) no reservation(s) to meet the requirements"


@dataclass(frozen=True, slots=True)
class HoldFit:
    """Result for one node; without ``reasons`` the node accepts the pod.

    Without ``fitting`` holds the pod uses unreserved capacity.
    """

    fitting: tuple[Hold, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldEvaluator:
    """Evaluation of nodes with usable holds for one class; ``parts`` allocate devices and CPUs."""

    snapshot: Snapshot
    pod: PodClass
    requester: ReservationRequester
    ignored: IgnoredResources
    parts: Sequence[Any]

    def at(self, place: int, holds: Iterable[Hold]) -> HoldFit:
        """Return the result for a row of the snapshot with the holds that the pod may use."""
        holds = tuple(holds)
        affinity, requests = self.requester.selector.affinity, self.requester.requests
        free = self._free(place, holds)
        detailed = affinity is not None and bool(affinity.name)
        fitting: list[Hold] = []
        short: set[str] = set()
        reasons: list[str] = []
        for hold in holds:
            offer = hold.offer
            met = in_terms_of(offer.amounts, requests)
            if affinity is None and not any(met.get(n) for n in offer.restricted if n != PODS):
                continue
            # The node must have room beside the hold, and the hold may be restricted.  Devices,
            # CPUs and NUMA nodes come last, since they need the filters once more.
            shortfall = short_on_node(requests, free, remaining(offer, hold.used), self.ignored)
            inside = self._short_inside(hold, detailed=detailed)
            if not shortfall and not inside:
                parts = self._short_of_parts(place, hold, alone=len(holds) == 1)
                if not parts:
                    fitting.append(hold)
                reasons += (f"{PREFIX}{reason}" for reason in parts)
            short.update(shortfall)
            reasons += inside
        if fitting:
            return HoldFit(tuple(fitting))
        by_node = tuple(f"Insufficient {name}{BY_NODE}" for name in sorted(short))
        if affinity is not None:
            return HoldFit(reasons=(*by_node, *reasons) or (NOT_ENOUGH,))
        return HoldFit(reasons=by_node or self._without(place, free))

    def least_shortfall(self, place: int, holds: Iterable[Hold]) -> dict[str, int]:
        """Return the shortfall of the node on the way to run the pod that lacks least.

        A pod uses one of the holds, or none unless it needs one.  If all usable holds are too
        small, more capacity on the node would not help; then the shortfall beside each of them
        counts.
        """
        holds, requests = tuple(holds), self.requester.requests
        free = self._free(place, holds)

        def part(missing: Mapping[str, int]) -> float:
            return sum(amount / requests.get(name, 1) for name, amount in missing.items())

        shortfalls = [
            self._missing(free, h) for h in holds if not self._short_inside(h, detailed=False)
        ]
        if self.requester.selector.affinity is None:
            shortfalls.append(self._missing(free, None))
        if shortfalls:
            return min(shortfalls, key=part)
        return max((self._missing(free, hold) for hold in holds), key=part)

    def _missing(self, free: Mapping[str, int], hold: Hold | None) -> dict[str, int]:
        given = {} if hold is None else remaining(hold.offer, hold.used)
        available = {
            name: free.get(name, 0) + given.get(name, 0) for name in self.requester.requests
        }
        available[PODS] = free.get(PODS, 0)
        short = short_on_node(self.requester.requests, available, {}, self.ignored)
        return {name: self.requester.requests.get(name, 1) - available[name] for name in short}

    def _short_inside(self, hold: Hold, *, detailed: bool) -> tuple[str, ...]:
        return short_in_reservation(
            in_terms_of(hold.offer.amounts, self.requester.requests),
            hold.offer,
            hold.used,
            len(hold.users),
            self.ignored,
            detailed=detailed,
        )

    def _without(self, place: int, free: Mapping[str, int]) -> tuple[str, ...]:
        """Return why the unreserved capacity does not suffice; empty if it does."""
        short = short_on_node(self.requester.requests, free, {}, self.ignored)
        if short:
            return tuple(f"Insufficient {name}{BY_NODE}" for name in sorted(short))
        return self._short_of_parts(place, None)

    def _free(self, place: int, holds: Iterable[Hold]) -> dict[str, int]:
        """Return the requested resources that are free beside the holds.

        For ``pods`` it is the number of additional pods with the holds removed.
        """
        snapshot = self.snapshot
        capacity, taken = snapshot.allocatable[place], snapshot.requested[place]
        free = {column: capacity.item(column) - taken.item(column) for column, _ in self.pod.demand}
        for hold in holds:
            if hold.restored:
                for column, amount in hold.left.demand:
                    if column != PODS_COLUMN and column in free:
                        free[column] -= amount
            elif not hold.offer.is_pod:
                free[PODS_COLUMN] += 1
        names = snapshot.resources
        return {names[column]: amount for column, amount in free.items()}

    def _short_of_parts(
        self, place: int, hold: Hold | None, *, alone: bool = False
    ) -> tuple[str, ...]:
        """Return why devices, CPUs or NUMA nodes do not suffice with this hold alone, or none.

        If it is the only hold and already restored, the filters of these plugins have run on it.
        """
        # The filters have run with all holds restored at once.  Which hold a pod may use has to be
        # answered for each alone.
        restricted = hold is not None and hold.offer.is_restricted and hold.has_parts
        if not self.parts or (alone and hold is not None and hold.restored and not restricted):
            return ()
        view = self.snapshot[np.array([place])]
        restored = () if hold is None else (hold,)
        reasons: list[str] = []
        with view.restoring_only(*restored, restricted=restricted):
            for plugin in self.parts:
                if plugin.hints.filters(view, self.pod):
                    rejections = plugin.filter(view, self.pod)
                    code = int(rejections.codes[0])
                    if code and rejections.explain is not None:
                        reasons += rejections.explain(0)
                    elif code:
                        reasons += (
                            r for bit, r in enumerate(rejections.reasons) if code >> bit & 1
                        )
        return tuple(reasons)

    def best(self, fitting: Sequence[Hold]) -> Hold:
        """Return the hold to use: the first by order label, else the one that would be fullest."""
        if len(fitting) == 1:
            return fitting[0]
        first = first_by_order(hold.offer for hold in fitting)
        if first is not None:
            return next(hold for hold in fitting if hold.offer is first)
        return min(fitting, key=lambda hold: (-self.score(hold), hold.offer.name))

    def score(self, hold: Hold) -> int:
        """Return the utilisation of the reservation with the pod, 0..100."""
        requests = in_terms_of(hold.offer.amounts, self.requester.requests)
        return score(hold.offer, hold.used, requests)
