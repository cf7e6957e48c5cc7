"""Shapes of pools: a reading of many nodes at once equals the reading of each."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.domain.dynamic_resources.test_allocator import DRIVER, A, ask, claim

from koordinator.api.codec import decode
from koordinator.api.dynamic_resources import ResourceSlice
from koordinator.api.node import Node
from koordinator.domain.dynamic_resources.allocator import AllocatorGates
from koordinator.domain.dynamic_resources.inventory import Pool, SliceIndex
from koordinator.domain.dynamic_resources.shapes import ShapeReader, SliceContents

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
