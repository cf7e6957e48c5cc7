"""Normalized pods and nodes for scheduling.

Former resource names are replaced, a label may override the scheduler name, and reserved amounts of
a node are subtracted. Source: koordinator pkg/util/transformer (pod_transformer.go,
node_transformer.go).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from koordinator.api.annotations.numa import (
    NODE_RESERVATION,
    NodeReservation,
    NodeReservationApplyPolicy,
)
from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.labels import SCHEDULER_NAME
from koordinator.api.node import Node
from koordinator.api.pod import Container, Pod
from koordinator.api.reservation import Reservation
from koordinator.api.resource_names import CPU, CURRENT_BATCH_NAMES, CURRENT_DEVICE_NAMES
from koordinator.domain.reserve_pod import reserve_pod, without_internal_keys
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

_CURRENT: Mapping[str, str] = {**CURRENT_BATCH_NAMES, **CURRENT_DEVICE_NAMES}
_FORMER = frozenset(_CURRENT)
_NOTHING = Quantity.from_int(0)


def as_scheduled(pod: Pod) -> Pod:
    """Return a pod of the cluster with current resource names and its effective scheduler name.

    Annotations reserved for the scheduler's reserve pods are removed.
    """
    return _current_spec(without_internal_keys(pod) if pod.metadata.annotations else pod)


def reserve_pod_as_scheduled(reservation: Reservation) -> Pod:
    """Return the reserve pod of a reservation, normalized in the same way."""
    return _current_spec(reserve_pod(reservation))


def _current_spec(pod: Pod) -> Pod:
    spec = pod.spec
    scheduler = pod.metadata.labels.get(SCHEDULER_NAME)
    if scheduler and scheduler != spec.scheduler_name:
        spec = replace(spec, scheduler_name=scheduler)
    if _has_former(spec.containers) or (spec.init_containers and _has_former(spec.init_containers)):
        spec = replace(
            spec,
            containers=tuple(map(_renamed, spec.containers)),
            init_containers=tuple(map(_renamed, spec.init_containers)),
        )
    if not _FORMER.isdisjoint(spec.overhead):
        spec = replace(spec, overhead=_current(spec.overhead))
    return pod if spec is pod.spec else replace(pod, spec=spec)


@dataclass(frozen=True, slots=True)
class OfferedNode:
    """A node with its effective allocatable; ``warning`` reports an invalid annotation."""

    node: Node
    warning: str = ""


def as_offered(node: Node) -> OfferedNode:
    """Return the node with current resource names, minus what its annotation reserves."""
    if not _FORMER.isdisjoint(node.status.allocatable):
        node = _offering(node, _current(node.status.allocatable))
    try:
        reservation = NODE_RESERVATION.read(node.metadata)
        taken = {} if reservation is None else _reserved(reservation)
    except InputError as error:
        return OfferedNode(node, f"node {node.metadata.name}: {error}")
    allocatable = dict(node.status.allocatable)
    for name, amount in taken.items():
        if name in allocatable:
            allocatable[name] = max(allocatable[name] - amount, _NOTHING)
    return OfferedNode(
        node if allocatable == node.status.allocatable else _offering(node, allocatable)
    )


def _offering(node: Node, allocatable: ResourceList) -> Node:
    return replace(node, status=replace(node.status, allocatable=allocatable))


def _reserved(reservation: NodeReservation) -> Mapping[str, Quantity]:
    if reservation.apply_policy == NodeReservationApplyPolicy.RESERVED_CPUS_ONLY:
        return {}
    taken = {
        name: amount
        for name, amount in reservation.resources.items()
        if name not in CURRENT_BATCH_NAMES.values()
    }
    if reservation.reserved_cpus:
        taken[CPU] = Quantity.from_int(parse_cpu_list(reservation.reserved_cpus).bit_count())
    return taken


def _has_former(containers: tuple[Container, ...]) -> bool:
    for container in containers:
        requests, limits = container.resources.requests, container.resources.limits
        if not _FORMER.isdisjoint(requests) or (limits and not _FORMER.isdisjoint(limits)):
            return True
    return False


def _renamed(container: Container) -> Container:
    resources: ResourceRequirements = container.resources
    current = replace(
        resources, requests=_current(resources.requests), limits=_current(resources.limits)
    )
    return replace(container, resources=current)


def _current(amounts: ResourceList) -> ResourceList:
    """Return the amounts by current names; the current name wins over the former one."""
    renamed = {_CURRENT[name]: value for name, value in amounts.items() if name in _CURRENT}
    kept = {name: value for name, value in amounts.items() if name not in _CURRENT}
    return {**renamed, **kept}
