"""GPUs, whole or in parts."""

import json
from collections.abc import Mapping

import numpy as np
import pytest
from tests.keywords import as_keywords
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused
from tests.worlds import add, device, gpu_pod, node, pod

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.core import ConfigMap
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.scheduler.contract import AllocationResult, Refusal
from koordinator.scheduler.plugins.device_share import PLUGIN
from koordinator.scheduler.snapshot import ClusterState, Snapshot

REASON = "Insufficient gpu devices"
TEMPLATES = "koordinator-system/gpu-shared-resource-templates"
CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{what}" for what in ("core", "memory", "memory-ratio"))


def templates(text: str) -> ConfigMap:
    namespace, name = TEMPLATES.split("/")
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data={"data.yaml": text})


def reserve(
    state: ClusterState, pending: Pod, on: str = "n", **args: object
) -> AllocationResult | Refusal:
    plugin = built(PLUGIN, state, **args)
    view = Snapshot(state)[np.array([state.nodes.rows[on]])]
    result: AllocationResult | Refusal = plugin.reserve(view, state.classes.of(pending), None)
    return result


def allocated(result: AllocationResult | Refusal) -> dict[int, Mapping[str, str]]:
    """Return ``{minor: resources}`` of the annotation."""
    assert isinstance(result, AllocationResult)
    entries = json.loads(result.annotations[ALLOCATED.key])["gpu"]
    return {entry["minor"]: entry["resources"] for entry in entries}


def test_cached_allocation_is_not_used_on_another_node(world: World) -> None:
    """The same GPUs have enough left on both nodes, but different amounts."""
    state = world(
        *(
            obj
            for name in "ab"
            for obj in (node(name, **as_keywords({CORE: 200, RATIO: 200})), device(name, 2))
        ),
        gpu_pod("a0", "a", gpu_core=30, gpu_memory_ratio=30, minors=[0]),
        gpu_pod("a1", "a", gpu_core=50, gpu_memory_ratio=50, minors=[1]),
        gpu_pod("b0", "b", gpu_core=50, gpu_memory_ratio=50, minors=[0]),
        gpu_pod("b1", "b", gpu_core=30, gpu_memory_ratio=30, minors=[1]),
    )
    plugin, pending = built(PLUGIN, state), gpu_pod("p", gpu_core=20, gpu_memory_ratio=20)
    views = (Snapshot(state)[np.array([state.nodes.rows[name]])] for name in "abab")
    given = [allocated(plugin.reserve(view, state.classes.of(pending), None)) for view in views]

    assert [list(minors) for minors in given] == [[0], [1], [0], [1]]


# -- requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"nvidia.com/gpu": 2}, {0: (100, "80Gi", 100), 1: (100, "80Gi", 100)}),
        ({"amd.com/gpu": 1}, {0: (100, "80Gi", 100)}),
        ({"koordinator.sh/gpu": 50}, {0: (50, "40Gi", 50)}),
        ({"koordinator.sh/gpu": 200}, {0: (100, "80Gi", 100), 1: (100, "80Gi", 100)}),
        ({RATIO: 25}, {0: (None, "20Gi", 25)}),
        ({MEMORY: "20Gi"}, {0: (None, "20Gi", 25)}),
        ({CORE: 30, RATIO: 40}, {0: (30, "32Gi", 40)}),
        ({CORE: 30, MEMORY: "8Gi"}, {0: (30, "8Gi", 10)}),
        (
            {"koordinator.sh/gpu.shared": 2, RATIO: 100},
            {0: (None, "40Gi", 50), 1: (None, "40Gi", 50)},
        ),
        (
            {"koordinator.sh/gpu.shared": 2, CORE: 60, MEMORY: "16Gi"},
            {0: (30, "8Gi", 10), 1: (30, "8Gi", 10)},
        ),
    ],
)
def test_missing_gpu_amounts_are_derived_from_the_requested_ones(
    world: World,
    requests: dict[str, str | int],
    expected: dict[int, tuple[int | None, str, int]],
) -> None:
    """Core, memory and memory ratio on each GPU of 80 GiB; missing ones are derived."""
    state = world(node("n"), device("n", gpus=2))
    allocation = allocated(reserve(state, pod("p", requests=requests)))

    assert allocation == {
        minor: ({CORE: str(core)} if core is not None else {}) | {MEMORY: memory, RATIO: str(ratio)}
        for minor, (core, memory, ratio) in expected.items()
    }


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ({CORE: 50}, f"invalid resource device requests: [{CORE}]"),
        (
            {"koordinator.sh/gpu": 100, RATIO: 50},
            f"invalid resource device requests: [koordinator.sh/gpu {RATIO}]",
        ),
        ({"koordinator.sh/gpu": 150}, "invalid resource unit koordinator.sh/gpu: 150"),
        ({RATIO: 101}, f"invalid resource unit {RATIO}: 101"),
        (
            {"koordinator.sh/gpu.shared": 2, RATIO: 51},
            f"invalid resource unit {RATIO}: 51",
        ),
    ],
)
def test_invalid_combinations_are_refused_on_all_nodes(
    world: World, requests: dict[str, int], reason: str
) -> None:
    """The message gives the wrong names or the wrong amount."""
    state = world(node("n"), device("n"))
    pending = state.classes.of(pod("p", requests=requests))

    assert built(PLUGIN, state).prefilter(Snapshot(state), pending) == Refusal(reason)


