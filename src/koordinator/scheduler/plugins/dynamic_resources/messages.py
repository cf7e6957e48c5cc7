"""Explanations of device problems, and of objects that claims are missing."""

import difflib
import re
from collections.abc import Iterator, Sequence

from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.domain.dynamic_resources.allocation import claim_names
from koordinator.domain.dynamic_resources.allocator import (
    is_allocatable,
    is_tolerated,
    needs_gate,
)
from koordinator.domain.dynamic_resources.extended_resources import template_to_create
from koordinator.domain.dynamic_resources.inventory import InventoryDevice, Pool
from koordinator.domain.dynamic_resources.requests import (
    AllocationError,
    RequestOption,
)
from koordinator.domain.dynamic_resources.shares import (
    CapacityError,
    consumed_capacity,
    consumption,
    limits_of,
)
from koordinator.scheduler.plugins.dynamic_resources.claims import PodDeviceClaims
from koordinator.scheduler.plugins.dynamic_resources.device_ledger import DeviceLedger
from koordinator.scheduler.snapshot import ObjectTable, PodClass

SHOWN = 8  # devices


def device_problems(ledger: DeviceLedger, row: int, claims: PodDeviceClaims) -> str:
    """Return per request why devices that the node sees do not serve it."""
    pools = ledger.pools(row, claims.avoids)
    if not pools:
        return "the node offers no devices"
    return "; ".join(
        f"claim {claim.key}, request {option.name}: {_of_option(ledger, pools, option)}"
        for claim in claims.pending
        for request in claim.requests
        for option in request.options
    )


def is_free(
    ledger: DeviceLedger, pool: Pool, option: RequestOption, device: InventoryDevice
) -> bool:
    """Return whether a device serves a request now."""
    return not _problem(ledger, pool, option, device)


def is_selected(option: RequestOption, device: InventoryDevice) -> bool:
    """Return whether class and request select a device; a selector that fails does not."""
    try:
        return option.selects(device)
    except AllocationError:
        return False


def _problem(
    ledger: DeviceLedger, pool: Pool, option: RequestOption, device: InventoryDevice
) -> str:
    return (
        _pool_problem(pool)
        or _device_problem(ledger, option, device)
        or _gate_problem(ledger, device)
        or _amount_problem(ledger, pool, option, device)
    )


def _of_option(ledger: DeviceLedger, pools: Sequence[Pool], option: RequestOption) -> str:
    wanted = "all devices" if option.takes_all else f"{option.count} wanted"
    good, bad = 0, dict[str, list[str]]()
    for pool in pools:
        for device in pool.devices:
            problem = _problem(ledger, pool, option, device)
            if problem:
                bad.setdefault(problem, []).append("/".join(device.id[1:]))
            else:
                good += 1
    problems = [f"{_listed(names)}: {problem}" for problem, names in bad.items()]
    return ", ".join((f"{wanted}, {good} free", *problems))


def _pool_problem(pool: Pool) -> str:
    if not pool.is_complete:
        return "its pool is being updated"
    return "" if pool.is_valid else "its pool is invalid"


def _device_problem(ledger: DeviceLedger, option: RequestOption, device: InventoryDevice) -> str:
    for condition in option.conditions:
        try:
            if not condition.matches(device):
                return f"not selected by {condition.label} ({condition.expression})"
        except AllocationError as fault:
            return str(fault)
    taken = _taken_by(ledger, option, device)
    if taken:
        return f"allocated to {taken}"
    if ledger.gates.taints and not is_tolerated(option, device):
        taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in device.spec.taints)
        return f"tainted {taints}"
    return ""


def _gate_problem(ledger: DeviceLedger, device: InventoryDevice) -> str:
    if not is_allocatable(device, ledger.gates):
        return "has binding conditions, which need the gate DRADeviceBindingConditions"
    if device.slice.skip_node_operations:
        return "its slice skips operations of nodes (skipNodeOperations), which is not supported"
    if needs_gate(device, ledger.gates):
        return "consumes counters, which need the gate DRAPartitionableDevices"
    return _withdrawn_problem(ledger, device) if device.spec.consumes_counters else ""


def _amount_problem(
    ledger: DeviceLedger, pool: Pool, option: RequestOption, device: InventoryDevice
) -> str:
    """Return the capacity or counter that is short; empty if none is."""
    use, gates = ledger.use, ledger.gates
    try:
        consumed = (
            consumed_capacity(device, option.capacity, fractional=gates.fractional_ranges)
            if gates.capacity
            else {}
        )
    except CapacityError as error:
        return str(error)
    if consumed is None:
        return "lacks the requested capacity"
    capacity = device.spec.capacity
    for name, amount in consumed.items():
        if use.capacity[device.id, name] + amount > capacity[name].value.nanos:
            return f"has too little {name} left"
    if not gates.counters or use.devices[device.id]:
        return ""
    limits = limits_of(pool)
    for key, amount in consumption(device):
        if use.counters[key] + amount > limits.get(key, 0):
            return f"its pool has too little {key[-1]} left in {key[-2]}"
    return ""


