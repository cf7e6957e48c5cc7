"""Nodes where a new volume can be provisioned for a claim.

Source: kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go:
``checkVolumeProvisions``, ``hasEnoughCapacity``.
"""

from dataclasses import dataclass

import numpy as np

from koordinator.api.core import NodeSelector, NodeSelectorTerm
from koordinator.api.volume import (
    CsiDriver,
    CsiStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from koordinator.domain.pod_requests import bounded
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.plugins.volume_binding.reach import Reach
from koordinator.scheduler.rules.volumes import (
    NO_PROVISIONER,
    STORAGE,
    requested,
    storage_class_name,
)
from koordinator.scheduler.snapshot.objects import ObjectTable


@dataclass(frozen=True, slots=True)
class ProvisioningCapacity:
    """Rows that can provision a volume, ``(n,)`` each."""

    allowed: BoolArray  # the class provisions volumes for the node
    enough: BoolArray  # the known capacity suffices
    capacity: IntArray  # bytes available to the node; 0 if unknown


def find_headroom(
    objects: ObjectTable, claim: PersistentVolumeClaim, reach: Reach
) -> ProvisioningCapacity:
    """Return the rows for which the claim's class can provision the volume."""
    storage_class = objects.get(StorageClass, storage_class_name(claim))
    rows = len(reach.everywhere)
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return ProvisioningCapacity(
            np.zeros(rows, bool), np.ones(rows, bool), np.zeros(rows, np.int64)
        )
    allowed = np.zeros(rows, bool)
    allowed[_allowed(storage_class, reach)] = True
    capacity = np.zeros(rows, np.int64)
    if not _is_checked(objects, storage_class, claim):
        return ProvisioningCapacity(allowed, np.ones(rows, bool), capacity)
    enough = np.zeros(rows, bool)
    for place in objects.all(CsiStorageCapacity):
        limit = volume_limit(place)
        if (
            place.storage_class_name != storage_class.metadata.name
            or place.node_topology is None
            or limit is None
            or limit < requested(claim)
        ):
            continue
        near = reach.of_topology(place.node_topology)
        if place.capacity is not None:
            capacity[near[~enough[near]]] = bounded(STORAGE, place.capacity)
        enough[near] = True
    return ProvisioningCapacity(allowed, enough, capacity)


def volume_limit(place: CsiStorageCapacity) -> Quantity | None:
    """Return the largest size that can be provisioned there; None if unknown."""
    return place.capacity if place.maximum_volume_size is None else place.maximum_volume_size


def _allowed(storage_class: StorageClass, reach: Reach) -> IntArray:
    if not storage_class.allowed_topologies:
        return reach.everywhere
    terms = tuple(
        NodeSelectorTerm(match_expressions=term.as_node_requirements())
        for term in storage_class.allowed_topologies
    )
    return reach.of_selector(NodeSelector(node_selector_terms=terms))


def _is_checked(
    objects: ObjectTable, storage_class: StorageClass, claim: PersistentVolumeClaim
) -> bool:
    """Return whether the driver publishes capacities that limit the claim."""
    driver = objects.get(CsiDriver, storage_class.provisioner)
    has_size = STORAGE in claim.spec.resources.requests
    return has_size and driver is not None and bool(driver.spec.storage_capacity)