# -- filter ----------------------------------------------------------------------------------


def test_enough_devices_must_have_enough_left(world: World) -> None:
    """Two halves on one GPU leave one whole GPU."""
    state = world(
        node("n"),
        device("n", gpus=2),
        gpu_pod("a", "n", gpu=50, minors=[0]),
        gpu_pod("b", "n", gpu=50, minors=[0]),
    )
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, gpu_pod("p", gpu=100)) == {}
    assert refused(plugin, state, gpu_pod("p", gpu=200)) == {"n": REASON}
    assert hopeless(plugin, state, gpu_pod("p", gpu=200)) == set()


def test_a_share_must_fit_on_one_device(world: World) -> None:
    """Half of each of two GPUs is no place for 60 %."""
    state = world(
        node("n"),
        device("n", gpus=2),
        gpu_pod("a", "n", gpu=50, minors=[0]),
        gpu_pod("b", "n", gpu=50, minors=[1]),
    )

    assert refused(built(PLUGIN, state), state, gpu_pod("p", gpu=60)) == {"n": REASON}


def test_memory_and_core_are_limits_of_their_own(world: World) -> None:
    """GPU 0 has no memory left, GPU 1 no core."""
    state = world(
        node("n"),
        device("n", gpus=2),
        gpu_pod("a", "n", gpu_core=10, gpu_memory_ratio=100, minors=[0]),
        gpu_pod("b", "n", gpu_core=100, gpu_memory_ratio=10, minors=[1]),
    )
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, gpu_pod("p", gpu_core=20, gpu_memory_ratio=20)) == {"n": REASON}
    assert refused(plugin, state, gpu_pod("p", gpu_memory_ratio=20)) == {}


def test_unhealthy_devices_are_not_allocated(world: World) -> None:
    """The healthy one of two devices remains."""
    state = world(node("n"), device("n", gpus=2, unhealthy=[0]))
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, gpu_pod("p", gpu=200)) == {"n": REASON}
    assert list(allocated(reserve(state, gpu_pod("p", gpu=100)))) == [1]


def test_nodes_without_device_object_are_left_to_their_kubelet(world: World) -> None:
    """Nodes without a Device object, or without GPUs in it, pass without an allocation."""
    state = world(node("n"), node("reported"), device("reported", gpus=0))
    pending = gpu_pod("p", gpu=100)

    assert refused(built(PLUGIN, state), state, pending) == {"reported": REASON}
    assert reserve(state, pending) == AllocationResult()


def test_pods_without_gpus_pass_everywhere(world: World) -> None:
    """Pods without GPUs get no allocation."""
    state = world(node("n"), device("n", gpus=0))

    assert refused(built(PLUGIN, state), state, pod("p", cpu=1)) == {}
    assert reserve(state, pod("p", cpu=1)) == AllocationResult()


