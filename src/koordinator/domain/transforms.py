"""Transformations of objects when they are read.

Former resource names are replaced, a label may override the scheduler name, and reserved amounts of
a node are subtracted.  Each transformation of a pod has a feature gate of its name.

Source: koordinator pkg/util/transformer (pod_transformer.go, node_transformer.go); koordinator
pkg/util/transformer/pod_transformer.go; apis/extension/priority.go,
``GetPodPriorityValueWithDefault``; apis/extension/resource.go, ``GetPodReplaceResourcesConfig``.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from koordinator.api.annotations.numa import (
    NODE_RESERVATION,
    NodeReservation,
    NodeReservationApplyPolicy,
)
from koordinator.api.annotations.pod_qos import REPLACE_RESOURCES
from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.labels import SCHEDULER_NAME
from koordinator.api.node import Node
from koordinator.api.pod import Container, Pod
from koordinator.api.qos import priority_of
from koordinator.api.reservation import Reservation
from koordinator.api.resource_names import CPU, CURRENT_BATCH_NAMES, CURRENT_DEVICE_NAMES
from koordinator.domain.reserve_pod import reserve_pod, without_internal_keys
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
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
class TransformedNode:
    """A node with its effective allocatable; ``warning`` reports an invalid annotation."""

    node: Node
    warning: str = ""


def transform_node(node: Node) -> TransformedNode:
    """Return the node with current resource names, minus what its annotation reserves."""
    if not _FORMER.isdisjoint(node.status.allocatable):
        node = _with_allocatable(node, _current(node.status.allocatable))
    try:
        reservation = NODE_RESERVATION.read(node.metadata)
        taken = {} if reservation is None else _reserved(reservation)
    except InputError as error:
        return TransformedNode(node, f"node {node.metadata.name}: {error}")
    allocatable = dict(node.status.allocatable)
    for name, amount in taken.items():
        if name in allocatable:
            allocatable[name] = max(allocatable[name] - amount, _NOTHING)
    return TransformedNode(
        node if allocatable == node.status.allocatable else _with_allocatable(node, allocatable)
    )


def _with_allocatable(node: Node, allocatable: ResourceList) -> Node:
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


def with_priority(pod: Pod) -> Pod:
    """Return the pod with the priority of its Koordinator class if it has none or 0."""
    priority = priority_of(pod)
    if pod.spec.priority == priority:
        return pod
    return replace(pod, spec=replace(pod.spec, priority=priority))


def replaced_resources(pod: Pod) -> Pod:
    """Return the pod with resources renamed (``a:b``) and removed (``a:``) by its annotation.

    Removals are applied first.  A resource is not renamed to one that is requested already; CPU is
    converted to milli.  Malformed parts of the annotation are ignored, and the last of several new
    names wins.
    """
    text = pod.metadata.annotations.get(REPLACE_RESOURCES, "")
    pairs = [part.split(":") for part in text.split(",")]
    stated = [(pair[0].strip(), pair[1].strip()) for pair in pairs if len(pair) == 2]  # noqa: PLR2004 -- from and to
    removed = [(old, "") for old, new in stated if old and not new]
    changes = [*removed, *{old: new for old, new in stated if old and new}.items()]
    if not changes:
        return pod
    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=_all(spec.containers, changes),
            init_containers=_all(spec.init_containers, changes),
            overhead=_changed(spec.overhead, changes),
        ),
    )


def _all(
    containers: tuple[Container, ...], changes: list[tuple[str, str]]
) -> tuple[Container, ...]:
    return tuple(
        [
            replace(
                it,
                resources=ResourceRequirements(
                    requests=_changed(it.resources.requests, changes),
                    limits=_changed(it.resources.limits, changes),
                    claims=it.resources.claims,
                ),
            )
            for it in containers
        ]
    )


def _changed(amounts: ResourceList, changes: list[tuple[str, str]]) -> ResourceList:
    left = dict(amounts)
    for old, new in changes:
        if not new:
            left.pop(old, None)
        elif old in left and new not in left:
            quantity = left.pop(old)
            left[new] = Quantity.from_int(quantity.milli()) if old == "cpu" else quantity
    return left
