"""Many nodes as arrays, one row per node and one column per NUMA node, and the sets that fit.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/plugin.go, ``filterAmplifiedCPUs``;
scoring.go, ``scoreWithAmplifiedCPUs``; apis/extension/node_resource_amplification.go,
``Amplify``.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.api.resource_names import CPU
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import MAX_COMBINED, subsets, zones_of
from koordinator.scheduler.rules.cpus.binding import usable_under
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.numa.align import ZoneState
from koordinator.scheduler.rules.numa.node import MILLI, NOTHING, NumaNode, NumaRequest

INSUFFICIENT_CPU: Final = "Insufficient amplified cpu"
INVALID_RATIO: Final = "node(s) invalid CPU amplification ratio"

#: Index of ``NumaRows.bindable``: required policies, with none first.
POLICIES: Final = ("", CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS)

_TAKEN_STATES: Final = (ZoneState.SINGLE, ZoneState.SHARED)


def amplified_rows(amounts: IntArray, ratios: FloatArray) -> IntArray:
    """Return the amounts times the ratios, rounded up; ratios up to 1 have no effect."""
    return np.ceil(amounts * np.maximum(ratios, 1.0)).astype(np.int64)


def amplified_request(requested: IntArray, bound: IntArray, ratios: FloatArray) -> IntArray:
    """Return the requests of each node with bound CPUs amplified; milli-CPU.

    ``bound`` is the part of ``requested`` that is bound.
    """
    return requested - bound + amplified_rows(bound, ratios)


def short_of_cpu(
    cpu_milli: int,
    *,
    binds: BoolArray,
    allocatable: IntArray,
    requested: IntArray,
    bound: IntArray,
    ratios: FloatArray,
) -> BoolArray:
    """Return ``(n,)``: amplified nodes with less free CPU than the pod requests.

    ``binds`` marks nodes where the pod gets exclusive CPUs; amounts are in milli-CPU.
    """
    adjusted = amplified_request(requested, bound, ratios)
    used = np.where((bound > 0) & (requested >= bound), adjusted, requested)
    requests = np.where(
        binds, amplified_rows(np.full_like(requested, cpu_milli), ratios), cpu_milli
    )
    short: BoolArray = (ratios > 1) & (requests > allocatable - used)
    return short & (cpu_milli > 0)


@dataclass(frozen=True, slots=True)
class NumaRows:
    """Columns are NUMA nodes by id; ``exists`` marks the NUMA nodes of a row.

    All arrays but the last three are views into those: the data of one row is contiguous, so that
    evaluating a few rows of many touches little memory.
    """

    resources: tuple[str, ...]
    exists: BoolArray  # (n, n_zones)
    reported: BoolArray  # (n, n_resources): any NUMA node of the row reports it
    capacity: IntArray  # (n, n_zones, n_resources), amplified
    used: IntArray  # (n, n_zones, n_resources), amplified
    bindable: IntArray  # (n, n_zones, 3): bindable CPUs for each of POLICIES
    bindable_in_all: IntArray  # (n, 3): the same for the whole node
    cpus_per_core: IntArray  # (n,), 1 if the layout is unknown
    bound_cpus: IntArray  # (n,): bound CPUs of the whole node
    single: BoolArray  # (n, n_zones): ZoneState.SINGLE
    shared: BoolArray  # (n, n_zones): ZoneState.SHARED
    flags: BoolArray  # (n, …)
    numbers: IntArray  # (n, …)
    cpu_ratio: FloatArray  # (n,): CPU amplification ratio

    @staticmethod
    def empty(n: int, resources: Sequence[str], n_zones: int) -> "NumaRows":
        """Return rows without NUMA nodes."""
        amounts, policies = n_zones * len(resources), len(POLICIES)
        flags = np.zeros((n, 3 * n_zones + len(resources)), bool)
        numbers = np.zeros((n, 2 * amounts + (n_zones + 1) * policies + 2), np.int64)
        rows = NumaRows._over(tuple(resources), n_zones, (flags, numbers, np.ones(n, np.float64)))
        rows.cpus_per_core[:] = 1
        return rows

    @staticmethod
    def _over(
        resources: tuple[str, ...], n_zones: int, arrays: tuple[BoolArray, IntArray, FloatArray]
    ) -> "NumaRows":
        """Return rows that are views of three arrays; usage is last in each."""
        flags, numbers, cpu_ratio = arrays
        exists, reported, single, shared = _split(
            flags, (n_zones, len(resources), n_zones, n_zones)
        )
        amounts, policies = n_zones * len(resources), len(POLICIES)
        widths = (1, amounts, amounts, n_zones * policies, policies, 1)
        per_core, capacity, used, bindable, in_all, bound = _split(numbers, widths)
        by_amount = (len(numbers), n_zones, len(resources))
        return NumaRows(
            resources,
            exists,
            reported,
            capacity.reshape(by_amount),
            used.reshape(by_amount),
            bindable.reshape((len(numbers), n_zones, policies)),
            in_all,
            per_core[:, 0],
            bound[:, 0],
            single,
            shared,
            flags,
            numbers,
            cpu_ratio,
        )

    @staticmethod
    def of(nodes: Sequence[NumaNode], resources: Sequence[str]) -> "NumaRows":
        """Return the rows of some nodes."""
        n_zones = max((max(node.zones, default=-1) for node in nodes), default=-1) + 1
        rows = NumaRows.empty(len(nodes), resources, min(n_zones, MAX_COMBINED))
        for row, node in enumerate(nodes):
            rows.set(row, node)
        return rows

    def select(self, chosen: IntArray) -> "NumaRows":
        """Return some of the rows, with possible repetition."""
        arrays = (self.flags[chosen], self.numbers[chosen], self.cpu_ratio[chosen])
        return NumaRows._over(self.resources, self.exists.shape[1], arrays)

    def holds(self, node: NumaNode) -> bool:
        """Return whether the node's NUMA nodes have columns; otherwise use a ``NumaTrial``."""
        columns: int = self.exists.shape[1]
        return max(node.zones, default=-1) < columns

    def set(self, row: int, node: NumaNode) -> None:
        """Write one row; without NUMA nodes if it has no columns for them."""
        self.flags[row] = False
        self.numbers[row] = 0
        layout = node.layout
        self.cpus_per_core[row] = layout.cpus_per_core if layout is not None else 1
        self.cpu_ratio[row] = node.cpu_ratio
        if self.holds(node):
            for zone, amounts in node.zones.items():
                self.exists[row, zone] = True
                for column, name in enumerate(self.resources):
                    self.reported[row, column] |= name in amounts
                    self.capacity[row, zone, column] = amounts.get(name, 0)
        self.set_usage(row, node)

    def set_usage(self, row: int, node: NumaNode) -> None:
        """Write the usage of a row whose node is otherwise unchanged."""
        layout, ledger = node.layout, node.ledger
        zones = tuple(node.zones) if self.holds(node) else ()
        columns, names = range(self.exists.shape[1]), self.resources
        if zones:
            used, states = node.used({}), ledger.states(layout, zones)
            amounts = [used.get(zone, {}).get(name, 0) for zone in columns for name in names]
            taken = [states.get(zone) is state for state in _TAKEN_STATES for zone in columns]
        else:
            amounts, taken = [0] * (len(columns) * len(names)), [False] * (2 * len(columns))
        if layout is not None:
            free = node.free_cpus(NOTHING).cpus
            bindable = _bindable(layout, free, zones, len(columns))
        else:
            bindable = (0,) * ((len(columns) + 1) * len(POLICIES))
        usage = (*amounts, *bindable, ledger.cpus.in_use.bit_count())
        self.numbers[row, -len(usage) :] = usage
        if taken:
            self.flags[row, -len(taken) :] = taken


