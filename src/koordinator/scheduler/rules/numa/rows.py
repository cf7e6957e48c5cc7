"""Many nodes as arrays: one row per node, one column per NUMA node."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.domain.numa_masks import MAX_COMBINED
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.cpus.required_policy import usable_under
from koordinator.scheduler.rules.numa.hints import ZoneState
from koordinator.scheduler.rules.numa.node import NumaNode
from koordinator.scheduler.rules.numa.request import NOTHING

#: Index of ``NumaRows.bindable``: by the required policy, none being the first.
POLICIES: Final = ("", CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS)


@dataclass(frozen=True, slots=True)
class NumaRows:
    """Columns are NUMA nodes by id; ``exists`` says which of them a row has.

    All but the last three are parts of those: what belongs to a row lies side by side, so that
    looking at some rows of many touches little memory.
    """

    resources: tuple[str, ...]
    exists: BoolArray  # (n, n_zones)
    reported: BoolArray  # (n, n_resources): any NUMA node of the row reports it
    capacity: IntArray  # (n, n_zones, n_resources), amplified
    used: IntArray  # (n, n_zones, n_resources), amplified
    bindable: IntArray  # (n, n_zones, 3): CPUs that may be bound under each of POLICIES
    bindable_in_all: IntArray  # (n, 3): likewise, of the whole node
    cpus_per_core: IntArray  # (n,), 1 where no CPU is known
    bound_cpus: IntArray  # (n,): CPUs of the whole node that pods are bound to
    single: BoolArray  # (n, n_zones): only pods that are on this NUMA node alone
    shared: BoolArray  # (n, n_zones): also pods on several
    flags: BoolArray  # (n, …)
    numbers: IntArray  # (n, …)
    cpu_ratio: FloatArray  # (n,): by how much a node shows more CPU than it has

    @staticmethod
    def empty(n: int, resources: Sequence[str], n_zones: int) -> "NumaRows":
        """Return rows without NUMA nodes, to be set one by one."""
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
        """Return rows that are views of three arrays; what pods change comes last in each."""
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
        """Return some of the rows, which may repeat."""
        arrays = (self.flags[chosen], self.numbers[chosen], self.cpu_ratio[chosen])
        return NumaRows._over(self.resources, self.exists.shape[1], arrays)

    def holds(self, node: NumaNode) -> bool:
        """Return whether the node's NUMA nodes have columns; ask a ``NumaTrial`` otherwise."""
        columns: int = self.exists.shape[1]
        return max(node.zones, default=-1) < columns

    def set(self, row: int, node: NumaNode) -> None:
        """Write one row; one without NUMA nodes if it has no columns for them."""
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
        """Write what pods hold, of a row whose node is otherwise as it was."""
        layout, ledger = node.layout, node.ledger
        zones = tuple(node.zones) if self.holds(node) else ()
        columns, names = range(self.exists.shape[1]), self.resources
        if zones:
            used, states = node.used({}), ledger.states(layout, zones)
            amounts = [used.get(zone, {}).get(name, 0) for zone in columns for name in names]
            held = [states.get(zone) is state for state in _HELD for zone in columns]
        else:
            amounts, held = [0] * (len(columns) * len(names)), [False] * (2 * len(columns))
        if layout is not None:
            free = node.free_cpus(NOTHING).cpus
            bindable = _bindable(layout, free, zones, len(columns))
        else:
            bindable = (0,) * ((len(columns) + 1) * len(POLICIES))
        usage = (*amounts, *bindable, ledger.cpus.held.bit_count())
        self.numbers[row, -len(usage) :] = usage
        if held:
            self.flags[row, -len(held) :] = held


@lru_cache(maxsize=1 << 14)  # many nodes have the same CPUs left
def _bindable(
    layout: CpuLayout, free: int, zones: tuple[int, ...], columns: int
) -> tuple[int, ...]:
    """Return how many CPUs may be bound under each policy, by NUMA node and at last in all."""
    usable = [usable_under(policy, layout, free) for policy in POLICIES]
    parts = [layout.numa_nodes.get(zone, 0) if zone in zones else 0 for zone in range(columns)]
    return tuple((cpus & part).bit_count() for part in (*parts, layout.cpus) for cpus in usable)


_HELD: Final = (ZoneState.SINGLE, ZoneState.SHARED)


def _split(array: npt.NDArray[Any], widths: Sequence[int]) -> list[npt.NDArray[Any]]:
    """Return the columns of an array as parts of these widths."""
    ends = np.cumsum(widths)[:-1]
    return np.split(array, ends, axis=1)