def _taken_by(ledger: DeviceLedger, option: RequestOption, device: InventoryDevice) -> str:
    """Return the holder that blocks the device for the request; empty without one."""
    can_share = ledger.gates.capacity and device.spec.allow_multiple_allocations
    if option.admin_access or (can_share and not ledger.use.whole[device.id]):
        return ""
    holders = ledger.holders(device.id)
    if holders:
        return f"claim {', '.join(holders)}"
    return "pods that request resources" if ledger.is_with_pods(device.id) else ""


def _withdrawn_problem(ledger: DeviceLedger, device: InventoryDevice) -> str:
    withdrawn = ledger.withdrawn(device.id[:2])
    if not withdrawn:
        return ""
    claims = sorted({holder for one in withdrawn for holder in ledger.holders(one)})
    names = _listed(["/".join(one[1:]) for one in withdrawn])
    return (
        f"counters of its pool may be taken by withdrawn devices {names} of claim "
        f"{', '.join(claims[:SHOWN])}"
    )


_UNKNOWN_KEY = re.compile(r"device (\S+)/(\S+)/(\S+): .*no such key: (\w+)")


def unknown_attribute(ledger: DeviceLedger, fault: str) -> str:
    """Return the attributes and capacities of the device whose selector reads another one."""
    unknown = _UNKNOWN_KEY.search(fault)
    device = ledger.device((unknown[1], unknown[2], unknown[3])) if unknown else None
    if unknown is None or device is None:
        return ""
    known = sorted(
        {name.rpartition("/")[2] for name in (*device.spec.attributes, *device.spec.capacity)}
    )
    similar = difflib.get_close_matches(unknown[4], known, n=1)
    if similar:
        return f"did you mean {similar[0]}?"
    return f"the device has {', '.join(known)}" if known else "the device has no attributes"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return " ".join(names[:SHOWN]) + more


_LISTED = 5  # existing names


def objects_to_create(objects: ObjectTable, pod: PodClass) -> str:
    """Return the missing claims, templates and classes of the pod to create; empty if none."""
    steps = [
        *_missing_claims(objects, pod),
        *_missing_classes(objects, pod),
    ]
    return " and ".join(dict.fromkeys(steps))


def _missing_claims(objects: ObjectTable, pod: PodClass) -> Iterator[str]:
    for entry, name in claim_names(pod.spec.resource_claims, pod.claims_made):
        if name is not None and objects.get(ResourceClaim, f"{pod.namespace}/{name}") is None:
            known = [one.metadata for one in objects.all(ResourceClaim)]
            inside = [meta.name for meta in known if meta.namespace == pod.namespace]
            outside = [meta.namespace for meta in known if meta.name == name]
            hint = _hint(name, inside, outside)
            yield f"create the ResourceClaim {pod.namespace}/{name}{hint}"
        template = entry.resource_claim_template_name
        if name is None and template is not None:
            yield template_to_create(pod.namespace, template)


def _missing_classes(objects: ObjectTable, pod: PodClass) -> Iterator[str]:
    for _, name in claim_names(pod.spec.resource_claims, pod.claims_made):
        claim = objects.get(ResourceClaim, f"{pod.namespace}/{name}") if name else None
        if claim is None or claim.status.allocation is not None:
            continue
        for request in claim.spec.devices.requests:
            parts = (request.exactly, *request.first_available)
            for part in parts:
                if part is None or objects.get(DeviceClass, part.device_class_name) is not None:
                    continue
                known = [one.metadata.name for one in objects.all(DeviceClass)]
                hint = _hint(part.device_class_name, known, ())
                yield f"create the DeviceClass {part.device_class_name}{hint}"


def _hint(name: str, known: list[str], namespaces: tuple[str, ...] | list[str]) -> str:
    """Return a similar name, existing names, or the namespaces that have the name."""
    similar = difflib.get_close_matches(name, known, n=1)
    if similar:
        return f" (did you mean {similar[0]}?)"
    if namespaces:
        return (
            f" (there is one of this name in namespace {', '.join(sorted(namespaces)[:_LISTED])})"
        )
    return f" (there are {', '.join(sorted(known)[:_LISTED])})" if known else ""
