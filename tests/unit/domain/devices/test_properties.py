"""Invariants of devices, for any pods that come and go."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.domain.devices.machines import (
    CORE,
    GIB,
    GPU,
    LEAST,
    MEMORY,
    MOST,
    NOTHING,
    RATIO,
    RDMA,
    SHARED,
    WHOLE,
    buses,
    gpu,
    nic,
    node,
    pod_request,
    using,
)

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.device import DeviceType
from koordinator.api.meta import JsonObject
from koordinator.domain.devices.allocation import (
    Allocation,
    DeviceShortage,
    annotation_entry,
    from_annotation,
    to_annotation,
)
from koordinator.domain.devices.free_devices import DeviceUsage, headrooms
from koordinator.domain.devices.model import NodeDevices
from koordinator.domain.devices.plan import DevicePlan, State
from koordinator.domain.devices.pod_request import PodDeviceRequest
from koordinator.foundation.masks import bits_of, lowest, mask_of

pytestmark = pytest.mark.slow

NIC = "koordinator.sh/rdma"
REQUESTS: tuple[dict[str, int], ...] = (
    {WHOLE: 1},
    {WHOLE: 2},
    {WHOLE: 3},
    {WHOLE: 4},
    {RATIO: 30},
    {CORE: 50, MEMORY: 16 * GIB},
    {MEMORY: 80 * GIB},
    {SHARED: 2, RATIO: 80},
    {NIC: 1},
    {NIC: 50},
    {NIC: 200},
    {WHOLE: 2, NIC: 1},
    {RATIO: 50, NIC: 100},
)
JOINTS = (None, None, {"deviceTypes": ["gpu", "rdma"]}, {"deviceTypes": ["rdma", "gpu"]})
SCOPES = ("", "", "", "NUMANode", "PCIe")
KINDS: tuple[JsonObject | None, ...] = (None, None, {}, {"matchLabels": {"kind": "x"}})
TABLE = {
    "1": [{"minors": [minor]} for minor in range(4)],
    "2": [{"minors": [0, 1], "allocationScore": 2}, {"minors": [1, 2]}, {"minors": [2, 3]}],
    "4": [{"minors": [3, 2, 1, 0]}],
}


@st.composite
def machines(draw: st.DrawFn) -> NodeDevices:
    """Four GPUs and up to four NICs; some of unknown place, some broken."""
    per_root = draw(st.sampled_from((1, 2, 4)))
    known = draw(st.integers(0, 4)) > 0
    cards = [
        gpu(
            minor,
            f"p{minor // per_root}" if known else None,
            minor // 2,
            healthy=draw(st.integers(0, 9)) > 0,
        )
        for minor in range(4)
    ]
    for minor in range(draw(st.integers(0, 4))):
        functions = draw(st.sampled_from(({}, {"x": buses(minor)}, {"y": buses(minor)[:1]})))
        cards.append(nic(minor, f"p{minor % 4 // per_root}", minor % 4 // 2, functions=functions))
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields["partitions"] = TABLE
        fields["labels"] = {
            "node.koordinator.sh/gpu-partition-policy": draw(st.sampled_from(("Honor", "Prefer"))),
            "node.koordinator.sh/secondary-device-well-planned": draw(
                st.sampled_from(("true", "false"))
            ),
        }
    return node(*cards, **fields)


@st.composite
def pod_requests(draw: st.DrawFn) -> PodDeviceRequest:
    joint: dict[str, Any] | None = draw(st.sampled_from(JOINTS))
    if joint is not None and draw(st.booleans()):
        joint = {**joint, "requiredScope": "SamePCIe"}
    return pod_request(
        draw(st.sampled_from(REQUESTS)),
        joint=joint,
        hints={
            "gpu": {"requiredTopologyScope": draw(st.sampled_from(SCOPES))},
            "rdma": {
                "vfSelector": draw(st.sampled_from(KINDS)),
                "allocateStrategy": draw(st.sampled_from(("", "", "RequestsAsCount"))),
                "exclusivePolicy": draw(st.sampled_from(("", "DeviceLevel"))),
            },
        },
        partition=draw(st.sampled_from((None, None, {}))),
    )


def place(
    on: NodeDevices, wanted: PodDeviceRequest, used: DeviceUsage, scorer: int = 0
) -> Allocation | DeviceShortage:
    headroom = headrooms(on, used)
    plan = DevicePlan(on.model, wanted)
    if not scorer:
        return plan.allocate(headroom, on.totals)
    ranking = (MOST if scorer == 1 else LEAST).ranking(on.totals, headroom)
    return plan.allocate(headroom, on.totals, ranking=ranking)


def placed_one_by_one(
    on: NodeDevices, wanted: list[PodDeviceRequest], scorer: int
) -> list[Allocation]:
    """Return what the requests that have room get."""
    used, placed = NOTHING, []
    for each in wanted:
        result = place(on, each, used, scorer)
        if not isinstance(result, DeviceShortage):
            placed.append(result)
            used = used.plus(result)
    return placed


@given(on=machines(), wanted=st.lists(pod_requests(), max_size=12), scorer=st.integers(0, 2))
@settings(max_examples=examples(20), deadline=None)
def test_nothing_is_given_twice(
    on: NodeDevices, wanted: list[PodDeviceRequest], scorer: int
) -> None:
    """No more of a device than it has, no virtual function to two, nothing of a broken one.

    A GPU that is taken whole has no other user.
    """
    placed = placed_one_by_one(on, wanted, scorer)
    used = using(*placed)
    for kind, devices in used.by_kind.items():
        for minor, amounts in devices.items():
            assert on.healthy[kind] >> minor & 1
            assert all(np.array(amounts.amounts) <= on.totals[kind][minor])
            assert set(amounts.functions.values()) <= {1}
    for allocation in placed:
        for taken in allocation.get(GPU, ()):
            if taken.amounts[:1] == (100,):
                assert used.of(GPU)[taken.minor].times == 1


@given(on=machines(), wanted=pod_requests(), others=st.lists(pod_requests(), max_size=6))
@settings(max_examples=examples(20), deadline=None)
def test_request_gets_its_devices(
    on: NodeDevices, wanted: PodDeviceRequest, others: list[PodDeviceRequest]
) -> None:
    """The pod gets the requested number of each type, and a virtual function each if requested."""
    used = using(*placed_one_by_one(on, others, 0))
    result = place(on, wanted, used)
    if isinstance(result, DeviceShortage):
        return
    assert [*result] == [want.kind for want in wanted.wants]
    for want in wanted.wants:
        minors = {taken.minor for taken in result[want.kind]}
        assert len(minors) == len(result[want.kind]) >= want.request.count
        if want.function_selector is not None:
            assert all(taken.functions for taken in result[want.kind])
    group = on.model.group(GPU)
    if wanted.scope == 3 and group is not None and on.model.partitions is None:
        assert len({group.by_minor[taken.minor].pcie for taken in result.get(GPU, ())}) <= 1


@given(
    on=machines(),
    wanted=st.lists(pod_requests(), max_size=10),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=examples(20), deadline=None)
def test_usage_is_a_sum(on: NodeDevices, wanted: list[PodDeviceRequest], order: Any) -> None:
    """Rebuilt from annotations in any order it is equal; without pods, nothing is left."""
    placed = placed_one_by_one(on, wanted, 1)
    used = using(*placed)
    written = [to_annotation(allocation, on.ids) for allocation in placed]
    order.shuffle(written)
    assert using(*(from_annotation(text) for text in written)) == used

    order.shuffle(placed)
    for allocation in placed:
        used = used.minus(allocation)
    assert used == NOTHING


@given(
    on=machines(), wanted=pod_requests(), others=st.lists(pod_requests(), min_size=1, max_size=8)
)
@settings(max_examples=examples(20), deadline=None)
def test_the_table_of_many_nodes_agrees_with_the_choice(
    on: NodeDevices, wanted: PodDeviceRequest, others: list[PodDeviceRequest]
) -> None:
    """For every state that the node has while pods come, twice, also where states repeat."""
    used, states = NOTHING, [NOTHING]
    for each in others:
        result = place(on, each, used)
        if not isinstance(result, DeviceShortage):
            used = used.plus(result)
        states.append(used)
    plan = DevicePlan(on.model, wanted)
    expected = [plan.allocate(headrooms(on, each), on.totals, early=True) for each in states]
    if plan.never is not None:
        assert set(map(repr, expected)) == {repr(plan.never)}
        return
    for _ in range(2):
        short = [plan.shortage(_state(plan, on, state)) for state in states]
        assert short == [e if isinstance(e, DeviceShortage) else None for e in expected]


def _state(plan: DevicePlan, on: NodeDevices, usage: DeviceUsage) -> State:
    left = headrooms(on, usage)
    masks = ((left[part.kind].fitting(part), left[part.kind].in_use) for part in plan.early)
    return tuple(mask for pair in masks for mask in pair)


@given(on=machines(), wanted=pod_requests(), others=st.lists(pod_requests(), max_size=8))
@settings(max_examples=examples(20), deadline=None)
def test_giving_back_is_as_good_as_never_taken(
    on: NodeDevices, wanted: PodDeviceRequest, others: list[PodDeviceRequest]
) -> None:
    """A request gets what it would get after those pods were deleted."""
    placed = placed_one_by_one(on, others, 0)
    released, stay = using(*placed[::2]), using(*placed[1::2])
    plan = DevicePlan(on.model, wanted)
    whole = headrooms(on, using(*placed), released)

    assert plan.allocate(whole, on.totals) == plan.allocate(headrooms(on, stay), on.totals)


@given(minors=st.sets(st.integers(0, 200)), count=st.integers(0, 200))
def test_masks_are_sets(minors: set[int], count: int) -> None:
    """Listed ascending; the lowest of them are the first listed."""
    mask = mask_of(minors)

    assert list(bits_of(mask)) == sorted(minors)
    count = min(count, len(minors))
    assert list(bits_of(lowest(mask, count))) == sorted(minors)[:count]


def test_wide_minors_need_no_special_case() -> None:
    """A NIC may be called mlx5_70: masks are as wide as minors are."""
    on = node(gpu(0, "a"), nic(70, "a"), nic(3, "b"))
    plan = DevicePlan(
        on.model, pod_request({WHOLE: 1, NIC: 100}, joint={"deviceTypes": ["gpu", "rdma"]})
    )
    result = plan.allocate(headrooms(on, NOTHING), on.totals)
    assert not isinstance(result, DeviceShortage)
    assert [each.minor for each in result[RDMA]] == [70]

    assert plan.shortage(_state(plan, on, NOTHING)) is None
    assert plan.early[1].kind is DeviceType.RDMA


@given(on=machines(), wanted=pod_requests())
@settings(max_examples=examples(20), deadline=None)
def test_the_written_annotation_is_the_content_encoded(
    on: NodeDevices, wanted: PodDeviceRequest
) -> None:
    """The annotation depends on the content only."""
    result = place(on, wanted, NOTHING)
    if not isinstance(result, DeviceShortage):
        expected = ALLOCATED.entry(to_annotation(result, on.ids))

        assert annotation_entry(result, on.ids) == expected
