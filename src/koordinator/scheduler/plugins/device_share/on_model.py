"""A claim on nodes of one model: in which state rows are for it, and what follows from that.

The state of a row is a number made of the masks of ``domain.devices.plan.State``: all that decides
whether the claim has room there, and what it prefers of the NUMA nodes.  Few states occur on many
nodes, so that answers are looked up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from koordinator.api.device import NUMA_UNKNOWN
from koordinator.domain.devices.claim import DeviceClaim
from koordinator.domain.devices.masks import masks_of
from koordinator.domain.devices.model import NodeModel
from koordinator.domain.devices.numa_hints import NumaHint, NumaHintTable
from koordinator.domain.devices.parts import DevicePart
from koordinator.domain.devices.plan import DevicePlan, State
from koordinator.domain.devices.row_kernels import (
    ANYWHERE,
    MOST_BITS,
    SELECTED,
    judge_devices,
)
from koordinator.domain.devices.scorer import Scorer
from koordinator.domain.devices.shortage import DeviceShortage
from koordinator.domain.numa_masks import mask_of
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.rules.numa.rows_align import OtherHints
from koordinator.scheduler.snapshot import Snapshot

KEEP = 1 << 14  # answers of a kind that are remembered
NO_LIMIT = 1 << MOST_BITS
Function = tuple[int, str]  # minor and bus id


@dataclass(frozen=True, slots=True, eq=False)
class PartRows:
    """A part of the claim in the terms of arrays over rows."""

    part: DevicePart
    width: int  # of its masks
    asked: IntArray  # (n_amounts,)
    enough: IntArray  # (width,): so many virtual functions taken leave perhaps none; 0: it has none
    serving: IntArray  # (width,): see ``row_kernels``
    with_function: dict[frozenset[Function], int]  # what is known of them

    @property
    def every(self) -> int:
        """All devices of the type."""
        return (1 << self.width) - 1

    def judge(  # noqa: PLR0917 (as the kernel)
        self,
        view: Snapshot,
        rows: IntArray,
        zones: IntArray,
        scorer: Scorer,
        shift: int,
        out: IntArray,
    ) -> None:
        """Add to ``out``, ``(3, k)``, what the kernel does; ``out[1]`` is 0 before and after."""
        kind = self.part.kind
        columns = view.devices.columns[kind]
        kernel = judge_devices.compiled if view.is_large else judge_devices.reference
        kernel(
            columns.total,
            columns.left,
            columns.holders,
            columns.functions_taken,
            rows,
            zones,
            self.asked,
            self.enough,
            self.serving,
            scorer.weights[kind],
            scorer.most_allocated,
            shift,
            out,
        )
        if self.part.functions is None or shift < 0:
            return
        for place in np.flatnonzero(out[1]).tolist():
            has = self._with_function(columns.function_sets.get(int(rows[place])))
            out[0, place] &= ~((self.every & ~has) << shift)
        out[1] = 0

    def wide_masks(self, view: Snapshot, rows: IntArray) -> tuple[list[int], list[int]]:
        """Return by row masks of the devices that fit and of those in use, of any number."""
        columns = view.devices.columns[self.part.kind]
        # What has enough is there and healthy: something is asked of every device.
        has_enough = columns.left[rows, : self.width] >= self.asked
        fit = masks_of(np.logical_and.reduce(has_enough, axis=2))
        if self.part.functions is not None:
            taken = columns.function_sets
            fit = [
                mask & self._with_function(taken.get(row))
                for mask, row in zip(fit, rows.tolist(), strict=True)
            ]
        return fit, masks_of(columns.holders[rows, : self.width] > 0)

    def _with_function(self, taken: frozenset[Function] | None) -> int:
        """Return the devices that still have a virtual function that will do."""
        key = taken or frozenset()
        known = self.with_function.get(key)
        if known is None:
            buses: dict[int, set[str]] = {}
            for minor, bus_id in key:
                buses.setdefault(minor, set()).add(bus_id)
            if len(self.with_function) >= KEEP:
                self.with_function.clear()
            known = self.with_function[key] = self.part.with_function(buses)
        return known


class ClaimOnModel:
    """``number`` numbers what nodes may lack, 0 for nothing."""

    def __init__(
        self, model: NodeModel, claim: DeviceClaim, number: Callable[[DeviceShortage | None], int]
    ) -> None:
        self.plan = DevicePlan(model, claim)
        self._hints = NumaHintTable(self.plan)
        self._number = number
        #: what every node of the model lacks, as a number; 0: nothing
        self.never = number(self.plan.never)
        early = {part.kind: np.array(part.amounts, np.int64) for part in self.plan.early}
        #: by type, what decides which devices have enough; None: what just is left
        self.asked = tuple([(want.kind, early.get(want.kind)) for want in claim.wants])
        self._lacks: dict[int, int] = {}
        self._lines: dict[tuple[int, ...], dict[int, int]] = {}  # by sets, then state
        self._opinions: dict[tuple[int, ...], OtherHints] = {}

    @cached_property
    def _parts(self) -> tuple[PartRows, ...]:
        return tuple(map(_part_rows, self.plan.early))

    def judged(self, view: Snapshot, rows: IntArray, scorer: Scorer) -> tuple[list[int], IntArray]:
        """Return the state of each row, and the sum of scores for all its devices together."""
        shift, fits = 0, 2 * sum([part.width for part in self._parts]) <= MOST_BITS
        out, anywhere = np.zeros((3, len(rows)), np.int64), np.zeros(len(rows), np.int64)
        for part in self._parts:
            part.judge(view, rows, anywhere, scorer, shift if fits else -1, out)
            shift += 2 * part.width
        return out[0].tolist() if fits else self._wide_states(view, rows), out[2]

    def _wide_states(self, view: Snapshot, rows: IntArray) -> list[int]:
        """Return the states, of however many devices."""
        shift = 0
        states = [0] * len(rows)
        for part in self._parts:
            by, masks = part.width, zip(*part.wide_masks(view, rows), strict=True)
            states = [
                state | (fit | used << by) << shift
                for state, (fit, used) in zip(states, masks, strict=True)
            ]
            shift += 2 * by
        return states

    def lacks(self, states: Sequence[int]) -> list[int]:
        """Return what rows in these states lack, by number."""
        known = self._lacks
        try:
            return [known[state] for state in states]
        except KeyError:
            for state in set(states).difference(known):
                known[state] = self._number(self.plan.shortage(self._masks(state)))
            return [known[state] for state in states]

    def lacks_anywhere(self, states: Sequence[int]) -> list[int]:
        """Return by number what rows lack of devices that are on no NUMA node in particular."""
        near = {group.kind: group.on_numa(()) for group in self.plan.model.groups}
        found = {state: self.plan.choose(self._masks(state), near) for state in set(states)}
        lacks = {
            state: self._number(choice) if isinstance(choice, DeviceShortage) else 0
            for state, choice in found.items()
        }
        return [lacks[state] for state in states]

    def numa_hints(self, state: State) -> tuple[NumaHint, ...] | DeviceShortage:
        """Return what the claim prefers of the NUMA nodes of a row in that state."""
        return self._hints.of(state)

    def opinions(self, states: Sequence[int], sets: Sequence[int]) -> OtherHints:
        """Return what the claim says of sets of NUMA nodes, a line for each of these states."""
        key = tuple(sets)
        lines = self._lines.setdefault(key, {})
        try:
            at = np.array([lines[state] for state in states], np.int64)
        except KeyError:
            self._learn(key, list(set(states).difference(lines)), lines)
            at = np.array([lines[state] for state in states], np.int64)
        known = self._opinions[key]
        return OtherHints(
            known.prefers.take(at, 0), known.named.take(at, 0), known.scores.take(at, 0)
        )

    def scores(self, view: Snapshot, rows: IntArray, zones: IntArray, scorer: Scorer) -> IntArray:
        """Return ``(k,)``: how full the devices of some NUMA nodes would be."""
        out = np.zeros((3, len(rows)), np.int64)
        for part in self._parts:
            part.judge(view, rows, zones, scorer, -1, out)
        scores: IntArray = out[2]
        return scores

    def _masks(self, state: int) -> State:
        masks = []
        for part in self._parts:
            every = (1 << part.width) - 1
            masks += [state & every, state >> part.width & every]
            state >>= 2 * part.width
        return tuple(masks)

    def _learn(self, key: tuple[int, ...], new: Sequence[int], lines: dict[int, int]) -> None:
        more = []
        for state in new:
            lines[state] = len(lines)
            answer = self._hints.of(self._masks(state))
            more.append(_line(answer, key, len(self._parts)))
        arrays = [
            np.array([line[place] for line in more], kind)
            for place, kind in enumerate((bool, bool, np.int64))
        ]
        known = self._opinions.get(key)
        if known is not None:
            before = (known.prefers, known.named, known.scores)
            arrays = [np.concatenate(pair) for pair in zip(before, arrays, strict=True)]
        self._opinions[key] = OtherHints(*arrays)


def _part_rows(part: DevicePart) -> PartRows:
    width = part.group.width
    enough, serving = np.zeros(width, np.int64), np.zeros(width, np.int64)
    for device in part.group.devices:
        minor, functions = device.minor, part.functions
        enough[minor] = NO_LIMIT if functions is None else len(functions.get(minor, ()))
        if part.selected >> minor & 1:
            serving[minor] = _serving(device.numa)
    return PartRows(part, width, np.array(part.amounts, np.int64), enough, serving, {})


def _serving(numa: int | None) -> int:
    if numa == NUMA_UNKNOWN:
        return ANYWHERE
    return SELECTED | (1 << numa if numa is not None and numa < MOST_BITS else 0)


def _line(
    answer: tuple[NumaHint, ...] | DeviceShortage, sets: Sequence[int], kinds: int
) -> tuple[list[bool], list[bool], list[int]]:
    """Return (preferred, named, score) of each set; every one of the ``kinds`` says the same.

    Where there are not enough devices no set is preferred, without opinion all are.
    """
    n = len(sets)
    if isinstance(answer, DeviceShortage):
        return [False] * n, [True] * n, [0] * n
    if not answer:
        return [True] * n, [False] * n, [0] * n
    by_mask = {mask_of(hint.nodes): hint for hint in answer}
    found = [by_mask.get(mask) for mask in sets]
    return (
        [hint is not None and hint.preferred for hint in found],
        [True] * n,
        [hint.score * kinds if hint is not None else 0 for hint in found],
    )
