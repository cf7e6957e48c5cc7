"""Choice of GPUs for a pod.

Many cases are from koordinator pkg/scheduler/plugins/deviceshare: allocator_gpu_test.go,
device_allocator_test.go.
"""

import pytest
from tests.unit.domain.devices.machines import (
    ASCEND,
    CORE,
    GIB,
    GPU,
    LEAST,
    MEMORY,
    MODEL,
    MOST,
    NOTHING,
    NPU_CORE,
    NPU_CPU,
    POLICY,
    RATIO,
    SHARED,
    VENDOR,
    WHOLE,
    allocate,
    gpu,
    gpu_amounts,
    hold,
    node,
    pairs,
    pod_request,
    share,
    singles,
    take,
    using,
)

from koordinator.domain.devices.allocation import DeviceShortage
from koordinator.domain.devices.scorer import Scorer

PERCENT = "koordinator.sh/gpu"
HONOR = {MODEL: "H800", POLICY: "Honor"}


# -- the tree of scopes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_use", "count", "taken"),
    [
        ([2], 1, [3]),
        ([2], 2, [0, 1]),
        ([2], 3, [0, 1, 3]),
        ([2], 4, [4, 5, 6, 7]),
        ([2], 5, [0, 1, 3, 4, 5]),
        ([], 8, list(range(8))),
        ([5], 1, [4]),
        ([5], 2, [6, 7]),
        ([5], 4, [0, 1, 2, 3]),
        ([0], 2, [2, 3]),
        ([0], 3, [1, 2, 3]),
        ([0, 1, 2, 3], 4, [4, 5, 6, 7]),
    ],
)
def test_whole_gpus_are_taken_from_the_smallest_scope(
    in_use: list[int], count: int, taken: list[int]
) -> None:
    """Of equally small ones from one around which most is in use already."""
    on = pairs()

    assert take(on, pod_request({WHOLE: count}), using(hold(on, gpu=in_use))) == {"gpu": taken}


@pytest.mark.parametrize(
    ("scope", "count", "expected"),
    [
        ("PCIe", 2, [0, 1]),
        ("PCIe", 3, "Insufficient Topology Scoped GPU Devices"),
        ("NUMANode", 3, [0, 1, 3]),
        ("NUMANode", 5, "Insufficient Topology Scoped GPU Devices"),
        ("Node", 5, [0, 1, 3, 4, 5]),
        ("Node", 8, "Insufficient Topology Scoped GPU Devices"),
        ("Device", 1, "Insufficient Topology Scoped GPU Devices"),
        ("Rack", 5, [0, 1, 3, 4, 5]),
    ],
)
def test_a_required_scope_holds_all_gpus(scope: str, count: int, expected: list[int] | str) -> None:
    """GPU 2 is busy; scopes larger than required don't count."""
    on = pairs()
    hints = {"gpu": {"requiredTopologyScope": scope}}
    result = take(on, pod_request({WHOLE: count}, hints=hints), using(hold(on, gpu=[2])))

    assert result == ({"gpu": expected} if isinstance(expected, list) else expected)


def test_too_few_gpus_in_the_whole_tree_are_too_few() -> None:
    """Removing pods could help."""
    on = pairs()

    assert allocate(on, pod_request({WHOLE: 8}), using(hold(on, gpu=[2]))) == DeviceShortage(
        "Insufficient GPU Devices"
    )


@pytest.mark.parametrize(("scorer", "minor"), [(MOST, 2), (LEAST, 3), (None, 2)])
def test_a_share_goes_where_the_tree_is_in_use(scorer: Scorer | None, minor: int) -> None:
    """Cards in use rank by score, then by minor; 40 % of GPU 2 and 70 % of GPU 6 are free."""
    used = using(share(2, 60), share(6, 30))

    assert take(pairs(), pod_request({RATIO: 30}), used, scorer=scorer) == {"gpu": [minor]}


def test_of_two_places_in_use_the_better_score_decides() -> None:
    """GPU 7 is half taken, GPU 5 whole: the other half of 7 beats GPU 4 next to 5."""
    on = pairs()
    used = using(hold(on, gpu=[5]), share(7, 50))

    assert take(on, pod_request({PERCENT: 50}), used, scorer=MOST) == {"gpu": [7]}
    assert take(on, pod_request({PERCENT: 50}), using(hold(on, gpu=[5])), scorer=MOST) == {
        "gpu": [4]
    }


