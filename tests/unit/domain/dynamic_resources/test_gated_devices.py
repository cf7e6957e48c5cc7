"""Search for devices with the gates that are off by default.

Each rule was seen in the original's own allocator (k8s.io/dynamic-resource-allocation 0.35.4).
"""

from typing import Any

import pytest
from tests.unit.domain.dynamic_resources.test_allocator import (
    DRIVER,
    NODE,
    A,
    ask,
    claim,
    device,
    names,
    pools,
)

from koordinator.api.codec import decode
from koordinator.api.dynamic_resources import ResourceSlice
from koordinator.domain.dynamic_resources.allocation import allocation_of
from koordinator.domain.dynamic_resources.allocator import (
    CANNOT_ALLOCATE,
    INVALID_POOLS,
    NO_GATES,
    AllocatorGates,
    NodeAllocation,
    NotAllocatable,
    allocate,
)
from koordinator.domain.dynamic_resources.inventory import Pool, SliceIndex
from koordinator.domain.dynamic_resources.shares import DevicesInUse

CAPACITY, COUNTERS = AllocatorGates(capacity=True), AllocatorGates(counters=True)
BINDING, TAINTS = AllocatorGates(binding_conditions=True), AllocatorGates(taints=True)
GIB = 2**30 * 10**9
TAKES_ALL = [{"counterSet": "gpu", "counters": {"units": {"value": "1"}}}]


def seen(*specs: dict[str, Any], partitions: bool = True) -> tuple[Pool, ...]:
    """Return the node's view of slices; a spec names what is not usual."""
    index = SliceIndex(partitions=partitions)
    for number, spec in enumerate(specs):
        pool = {"name": "n", "generation": 1, "resourceSliceCount": 1} | spec.get("pool", {})
        where = {} if {"nodeName", "perDeviceNodeSelection"} & set(spec) else {"nodeName": "n"}
        whole = {"driver": DRIVER, "devices": [], **where, **spec, "pool": pool}
        manifest = {"metadata": {"name": f"slice-{number}"}, "spec": whole}
        index.put(decode(manifest, ResourceSlice))
    return index.pools(NODE)


def shared(name: str, memory: str = "8Gi") -> dict[str, Any]:
    """Return a device that serves several claims."""
    capacity = {"memory": {"value": memory}}
    return {**device(name), "allowMultipleAllocations": True, "capacity": capacity}


def amount(memory: str, count: int | str = 1, **more: Any) -> dict[str, Any]:
    """Return a request for so much of each device."""
    return ask(count, capacity={"requests": {"memory": memory}}, **more)


def test_all_devices_are_those_with_enough_left() -> None:
    """A device with too little capacity, or none of that name, is not one of all."""
    small, big = shared("small", "2Gi"), shared("big")
    bare, some = device("bare"), pools(small, big, device("bare"))
    used = DevicesInUse()

    assert names(allocate(some, [claim(amount("4Gi", "All"))], used, CAPACITY)) == [[("r0", "big")]]
    used.charge((DRIVER, "n", "big"), {"memory": 5 * GIB}, 1)
    assert names(allocate(some, [claim(amount("4Gi", "All"))], used, CAPACITY)) == CANNOT_ALLOCATE
    assert names(allocate(pools(bare), [claim(amount("1", "All"))], used, CAPACITY)) == (
        CANNOT_ALLOCATE
    )


def test_admins_have_shares_of_devices_too() -> None:
    """Claims with admin access need remaining capacity, and get its amount."""
    used = DevicesInUse()
    one = claim(amount("4Gi", adminAccess=True), amount("4Gi"))

    allocation = allocate(pools(shared("d0")), [one], used, CAPACITY)
    assert isinstance(allocation, NodeAllocation)
    assert [got.consumed for got in allocation.claims[0]] == [{"memory": 4 * GIB}] * 2
    written = allocation_of(one, allocation.claims[0], "n", CAPACITY).devices.results
    assert all(result.share_id for result in written)
    used.charge((DRIVER, "n", "d0"), {"memory": 5 * GIB}, 1)
    assert names(allocate(pools(shared("d0")), [one], used, CAPACITY)) == CANNOT_ALLOCATE


def test_admins_need_counters_as_others_do() -> None:
    """Two partitions that take all there is are too many, for every claim."""
    parts = [{**device(f"d{i}"), "consumesCounters": TAKES_ALL} for i in range(2)]
    sets = [{"name": "gpu", "counters": {"units": {"value": "1"}}}]
    two = {"resourceSliceCount": 2}
    some = seen({"sharedCounters": sets, "pool": two}, {"devices": parts, "pool": two})

    assert names(allocate(some, [claim(ask(1, adminAccess=True))], DevicesInUse(), COUNTERS)) == [
        [("r0", "d0")]
    ]
    both = claim(ask(2, adminAccess=True))
    assert names(allocate(some, [both], DevicesInUse(), COUNTERS)) == CANNOT_ALLOCATE


