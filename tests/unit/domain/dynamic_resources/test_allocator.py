"""Devices of claims: the first solution in the order of claims, requests and devices."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.codec import decode
from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim, ResourceSlice
from koordinator.api.node import Node
from koordinator.domain.dynamic_resources.allocator import (
    CANNOT_ALLOCATE,
    INVALID_POOLS,
    TIMED_OUT,
    AllocatorGates,
    NodeAllocation,
    NotAllocatable,
    allocate,
)
from koordinator.domain.dynamic_resources.inventory import Pool, SliceIndex
from koordinator.domain.dynamic_resources.requests import PendingClaim, pending_claim
from koordinator.domain.dynamic_resources.shares import DevicesInUse, consumption
from koordinator.foundation.quantity import Quantity

DRIVER = "gpu.example.com"
NODE = decode({"metadata": {"name": "n"}}, Node)
A = f'device.attributes["{DRIVER}"]'


def device(name: str, **attributes: Any) -> dict[str, Any]:
    """Return a device with attributes: numbers, booleans and texts."""
    kinds = {bool: "bool", int: "int", str: "string"}
    return {
        "name": name,
        "attributes": {key: {kinds[type(v)]: v} for key, v in attributes.items()},
    }


def pools(*devices: dict[str, Any], **spec: Any) -> tuple[Pool, ...]:
    """Return one pool of the node with these devices."""
    index = SliceIndex()
    pool = {"name": "n", "generation": 1, "resourceSliceCount": spec.pop("count", 1)}
    given = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": list(devices), **spec}
    index.put(decode({"metadata": {"name": "n"}, "spec": given}, ResourceSlice))
    return index.pools(NODE)


def ask(count: int | str = 1, *selectors: str, **more: Any) -> dict[str, Any]:
    """Return a request; a count of All is all devices."""
    how = {"allocationMode": "All"} if count == "All" else {"count": count}
    chosen = [{"cel": {"expression": text}} for text in selectors]
    return {"deviceClassName": "gpu", **how, "selectors": chosen, **more}


def claim(*requests: Any, name: Any = "c", **spec: Any) -> PendingClaim:
    """Return a claim; a request that is a list has alternatives."""
    entries = [
        {"name": f"r{i}", "firstAvailable": [{"name": f"s{j}", **a} for j, a in enumerate(one)]}
        if isinstance(one, list)
        else {"name": f"r{i}", "exactly": one}
        for i, one in enumerate(requests)
    ]
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    manifest = {"metadata": meta, "spec": {"devices": {"requests": entries, **spec}}}
    known = {"gpu": DeviceClass(metadata=NODE.metadata)}
    result = pending_claim(decode(manifest, ResourceClaim), known.get)
    assert isinstance(result, PendingClaim)
    return result


def names(allocation: NodeAllocation | NotAllocatable) -> Any:
    """Return what each claim got, or why there is nothing."""
    if isinstance(allocation, NotAllocatable):
        return allocation.reason
    return [[(one.option.name, one.device.spec.name) for one in got] for got in allocation.claims]


MIXED = (device("d0", model="a"), device("d1", model="h"), device("d2", model="a"))


def test_devices_come_in_the_order_of_the_slice_and_earlier_choices_are_revised() -> None:
    """The first request gives up what only the second one can use."""
    one = claim(ask(1), ask(2, f'{A}.model == "a"'))

    assert names(allocate(pools(*MIXED), [one], DevicesInUse())) == [
        [("r0", "d1"), ("r1", "d0"), ("r1", "d2")]
    ]


def test_claims_of_one_pod_never_share_a_device() -> None:
    """The first claim leaves what the second one needs."""
    first, second = claim(ask(1), name="x"), claim(ask(2, f'{A}.model == "a"'), name="y")

    result = allocate(pools(*MIXED), [first, second], DevicesInUse())
    assert names(result) == [[("r0", "d1")], [("r0", "d0"), ("r0", "d2")]]


def test_the_first_alternative_that_can_be_had_counts() -> None:
    """Eight points for the first, one less for each that follows."""
    one = claim([ask(2, f'{A}.model == "h"'), ask(1, f'{A}.model == "h"'), ask(1)], ask(1))

    result = allocate(pools(*MIXED), [one], DevicesInUse())
    assert names(result) == [[("r0/s1", "d1"), ("r1", "d0")]]
    assert isinstance(result, NodeAllocation)
    assert result.score == 7


def test_all_is_all_or_nothing() -> None:
    """A device in use means that not all can be had; no device at all is too few."""
    one, none = claim(ask("All", f'{A}.model == "a"')), claim(ask("All", f'{A}.model == "x"'))
    used = DevicesInUse()

    assert names(allocate(pools(*MIXED), [one], used)) == [[("r0", "d0"), ("r0", "d2")]]
    assert names(allocate(pools(*MIXED), [none], used)) == CANNOT_ALLOCATE
    used.charge((DRIVER, "n", "d2"), {}, 1)
    assert names(allocate(pools(*MIXED), [one], used)) == CANNOT_ALLOCATE


def test_admin_access_shares_devices_with_other_claims() -> None:
    """Never the same one twice in a claim."""
    used = DevicesInUse()
    used.charge((DRIVER, "n", "d0"), {}, 1)
    one = claim(ask(1, adminAccess=True), ask(1, adminAccess=True))

    assert names(allocate(pools(*MIXED), [one], used)) == [[("r0", "d0"), ("r1", "d1")]]


def test_a_constraint_requires_a_shared_attribute() -> None:
    """A device without the attribute meets no constraint; a request for All fails instead."""
    same = {"constraints": [{"matchAttribute": f"{DRIVER}/model"}]}
    bare = pools(*MIXED, device("d3"))

    assert names(allocate(bare, [claim(ask(2), **same)], DevicesInUse())) == [
        [("r0", "d0"), ("r0", "d2")]
    ]
    assert names(allocate(bare, [claim(ask(3), **same)], DevicesInUse())) == CANNOT_ALLOCATE
    assert names(allocate(bare, [claim(ask("All"), **same)], DevicesInUse())) == (
        f"claim default/c, request r0: cannot add device {DRIVER}/n/d1 because a claim constraint "
        "would not be satisfied"
    )


def test_pools_that_are_incomplete_or_ambiguous_are_not_relied_on() -> None:
    """Pools may be complete a second later; requests for All wait meanwhile."""
    halves, twice = pools(*MIXED, count=2), pools(*MIXED, device("d0"))

    assert names(allocate(halves, [claim(ask(1))], DevicesInUse())) == CANNOT_ALLOCATE
    assert names(allocate(twice, [claim(ask(1))], DevicesInUse())) == INVALID_POOLS
    assert names(allocate(halves, [claim(ask("All"))], DevicesInUse())) == (
        "claim default/c, request r0: asks for all devices, but resource pool "
        f"{DRIVER}/n is currently being updated"
    )


def test_a_broken_selector_is_an_error_and_names_itself() -> None:
    """By its claim or class and its place; what only that node has does not break others."""
    result = allocate(pools(*MIXED), [claim(ask(1, f"{A}.none == 1"))], DevicesInUse())

    assert result == NotAllocatable(
        "claim default/c: selector #0: CEL runtime error: no such key: none",
        is_fault=True,
        is_broken=True,
    )


def test_an_error_of_a_selector_names_the_device_and_a_remedy_from_1_37_on() -> None:
    """The remedy is for missing keys only."""
    rules = AllocatorGates(from_1_37=True)
    missing = allocate(pools(*MIXED), [claim(ask(1, f"{A}.none == 1"))], DevicesInUse(), rules)
    wrong = allocate(pools(*MIXED), [claim(ask(1, f"{A}.model"))], DevicesInUse(), rules)

    assert names(missing) == (
        "claim default/c: selector #0 on device gpu.example.com/n/d0: CEL runtime error: "
        "no such key: none. consider using CEL optional chaining (.? followed by orValue()) or "
        "guarding the check with has() for optional fields"
    )
    assert names(wrong) == (
        "claim default/c: selector #0 on device gpu.example.com/n/d0: CEL runtime error: "
        "CEL result of type string could not be converted to bool: unsupported native conversion "
        "from string to 'bool'"
    )


def test_the_request_that_exceeds_the_limit_of_32_devices_is_named_from_1_37_on() -> None:
    """Requests are counted in their order; an alternative counts with its fewest devices."""
    many = pools(*(device(f"d{i}") for i in range(60)))
    wanted = [claim(ask(20), [ask(40), ask(14)], ask(1))]

    assert names(allocate(many, wanted, DevicesInUse(), AllocatorGates(from_1_37=True))) == (
        "claim default/c, request r1: adding 14 devices exceeds the claim limit of 32, with 20 "
        "already accounted for"
    )


def test_a_claim_has_at_most_32_devices() -> None:
    """More are never tried; an alternative that fits in counts."""
    many = pools(*(device(f"d{i}") for i in range(60)))
    too_many = allocate(many, [claim(ask(20), ask(20))], DevicesInUse())

    assert names(too_many) == (
        "claim default/c: number of requested devices 40 exceeds the claim limit of 32"
    )
    assert len(names(allocate(many, [claim(ask(20), [ask(20), ask(12)])], DevicesInUse()))[0]) == 32


def test_identical_devices_are_tried_once() -> None:
    """The search among identical devices takes no time; among different ones it is bounded."""
    alike = pools(*(device(f"d{i}") for i in range(40)))
    unlike = pools(*(device(f"d{i}", n=i) for i in range(40)))
    hopeless = claim(ask(15), ask(1, f"{A}.?n.orValue(0) == 99"))
    different = {"constraints": [{"matchAttribute": f"{DRIVER}/n", "requests": ["r1"]}]}

    assert names(allocate(alike, [hopeless], DevicesInUse(), max_steps=5_000)) == CANNOT_ALLOCATE
    stuck = claim(ask(15), ask(2), **different)
    assert names(allocate(unlike, [stuck], DevicesInUse(), max_steps=5_000)) == TIMED_OUT


# -- what is off by default ----------------------------------------------------------------------


def test_taints_keep_claims_away_behind_their_gate() -> None:
    """Claims that tolerate a taint are allocated its device."""
    broken = {**device("d0"), "taints": [{"key": "broken", "effect": "NoSchedule"}]}
    on = AllocatorGates(taints=True)
    tolerant = claim(ask(1, tolerations=[{"key": "broken", "operator": "Exists"}]))

    assert names(allocate(pools(broken), [claim(ask(1))], DevicesInUse())) == [[("r0", "d0")]]
    result = allocate(pools(broken), [claim(ask(1))], DevicesInUse(), on)
    assert names(result) == CANNOT_ALLOCATE
    assert names(allocate(pools(broken), [tolerant], DevicesInUse(), on)) == [[("r0", "d0")]]


def partitions(*amounts: int, total: int) -> tuple[Pool, ...]:
    """Return devices that take so much each of one counter."""
    return pools(
        *(
            {
                **device(f"d{i}"),
                "consumesCounters": [
                    {"counterSet": "gpu", "counters": {"memory": {"value": f"{amount}Gi"}}}
                ],
            }
            for i, amount in enumerate(amounts)
        ),
        sharedCounters=[{"name": "gpu", "counters": {"memory": {"value": f"{total}Gi"}}}],
    )


def test_partitions_share_counters_behind_their_gate() -> None:
    """The whole device excludes its parts, and what others have counts."""
    on, some = AllocatorGates(counters=True), partitions(8, 4, 4, total=8)
    used = DevicesInUse()

    assert names(allocate(some, [claim(ask(2))], used, on)) == [[("r0", "d1"), ("r0", "d2")]]
    assert names(allocate(some, [claim(ask(3))], used, on)) == CANNOT_ALLOCATE
    used.counters.update(dict(consumption(next(iter(some[0].devices)))))
    assert names(allocate(some, [claim(ask(1))], used, on)) == CANNOT_ALLOCATE


def test_capacity_is_shared_by_amounts_behind_its_gate() -> None:
    """As much as is left of it, rounded up by the device's policy."""
    on = AllocatorGates(capacity=True)
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi"}}
    nic = {
        **device("nic"),
        "allowMultipleAllocations": True,
        "capacity": {"bandwidth": {"value": "8Gi", "requestPolicy": policy}},
    }
    used = DevicesInUse()
    two = claim(ask(1, capacity={"requests": {"bandwidth": "2Gi"}}))

    result = allocate(pools(nic), [two], used, on)
    assert isinstance(result, NodeAllocation)
    assert result.claims[0][0].consumed == {"bandwidth": 3 * 2**30 * 10**9}
    used.charge((DRIVER, "n", "nic"), result.claims[0][0].consumed, 1)
    used.charge((DRIVER, "n", "nic"), result.claims[0][0].consumed, 1)
    assert names(allocate(pools(nic), [two], used, on)) == CANNOT_ALLOCATE
    assert names(allocate(pools(nic), [claim(ask(2))], used, on)) == [
        [("r0", "nic"), ("r0", "nic")]
    ]


