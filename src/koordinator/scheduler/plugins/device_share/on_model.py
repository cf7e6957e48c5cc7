"""Evaluation of a device request on nodes of one model, by state of the row.

The state of a row is a number made of the masks of ``domain.devices.plan.State``: it determines
whether the request has room there and which NUMA nodes it prefers.  Many nodes share few states, so
results are cached by state.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from koordinator.api.device import NUMA_UNKNOWN
from koordinator.domain.devices.allocation import DeviceShortage
from koordinator.domain.devices.model import NodeModel
from koordinator.domain.devices.plan import DevicePlan, NumaHint, NumaHintTable, State
from koordinator.domain.devices.pod_request import DevicePart, PodDeviceRequest
from koordinator.domain.devices.scorer import (
    ANYWHERE,
    MOST_BITS,
    SELECTED,
    Scorer,
    judge_devices,
)
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import mask_of, masks_of
from koordinator.scheduler.rules.numa.rows_align import OtherHints
from koordinator.scheduler.snapshot import DeviceTable

KEEP = 1 << 14  # cached results of a kind
NO_LIMIT = 1 << MOST_BITS
Function = tuple[int, str]  # minor and bus id


@dataclass(frozen=True, slots=True, eq=False)
class PartRows:
    """Part of the request in terms of arrays over rows."""

    part: DevicePart
    width: int  # of its masks
    requested: IntArray  # (n_amounts,)
    enough: IntArray  # (width,): number of taken virtual functions from which none may be left
    serving: IntArray  # (width,): see ``row_kernels``
    with_function: dict[frozenset[Function], int]  # devices with a free function, by taken ones

    @property
    def every(self) -> int:
        """Mask of all devices of the type."""
        return (1 << self.width) - 1

    def judge(  # noqa: PLR0917 (as the kernel)
        self,
        devices: DeviceTable,
        rows: IntArray,
        zones: IntArray,
        scorer: Scorer,
        shift: int,
        out: IntArray,
        *,
        compiled: bool,
    ) -> None:
        """Run the kernel on ``out``, ``(3, k)``; ``out[1]`` is 0 before and after."""
        kind = self.part.kind
        columns = devices.columns[kind]
        kernel = judge_devices.compiled if compiled else judge_devices.reference
        kernel(
            columns.total,
            columns.left,
            columns.holders,
            columns.functions_taken,
            rows,
            zones,
            self.requested,
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

    def wide_masks(self, devices: DeviceTable, rows: IntArray) -> tuple[list[int], list[int]]:
        """Return per row the masks of fitting devices and of devices in use, of any width."""
        columns = devices.columns[self.part.kind]
        # A device with enough left exists and is healthy: every device has a nonzero request.
        has_enough = columns.left[rows, : self.width] >= self.requested
        fit = masks_of(np.logical_and.reduce(has_enough, axis=2))
        if self.part.functions is not None:
            taken = columns.function_sets
            fit = [
                mask & self._with_function(taken.get(row))
                for mask, row in zip(fit, rows.tolist(), strict=True)
            ]
        return fit, masks_of(columns.holders[rows, : self.width] > 0)

    def _with_function(self, taken: frozenset[Function] | None) -> int:
        """Return the mask of devices that still have a suitable virtual function."""
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


class RequestOnModel:
    """Request on nodes of one model; ``number`` numbers shortages, 0 for none."""

    def __init__(
        self,
        model: NodeModel,
        pod_request: PodDeviceRequest,
        number: Callable[[DeviceShortage | None], int],
    ) -> None:
        self.plan = DevicePlan(model, pod_request)
        self._hints = NumaHintTable(self.plan)
        self._number = number
        #: number of the shortage on every node of the model; 0 means none
        self.never = number(self.plan.never)
        early = {part.kind: np.array(part.amounts, np.int64) for part in self.plan.early}
        #: by type, the amounts that decide which devices have enough; None if only the rest matters
        self.requested = tuple([(want.kind, early.get(want.kind)) for want in pod_request.wants])
        self._shortages: dict[int, int] = {}
        self._lines: dict[tuple[int, ...], dict[int, int]] = {}  # by sets, then state
        self._hint_tables: dict[tuple[int, ...], OtherHints] = {}

    @cached_property
    def _parts(self) -> tuple[PartRows, ...]:
        return tuple(map(_part_rows, self.plan.early))

    def judged(
        self, devices: DeviceTable, rows: IntArray, scorer: Scorer, *, compiled: bool
    ) -> tuple[list[int], IntArray]:
        """Return the state of each row and the summed scores of all its devices."""
        shift, fits = 0, 2 * sum([part.width for part in self._parts]) <= MOST_BITS
        out, anywhere = np.zeros((3, len(rows)), np.int64), np.zeros(len(rows), np.int64)
        for part in self._parts:
            at = shift if fits else -1
            part.judge(devices, rows, anywhere, scorer, at, out, compiled=compiled)
            shift += 2 * part.width
        return out[0].tolist() if fits else self._wide_states(devices, rows), out[2]

    def _wide_states(self, devices: DeviceTable, rows: IntArray) -> list[int]:
        """Return the states for any number of devices."""
        shift = 0
        states = [0] * len(rows)
        for part in self._parts:
            by, masks = part.width, zip(*part.wide_masks(devices, rows), strict=True)
            states = [
                state | (fit | used << by) << shift
                for state, (fit, used) in zip(states, masks, strict=True)
            ]
            shift += 2 * by
        return states

    def shortages(self, states: Sequence[int]) -> list[int]:
        """Return the shortage of rows in these states, by number."""
        known = self._shortages
        try:
            return [known[state] for state in states]
        except KeyError:
            for state in set(states).difference(known):
                known[state] = self._number(self.plan.shortage(self._masks(state)))
            return [known[state] for state in states]

    def shortages_anywhere(self, states: Sequence[int]) -> list[int]:
        """Return the shortage, by number, of devices that are on no particular NUMA node."""
        near = {group.kind: group.on_numa(()) for group in self.plan.model.groups}
        choices = {state: self.plan.choose(self._masks(state), near) for state in set(states)}
        numbers = {
            state: self._number(choice) if isinstance(choice, DeviceShortage) else 0
            for state, choice in choices.items()
        }
        return [numbers[state] for state in states]

    def numa_hints(self, state: State) -> tuple[NumaHint, ...] | DeviceShortage:
        """Return the NUMA hints of the request for a row in that state."""
        return self._hints.of(state)

    def hint_rows(self, states: Sequence[int], sets: Sequence[int]) -> OtherHints:
        """Return hints for sets of NUMA nodes, one line for each of these states."""
        key = tuple(sets)
        lines = self._lines.setdefault(key, {})
        try:
            at = np.array([lines[state] for state in states], np.int64)
        except KeyError:
            self._learn(key, list(set(states).difference(lines)), lines)
            at = np.array([lines[state] for state in states], np.int64)
        known = self._hint_tables[key]
        return OtherHints(
            known.prefers.take(at, 0), known.named.take(at, 0), known.scores.take(at, 0)
        )

    def scores(
        self,
        devices: DeviceTable,
        rows: IntArray,
        zones: IntArray,
        scorer: Scorer,
        *,
        compiled: bool,
    ) -> IntArray:
        """Return ``(k,)``: the scores of the devices on some NUMA nodes."""
        out = np.zeros((3, len(rows)), np.int64)
        for part in self._parts:
            part.judge(devices, rows, zones, scorer, -1, out, compiled=compiled)
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
        known = self._hint_tables.get(key)
        if known is not None:
            before = (known.prefers, known.named, known.scores)
            arrays = [np.concatenate(pair) for pair in zip(before, arrays, strict=True)]
        self._hint_tables[key] = OtherHints(*arrays)


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
    """Return (preferred, named, score) of each set; each of the ``kinds`` contributes the same.

    With a shortage no set is preferred; without hints all sets are.
    """
    n = len(sets)
    if isinstance(answer, DeviceShortage):
        return [False] * n, [True] * n, [0] * n
    if not answer:
        return [True] * n, [False] * n, [0] * n
    by_mask = {mask_of(hint.nodes): hint for hint in answer}
    hints = [by_mask.get(mask) for mask in sets]
    return (
        [hint is not None and hint.preferred for hint in hints],
        [True] * n,
        [hint.score * kinds if hint is not None else 0 for hint in hints],
    )
