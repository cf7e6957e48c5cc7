"""Attributes with lists of values, and fields of devices whose gates are never on here.

Source of the rules: k8s.io/dynamic-resource-allocation 0.37.2.
"""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.dynamic_resources.test_allocator import (
    DRIVER,
    A,
    ask,
    claim,
    device,
    names,
    pools,
)
from tests.unit.domain.dynamic_resources.test_gated_devices import TAKES_ALL, seen

from koordinator.domain.dynamic_resources.allocator import (
    CANNOT_ALLOCATE,
    NO_GATES,
    AllocatorGates,
    NotAllocatable,
    allocate,
)
from koordinator.domain.dynamic_resources.shares import DevicesInUse

LISTS = AllocatorGates(capacity=True, lists=True)
SCALARS = AllocatorGates(capacity=True)
MATCH = {"matchAttribute": f"{DRIVER}/root"}
DISTINCT = {"distinctAttribute": f"{DRIVER}/root"}


def rooted(name: str, **root: Any) -> dict[str, Any]:
    """Return a device whose attribute ``root`` has one value, or a list of them."""
    return {"name": name, "attributes": {"root": root}}


def allocated(
    devices: list[dict[str, Any]],
    constraint: dict[str, Any],
    count: int = 2,
    gates: AllocatorGates = LISTS,
) -> Any:
    """Return the names of the devices of one request, or why there are none."""
    one = claim(ask(count), constraints=[constraint])
    result = names(allocate(pools(*devices), [one], DevicesInUse(), gates))
    return result if isinstance(result, str) else [name for _, name in result[0]]


def test_lists_match_by_a_value_that_all_devices_have() -> None:
    """Each of three pairs has a value in common, all three have none."""
    devices = [
        rooted("a", strings=["x", "y"]),
        rooted("b", strings=["y", "z"]),
        rooted("c", strings=["z", "x"]),
    ]

    assert allocated(devices, MATCH, 2) == ["a", "b"]
    assert allocated(devices, MATCH, 3) == CANNOT_ALLOCATE
    assert allocated([*devices, rooted("d", string="x")], MATCH, 3) == ["a", "c", "d"]


def test_values_of_different_types_never_match() -> None:
    """1, true and "1" are three values; a version is not its text."""
    devices = [
        rooted("i", ints=[1]),
        rooted("b", bools=[True]),
        rooted("s", strings=["1", "1.0.0"]),
        rooted("v", versions=["1.0.0"]),
    ]

    assert allocated(devices, MATCH) == CANNOT_ALLOCATE
    assert allocated(devices, DISTINCT, 4) == ["i", "b", "s", "v"]


def test_distinct_lists_have_no_value_in_common() -> None:
    """The first device leaves only the third."""
    devices = [
        rooted("a", ints=[1, 2]),
        rooted("b", ints=[2, 3]),
        rooted("c", ints=[3]),
        rooted("d", int=1),
    ]

    assert allocated(devices, DISTINCT) == ["a", "c"]
    assert allocated(devices, DISTINCT, 3) == CANNOT_ALLOCATE


def test_versions_are_compared_as_texts() -> None:
    """Build metadata distinguishes them in constraints, although not in expressions."""
    devices = [rooted("a", version="1.0.0+x"), rooted("b", version="1.0.0+y")]

    assert allocated(devices, MATCH) == CANNOT_ALLOCATE
    assert allocated(devices, DISTINCT) == ["a", "b"]