def test_devices_that_have_to_be_made_ready_come_last() -> None:
    """Gated pools come after others, slices of a pool by name; without the gate they are unused."""
    slow = {**device("slow"), "bindingConditions": ["Ready"], "bindingFailureConditions": ["Bad"]}
    two = {"resourceSliceCount": 2}
    slices = seen({"devices": [slow], "pool": two}, {"devices": [device("fast")], "pool": two})
    by_pool = seen({"devices": [slow]}, {"devices": [device("fast")], "pool": {"name": "other"}})

    for some, order in ((slices, ("slow", "fast")), (by_pool, ("fast", "slow"))):
        allocation = allocate(some, [claim(ask(2))], DevicesInUse(), BINDING)
        assert names(allocation) == [[("r0", name) for name in order]]
        assert names(allocate(some, [claim(ask("All"))], DevicesInUse())) == [[("r0", "fast")]]
        assert names(allocate(some, [claim(ask(2))], DevicesInUse())) == CANNOT_ALLOCATE


def test_selectors_are_evaluated_before_taints() -> None:
    """A selector that fails on a device is an error, even if the device is tainted."""
    tainted = {**device("d0"), "taints": [{"key": "sick", "effect": "NoExecute"}]}

    allocation = allocate(
        pools(tainted), [claim(ask(1, f"{A}.index == 1"))], DevicesInUse(), TAINTS
    )
    assert isinstance(allocation, NotAllocatable)
    assert allocation.is_fault


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(NO_GATES, "claim default/c, constraint #0: empty constraint"), (CAPACITY, [[("r0", "d0")]])],
)
def test_a_constraint_is_never_ignored(wanted: AllocatorGates, expected: Any) -> None:
    """A constraint on distinct attributes is an error without its gate."""
    one = claim(ask(1), constraints=[{"distinctAttribute": f"{DRIVER}/k"}])

    allocation = names(allocate(pools(device("d0", k=1)), [one], DevicesInUse(), wanted))
    assert allocation == expected or (isinstance(expected, str) and allocation.startswith(expected))


def test_three_devices_of_one_request_are_distinct_by_pairs() -> None:
    """The third one differs from the first, too."""
    some = pools(*(device(f"d{i}", k=k) for i, k in enumerate((1, 2, 1, 3))))
    one = claim(ask(3), constraints=[{"distinctAttribute": f"{DRIVER}/k"}])

    allocation = allocate(some, [one], DevicesInUse(), CAPACITY)
    assert names(allocation) == [[("r0", "d0"), ("r0", "d1"), ("r0", "d3")]]


# -- pools ---------------------------------------------------------------------------------------


def test_a_pool_that_is_newer_elsewhere_is_not_there() -> None:
    """Where the node sees a part of the older one; All then has nothing to wait for."""
    two = {"resourceSliceCount": 2}
    old = {"devices": [device("d0")], "pool": two}
    new = {"devices": [device("d1")], "pool": two | {"generation": 2}, "nodeName": "other"}

    assert seen(old, new) == ()
    whole = {"devices": [device("d0")]}
    assert [pool.is_complete for pool in seen(whole, new)] == [True]


@pytest.mark.parametrize(
    ("sets", "taken"), [(["gpu"], "other"), (["gpu", "gpu"], "gpu"), ([], "gpu")]
)
def test_a_pool_with_counters_that_do_not_add_up_is_invalid(sets: list[str], taken: str) -> None:
    """Devices take counters that no set has, or two sets bear one name."""
    slices = [
        {"sharedCounters": [{"name": name, "counters": {"units": {"value": "1"}}}]} for name in sets
    ]
    takes = [{"counterSet": taken, "counters": {"units": {"value": "1"}}}]
    devices = [device("plain"), {**device("part"), "consumesCounters": takes}]
    count = {"resourceSliceCount": len(slices) + 1}
    specs = [{**each, "pool": count} for each in (*slices, {"devices": devices})]

    allocation = allocate(seen(*specs), [claim(ask(1))], DevicesInUse(), COUNTERS)
    assert names(allocation) == INVALID_POOLS
    without = seen(*specs, partitions=False)
    assert names(allocate(without, [claim(ask(1))], DevicesInUse())) == [[("r0", "plain")]]


def test_slices_with_node_selection_per_device_are_behind_their_gate() -> None:
    """Without it no node sees them; with it a node sees its devices alone."""
    here, there = ({**device(name), "nodeName": name} for name in ("n", "other"))
    spec = {"devices": [there, here], "perDeviceNodeSelection": True}

    assert [one.spec.name for one in next(iter(seen(spec))).devices] == ["n"]
    assert seen(spec, partitions=False) == ()
