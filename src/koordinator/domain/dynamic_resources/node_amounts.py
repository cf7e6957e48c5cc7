"""Resources of the node that a pod has by its claims (gate DRANodeAllocatableResources).

Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources/
nodeallocatabledynamicresources.go.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from koordinator.api.dynamic_resources import (
    DeviceRequestAllocationResult,
    NodeAllocatableMapping,
    PoolDevice,
)
from koordinator.api.pod import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
    PodResourceClaimStatus,
    PodSpec,
)
from koordinator.domain.amounts import add, canonical, canonical_amounts
from koordinator.domain.dynamic_resources.allocation import claim_names
from koordinator.domain.dynamic_resources.requests import AllocationError
from koordinator.domain.pod_requests import (
    Requests,
    add_overhead,
    claimed_amounts,
    is_pod_level,
    most_together,
    stated_requests,
)
from koordinator.foundation.quantity import NANOS, Quantity

Statuses = tuple[NodeAllocatableResourceClaimStatus, ...]
CHECKED: Final = ("cpu", "memory", "ephemeral-storage")  # and hugepages-*
HUGE_PAGES: Final = "hugepages-"

#: Consumed capacity of an allocated device; None: the claim has the whole device.
CapacityShare = Mapping[str, Quantity] | None


def is_mapped(device: PoolDevice) -> bool:
    """Return whether a device models an amount of a resource of its node."""
    return any(one.mapping is not None for one in device.node_allocatable_resources.values())


def consumed_capacity_of(result: DeviceRequestAllocationResult) -> CapacityShare:
    """Return the consumed capacity in an allocation; None without any."""
    return result.consumed_capacity or None


def amounts_of_claim(
    key: str, devices: Iterable[tuple[PoolDevice, CapacityShare]]
) -> NodeAllocatableResourceClaimStatus | None:
    """Return the amounts that the devices of a claim take of their node; None without any.

    The name and the containers are left empty.  Raises AllocationError for a device whose amount
    depends on a capacity that the claim does not share.
    """
    mapped: dict[str, Quantity] = {}
    overheads: dict[str, NodeAllocatableOverheadResources] = {}
    for device, consumed in devices:
        for name, resource in device.node_allocatable_resources.items():
            if resource.mapping is not None:
                amount = _mapped(key, device, name, resource.mapping, consumed)
                if amount is not None:
                    mapped[name] = mapped[name] + amount if name in mapped else amount
            more = resource.overhead
            if more is not None and (more.per_pod is not None or more.per_container is not None):
                known = overheads.get(name, NodeAllocatableOverheadResources(name=name))
                overheads[name] = replace(
                    known,
                    per_pod=_sum(known.per_pod, more.per_pod),
                    per_container=_sum(known.per_container, more.per_container),
                )
    if not mapped and not overheads:
        return None
    return NodeAllocatableResourceClaimStatus(
        mapping=tuple(
            NodeAllocatableMappedResources(name=name, quantity=mapped[name])
            for name in sorted(mapped)
        ),
        overhead=tuple(overheads[name] for name in sorted(overheads)),
    )


def _mapped(
    key: str,
    device: PoolDevice,
    resource: str,
    mapping: NodeAllocatableMapping,
    consumed: CapacityShare,
) -> Quantity | None:
    """Return the amount that a device models; None if the claim does not consume any."""
    if not mapping.capacity_key:
        return mapping.device_multiplier
    if consumed is None:
        raise AllocationError(
            f"claim {key}, device {device.name}: ConsumedCapacity is nil, but Capacity key "
            f"'{mapping.capacity_key}' is set in NodeAllocatableResources for resource {resource}"
        )
    base, factor = consumed.get(mapping.capacity_key), mapping.capacity_multiplier
    if base is None or factor is None:
        return base
    return Quantity(-(-base.nanos * factor.nanos // NANOS), base.notation)


def _sum(one: Quantity | None, other: Quantity | None) -> Quantity | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def claim_statuses(
    spec: PodSpec,
    made: Iterable[PodResourceClaimStatus],
    amounts: Mapping[str, NodeAllocatableResourceClaimStatus],
) -> Statuses:
    """Return the status of the pod's claims; ``amounts`` are given by the claims' names."""
    names: dict[str, set[str]] = {}
    for entry, name in claim_names(spec.resource_claims, made):
        names.setdefault(name or "", set()).add(entry.name)
    statuses = []
    for name in sorted(amounts):
        entries = names.get(name, set())
        users = tuple(
            container.name
            for container in (*spec.init_containers, *spec.containers)
            if any(reference.name in entries for reference in container.resources.claims)
        )
        statuses.append(replace(amounts[name], resource_claim_name=name, containers=users))
    return tuple(statuses)


def checked_requests(spec: PodSpec, statuses: Statuses) -> Requests:
    """Return the checked resources that the pod requests of its node together with its claims.

    Pod-level requests replace the sum.
    """
    total = most_together(spec, lambda each: canonical_amounts(each.resources.requests))
    add(total, claimed_amounts(statuses))
    total |= {name: n for name, n in stated_requests(spec).items() if is_pod_level(name)}
    add_overhead(total, spec)
    ordered = (*CHECKED, *sorted(name for name in total if name.startswith(HUGE_PAGES)))
    return {name: total[name] for name in ordered if total.get(name)}


def uncovered(spec: PodSpec, statuses: Statuses) -> str:
    """Return which pod-level amount does not cover containers and claims; empty if all do."""
    if spec.resources is None:
        return ""
    claimed = claimed_amounts(statuses)
    total = most_together(spec, lambda each: canonical_amounts(each.resources.requests))
    add(total, claimed)
    for name, amount in sorted(canonical_amounts(spec.resources.requests).items()):
        if is_pod_level(name) and total.get(name, 0) > amount:
            return (
                f"pod level request for {name} is insufficient to cover the aggregated container "
                "and node-allocatable DRA requests"
            )
    limits = canonical_amounts(spec.resources.limits)
    total = most_together(spec, lambda each: canonical_amounts(each.resources.limits))
    add(total, {name: n for name, n in claimed.items() if name.startswith(HUGE_PAGES)})
    for name, amount in sorted(total.items()):
        if name.startswith(HUGE_PAGES) and amount > limits.get(name, amount):
            return (
                f"pod level limit for {name} is insufficient to cover the aggregated container "
                "and node-allocatable DRA limits"
            )
    for container in spec.containers:
        own = _of_container(container.name, statuses)
        for name, amount in sorted(canonical_amounts(container.resources.limits).items()):
            if name.startswith(HUGE_PAGES) or name not in limits:
                continue
            if amount + own.get(name, 0) > limits[name]:
                return (
                    f"pod level limit for {name} is insufficient to cover the limit and DRA "
                    f"overhead for container {container.name}"
                )
    return ""


def _of_container(name: str, statuses: Statuses) -> Requests:
    """Return the amounts that claims add to the limits of one container."""
    total: dict[str, int] = {}
    for status in statuses:
        if name not in status.containers:
            continue
        for one in status.mapping:
            total[one.name] = total.get(one.name, 0) + _nanos(one.quantity)
        for each in status.overhead:
            more = _nanos(each.per_pod) + _nanos(each.per_container)
            total[each.name] = total.get(each.name, 0) + more
    return {resource: canonical(resource, Quantity(nanos)) for resource, nanos in total.items()}


def _nanos(amount: Quantity | None) -> int:
    return 0 if amount is None else amount.nanos
