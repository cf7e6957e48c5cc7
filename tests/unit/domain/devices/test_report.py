"""From Device objects to nodes' devices."""

import pytest
from tests.unit.domain.devices.machines import (
    ASCEND,
    CORE,
    GIB,
    GPU,
    MODEL,
    POLICY,
    RATIO,
    RDMA,
    VENDOR,
    gpu,
    gpu_amounts,
    nic,
    node,
    pairs,
    report,
)

from koordinator.api.meta import JsonObject, LabelSelector
from koordinator.domain.devices.model import NodeModels
from koordinator.domain.devices.report import node_devices

PARTITIONS = "metadata.annotations[scheduling.koordinator.sh/gpu-partitions]"


def test_equal_machines_share_a_model() -> None:
    """Names, order and health of devices have no influence."""
    models = NodeModels()
    one = report(gpu(0, "a"), gpu(1, "b"), nic(1, "a"))
    same = report(nic(1, "a"), gpu(1, "b") | {"id": "X"}, gpu(0, "a", healthy=False))
    other = report(gpu(0, "a"), gpu(1, "a"), nic(1, "a"))
    first, second, third = (node_devices(each, {}, models) for each in (one, same, other))

    assert first.model is second.model
    assert (len(models), models.number(first.model), models.number(third.model)) == (2, 0, 1)
    assert (first.healthy[GPU], second.healthy[GPU]) == (0b11, 0b10)
    assert (first.ids[GPU], second.ids[GPU][1]) == ({0: "GPU-0", 1: "GPU-1"}, "X")


def test_unhealthy_devices_have_nothing() -> None:
    """Rows are by minor, gaps are empty; a device that reports nothing is not healthy."""
    result = node(gpu(1), gpu(3, healthy=False), gpu(4, resources={"example.com/x": "1"}))

    assert result.healthy[GPU] == 0b10
    nothing = list(gpu_amounts())
    present = list(gpu_amounts(100, 80 * GIB, 100))
    assert result.totals[GPU].tolist() == [nothing, present, nothing, nothing, nothing]


def test_vendors_amounts_have_places_of_their_own() -> None:
    """An Ascend card has no ``gpu-core``."""
    result = node(gpu(0, resources=ASCEND))

    assert result.totals[GPU].tolist() == [[*gpu_amounts(0, 64 * GIB, 100, 20, 7, 100)]]


def test_former_resource_names_count() -> None:
    """Resource names under ``kubernetes.io`` are former names."""
    result = node(gpu(0, resources={"kubernetes.io/gpu-core": "100", RATIO: "100", CORE: "50"}))

    assert result.totals[GPU].tolist() == [[*gpu_amounts(50, 0, 100)]]


def test_masks_of_numa_nodes_and_labels() -> None:
    """A device on no NUMA node in particular is on each, one without topology on none."""
    model = node(gpu(0, "a"), gpu(1, "b", 1, tier="x"), gpu(2, "c", -1), gpu(3)).model
    gpus = model.group(GPU)
    assert gpus is not None

    assert (gpus.mask, gpus.width) == (0b1111, 4)
    assert gpus.on_numa([1]) == 0b0110
    assert gpus.on_numa([]) == 0b0100
    assert [(each.nodes, each.near[GPU], each.counts[GPU]) for each in model.numa_sets] == [
        ((0,), 0b0101, 1),
        ((1,), 0b0110, 1),
        ((0, 1), 0b0111, 2),
    ]
    assert gpus.labelled(None) == 0b1111
    assert gpus.labelled(LabelSelector(match_labels={"tier": "x"})) == 0b0010
    assert model.group(RDMA) is None


def test_virtual_functions_are_in_the_order_of_their_bus_ids() -> None:
    """The functions of all groups whose labels match."""
    card = nic(1, "a", functions={"slow": ["1f:00.3", "1f:00.2"], "fast": ["1f:00.10"]})
    cards = node(card).model.group(RDMA)
    assert cards is not None
    fast = LabelSelector(match_labels={"kind": "fast"})

    assert [f.bus_id for f in cards.functions(1, LabelSelector())] == [
        "1f:00.10",
        "1f:00.2",
        "1f:00.3",
    ]
    assert [f.bus_id for f in cards.functions(1, fast)] == ["1f:00.10"]


def test_a_virtual_function_of_several_groups_is_one() -> None:
    """A card never seems to have a function left when all are taken."""
    cards = node(nic(1, functions={"slow": ["1f:00.2"], "any": ["1f:00.2"]})).model.group(RDMA)
    assert cards is not None

    assert [f.bus_id for f in cards.functions(1, LabelSelector())] == ["1f:00.2"]


def test_the_tree_of_scopes_needs_the_place_of_every_gpu() -> None:
    """Of NICs it does not."""
    assert node(gpu(0, "a"), nic(1)).model.scopes is not None
    assert node(gpu(0, "a"), gpu(1)).model.scopes is None
    assert node(nic(1, "a")).model.scopes is None