def shared(name: str, capacity: dict[str, Any]) -> dict[str, Any]:
    """Return a device that may be allocated several times."""
    return {**device(name), "allowMultipleAllocations": True, "capacity": {"memory": capacity}}


def wants_memory(amount: str, count: int | str = 1) -> PendingClaim:
    return claim(ask(count, capacity={"requests": {"memory": amount}}))


def memory_of(allocation: NodeAllocation | NotAllocatable) -> Any:
    """Return the amounts that the first claim consumes, or why it has none."""
    if isinstance(allocation, NotAllocatable):
        return allocation.reason
    return [str(Quantity(one.consumed["memory"])) for one in allocation.claims[0]]


@pytest.mark.parametrize(
    ("amount", "in_ones", "in_thousandths"),
    [("500m", ["500m"], ["500m"]), ("600m", ["1"], ["1"]), ("1200m", ["2"], ["1500m"])],
)
def test_ranges_count_in_thousandths_behind_their_gate(
    amount: str, in_ones: list[str], in_thousandths: list[str]
) -> None:
    """Without it amounts are rounded up to ones first."""
    allowed = {"default": "1", "validRange": {"min": "500m", "step": "500m"}}
    offered = pools(shared("d", {"value": "4", "requestPolicy": allowed}))
    before = AllocatorGates(capacity=True)
    after = AllocatorGates(capacity=True, fractional_ranges=True)

    assert memory_of(allocate(offered, [wants_memory(amount)], DevicesInUse(), before)) == in_ones
    assert (
        memory_of(allocate(offered, [wants_memory(amount)], DevicesInUse(), after))
        == in_thousandths
    )