@lru_cache(maxsize=1 << 14)  # many nodes have equal free CPUs
def _bindable(
    layout: CpuLayout, free: int, zones: tuple[int, ...], columns: int
) -> tuple[int, ...]:
    """Return the number of bindable CPUs under each policy, by NUMA node, then in total."""
    usable = [usable_under(policy, layout, free) for policy in POLICIES]
    parts = [layout.numa_nodes.get(zone, 0) if zone in zones else 0 for zone in range(columns)]
    return tuple((cpus & part).bit_count() for part in (*parts, layout.cpus) for cpus in usable)


def _split(array: npt.NDArray[Any], widths: Sequence[int]) -> list[npt.NDArray[Any]]:
    """Split an array into column blocks of these widths."""
    ends = np.cumsum(widths)[:-1]
    return np.split(array, ends, axis=1)


@dataclass(frozen=True, slots=True)
class SetFit:
    """Feasibility of one set of NUMA nodes."""

    zones: int  # the set
    fits: BoolArray  # (n,): the pod can be allocated on the set
    hinted: BoolArray  # (n, n_requested): fits, and each member has the resource
    touched: BoolArray  # (n, n_zones): NUMA nodes with a share of the pod


@dataclass(frozen=True, slots=True)
class NumaFits:
    """The sets of NUMA nodes, the smallest first, for one pod on every row."""

    sets: tuple[SetFit, ...]
    reported: BoolArray  # (n, n_requested)
    available: IntArray  # (n, n_zones, n_resources); CPU capped by the bindable CPUs