def test_unhealthy_gpus_are_in_the_tree_but_are_not_taken() -> None:
    """The root of GPUs 0 and 1 has only one to give."""
    on = node(*(gpu(minor, f"p{minor // 2}", healthy=minor != 1) for minor in range(4)))

    assert take(on, pod_request({WHOLE: 2})) == {"gpu": [2, 3]}
    assert take(on, pod_request({WHOLE: 4})) == "Insufficient GPU Devices"


# -- in a row --------------------------------------------------------------------------------


def test_without_topology_gpus_are_taken_one_by_one() -> None:
    """By score, then by lowest minor."""
    on = node(*(gpu(minor) for minor in range(4)))
    used = using(share(1, 30), share(2, 60))

    assert take(on, pod_request({PERCENT: 30}), used, scorer=MOST) == {"gpu": [2]}
    assert take(on, pod_request({PERCENT: 30}), used, scorer=LEAST) == {"gpu": [0]}
    assert take(on, pod_request({WHOLE: 2}), used, scorer=MOST) == {"gpu": [0, 3]}
    assert take(on, pod_request({WHOLE: 3}), used) == "Insufficient gpu devices"


def test_several_shares_are_taken_one_by_one_from_different_gpus() -> None:
    """The tree does not help there."""
    request = pod_request({SHARED: 2, RATIO: 60})

    assert take(pairs(), request, using(share(5, 50)), scorer=MOST) == {"gpu": [5, 0]}
    assert take(node(gpu(0)), request) == "Insufficient gpu devices"


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ({SHARED: 2, RATIO: 60}, "node(s) Unsupported Multi-Shared GPU"),
        ({WHOLE: 1}, "node(s) missing GPU Device Topology Tree"),
    ],
)
def test_unsupported_required_scope_is_a_lasting_shortage(
    requests: dict[str, int], reason: str
) -> None:
    """No pod that goes changes that."""
    on = pairs() if SHARED in requests else node(gpu(0))
    wanted = pod_request(requests, hints={"gpu": {"requiredTopologyScope": "Node"}})

    assert allocate(on, wanted) == DeviceShortage(reason, resolvable=False)


def test_reserved_minors_go_first_in_a_row() -> None:
    """Reserved minors are taken before others with a higher score."""
    on = node(*(gpu(minor) for minor in range(4)))

    assert take(on, pod_request({WHOLE: 2}), preferred={GPU: [3, 2]}, scorer=LEAST) == {
        "gpu": [2, 3]
    }


@pytest.mark.parametrize(
    ("kept", "count", "taken"),
    [
        ([5], 1, [5]),
        ([5], 2, [4, 5]),
        ([5], 3, [4, 5, 6]),
        ([1, 5], 2, [1, 5]),
        ([1, 5], 3, [0, 1, 5]),
        ([1, 2, 3, 4], 2, [2, 3]),
    ],
)
def test_reserved_minors_go_first_in_the_tree(
    kept: list[int], count: int, taken: list[int]
) -> None:
    """Others come from the smallest scope that has all of them."""
    assert take(pairs(), pod_request({WHOLE: count}), preferred={GPU: kept}) == {"gpu": taken}
    assert take(pairs(), pod_request({PERCENT: 50}), preferred={GPU: [6]}) == {"gpu": [6]}


def test_a_required_scope_is_kept_whatever_is_reserved() -> None:
    """Reserved minors outside a common scope count as any other minors."""
    near = pod_request({WHOLE: 2}, hints={"gpu": {"requiredTopologyScope": "PCIe"}})

    assert take(pairs(), near, preferred={GPU: [1, 5]}) == {"gpu": [0, 1]}


# -- amounts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "amounts"),
    [
        ({RATIO: 25}, (0, 20 * GIB, 25)),
        ({CORE: 30, MEMORY: 8 * GIB}, (30, 8 * GIB, 10)),
        ({MEMORY: 80 * GIB}, (0, 80 * GIB, 100)),
        ({WHOLE: 1}, (100, 80 * GIB, 100)),
    ],
)
def test_memory_is_noted_in_bytes_and_in_percent(
    requests: dict[str, int], amounts: tuple[int, int, int]
) -> None:
    """A pod requests bytes or percent, and the other amount is filled in."""
    result = allocate(pairs(), pod_request(requests))
    assert not isinstance(result, DeviceShortage)

    assert result[GPU][0].amounts == gpu_amounts(*amounts)


def test_percent_of_memory_is_cut_as_floating_point_has_it() -> None:
    """29 of 100 bytes are 28 percent: 29 / 100 * 100 is a little less than 29 there."""
    on = node(gpu(0, resources={MEMORY: "100", CORE: "100", RATIO: "100"}))
    result = allocate(on, pod_request({MEMORY: 29}))
    assert not isinstance(result, DeviceShortage)

    assert result[GPU][0].amounts[:3] == (0, 29, 28)