@pytest.mark.parametrize(
    ("amount", "why"),
    [
        ("-1", "capacity value is negative"),
        (
            "1500u",
            (
                "capacity request cannot be represented in the device's range arithmetic: request "
                "1500u is not a representable milli value"
            ),
        ),
    ],
)
def test_an_amount_that_no_device_can_have_ends_the_search(amount: str, why: str) -> None:
    """The error ends the search before the second device, which has no range, is tried."""
    allowed = {"default": "1", "validRange": {"min": "0", "step": "1m"}}
    plain = {"value": "4"}
    first = plain if amount == "-1" else {"value": "4", "requestPolicy": allowed}
    offered = pools(shared("d", first), shared("e", plain))
    rules = AllocatorGates(capacity=True, fractional_ranges=True, from_1_37=True)

    assert allocate(offered, [wants_memory(amount)], DevicesInUse(), rules) == NotAllocatable(
        "claim default/c, request r0: checking capacity for device gpu.example.com/n/d: "
        f'capacity "memory": {why}',
        is_fault=True,
    )


def test_all_devices_includes_those_with_too_little_left_from_1_37_on() -> None:
    """There is no solution from 1.37 on; until 1.36 the other devices were allocated."""
    offered = pools(shared("d", {"value": "4"}), shared("e", {"value": "4"}))
    used = DevicesInUse()
    used.charge((DRIVER, "n", "d"), {"memory": 3 * 10**9}, 1)
    wanted = [wants_memory("2", "All")]

    before = allocate(offered, wanted, used, AllocatorGates(capacity=True))
    after = allocate(offered, wanted, used, AllocatorGates(capacity=True, from_1_37=True))
    assert memory_of(before) == ["2"]
    assert memory_of(after) == CANNOT_ALLOCATE