# -- reserve ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "minor"), [("LeastAllocated", 2), ("MostAllocated", 1)])
def test_share_goes_to_the_preferred_device(world: World, strategy: str, minor: int) -> None:
    """The preferred device is the emptiest, or the fullest that has room; the lowest minor wins."""
    state = world(
        node("n"),
        device("n", gpus=4),
        gpu_pod("a", "n", gpu=30, minors=[0]),
        gpu_pod("b", "n", gpu=60, minors=[1]),
    )
    weighed = {"type": strategy, "resources": [{"name": RATIO, "weight": 1}]}
    result = reserve(state, gpu_pod("p", gpu=40), scoringStrategy=weighed)

    assert list(allocated(result)) == [minor]


def test_reserve_refuses_a_node_that_became_full(world: World) -> None:
    """The reason is the one of the filter."""
    state = world(node("n"), device("n", gpus=1), gpu_pod("a", "n", gpu=50, minors=[0]))

    assert reserve(state, gpu_pod("p", gpu=60)) == Refusal(REASON, resolvable=True)


def test_allocations_are_restored_from_annotations(world: World) -> None:
    """A state built from the written annotation equals the reserved one."""
    first = world(node("n"), device("n", gpus=2))
    result = reserve(first, gpu_pod("p", gpu=30))
    assert isinstance(result, AllocationResult)
    bound = pod(
        "p", on="n", requests={"koordinator.sh/gpu": 30}, annotations=dict(result.annotations)
    )
    second = world(node("n"), device("n", gpus=2), bound)

    assert second.nodes.gpus.used[0, 0, :3].tolist() == [30, 24 * 2**30, 30]
    assert not second.nodes.gpus.used[0, 1].any()


def test_device_object_may_come_late_and_change(world: World) -> None:
    """Allocations do not depend on it; a removed device has nothing left to allocate."""
    state = world(node("n"), gpu_pod("a", "n", gpu=100, minors=[1]))
    add(state, device("n", gpus=2))
    assert refused(built(PLUGIN, state), state, gpu_pod("p", gpu=200)) == {"n": REASON}

    add(state, device("n", gpus=3))
    assert list(allocated(reserve(state, gpu_pod("p", gpu=200)))) == [0, 2]


def test_malformed_annotation_allocates_nothing(world: World) -> None:
    """The scheduler ignores an annotation that others wrote."""
    broken = [
        pod(f"p{i}", on="n", annotations={ALLOCATED.key: text})
        for i, text in enumerate(["{", "[]"])
    ]
    state = world(node("n"), device("n", gpus=1), *broken)

    assert refused(built(PLUGIN, state), state, gpu_pod("p", gpu=100)) == {}


def test_malformed_template_table_is_reported_to_pods_that_need_it(world: World) -> None:
    """The previous table stays in effect."""
    share = {"koordinator.sh/gpu.shared": 1, "huawei.com/npu-core": 5, "huawei.com/npu-cpu": 1}
    small, other = (pod("p", requests={**share, MEMORY: much}) for much in ("16Gi", "8Gi"))
    state = world(
        node("n"),
        templates(
            "{huawei-A: {small: {huawei.com/npu-core: 5, "
            f"huawei.com/npu-cpu: 1, {MEMORY}: 16Gi}}}}}}"
        ),
    )
    plugin = built(PLUGIN, state)

    def refusal(pending: Pod) -> Refusal | None:
        answer: Refusal | None = plugin.prefilter(Snapshot(state), state.classes.of(pending))
        return answer

    plain = "no matched GPU shared resource template"
    assert (refusal(small), refusal(other)) == (None, Refusal(plain))
    add(state, templates("{: ]["))
    assert refusal(small) is None
    refused_other = refusal(other)
    assert refused_other is not None
    assert refused_other.reason.startswith(
        f"{plain}; ConfigMap {TEMPLATES}: data[data.yaml]: is not YAML"
    )