@pytest.mark.parametrize("minor", [None, -1, 1024, 2**31 - 1])
def test_a_device_without_usable_minor_is_left_out(minor: int | None) -> None:
    """The others are there, and the report names the wrong one."""
    result = node(gpu(0), gpu(1) | {"minor": minor}, nic(1))

    assert [str(problem) for problem in result.problems] == [
        f"Device n: spec.devices[1].minor: must be a number from 0 to 1023, got {minor}"
    ]
    assert result.healthy == {GPU: 0b1, RDMA: 0b10}


@pytest.mark.parametrize("numa", [-5, 1024, (1 << 31) - 1])
def test_impossible_numa_node_counts_as_unknown(numa: int) -> None:
    """The device is allocated for any NUMA nodes of the pod; -1 means the same."""
    result = node(gpu(0, "a", numa), gpu(1, "a", -1), gpu(2, "b", 1023))
    group = result.model.group(GPU)

    (problem,) = result.problems
    assert str(problem) == (
        f"Device n: spec.devices[0].topology.nodeID: must be a number from -1 to 1023, got {numa}"
    )
    assert group is not None
    assert [device.numa for device in group.devices] == [-1, -1, 1023]


def test_of_two_devices_with_one_minor_the_first_is_taken() -> None:
    """Types count for themselves; an unknown type is ignored."""
    result = node(gpu(1), nic(1), gpu(1) | {"id": "twin"}, gpu(1) | {"type": "tpu"})

    (problem,) = result.problems
    accepted = "unique among the gpu devices"
    assert str(problem) == f"Device n: spec.devices[2].minor: must be {accepted}, got 1 again"
    assert result.ids[GPU] == {1: "GPU-1"}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"2": [{"minors": [0, 9]}]}, "[2][0].minors: must be minors of GPUs of"),
        ({"2": [{"minors": [0, -1]}]}, "[2][0].minors: must be minors of GPUs"),
        ({"2": [{"minors": [1, 1]}]}, "[2][0].minors: must be 2 different minors, got [1, 1]"),
        (
            {"2": [{"minors": [0, 1, 2]}]},
            "[2][0].minors: must be 2 different minors, got [0, 1, 2]",
        ),
        (
            {"2": [{"minors": [0, 1]}, {"minors": [1, 0]}]},
            "[2][1].minors: must be a unique set of GPUs, got [1, 0]",
        ),
        ("{", ""),
    ],
)
def test_a_broken_partition_table_is_as_good_as_none(table: object, problem: str) -> None:
    """The rest of the node goes on; built-in tables step in as they would without it."""
    broken = pairs(partitions=table, on={MODEL: "H800"})

    assert f"{PARTITIONS}{problem}" in str(broken.problems[0])
    assert broken.model == pairs(on={MODEL: "H800"}).model


def test_partitions_may_share_gpus() -> None:
    """Machines have rings: each GPU may be allocated with either neighbour."""
    rings = {"2": [{"minors": [0, 1]}, {"minors": [1, 2], "allocationScore": 1}]}
    result = pairs(partitions=rings)

    assert not result.problems
    assert result.model.partitions is not None
    assert [len(group) for group in result.model.partitions.groups[2]] == [1, 1]


@pytest.mark.parametrize(
    ("on_node", "labels", "known", "honored"),
    [
        ({MODEL: "H800"}, {}, True, False),
        ({MODEL: "H800", VENDOR: "nvidia", POLICY: "Honor"}, {}, True, True),
        ({MODEL: "H800"}, {POLICY: "Honor"}, True, False),
        ({MODEL: "H800", VENDOR: "metax"}, {}, False, False),
        ({MODEL: "H200"}, {}, False, False),
        ({POLICY: "Honor"}, {}, False, True),
        ({}, {MODEL: "H20", VENDOR: "nvidia"}, True, False),
    ],
)
def test_some_models_have_a_built_in_table(
    on_node: dict[str, str], labels: dict[str, str], known: bool, honored: bool
) -> None:
    """NVIDIA's Hoppers, also without a vendor label; the policy is then the Node's."""
    model = pairs(on=on_node, labels=labels).model

    assert (model.partitions is not None, model.honors_partitions) == (known, honored)


def test_a_table_of_the_device_comes_with_the_policy_of_the_device() -> None:
    """Any policy other than Honor means Prefer."""
    table = {"2": [{"minors": [0, 1]}]}

    assert pairs(partitions=table, labels={POLICY: "Honor"}).model.honors_partitions
    assert not pairs(partitions=table, labels={POLICY: "x"}).model.honors_partitions
    assert not pairs(partitions=table, on={POLICY: "Honor"}).model.honors_partitions


def test_device_labels_replace_missing_node_labels() -> None:
    """Until the manager has copied them."""
    labels: JsonObject = {VENDOR: "huawei", MODEL: "Ascend-910B3"}
    model = node(gpu(0), labels=labels).model

    assert (model.vendor, model.gpu_model) == ("huawei", "Ascend-910B3")
