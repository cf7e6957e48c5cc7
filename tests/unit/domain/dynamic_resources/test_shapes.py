"""Shapes of pools: a reading of many nodes at once equals the reading of each."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.domain.dynamic_resources.test_allocator import DRIVER, A, ask, claim

from koordinator.api.codec import decode
from koordinator.api.dynamic_resources import ResourceSlice
from koordinator.api.node import Node
from koordinator.domain.dynamic_resources.allocator import (
    AllocatorGates,
    NodeAllocation,
    allocate,
)
from koordinator.domain.dynamic_resources.inventory import Pool, SliceIndex
from koordinator.domain.dynamic_resources.shapes import (
    AllocationPlaces,
    ShapeReader,
    SliceContents,
    usage_of,
)
from koordinator.domain.dynamic_resources.shares import DevicesInUse

SELECTORS = (
    f"{A}.k == 1",
    f"{A}.k < 2",
    f'"k" in {A}',
    f"{A}.k == 1 || {A}.own == 1",
    f'device.capacity["{DRIVER}"].m.isGreaterThan(quantity("1"))',
    "device.allowMultipleAllocations",
    'device.attributes.exists(d, d == "other")',
    f'device.driver == "{DRIVER}"',
    "(",
)
VALUES = st.sampled_from(
    [None, {"int": 1}, {"int": 2}, {"bool": True}, {"string": "1"}, {"version": "1.x"}]
)
DEVICES = st.fixed_dictionaries(
    {
        "attributes": st.dictionaries(
            st.sampled_from(["k", f"{DRIVER}/k", "own", "other/k"]), VALUES, max_size=2
        ),
        "capacity": st.dictionaries(
            st.just("m"), st.sampled_from([{"value": "1"}, {"value": "2"}]), max_size=1
        ),
        "allowMultipleAllocations": st.sampled_from([None, True]),
        "consumesCounters": st.sampled_from(
            [[], [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]]
        ),
        "taints": st.sampled_from([[], [{"key": "k", "effect": "NoSchedule"}]]),
    }
)

WITHOUT_COUNTERS = DEVICES.map(lambda device: {**device, "consumesCounters": []})


def offered(nodes: list[list[dict[str, Any]]]) -> list[tuple[Pool, ...]]:
    """Return what each node sees: a slice of its own of these devices."""
    index = SliceIndex()
    for at, devices in enumerate(nodes):
        named = [
            {
                "name": f"d{at}-{i}",
                **each,
                "attributes": {k: v or {} for k, v in each["attributes"].items()},
            }
            for i, each in enumerate(devices)
        ]
        pool = {"name": f"n{at}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": f"n{at}", "pool": pool, "devices": named}
        index.put(decode({"metadata": {"name": f"n{at}"}, "spec": spec}, ResourceSlice))
    seen = [decode({"metadata": {"name": f"n{at}"}}, Node) for at in range(len(nodes))]
    return [index.pools(each) for each in seen]


@settings(deadline=None)
@given(
    st.lists(st.lists(DEVICES, min_size=1, max_size=2), min_size=2, max_size=5),
    st.lists(st.lists(st.sampled_from(SELECTORS), max_size=2), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_a_shape_does_not_depend_on_earlier_slices(
    nodes: list[list[dict[str, Any]]], kinds: list[list[str]], gated: bool, constrained: bool
) -> None:
    """Alike slices are not looked at device by device again, by other kinds of claims neither."""
    gates = AllocatorGates(taints=gated, capacity=gated, counters=gated)
    common = {"constraints": [{"matchAttribute": f"{DRIVER}/k"}]} if constrained else {}
    claims = [claim(ask(1, *selectors), **common) for selectors in kinds]
    contents, together = SliceContents(), offered(nodes)
    for one in claims:
        reader = ShapeReader([one], gates, contents)
        result = [reader.shape(pools) for pools in together]
        alone = [
            ShapeReader([one], gates, SliceContents()).shape(pools) for pools in offered(nodes)
        ]
        assert result == alone


@settings(deadline=None, max_examples=examples(120))
@given(
    machines=st.lists(st.lists(WITHOUT_COUNTERS, min_size=2, max_size=4), min_size=1, max_size=2),
    of=st.lists(st.integers(0, 1), min_size=2, max_size=4),
    used=st.sets(st.integers(0, 3), max_size=2),
    requests=st.lists(
        st.tuples(st.integers(1, 2), st.lists(st.sampled_from(SELECTORS), max_size=1)),
        min_size=1,
        max_size=2,
    ),
    gated=st.booleans(),
)
def test_an_allocation_has_the_same_places_on_alike_nodes(
    machines: list[list[dict[str, Any]]],
    of: list[int],
    used: set[int],
    requests: list[tuple[int, list[str]]],
    gated: bool,
) -> None:
    """The places found on one node are what a search on another one of its shape and usage finds.

    The claims differ in their names.
    """
    gates = AllocatorGates(taints=gated, capacity=gated, counters=gated)
    nodes = offered([machines[at % len(machines)] for at in of])
    use = DevicesInUse()
    for pools in nodes:
        devices = [device for pool in pools for device in pool.devices]
        for at in used & set(range(len(devices))):
            use.charge(devices[at].id, None, 1)
    entries = [ask(count, *selectors) for count, selectors in requests]
    known: dict[Any, AllocationPlaces] = {}
    for number, pools in enumerate(nodes):
        claims = [claim([entries[0], ask(1)], *entries[1:], name=f"c{number}")]
        searched = allocate(pools, claims, use, gates)
        if not isinstance(searched, NodeAllocation):
            continue
        reader = ShapeReader(claims, gates, SliceContents())
        key = reader.shape(pools), usage_of(pools, use)
        places = known.setdefault(key, AllocationPlaces.of(searched, claims, pools))
        assert places.on(claims, pools) == searched
