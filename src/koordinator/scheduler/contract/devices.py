"""How plugins that weigh amounts learn of devices that serve extended resources."""

from collections.abc import Collection, Hashable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.rules.usage_kernels import RowUsage
from koordinator.scheduler.snapshot import PodClass, Snapshot


@runtime_checkable
class DeviceCounter(Protocol):
    """The plugin that knows which devices are offered, and which of them are allocated."""

    def device_counts(self, cluster: Snapshot, device_class: str) -> tuple[IntArray, IntArray]:
        """Return ``(n,)`` by row: devices of a class that it reaches, those that are allocated."""
        ...

    def device_version(self, snapshot: Snapshot) -> Hashable:
        """Return what changes whenever any of these do."""
        ...


def find_device_counter(plugins: Sequence[object]) -> DeviceCounter | None:
    """Return the plugin of a profile that counts devices; None: it has none."""
    return next((one for one in plugins if isinstance(one, DeviceCounter)), None)


def served_usage(
    snapshot: Snapshot, pod: PodClass, columns: Collection[int], counter: DeviceCounter
) -> RowUsage:
    """Return what nodes have and what is taken of it, devices included.

    Of resources in these columns a node that has none itself has the devices that serve them.

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
        there, used = allocatable[column, :count], requested[column, :count]
        allocatable[column, :count] = np.where(by_devices, offered, there)
        requested[column, :count] = np.where(by_devices, taken, used)
    return usage._replace(allocatable=allocatable, requested=requested)
