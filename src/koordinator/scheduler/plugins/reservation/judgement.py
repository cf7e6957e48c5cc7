"""Which of the holds on a node a pod fits into, or why into none.

Source: koordinator pkg/scheduler/plugins/reservation/plugin.go, ``filterWithReservations``;
nominator.go, ``NominateReservation``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from koordinator.scheduler.rules.reservations.fit import (
    BY_NODE,
    PODS,
    PREFIX,
    IgnoredResources,
    first_by_order,
    in_terms_of,
    remaining,
    score,
    short_in_reservation,
    short_on_node,
)
from koordinator.scheduler.rules.reservations.match import ReservationRequester
from koordinator.scheduler.snapshot import Hold, PodClass, Snapshot
from koordinator.scheduler.snapshot.axis import PODS as PODS_COLUMN

NOT_ENOUGH: Final = "node(s) no reservation(s) to meet the requirements"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of one node; no ``reasons``: it takes the pod.

    Without ``fitting`` holds the pod takes what is not reserved.
    """

    fitting: tuple[Hold, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judge:
    """Judge of nodes with restorable holds for one class of pods.

    ``parts`` are the plugins that allocate parts of nodes.
    """

    snapshot: Snapshot
    pod: PodClass
    asking: ReservationRequester
    ignored: IgnoredResources
    parts: Sequence[Any]

    def at(self, place: int, holds: Iterable[Hold]) -> Judgement:
        """Return what comes of a row of the snapshot on which the pod may use these holds."""
        holds = tuple(holds)
        affinity, requests = self.asking.selector.affinity, self.asking.requests
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
            lacking = short_on_node(requests, free, remaining(offer, hold.used), self.ignored)
            inside = self._short_inside(hold, detailed=detailed)
            if not lacking and not inside:
                parts = self._short_of_parts(place, hold, alone=len(holds) == 1)
                if not parts:
                    fitting.append(hold)
                reasons += (f"{PREFIX}{reason}" for reason in parts)
            short.update(lacking)
            reasons += inside
        if fitting:
            return Judgement(tuple(fitting))
        by_node = tuple(f"Insufficient {name}{BY_NODE}" for name in sorted(short))
        if affinity is not None:
            return Judgement(reasons=(*by_node, *reasons) or (NOT_ENOUGH,))
        return Judgement(reasons=by_node or self._without(place, free))

    def lacking(self, place: int, holds: Iterable[Hold]) -> dict[str, int]:
        """Return what the node has too little of, on the way on which least is missing.

        A pod uses one of the holds, or none unless it needs one.  If all that it could use are too
        small, more on the node would not help; then it is what the node lacks beside each of them.
        """
        holds, requests = tuple(holds), self.asking.requests
        free = self._free(place, holds)

        def part(missing: Mapping[str, int]) -> float:
            return sum(amount / requests.get(name, 1) for name, amount in missing.items())

        ways = [self._missing(free, h) for h in holds if not self._short_inside(h, detailed=False)]
        if self.asking.selector.affinity is None:
            ways.append(self._missing(free, None))
        if ways:
            return min(ways, key=part)
        return max((self._missing(free, hold) for hold in holds), key=part)

    def _missing(self, free: Mapping[str, int], hold: Hold | None) -> dict[str, int]:
        given = {} if hold is None else remaining(hold.offer, hold.used)
        there = {name: free.get(name, 0) + given.get(name, 0) for name in self.asking.requests}
        there[PODS] = free.get(PODS, 0)
        short = short_on_node(self.asking.requests, there, {}, self.ignored)
        return {name: self.asking.requests.get(name, 1) - there[name] for name in short}

    def _short_inside(self, hold: Hold, *, detailed: bool) -> tuple[str, ...]:
        return short_in_reservation(
            in_terms_of(hold.offer.amounts, self.asking.requests),
            hold.offer,
            hold.used,
            len(hold.users),
            self.ignored,
            detailed=detailed,
        )

    def _without(self, place: int, free: Mapping[str, int]) -> tuple[str, ...]:
        """Return why the node doesn't take the pod beside all reservations; empty: it does."""
        short = short_on_node(self.asking.requests, free, {}, self.ignored)
        if short:
            return tuple(f"Insufficient {name}{BY_NODE}" for name in sorted(short))
        return self._short_of_parts(place, None)

    def _free(self, place: int, holds: Iterable[Hold]) -> dict[str, int]:
        """Return what the node has left beside the holds, of what the pod asks for.

        Of ``pods`` it is how many more there may be with the holds gone.
        """
        snapshot = self.snapshot
        there, taken = snapshot.allocatable[place], snapshot.requested[place]
        free = {column: there.item(column) - taken.item(column) for column, _ in self.pod.demand}
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
        """Return why devices, CPUs or NUMA nodes don't do with this hold only, or none.

        Where it is ``alone`` and restored, the filters of these plugins have said so already.
        """
        restricted = hold is not None and hold.offer.is_restricted and hold.has_parts
        if not self.parts or (alone and hold is not None and hold.restored and not restricted):
            return ()
        view = self.snapshot[np.array([place])]
        restored = () if hold is None else (hold,)
        found: list[str] = []
        with view.restoring_only(*restored, restricted=restricted):
            for plugin in self.parts:
                if plugin.hints.filters(view, self.pod):
                    rejections = plugin.filter(view, self.pod)
                    code = int(rejections.codes[0])
                    if code and rejections.explain is not None:
                        found += rejections.explain(0)
                    elif code:
                        found += (r for bit, r in enumerate(rejections.reasons) if code >> bit & 1)
        return tuple(found)

    def best(self, fitting: Sequence[Hold]) -> Hold:
        """Return the hold to use: by order label, else the one that would be fullest."""
        if len(fitting) == 1:
            return fitting[0]
        first = first_by_order(hold.offer for hold in fitting)
        if first is not None:
            return next(hold for hold in fitting if hold.offer is first)
        return min(fitting, key=lambda hold: (-self.score(hold), hold.offer.name))

    def score(self, hold: Hold) -> int:
        """Return how full the reservation would be, 0..100."""
        requests = in_terms_of(hold.offer.amounts, self.asking.requests)
        return score(hold.offer, hold.used, requests)
