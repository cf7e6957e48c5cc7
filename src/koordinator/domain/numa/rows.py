"""Many nodes as arrays: one row per node, one column per NUMA node."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final

import numpy as np

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.domain.cpus.layout import CpuLayout
from koordinator.domain.cpus.required import usable_under
from koordinator.domain.numa.amplification import BoolArray, FloatArray, IntArray
from koordinator.domain.numa.hints import ZoneState
from koordinator.domain.numa.masks import MAX_COMBINED
from koordinator.domain.numa.node import NumaNode
from koordinator.domain.numa.request import NOTHING

#: Index of ``NumaRows.bindable``: by the required policy, none being the first.
POLICIES: Final = ("", CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS)


@dataclass(frozen=True, slots=True)
class NumaRows:
    """Columns are NUMA nodes by id; ``exists`` says which of them a row has."""

    resources: tuple[str, ...]
    exists: BoolArray  # (n, n_zones)
    reported: BoolArray  # (n, n_resources): any NUMA node of the row reports it
    capacity: IntArray  # (n, n_zones, n_resources), amplified
    used: IntArray  # (n, n_zones, n_resources), amplified
    bindable: IntArray  # (n, n_zones, 3): CPUs that may be bound under each of POLICIES
    bindable_in_all: IntArray  # (n, 3): likewise, of the whole node
    cpus_per_core: IntArray  # (n,), 1 where no CPU is known
    cpu_ratio: FloatArray  # (n,): by how much a node shows more CPU than it has
    bound_cpus: IntArray  # (n,): CPUs of the whole node that pods are bound to
    single: BoolArray  # (n, n_zones): only pods that are on this NUMA node alone
    shared: BoolArray  # (n, n_zones): also pods on several

    @staticmethod
    def empty(n: int, resources: Sequence[str], n_zones: int) -> "NumaRows":
        """Return rows without NUMA nodes, to be set one by one."""
        amounts = (n, n_zones, len(resources))
        return NumaRows(
            tuple(resources),
            np.zeros((n, n_zones), bool),
            np.zeros((n, len(resources)), bool),
            np.zeros(amounts, np.int64),
            np.zeros(amounts, np.int64),
            np.zeros((n, n_zones, len(POLICIES)), np.int64),
            np.zeros((n, len(POLICIES)), np.int64),
            np.ones(n, np.int64),
            np.ones(n, np.float64),
            np.zeros(n, np.int64),
            np.zeros((n, n_zones), bool),
            np.zeros((n, n_zones), bool),
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
        arrays = (getattr(self, name) for name in _ARRAYS)
        return NumaRows(self.resources, *(array[chosen] for array in arrays))

    def holds(self, node: NumaNode) -> bool:
        """Return whether the node's NUMA nodes have columns; ask a ``NumaTrial`` otherwise."""
        columns: int = self.exists.shape[1]
        return max(node.zones, default=-1) < columns

    def set(self, row: int, node: NumaNode) -> None:
        """Write one row; one without NUMA nodes if it has no columns for them."""
        for array in (self.exists, self.capacity, self.used, self.bindable, self.reported):
            array[row] = 0
        self.bindable_in_all[row] = 0
        self.single[row] = self.shared[row] = False
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
        self.bound_cpus[row] = ledger.cpus.held.bit_count()
        zones = tuple(node.zones) if self.holds(node) else ()
        if layout is not None:
            free = node.free_cpus(NOTHING).cpus
            self.bindable_in_all[row], of_zones = _bindable(layout, free, zones)
            for zone, counts in of_zones:
                self.bindable[row, zone] = counts
        if not zones:
            return
        used, states = node.used({}), ledger.states(layout, zones)
        for zone in zones:
            self.single[row, zone] = states[zone] is ZoneState.SINGLE
            self.shared[row, zone] = states[zone] is ZoneState.SHARED
            amounts = used[zone]
            self.used[row, zone] = [amounts.get(name, 0) for name in self.resources]


@lru_cache(maxsize=1 << 14)  # many nodes have the same CPUs left
def _bindable(
    layout: CpuLayout, free: int, zones: tuple[int, ...]
) -> tuple[IntArray, tuple[tuple[int, IntArray], ...]]:
    """Return how many CPUs may be bound under each policy, in all and by NUMA node."""
    usable = [usable_under(policy, layout, free) for policy in POLICIES]
    everywhere = np.array([cpus.bit_count() for cpus in usable], np.int64)
    by_zone = []
    for zone in zones:
        here = layout.numa_nodes.get(zone, 0)
        counts = [(cpus & here).bit_count() for cpus in usable]
        by_zone.append((zone, np.array(counts, np.int64)))
    return everywhere, tuple(by_zone)


_ARRAYS: Final = tuple(each.name for each in fields(NumaRows) if each.name != "resources")
