"""Utilization of devices and nodes.

Cases of koordinator pkg/scheduler/plugins/deviceshare/scoring_test.go among them.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.devices.machines import (
    CORE,
    GPU,
    LEAST,
    MEMORY,
    MOST,
    NOTHING,
    RATIO,
    WHOLE,
    gpu,
    gpu_amounts,
    nic,
    node,
    pod_request,
    share,
    using,
)

from koordinator.domain.devices.allocation import NAMES
from koordinator.domain.devices.free_devices import DeviceUsage, headrooms
from koordinator.domain.devices.model import NodeDevices
from koordinator.domain.devices.plan import DevicePlan
from koordinator.domain.devices.scorer import Scorer, percentages_left, scorer_of
from koordinator.foundation.masks import bits_of

NIC = "koordinator.sh/rdma"
SMALL = {CORE: "100", MEMORY: "40Gi", RATIO: "100"}


def score(
    on: NodeDevices,
    requests: dict[str, int],
    used: DeviceUsage = NOTHING,
    *,
    scorer: Scorer = LEAST,
    numa: list[int] | None = None,
) -> int:
    """Return the sum over the parts of a request of 0..100 for all devices that may serve.

    As in the original a part counts with the request for one of its devices.
    """
    points, room_of = 0, headrooms(on, used)
    for part in DevicePlan(on.model, pod_request(requests)).early:
        headroom = room_of[part.kind]
        rows = list(bits_of(part.candidates(headroom.offered, numa)))
        total = on.totals[part.kind][rows].sum(axis=0).tolist()
        free = np.array(headroom.free, np.int64)[rows].sum(axis=0).tolist()
        points += scorer.scores(part.kind, part.amounts, [total], [free])[0]
    return points


def test_a_node_counts_with_the_request_for_one_device() -> None:
    """Four cards of 40 GiB, one and a half in use, two wanted: (37 + 62) / 2 as the original.

    Percent of memory: 150 in use, 100 wanted, 400 in all; bytes: 60 GiB in use, none wanted.
    """
    on = node(*(gpu(minor, resources=SMALL) for minor in range(4)))
    used = using(share(0, 100, gib=40), share(1, 50, gib=40))

    assert score(on, {WHOLE: 2}, used) == 49
    assert score(on, {WHOLE: 2}, used, scorer=MOST) == 49


@pytest.mark.parametrize(("scorer", "expected"), [(LEAST, 75), (MOST, 25)])
def test_bytes_of_an_idle_card_count_as_free(scorer: Scorer, expected: int) -> None:
    """A request for half of it, in percent: bytes count as free."""
    assert score(node(gpu(0)), {RATIO: 50}, scorer=scorer) == expected


def test_scores_of_device_types_are_added() -> None:
    """Each type adds 0..100."""
    on = node(gpu(0), nic(1), nic(2))

    assert score(on, {WHOLE: 1}) == 50
    assert score(on, {NIC: 100}) == 50
    assert score(on, {WHOLE: 1, NIC: 100}) == 100


def test_broken_devices_and_those_elsewhere_don_t_count() -> None:
    """Devices on other NUMA nodes are excluded if NUMA nodes are restricted."""
    on = node(gpu(0, "a"), gpu(1, "b", 1), gpu(2, "c", 1, healthy=False))
    used = using(share(0, 100))

    assert score(on, {RATIO: 100}, used) == 25
    assert score(on, {RATIO: 50}, used, numa=[1]) == 75


def test_only_weighed_resources_count() -> None:
    """With their weights; others are none of the scorer's business."""
    heavy = scorer_of({RATIO: 3, MEMORY: 1, "cpu": 9}, most_allocated=True)
    nothing = scorer_of({"cpu": 1}, most_allocated=True)

    assert score(node(gpu(0)), {RATIO: 40}, scorer=heavy) == 30
    assert score(node(gpu(0)), {RATIO: 40}, scorer=nothing) == 0


def test_many_nodes_at_once() -> None:
    """Rows are nodes by the sums of their devices; one without devices scores 0."""
    total = [list(gpu_amounts(0, 0, ratio)) for ratio in (400, 100, 0)]
    free = [list(gpu_amounts(0, 0, ratio)) for ratio in (300, 20, 0)]
    amounts = gpu_amounts(0, 0, 50)

    assert LEAST.scores(GPU, amounts, total, free) == [62, 0, 0]
    assert MOST.scores(GPU, amounts, total, free) == [37, 100, 0]


COUNT = len(NAMES[GPU])
AMOUNTS = st.lists(st.integers(0, 5), min_size=COUNT, max_size=COUNT)


@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=4),
    AMOUNTS,
    st.lists(st.integers(0, 3), min_size=COUNT, max_size=COUNT),
    st.booleans(),
)
def test_one_by_one_as_in_arrays(
    devices: list[tuple[list[int], list[int]]], wanted: list[int], weights: list[int], most: bool
) -> None:
    """The cases include devices with more free than their total."""
    total, free = ([device[place] for device in devices] for place in range(2))
    scorer = scorer_of(dict(zip(NAMES[GPU], weights, strict=True)), most_allocated=most)
    result = percentages_left(
        np.array(total), np.array(free), np.array(wanted), np.array(weights), most
    )

    assert scorer.scores(GPU, tuple(wanted), total, free) == result.tolist()