@pytest.mark.parametrize("constraint", [MATCH, DISTINCT])
def test_without_the_gate_a_list_serves_a_single_device(constraint: dict[str, Any]) -> None:
    """The first device of a constraint is compared with none."""
    devices = [rooted("a", strings=["x"]), rooted("b", strings=["x"])]

    assert allocated(devices, constraint, 1, SCALARS) == ["a"]
    assert allocated(devices, constraint, 2, SCALARS) == CANNOT_ALLOCATE
    assert allocated([*devices[:1], rooted("s", string="x")], MATCH, 2, SCALARS) == CANNOT_ALLOCATE


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        (f'{A}.root.includes("y")', ["a", "b"]),
        (f'"x" in {A}.root', ["a", "c"]),
        (f"{A}.root.size() == 1", ["c"]),
        (f"{A}.root.exists(r, r.startsWith('z'))", ["b"]),
    ],
)
def test_expressions_read_list_attributes(expression: str, chosen: list[str]) -> None:
    """With the gate or without it."""
    devices = [
        rooted("a", strings=["x", "y"]),
        rooted("b", strings=["y", "z"]),
        rooted("c", strings=["x"]),
    ]

    for gates in (LISTS, NO_GATES):
        one = claim(ask("All", expression))
        result = names(allocate(pools(*devices), [one], DevicesInUse(), gates))
        assert [name for _, name in result[0]] == chosen


VALUES = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)


@given(st.lists(VALUES | st.integers(0, 3), max_size=6), st.integers(1, 3), st.booleans())
def test_a_solution_is_found_exactly_if_there_is_one(
    roots: list[Any], count: int, is_distinct: bool
) -> None:
    """Compared with all choices of devices: the first one in order is taken."""
    sets = [frozenset(root if isinstance(root, list) else [root]) for root in roots]
    devices = [
        rooted(f"d{i}", **({"ints": root} if isinstance(root, list) else {"int": root}))
        for i, root in enumerate(roots)
    ]
    good = [
        chosen
        for chosen in combinations(range(len(sets)), count)
        if (
            all(sets[a].isdisjoint(sets[b]) for a, b in combinations(chosen, 2))
            if is_distinct
            else frozenset.intersection(*(sets[place] for place in chosen))
        )
    ]

    expected = [f"d{place}" for place in good[0]] if good else CANNOT_ALLOCATE
    assert allocated(devices, DISTINCT if is_distinct else MATCH, count) == expected


def test_devices_that_skip_operations_of_nodes_are_not_given() -> None:
    """The gate DRAOptionalNodeOperations is never on here."""
    usual = {"devices": [device("a")], "pool": {"resourceSliceCount": 2}}
    skipping = {**usual, "devices": [device("b")], "skipNodeOperations": ["NodePrepareResources"]}

    for some in (seen(skipping, usual), seen(usual, skipping)):
        assert names(allocate(some, [claim(ask(1))], DevicesInUse())) == [[("r0", "a")]]
        assert names(allocate(some, [claim(ask(2))], DevicesInUse())) == CANNOT_ALLOCATE
        assert names(allocate(some, [claim(ask("All"))], DevicesInUse())) == CANNOT_ALLOCATE


def test_a_slice_with_compatibility_groups_makes_its_pool_incomplete() -> None:
    """The gate DRADeviceCompatibilityGroups is never on here."""
    two = {"resourceSliceCount": 2}
    grouped = {"name": "b", "consumesCounters": [{**TAKES_ALL[0], "compatibilityGroups": ["g"]}]}
    usual = {"devices": [device("a")], "pool": two}

    some = seen(usual, {"devices": [grouped], "pool": two})
    assert names(allocate(some, [claim(ask(1))], DevicesInUse())) == CANNOT_ALLOCATE
    every = allocate(some, [claim(ask("All"))], DevicesInUse())
    assert isinstance(every, NotAllocatable)
    assert every.is_fault
    assert every.reason.endswith("resource pool gpu.example.com/n is currently being updated")


def test_a_request_with_derived_attributes_is_an_error() -> None:
    """The gate DRADerivedAttributes is never on here."""
    derived = [{"name": "d/x", "expression": "device.driver"}]
    one = claim(ask(1, derivedAttributes=derived))

    result = allocate(pools(device("a")), [one], DevicesInUse())
    assert isinstance(result, NotAllocatable)
    assert result.is_fault
    assert result.reason == (
        "claim default/c, request r0: cannot handle request with derived attributes, the feature "
        "is disabled"
    )
