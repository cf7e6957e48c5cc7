"""Devices of every node by type: totals, allocations, and the requests that they can serve.

Amounts are arrays ``(capacity, n_minors, n_amounts)``; what is the same on all nodes of a kind is
in ``domain.devices.model``.  What pods hold is charged whether or not the node reports the device.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field

import numpy as np

from koordinator.api.device import Device, DeviceType
from koordinator.domain.devices.allocation import NAMES, Allocation
from koordinator.domain.devices.free_devices import FreeDevices
from koordinator.domain.devices.model import NodeDevices, NodeModels
from koordinator.domain.devices.report import node_devices
from koordinator.foundation.arrays import BoolArray, IntArray, extended
from koordinator.foundation.errors import BugError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import mask_of

GPUS_AT_FIRST = 8
SPARE_MODELS = 16

#: How often each virtual function is taken, by minor and bus id.
TakenFunctions = dict[tuple[int, str], int]


@dataclass(slots=True, eq=False)
class DeviceColumns:
    """The devices of one type.  Amounts are in the order of ``domain.devices.amounts.NAMES``."""

    total: IntArray  # (capacity, n_minors, n_amounts); zero where there is no healthy device
    used: IntArray  # (capacity, n_minors, n_amounts)
    left: IntArray  # (capacity, n_minors, n_amounts): the difference, also where it is negative
    holders: IntArray  # (capacity, n_minors): how many pods hold some of it
    functions_taken: IntArray  # (capacity, n_minors): how many of its virtual functions
    functions: dict[int, TakenFunctions] = field(default_factory=dict)  # taken ones, by row
    #: the same as sets of (minor, bus id), by which answers can be remembered
    function_sets: dict[int, frozenset[tuple[int, str]]] = field(default_factory=dict)

    @staticmethod
    def empty(minors: int, amounts: int) -> "DeviceColumns":
        """Return columns without rows."""
        shape = (0, minors, amounts)
        total, used, left = (np.zeros(shape, np.int64) for _ in range(3))
        holders, functions = (np.zeros(shape[:2], np.int64) for _ in range(2))
        return DeviceColumns(total, used, left, holders, functions)

    def pad(self, rows: int, minors: int) -> None:
        """Make room for more rows and more devices."""
        for more, axis in ((rows, 0), (minors, 1)):
            if more:
                self.total = extended(self.total, more, axis=axis)
                self.used = extended(self.used, more, axis=axis)
                self.left = extended(self.left, more, axis=axis)
                self.holders = extended(self.holders, more, axis=axis)
                self.functions_taken = extended(self.functions_taken, more, axis=axis)


class DeviceTable:
    """All devices.  Written by ``ClusterState`` only."""

    def __init__(self) -> None:
        self.columns = {
            kind: DeviceColumns.empty(GPUS_AT_FIRST if kind is DeviceType.GPU else 0, len(names))
            for kind, names in NAMES.items()
        }
        self.models = NodeModels()
        self.model = np.zeros(0, np.int64)  # (capacity,): -1 where no devices are reported
        self._most_models = SPARE_MODELS  # before those are looked for that no node is of
        self.reports: dict[int, NodeDevices] = {}  # by row

    @property
    def known(self) -> BoolArray:
        """``(capacity,)``: the node's devices are reported at all."""
        return self.model >= 0

    def grow(self, more: int) -> None:
        """Make room for more rows."""
        for columns in self.columns.values():
            columns.pad(more, 0)
        self.model = extended(self.model, more, fill=-1)

    def report(
        self, row: int, device: Device | None, node_labels: Mapping[str, str]
    ) -> tuple[InputError, ...]:
        """Apply the device report of a node; return the errors of ignored parts."""
        for columns in self.columns.values():
            columns.total[row] = 0
            columns.left[row] = -columns.used[row]
        self.reports.pop(row, None)
        self.model[row] = -1
        if device is None:
            return ()
        if len(self.models) >= self._most_models:
            self.models.keep_only(set(self.model[self.model >= 0].tolist()))
            self._most_models = 2 * len(self.models) + SPARE_MODELS
        report = node_devices(device, node_labels, self.models)
        self.reports[row] = report
        self.model[row] = self.models.number(report.model)
        for kind, totals in report.totals.items():
            self._ensure(kind, len(totals))
            columns = self.columns[kind]
            columns.total[row, : len(totals)] = totals
            columns.left[row] = columns.total[row] - columns.used[row]
        return report.problems

    def charge(self, row: int, allocation: Allocation, sign: int) -> None:
        """Charge (1) or release (-1) the allocation of a pod."""
        for kind, devices in allocation.items():
            self._ensure(kind, 1 + max((taken.minor for taken in devices), default=-1))
            columns = self.columns[kind]
            for taken in devices:
                minor = taken.minor
                for place, amount in enumerate(taken.amounts):
                    if amount:
                        columns.used[row, minor, place] += amount * sign
                        columns.left[row, minor, place] -= amount * sign
                columns.holders[row, minor] += sign
                for function in taken.functions:
                    _count(columns, row, (taken.minor, function.bus_id), sign)

    def copy(self, kind: DeviceType, source: "DeviceTable", row: int, to: int) -> None:
        """Copy the devices of a type on a row of another table to a row of this one."""
        its = source.columns[kind]
        width = its.total.shape[1]
        self._ensure(kind, width)
        own = self.columns[kind]
        for own_columns, others in (
            (own.total, its.total),
            (own.used, its.used),
            (own.left, its.left),
            (own.holders, its.holders),
            (own.functions_taken, its.functions_taken),
        ):
            if own_columns.shape[1] > width:
                own_columns[to, width:] = 0
            own_columns[to, :width] = others[row]
        own.functions.pop(to, None)
        own.function_sets.pop(to, None)
        if row in its.functions:
            own.functions[to] = dict(its.functions[row])
            own.function_sets[to] = its.function_sets[row]

    def headroom(self, row: int, kind: DeviceType) -> FreeDevices:
        """Return the free devices of a type that the node's model has."""
        columns, group = self.columns[kind], self.reports[row].model.group(kind)
        if group is None:
            raise BugError(f"row {row} has no {kind} devices")
        free = np.maximum(columns.left[row, : group.width], 0).tolist()
        in_use = mask_of([m for m, count in enumerate(columns.holders[row].tolist()) if count > 0])
        functions: dict[int, set[str]] = {}
        for minor, bus_id in columns.function_sets.get(row, ()):
            functions.setdefault(minor, set()).add(bus_id)
        return FreeDevices(free, group.mask, in_use, in_use, functions)

    def standing(
        self, row: int, requests: Iterable[tuple[DeviceType, IntArray | None]]
    ) -> Hashable:
        """Return a key that is equal for rows where the same devices have the requested amounts.

        Also those in use are the same.  None: just as much is left.
        """
        parts: list[Hashable] = [int(self.model[row])]
        for kind, amounts in requests:
            columns = self.columns[kind]
            left = columns.left[row]
            parts += (
                (left if amounts is None else left >= amounts).tobytes(),
                (columns.holders[row] > 0).tobytes(),
                columns.function_sets.get(row),
            )
        return tuple(parts)

    def amounts(self, row: int, kinds: Iterable[DeviceType]) -> Hashable:
        """Return a key that is equal for rows with equal free amounts of equally many devices."""
        left = (self.columns[kind].left[row].tobytes() for kind in kinds)
        return self.reports[row].health, *left

    def validate(self, placed: Iterable[tuple[int, Allocation]]) -> None:
        """Compare the allocations with a recount over the pods.  Raises BugError."""
        again = DeviceTable()
        again.grow(len(self.model))
        for row, allocation in placed:
            again.charge(row, allocation, 1)
        for kind, columns in self.columns.items():
            width = columns.used.shape[1]
            again._ensure(kind, width)
            other = again.columns[kind]
            if (
                not np.array_equal(columns.used, other.used[:, :width])
                or not np.array_equal(columns.holders, other.holders[:, :width])
                or not np.array_equal(columns.left, columns.total - columns.used)
                or columns.functions != other.functions
                or columns.function_sets != other.function_sets
                or not np.array_equal(columns.functions_taken, other.functions_taken[:, :width])
            ):
                raise BugError(f"what pods hold of {kind} devices differs from the sum over them")

    def _ensure(self, kind: DeviceType, minors: int) -> None:
        columns = self.columns[kind]
        have = columns.total.shape[1]
        if minors > have:
            columns.pad(0, minors - have)


def _count(columns: DeviceColumns, row: int, function: tuple[int, str], sign: int) -> None:
    counts = columns.functions.setdefault(row, {})
    before = len(counts)
    counts[function] = counts.get(function, 0) + sign
    if not counts[function]:
        del counts[function]
    columns.functions_taken[row, function[0]] += len(counts) - before
    if counts:
        columns.function_sets[row] = frozenset(counts)
    else:
        del columns.functions[row]
        columns.function_sets.pop(row, None)