def fits_of(rows: NumaRows, request: NumaRequest, *, largest: int = MAX_COMBINED) -> NumaFits:
    """Return the feasibility of each set of at most ``largest`` NUMA nodes.

    SingleNUMANode needs sets of one only.
    """
    names = [name for name in request.amounts if name in rows.resources]
    columns = [rows.resources.index(name) for name in names]
    available = np.maximum(rows.capacity - rows.used, 0)
    required = request.required_policy
    bindable = rows.bindable[:, :, POLICIES.index(required)]
    if required:
        cpu = rows.resources.index(CPU)
        available[:, :, cpu] = np.minimum(available[:, :, cpu], bindable * MILLI)
    reported = rows.reported[:, columns]
    amounts = np.array([request.amounts[name] for name in names], np.int64) * reported
    sets = []
    for zones in subsets(tuple(range(rows.exists.shape[1]))):
        if zones.bit_count() > largest:
            break
        members = list(zones_of(zones))
        has = available[:, members][:, :, columns]
        touched = np.zeros(rows.exists.shape, bool)
        fits: BoolArray = np.logical_and.reduce(rows.exists[:, members], axis=1)
        for index, name in enumerate(names):
            unit = _unit(rows, request, name)
            shares, left = _divide(has[:, :, index], amounts[:, index], unit)
            fits &= left == 0
            touched[:, members] |= shares > 0
            if name == CPU and request.binding is not None:
                fits &= _binds(rows, request, bindable[:, members], shares)
        hinted = fits[:, None] & reported & (has > 0).all(axis=1)
        sets.append(SetFit(zones, fits, hinted, touched))
    return NumaFits(tuple(sets), reported, available)


def _unit(rows: NumaRows, request: NumaRequest, name: str) -> IntArray:
    """Return ``(n,)``: the amount that isn't divided between NUMA nodes."""
    if name != CPU or request.binding is None:
        return np.ones(len(rows.cpus_per_core), np.int64)
    whole = request.required_policy == CpuBindPolicy.FULL_PCPUS
    return np.multiply(MILLI, rows.cpus_per_core if whole else np.ones_like(rows.cpus_per_core))


def _divide(has: IntArray, amount: IntArray, unit: IntArray) -> tuple[IntArray, IntArray]:
    """Divide amounts ``(n,)`` over NUMA nodes ``(n, members)``, smallest free amount first.

    Returns the shares ``(n, members)`` and the undivided rest.
    """
    order = np.argsort(has, axis=1, kind="stable")
    ascending = np.take_along_axis(has, order, axis=1)
    parts = ascending.shape[1]
    left = amount
    given = np.zeros_like(ascending)
    whole_cpus = np.where(unit > 1, MILLI, 1)
    for index in range(parts):
        rounded_up = -(-left // whole_cpus) * whole_cpus
        part = rounded_up // unit // (parts - index) * unit
        given[:, index] = np.minimum(ascending[:, index], part)
        left = left - given[:, index]
    shares = np.zeros_like(has)
    np.put_along_axis(shares, order, given, axis=1)
    return shares, left


def _binds(rows: NumaRows, request: NumaRequest, bindable: IntArray, shares: IntArray) -> BoolArray:
    """Return the rows on which the charged CPUs can be bound as required."""
    count = request.binding.count if request.binding is not None else 0
    counts = np.minimum(bindable, shares // MILLI)
    binds: BoolArray = counts.sum(axis=1) == count
    if request.required_policy == CpuBindPolicy.FULL_PCPUS:
        binds &= (counts % rows.cpus_per_core[:, None] == 0).all(axis=1)
    return binds
