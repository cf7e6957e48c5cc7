"""How the plugins that give out what sits on NUMA nodes find each other."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract.hints import PluginHints
from koordinator.scheduler.contract.results import Refusal
from koordinator.scheduler.rules.numa.hints import ResourceHints
from koordinator.scheduler.rules.numa.rows_align import OtherHints
from koordinator.scheduler.snapshot import PodClass, Snapshot


@runtime_checkable
class NumaHintProvider(Protocol):
    """A plugin that gives out something which sits on NUMA nodes."""

    @property
    def hints(self) -> PluginHints:
        """Say when what the plugin has said of NUMA nodes is stale."""
        ...

    def numa_hints(
        self, snapshot: Snapshot, pod: PodClass, sets: Sequence[int]
    ) -> OtherHints | None:
        """Return what suits the plugin, by row and set of NUMA nodes; None: anything does."""
        ...

    def numa_hints_at(self, node: Snapshot, pod: PodClass) -> ResourceHints | Refusal:
        """Return what suits the plugin on one row, of all sets that there are, or why none."""
        ...


@runtime_checkable
class NumaAligner(Protocol):
    """The plugin that decides from which NUMA nodes a pod gets what it takes."""

    def aligns(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether it may decide anything for such pods; like ``scores`` by traits only."""
        ...

    def numa_nodes(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)`` masks of NUMA nodes as known before a node is chosen; 0: any of them."""
        ...

    def numa_nodes_at(self, node: Snapshot, pod: PodClass) -> int:
        """Return the mask for the chosen row; 0: any of them."""
        ...
