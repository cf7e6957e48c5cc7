"""Devices of nodes as numbered states, which a batch follows from pod to pod.

Two nodes are in the same state if they are of one model, and as much is left of each device, the
same devices are in use and the same virtual functions are taken.  That is all that decides which
devices a pod gets and how the node is scored, so both are worked out once per state and request, by
the rules for one node.  Each state is a row of a table of devices of its own.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from koordinator.domain.devices.allocation import Allocation, DeviceShortage, annotation_entry
from koordinator.domain.devices.scorer import Scorer
from koordinator.foundation.arrays import IntArray, extended
from koordinator.scheduler.contract import (
    NOTHING,
    REFUSED,
    UNKNOWN,
    UNRATED,
    AllocationResult,
)
from koordinator.scheduler.plugins.device_share.choices import DeviceRow, known_allocation
from koordinator.scheduler.plugins.device_share.requests import RequestEntry
from koordinator.scheduler.snapshot import DeviceTable, PodAllocation, PodClass, Snapshot

MOST_STATES = 1 << 13
MOST_PER_ROW = 4  # or else states would be forgotten at each batch where no two nodes are alike
_MOST_COLUMNS = 1 << 8
_NO_REPORT = 0  # the state of nodes without a report: their kubelets allocate
_AT_FIRST = 64


class DeviceStates:
    """States of the devices of all nodes."""

    def __init__(
        self, scorer: Scorer, entry_of: Callable[[Snapshot, PodClass], RequestEntry | None]
    ) -> None:
        """``entry_of``: the request of a pod; None if labels of nodes or other plugins matter."""
        self._scorer, self._entry_of = scorer, entry_of
        self._position = self._layout = -1  # ``_rows`` is current as of these
        self._rows: IntArray = np.zeros(0, np.int64)  # (n,)
        self._compiled = False
        self._clear(DeviceTable())

    def _clear(self, cluster: DeviceTable) -> None:
        """Forget all states; rows belong to ``cluster``."""
        self._cluster = cluster
        self._table = DeviceTable()  # a row per state; the row after the last one is free
        self._table.models = cluster.models
        self._table.grow(_AT_FIRST)
        self._numbers: dict[Hashable, int] = {None: _NO_REPORT}  # of rows without a Device
        self._models: set[int] = set()  # of the states
        self._columns: dict[RequestEntry, int] = {}
        self._entries: list[RequestEntry] = []
        self._rated: list[int] = []  # by column: the number of states whose ratings are known
        self._allocations: dict[tuple[int, int], Allocation] = {}  # by state and column
        self.ratings: IntArray = np.zeros((_AT_FIRST, 0), np.int64)
        self.following: IntArray = np.zeros((_AT_FIRST, 0), np.int64)
        self._position = -1

    def refresh(self, snapshot: Snapshot) -> IntArray:
        """Return ``(n,)``: the state of each row as of now.  Columns may have changed."""
        devices, self._compiled = snapshot.devices, snapshot.uses_kernels
        if (
            self._cluster is not devices
            or len(self._numbers) > max(MOST_STATES, MOST_PER_ROW * len(snapshot))
            or len(self._entries) > _MOST_COLUMNS
            or not all(model in devices.models for model in self._models)
        ):
            self._clear(devices)
        layout = snapshot.node_version[0]
        if layout != self._layout:
            self._layout, self._position = layout, -1
            self._rows = np.zeros(len(snapshot), np.int64)
        rows, position = snapshot.rows_since(self._position)
        for row in dict.fromkeys(rows.tolist()):
            self._rows[row] = self._state_of(row)
        self._position = position
        return self._rows.copy()

    def column(self, snapshot: Snapshot, pod: PodClass) -> int | None:
        """Return the column of such pods; None if more than states decides about them."""
        entry = self._entry_of(snapshot, pod)
        if entry is None:
            return None
        known = self._columns.get(entry)
        if known is None:
            known = self._columns[entry] = len(self._entries)
            self._entries.append(entry)
            self._rated.append(1)
            self.ratings = extended(self.ratings, 1, axis=1, fill=UNRATED)
            self.following = extended(self.following, 1, axis=1, fill=UNKNOWN)
            self.ratings[_NO_REPORT, known], self.following[_NO_REPORT, known] = 0, _NO_REPORT
        return known

    def rate(self, column: int) -> None:
        """Work out the ratings of a column that are not known, at the last states."""
        entry, table = self._entries[column], self._table
        first, self._rated[column] = self._rated[column], len(self._numbers)
        states = np.arange(first, len(self._numbers))
        models = table.model[first : len(self._numbers)]
        for model in dict.fromkeys(models.tolist()):
            rows = states if len(states) == 1 else states[models == model]
            on_model = entry.on(table, model)
            if on_model.never:
                self.ratings[rows, column] = -1
                continue
            masks, scores = on_model.judged(table, rows, self._scorer, compiled=self._compiled)
            shortages = on_model.shortages(masks)
            if any(shortages):
                scores = np.where(np.array(shortages, np.int64) == 0, scores, -1 - scores)
            self.ratings[rows, column] = scores

    def follow(self, state: int, column: int) -> None:
        """Work out what follows a state with one more pod of a column."""
        place = DeviceRow(self._table, state, {})
        allocation = known_allocation(place, self._entries[column], self._scorer)
        if isinstance(allocation, DeviceShortage):
            self.following[state, column] = REFUSED
            return
        self._allocations[state, column] = allocation
        free = len(self._numbers)
        self._copy(self._table, state, free)
        self._table.charge(free, allocation, 1)
        self.following[state, column] = self._number(free)

    def results(
        self, rows: IntArray, states: IntArray, columns: IntArray
    ) -> Sequence[AllocationResult]:
        """Return what pods get on rows in these states."""
        reports, allocations = self._cluster.reports, self._allocations
        results = []
        for row, key in zip(
            rows.tolist(), zip(states.tolist(), columns.tolist(), strict=True), strict=True
        ):
            if key[1] < 0 or key[0] == _NO_REPORT:
                results.append(NOTHING)
                continue
            allocation = allocations[key]
            annotations = annotation_entry(allocation, reports[row].ids)
            own = PodAllocation(allocation, annotations=annotations)
            results.append(AllocationResult(own, annotations))
        return results

    def settle(self, states: IntArray, position: int) -> None:
        """Note the states of all rows as of a position of the usage log."""
        self._rows, self._position = states, position

    def _state_of(self, row: int) -> int:
        """Return the state of a row of the cluster; a new one if no row has been in it."""
        if self._cluster.model[row] < 0:
            return _NO_REPORT
        free = len(self._numbers)
        number = self._numbers.get(self._key(self._cluster, row))
        if number is None:
            self._copy(self._cluster, row, free)
            number = self._number(free)
        return number

    def _number(self, free: int) -> int:
        """Return the number of the state in the row after the last one, which it keeps if new."""
        number = self._numbers.setdefault(self._key(self._table, free), free)
        if number == free and free + 2 > len(self.ratings):
            more = len(self.ratings)
            self._table.grow(more)
            self.ratings = extended(self.ratings, more, fill=UNRATED)
            self.following = extended(self.following, more, fill=UNKNOWN)
        return number

    @staticmethod
    def _key(devices: DeviceTable, row: int) -> Hashable:
        """Return what is equal for rows in the same state."""
        report = devices.reports[row]
        parts: list[Hashable] = [int(devices.model[row]), report.health]
        for group in report.model.groups:
            columns = devices.columns[group.kind]
            parts += (
                columns.left[row, : group.width].tobytes(),
                (columns.holders[row] > 0).tobytes(),
                columns.function_sets.get(row),
            )
        return tuple(parts)

    def _copy(self, source: DeviceTable, row: int, free: int) -> None:
        """Copy what decides about a row to a row of the states."""
        report = source.reports[row]
        self._table.reports[free], self._table.model[free] = report, source.model[row]
        self._models.add(int(source.model[row]))
        for group in report.model.groups:
            self._table.copy(group.kind, source, row, free)