# -- against a search that prunes nothing --------------------------------------------------------


def plainly(devices: Sequence[Any], claims: Sequence[PendingClaim], used: DevicesInUse) -> Any:
    """Return the first solution, all orders of all devices tried."""
    slots = [
        (index, request)
        for index, one in enumerate(claims)
        for request in one.requests
        for _ in range(request.options[0].count)
    ]

    def fits(taken: list[Any], index: int) -> bool:
        matched = claims[index].spec.constraints
        values = [
            one.attribute(f"{DRIVER}/k")
            for (i, _), one in zip(slots, taken, strict=False)
            if i == index
        ]
        return not matched or (None not in values and len(set(values)) <= 1)

    def search(taken: list[Any]) -> list[Any] | None:
        if len(taken) == len(slots):
            return taken
        index, request = slots[len(taken)]
        for one in devices:
            if one in taken or used.devices[one.id] or not request.options[0].selects(one):
                continue
            if fits([*taken, one], index) and (done := search([*taken, one])) is not None:
                return done
        return None

    result = search([])
    if result is None:
        return CANNOT_ALLOCATE
    return [
        [(r.name, one.spec.name) for (i, r), one in zip(slots, result, strict=True) if i == index]
        for index in range(len(claims))
    ]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6),
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(1, 2), st.integers(0, 3)), min_size=1, max_size=2),
            st.booleans(),
        ),
        min_size=1,
        max_size=2,
    ),
)
def test_pruning_changes_no_solution(
    offered: list[tuple[int, bool]], wishes: list[tuple[list[tuple[int, int]], bool]]
) -> None:
    """Ascending order within a request, and one of equal devices, give the same first solution."""
    (pool,) = pools(*(device(f"d{i}", k=k) for i, (k, _) in enumerate(offered)))
    used = DevicesInUse()
    for one, (_, is_used) in zip(pool.devices, offered, strict=True):
        if is_used:
            used.charge(one.id, {}, 1)
    claims = [
        claim(
            *(ask(count, *([f"{A}.k == {k}"] if k < 3 else [])) for count, k in requests),
            name=f"c{index}",
            **({"constraints": [{"matchAttribute": f"{DRIVER}/k"}]} if same else {}),
        )
        for index, (requests, same) in enumerate(wishes)
    ]

    assert names(allocate((pool,), claims, used)) == plainly(list(pool.devices), claims, used)


@pytest.mark.parametrize("count", [0, 3])
def test_a_node_without_devices_serves_no_claim(count: int) -> None:
    """A node whose devices are all in use doesn't serve one, either."""
    some = pools(*(device(f"d{i}") for i in range(count)))
    used = DevicesInUse()
    for index in range(count):
        used.charge((DRIVER, "n", f"d{index}"), {}, 1)

    assert names(allocate(some, [claim(ask(1))], used)) == CANNOT_ALLOCATE