def test_each_amount_is_a_limit_of_its_own() -> None:
    """Core can be used up while memory is left; and a device has what it reports."""
    no_core = using({GPU: (share(0, 10)[GPU][0], share(0, 90)[GPU][0])})
    on = node(gpu(0))

    assert take(on, pod_request({CORE: 10, MEMORY: GIB}), no_core) == "Insufficient gpu devices"
    assert take(on, pod_request({CORE: 200, MEMORY: GIB})) == "Insufficient gpu devices"
    assert take(on, pod_request({NPU_CORE: 10, RATIO: 100})) == "Insufficient gpu devices"


def test_a_selector_leaves_matching_gpus() -> None:
    """The others are as if they were not there."""
    on = node(*(gpu(minor, f"p{minor // 2}", tier="ab"[minor % 2]) for minor in range(4)))
    hints = {"gpu": {"selector": {"matchLabels": {"tier": "b"}}}}

    assert take(on, pod_request({WHOLE: 2}, hints=hints)) == {"gpu": [1, 3]}
    assert take(on, pod_request({WHOLE: 3}, hints=hints)) == "Insufficient GPU Devices"


def test_numa_nodes_leave_their_gpus() -> None:
    """GPUs without a NUMA node are not restricted."""
    on = node(gpu(0, "a"), gpu(1, "b", 1), gpu(2, "c", -1), gpu(3, "d", 1))

    assert take(on, pod_request({WHOLE: 1}), numa=[1]) == {"gpu": [2]}
    assert take(on, pod_request({WHOLE: 3}), numa=[1]) == {"gpu": [1, 2, 3]}
    assert take(on, pod_request({WHOLE: 4}), numa=[1]) == "Insufficient GPU Devices"


# -- partitions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_use", "count", "expected"),
    [
        ([], 1, [0]),
        ([], 2, [0, 1]),
        ([], 3, "node(s) Unsupported number of GPU requests"),
        ([], 4, [0, 1, 2, 3]),
        ([], 8, list(range(8))),
        ([3], 1, [2]),
        ([4], 1, [5]),
        ([4], 2, [6, 7]),
        ([0, 6], 2, [2, 3]),
        ([2, 3], 2, [0, 1]),
        ([2], 8, "Insufficient Partitioned GPU Devices"),
    ],
)
def test_honored_partitions_are_all_there_is(
    in_use: list[int], count: int, expected: list[int] | str
) -> None:
    """The one that leaves most of the larger partitions whole is taken."""
    on = singles(on=HONOR)
    result = take(on, pod_request({WHOLE: count}), using(hold(on, gpu=in_use)))

    assert result == ({"gpu": expected} if isinstance(expected, list) else expected)


def test_preferred_partitions_are_left_if_they_do_not_help() -> None:
    """Three GPUs are no partition; nor are four if one of each four is in use."""
    on = singles(on={MODEL: "H100"})

    assert take(on, pod_request({WHOLE: 3}), using(hold(on, gpu=[2, 3]))) == {"gpu": [4, 5, 6]}
    assert take(on, pod_request({WHOLE: 4}), using(hold(on, gpu=[1, 5]))) == {"gpu": [0, 2, 3, 4]}


def test_a_partition_has_no_unhealthy_gpu() -> None:
    """One GPU of the second partition is broken."""
    on = node(*(gpu(minor, healthy=minor != 5) for minor in range(8)), on=HONOR)

    assert take(on, pod_request({WHOLE: 4})) == {"gpu": [0, 1, 2, 3]}
    assert take(on, pod_request({WHOLE: 4}), using(hold(on, gpu=[0]))) == (
        "Insufficient Partitioned GPU Devices"
    )


def test_a_gpu_in_use_is_in_use_however_little() -> None:
    """A GPU in use breaks its partition; shares are not allocated by partition."""
    on = singles(on=HONOR)

    assert take(on, pod_request({WHOLE: 2}), using(share(0, 1))) == {"gpu": [2, 3]}
    assert take(on, pod_request({RATIO: 50}), using(share(3, 1)), scorer=MOST) == {"gpu": [3]}


def test_a_pod_that_wants_a_partition_needs_a_table() -> None:
    """No pod that goes changes that."""
    for wanted, on in (
        (pod_request({WHOLE: 1}, partition={}), pairs()),
        (pod_request({WHOLE: 1}), pairs(on={POLICY: "Honor"})),
    ):
        assert allocate(on, wanted) == DeviceShortage(
            "node(s) missing GPU Partition Table", resolvable=False
        )


