"""What is wrong with each device of a node, for people."""

from collections.abc import Iterable, Sequence

from koordinator.domain.dynamic_resources.allocator import (
    is_offered,
    is_tolerated,
    needs_gate,
)
from koordinator.domain.dynamic_resources.inventory import OfferedDevice, Pool
from koordinator.domain.dynamic_resources.requests import (
    AllocationError,
    RequestOption,
)
from koordinator.domain.dynamic_resources.shares import (
    consumed_capacity,
    consumption,
    limits_of,
)
from koordinator.scheduler.plugins.dynamic_resources.claims import PodDeviceClaims
from koordinator.scheduler.plugins.dynamic_resources.device_ledger import DeviceLedger

TOLD = 8  # devices


def device_problems(ledger: DeviceLedger, row: int, claims: PodDeviceClaims) -> str:
    """Return, request by request, why devices that the node sees won't do."""
    pools = ledger.pools(row, claims.avoids)
    if not pools:
        return "the node offers no devices"
    return "; ".join(
        f"claim {claim.key}, request {option.name}: {_of_option(ledger, pools, option)}"
        for claim in claims.pending
        for request in claim.requests
        for option in request.options
    )


def _of_option(ledger: DeviceLedger, pools: Sequence[Pool], option: RequestOption) -> str:
    wanted = "all devices" if option.takes_all else f"{option.count} wanted"
    good, bad = 0, dict[str, list[str]]()
    for pool in pools:
        for device in pool.devices:
            problem = (
                _pool_problem(pool)
                or _device_problem(ledger, option, device)
                or _gate_problem(ledger, device)
                or _amount_problem(ledger, pool, option, device)
            )
            if problem:
                bad.setdefault(problem, []).append("/".join(device.id[1:]))
            else:
                good += 1
    said = [f"{_listed(names)}: {problem}" for problem, names in bad.items()]
    return ", ".join((f"{wanted}, {good} free", *said))


def _pool_problem(pool: Pool) -> str:
    if not pool.is_complete:
        return "its pool is just being updated"
    return "" if pool.is_valid else "its pool is invalid"


def _device_problem(ledger: DeviceLedger, option: RequestOption, device: OfferedDevice) -> str:
    for condition in option.conditions:
        try:
            if not condition.holds(device):
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


def _gate_problem(ledger: DeviceLedger, device: OfferedDevice) -> str:
    if not is_offered(device, ledger.gates):
        return "has to be made ready, which needs the gate DRADeviceBindingConditions"
    if needs_gate(device, ledger.gates):
        return "takes counters, which needs the gate DRAPartitionableDevices"
    return _withdrawn_problem(ledger, device) if device.spec.consumes_counters else ""


def _amount_problem(
    ledger: DeviceLedger, pool: Pool, option: RequestOption, device: OfferedDevice
) -> str:
    """Return what there is too little of; empty: nothing."""
    use, gates = ledger.use, ledger.gates
    consumed = consumed_capacity(device, option.capacity) if gates.capacity else {}
    if consumed is None:
        return "has not the capacity that is asked for"
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


def _taken_by(ledger: DeviceLedger, option: RequestOption, device: OfferedDevice) -> str:
    """Return who keeps the request from the device; empty: nobody."""
    can_share = ledger.gates.capacity and device.spec.allow_multiple_allocations
    if option.admin_access or (can_share and not ledger.use.whole[device.id]):
        return ""
    holders = ledger.holders(device.id)
    if holders:
        return f"claim {', '.join(holders)}"
    return "pods that request resources" if ledger.is_with_pods(device.id) else ""


def _withdrawn_problem(ledger: DeviceLedger, device: OfferedDevice) -> str:
    withdrawn = ledger.withdrawn(device.id[:2])
    if not withdrawn:
        return ""
    claims = sorted({holder for one in withdrawn for holder in ledger.holders(one)})
    names = _listed(["/".join(one[1:]) for one in withdrawn])
    return (
        f"counters of its pool may be taken by {names}, offered no more, of claim "
        f"{', '.join(claims[:TOLD])}"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
    return " ".join(_first(names)) + more


def _first(names: Sequence[str]) -> Iterable[str]:
    return names[:TOLD]
