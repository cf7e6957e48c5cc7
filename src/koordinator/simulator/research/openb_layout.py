"""Assignment of GPUs on nodes whose pods change, with few shifts of the remaining pods."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import IntArray
from koordinator.simulator.research.openb_departures import DepartureWeek
from koordinator.simulator.research.openb_fleet import FleetPlace

_MOST_CHOICES: Final = 200  # of who leaves a node, or shifts on it
_MOST_STEPS: Final = 5000  # of a search for slots


@dataclass(frozen=True, slots=True)
class Laid:
    """How a node's GPUs are given out."""

    leaving: list[tuple[int, int]]  # kind, number of the pod
    vacant: list[tuple[int, FleetPlace]]  # kind, for another pod
    shifted: dict[int, FleetPlace]  # pods that get other GPUs of the node


def places_of(nodes: Iterable[Laid | None]) -> dict[int, FleetPlace] | None:
    """Return who goes where, who waits left out; None if the GPUs of a node can't be given out.

    ``nodes`` take in all that leave one of them.
    """
    leaving: dict[int, list[int]] = {}
    vacant: list[tuple[int, FleetPlace]] = []
    places: dict[int, FleetPlace] = {}
    for laid in nodes:
        if laid is None:
            return None
        for kind, number in laid.leaving:
            leaving.setdefault(kind, []).append(number)
        vacant += laid.vacant
        places |= laid.shifted
    for kind, place in vacant:
        if leaving.get(kind):
            places[leaving[kind].pop()] = place
    return None if any(leaving.values()) else places


def lay_out(
    week: DepartureWeek, row: int, leaves: Mapping[int, int], joins: Mapping[int, int]
) -> Laid | None:
    """Return how a node gives out its GPUs when so many pods of each kind leave and join it.

    None if that can't be, or is not found in so many steps.
    """
    mix = week.classes.mix
    here = [
        (week.running[number].kind, number)
        for number in sorted(week.on_row[row])
        if mix.num_gpu[week.running[number].kind]
    ]
    joining = sorted(
        itertools.chain.from_iterable([kind] * count for kind, count in joins.items()),
        key=lambda kind: (-int(mix.num_gpu[kind]), -int(mix.gpu_milli[kind]), kind),
    )
    free = week.fleet.gpu_free[row]
    for leaving in itertools.islice(_choices(here, leaves), _MOST_CHOICES):
        left = free.copy()
        for kind, number in leaving:
            left[list(week.running[number].place.gpus)] += mix.gpu_milli[kind]
        slots = fitted(left, [(int(mix.num_gpu[k]), int(mix.gpu_milli[k])) for k in joining])
        if slots is not None:
            vacant = [
                (kind, FleetPlace(row, gpus)) for kind, gpus in zip(joining, slots, strict=True)
            ]
            return Laid(leaving, vacant, {})
    return _with_others_shifted(week, row, here, leaves, joining)


def _with_others_shifted(
    week: DepartureWeek,
    row: int,
    here: Sequence[tuple[int, int]],
    leaves: Mapping[int, int],
    joining: Sequence[int],
) -> Laid | None:
    """Return a layout that also shifts shares on their node, as few as possible."""
    mix = week.classes.mix
    leaving = next(iter(_choices(here, leaves)))
    staying = [each for each in here if each not in leaving]
    shares = [each for each in staying if mix.gpu_milli[each[0]] < WHOLE_GPU]
    free = week.fleet.gpu_free[row].copy()
    for kind, number in leaving:
        free[list(week.running[number].place.gpus)] += mix.gpu_milli[kind]
    ways = itertools.chain.from_iterable(
        itertools.combinations(shares, count) for count in range(1, len(shares) + 1)
    )
    for shifting in itertools.chain(itertools.islice(ways, _MOST_CHOICES), [tuple(staying)]):
        left = free.copy()
        for kind, number in shifting:
            left[list(week.running[number].place.gpus)] += mix.gpu_milli[kind]
        pods = [*shifting, *((kind, -1) for kind in joining)]
        pods.sort(key=lambda pod: (-int(mix.num_gpu[pod[0]]), -int(mix.gpu_milli[pod[0]]), pod))
        slots = fitted(left, [(int(mix.num_gpu[k]), int(mix.gpu_milli[k])) for k, _ in pods])
        if slots is None:
            continue
        vacant, shifted = [], {}
        for (kind, number), gpus in zip(pods, slots, strict=True):
            place = FleetPlace(row, gpus)
            if number < 0:
                vacant.append((kind, place))
            elif place != week.running[number].place:
                shifted[number] = place
        return Laid(leaving, vacant, shifted)
    return None


def _choices(
    here: Sequence[tuple[int, int]], leaves: Mapping[int, int]
) -> Iterator[list[tuple[int, int]]]:
    """Yield who could leave: so many of each kind."""
    ways = [
        itertools.combinations([pod for pod in here if pod[0] == kind], count)
        for kind, count in sorted(leaves.items())
    ]
    for way in itertools.product(*ways):
        yield [pod for pods in way for pod in pods]


def fitted(free: IntArray, pods: Sequence[tuple[int, int]]) -> list[tuple[int, ...]] | None:
    """Return which GPUs each pod gets, a pod being GPUs and milli of each; None if they can't.

    The pods that are hard to place come first.
    """
    return _Slots(free.tolist(), pods).fit(0)


@dataclass(slots=True)
class _Slots:
    """A search in depth."""

    left: list[int]
    pods: Sequence[tuple[int, int]]
    steps: int = 0

    def fit(self, index: int) -> list[tuple[int, ...]] | None:
        """Return the GPUs of the pods from one on."""
        if index == len(self.pods):
            return []
        self.steps += 1
        if self.steps > _MOST_STEPS:
            return None
        _, milli = self.pods[index]
        for gpus in self._options(*self.pods[index]):
            for slot in gpus:
                self.left[slot] -= milli
            rest = self.fit(index + 1)
            if rest is not None:
                return [gpus, *rest]
            for slot in gpus:
                self.left[slot] += milli
        return None

    def _options(self, number: int, milli: int) -> list[tuple[int, ...]]:
        """Return GPUs for a pod, the tightest first, of equal ones only the last."""
        able = [slot for slot, amount in enumerate(self.left) if amount >= milli]
        if len(able) < number:
            return []
        if milli == WHOLE_GPU or number > 1:
            return [tuple(sorted(able, key=lambda slot: self.left[slot])[:number])]
        by_amount = {self.left[slot]: (slot,) for slot in able}
        return [by_amount[amount] for amount in sorted(by_amount)]