def test_partitions_are_tried_by_score() -> None:
    """Lowest first, as in the original; Restricted looks at no other score."""
    table = {
        "2": [
            {"minors": [0, 1], "allocationScore": 5},
            {"minors": [4, 5], "allocationScore": 1},
            {"minors": [6, 7], "allocationScore": "5"},
        ]
    }
    on = pairs(partitions=table)
    best_effort, restricted = (
        pod_request({WHOLE: 2}, partition={"allocatePolicy": policy})
        for policy in ("BestEffort", "Restricted")
    )
    used = using(hold(on, gpu=[4]))

    assert take(on, best_effort) == take(on, restricted) == {"gpu": [4, 5]}
    assert take(on, best_effort, used) == {"gpu": [0, 1]}
    assert take(on, restricted, used) == "Insufficient Partitioned GPU Devices"


def test_a_partition_has_the_bandwidth_that_is_wanted() -> None:
    """A device without the entry has none."""
    table = {
        "2": [
            {"minors": [0, 1]},
            {"minors": [2, 3], "ringBusBandwidth": "100Gi"},
            {"minors": [4, 5], "ringBusBandwidth": "200Gi"},
        ]
    }
    on = pairs(partitions=table)

    def fast(bandwidth: str) -> dict[str, list[int]] | str:
        return take(on, pod_request({WHOLE: 2}, partition={"ringBusBandwidth": bandwidth}))

    assert fast("100Gi") == {"gpu": [2, 3]}
    assert fast("150Gi") == {"gpu": [4, 5]}
    assert fast("300Gi") == "Insufficient Partitioned GPU Devices"


def test_minors_keep_the_order_of_the_partition() -> None:
    """Device plugins see them in that order."""
    on = pairs(partitions={"2": [{"minors": [6, 1]}]})

    assert take(on, pod_request({WHOLE: 2})) == {"gpu": [6, 1]}


# -- virtual templates -----------------------------------------------------------------------

CUT = {NPU_CORE: 5, NPU_CPU: 1, MEMORY: 16 * GIB}
TEMPLATES = {
    "huawei-Ascend-910B3": {"vir05": CUT, "a": {**CUT, NPU_CPU: 2}, "b": {**CUT, NPU_CPU: 2}},
    "huawei-Ascend-310P": {"vir05": CUT},
    "huawei-Ascend-910B4": {"vir05": {**CUT, NPU_CPU: 7}},
}


def ascend(model: str, count: int = 2) -> list[str]:
    """Take a share by template on that model; return templates by order of devices."""
    cards = (gpu(minor, "a", resources=ASCEND) for minor in range(count))
    on = node(*cards, on={VENDOR: "huawei", MODEL: model})
    result = allocate(on, pod_request({SHARED: 1, **CUT}, templates=TEMPLATES))
    return (
        [result.reason] if isinstance(result, DeviceShortage) else [t.template for t in result[GPU]]
    )


def test_a_cut_card_is_noted_with_its_template() -> None:
    """The table of the node's model is used."""
    assert ascend("Ascend-910B3") == ["vir05"]
    assert ascend("Ascend-910B4") == ["no matched GPU shared resource template"]
    assert ascend("unknown") == ["no matched GPU shared resource template"]


def test_of_equal_templates_none_is_noted() -> None:
    """As in the original: the card is cut, but the table has no entry."""
    on = node(gpu(0, resources=ASCEND), on={VENDOR: "huawei", MODEL: "Ascend-910B3"})
    twin = {SHARED: 1, **CUT, NPU_CPU: 2}
    result = allocate(on, pod_request(twin, templates=TEMPLATES))
    assert not isinstance(result, DeviceShortage)

    assert result[GPU][0].template == ""


def test_shares_by_template_are_packed() -> None:
    """Onto a card that is cut already, while it has all that is needed."""
    on = node(
        gpu(0, "a", resources=ASCEND),
        gpu(1, "a", resources=ASCEND),
        on={VENDOR: "huawei", MODEL: "Ascend-910B3"},
    )
    wanted = pod_request({SHARED: 1, **CUT}, templates=TEMPLATES)
    used = NOTHING
    minors = []
    for _ in range(8):
        result = allocate(on, wanted, used, scorer=MOST)
        assert not isinstance(result, DeviceShortage)
        minors.append(result[GPU][0].minor)
        used = used.plus(result)

    assert minors == [0, 0, 0, 0, 1, 1, 1, 1]
    assert take(on, wanted, used) == "Insufficient GPU Devices"
