"""Peers of plugins: other plugins, and extenders.

Source: kubernetes pkg/scheduler/framework/interface.go ``Extender`` and k8s.io/kube-scheduler
extender/v1/types.go.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, runtime_checkable

import numpy as np

from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract.advanced import PluginHints
from koordinator.scheduler.contract.plugin import Refusal
from koordinator.scheduler.post_filter import ProposedVictims
from koordinator.scheduler.rules.numa.align import ResourceHints
from koordinator.scheduler.rules.numa.rows_align import OtherHints
from koordinator.scheduler.rules.usage_kernels import RowUsage
from koordinator.scheduler.snapshot import PodClass, Snapshot

#: Name of all extenders among the plugins that reject a pod (kube: ExtenderName).
EXTENDER = "Extender"


@runtime_checkable
class NumaHintProvider(Protocol):
    """A plugin that allocates resources of NUMA nodes.

    Rule R4: plugins meet only through the contract.
    """

    @property
    def hints(self) -> PluginHints:
        """The hints of the plugin; a new ``version`` makes its NUMA hints stale."""
        ...

    def numa_hints(
        self, snapshot: Snapshot, pod: PodClass, sets: Sequence[int]
    ) -> OtherHints | None:
        """Return the hints by row and set of NUMA nodes; None: the plugin accepts any set."""
        ...

    def numa_hints_at(self, node: Snapshot, pod: PodClass) -> ResourceHints | Refusal:
        """Return the hints for all sets of NUMA nodes of one row, or why no set is possible."""
        ...


@runtime_checkable
class NumaAligner(Protocol):
    """The plugin that chooses the NUMA nodes of a pod.

    Rule R4: plugins meet only through the contract.
    """

    def aligns(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether it may choose for such pods; depends on the same as ``hints.scores``."""
        ...

    def numa_nodes(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)`` masks of NUMA nodes, known before a node is chosen; 0: any of them."""
        ...

    def numa_nodes_at(self, node: Snapshot, pod: PodClass) -> int:
        """Return the mask for the chosen row; 0: any of them."""
        ...


@runtime_checkable
class DeviceCounter(Protocol):
    """The plugin that counts the devices behind extended resources.

    Rule R4: plugins meet only through the contract.
    """

    def device_counts(self, cluster: Snapshot, device_class: str) -> tuple[IntArray, IntArray]:
        """Return ``(n,)`` numbers of devices of a class by row, and how many are allocated."""
        ...

    def device_version(self, snapshot: Snapshot) -> Hashable:
        """Return a value that changes when one of these numbers changes."""
        ...


def find_device_counter(plugins: Sequence[object]) -> DeviceCounter | None:
    """Return the plugin of a profile that counts devices, if there is one."""
    # The protocol is checked last: that takes twenty times as long as looking up a method.
    candidates = (one for one in plugins if hasattr(one, "device_counts"))
    return next((one for one in candidates if isinstance(one, DeviceCounter)), None)


def served_usage(
    snapshot: Snapshot, pod: PodClass, columns: Collection[int], counter: DeviceCounter
) -> RowUsage:
    """Return the allocatable and requested amounts of nodes, devices included.

    In these columns a node without an allocatable amount has the devices that serve the resource.

    Source: kubernetes pkg/scheduler/framework/plugins/noderesources/resource_allocation.go
    ``calculateDRAExtendedResourceAllocatableRequest``.
    """
    usage, cluster = snapshot.usage, snapshot.cluster
    allocatable, requested = usage.allocatable.copy(), usage.requested.copy()
    count = len(cluster)
    for column, device_class in pod.served:
        if column not in columns:
            continue
        offered, taken = counter.device_counts(cluster, device_class)
        by_devices = (allocatable[column, :count] == 0) & (offered > 0)
        capacity, used = allocatable[column, :count], requested[column, :count]
        allocatable[column, :count] = np.where(by_devices, offered, capacity)
        requested[column, :count] = np.where(by_devices, taken, used)
    return usage._replace(allocatable=allocatable, requested=requested)


@dataclass(frozen=True, slots=True)
class ExtenderVerdict:
    """The nodes that an extender accepts, and its reasons against the others."""

    accepted: frozenset[str]
    reasons: Mapping[str, str] = field(default_factory=dict)  # by rejected node
    unresolvable: frozenset[str] = frozenset()  # rejected nodes where removing pods would not help


class SchedulerExtender(Protocol):
    """An extender; all methods except ``is_interested`` raise ExtenderError.

    Rule R3: ``extenders``, which implements it, is beside ``cycle``.
    """

    @property
    def name(self) -> str:
        """The URL, by which messages name it."""
        ...

    @property
    def is_ignorable(self) -> bool:
        """Whether the scheduler skips it when it fails."""
        ...

    @property
    def weight(self) -> int:
        """The weight of its scores."""
        ...

    @property
    def verbs(self) -> frozenset[str]:
        """Verbs of the extender, from filter, prioritize, preempt and bind."""
        ...

    def is_interested(self, spec: PodSpec) -> bool:
        """Return whether the scheduler calls it for such a pod."""
        ...

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderVerdict:
        """Filter the nodes."""
        ...

    def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Mapping[str, int]:
        """Return scores by node; a node without one has 0."""
        ...

    def preempt(
        self, pod: Pod, victims: Mapping[str, ProposedVictims]
    ) -> Mapping[str, ProposedVictims]:
        """Return the candidate nodes, with their victims, that it accepts."""
        ...

    def bind(self, pod: Pod, node: str) -> None:
        """Bind a pod."""
        ...

    def record_failure(self, error: Exception) -> None:
        """Record a failure of an ignorable extender for reporting."""
        ...
