"""Scoring with a strategy per resource; figures from ``devices-numa.md``, section 16."""

import pytest
from tests.keywords import as_keywords
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, scored
from tests.worlds import node, pod

from koordinator.scheduler.plugins.node_resources_fit_plus import PLUGIN
from koordinator.scheduler.snapshot import ClusterState

GPU = "nvidia.com/gpu"
RESOURCES = {
    GPU: {"type": "MostAllocated", "weight": 2},
    "cpu": {"type": "LeastAllocated", "weight": 1},
    "memory": {"type": "LeastAllocated", "weight": 1},
}


@pytest.fixture
def servers(world: World) -> ClusterState:
    """Two equal GPU servers, X with 20 CPU, 100 GiB and 2 GPUs in use, Y idle."""
    return world(
        node("x", cpu=64, memory="256Gi", **as_keywords({GPU: 4})),
        node("y", cpu=64, memory="256Gi", **as_keywords({GPU: 4})),
        pod("p", cpu=20, memory="100Gi", requests={GPU: 2}, on="x"),
    )


def test_gpu_pods_go_where_gpus_are_in_use(servers: ClusterState) -> None:
    """X: (2 * 75 + 50 + 50) / 4 = 62.  Y: (2 * 25 + 81 + 89) / 4 = 55."""
    plugin = built(PLUGIN, servers, resources=RESOURCES)
    pending = pod("new", cpu=12, memory="28Gi", requests={GPU: 1})

    assert scored(plugin, servers, pending) == {"x": 62, "y": 55}


def test_cpu_pods_are_compared_by_cpu_and_memory_only(servers: ClusterState) -> None:
    """X: (50 + 50) / 2.  Y: (81 + 89) / 2."""
    plugin = built(PLUGIN, servers, resources=RESOURCES)

    assert scored(plugin, servers, pod("new", cpu=12, memory="28Gi")) == {"x": 50, "y": 85}


def test_pod_without_configured_resources_scores_100_everywhere(servers: ClusterState) -> None:
    """100 everywhere."""
    plugin = built(PLUGIN, servers, resources={GPU: {"type": "MostAllocated", "weight": 2}})

    assert scored(plugin, servers, pod("new", cpu=1)) == {"x": 100, "y": 100}


def test_limits_of_both_strategies(world: World) -> None:
    """Overused: free counts 0, used counts 100. A node without the resource scores 0."""
    state = world(node("over", cpu=2), pod("p", cpu=3, on="over"), node("none", cpu=0))
    least = built(PLUGIN, state, resources={"cpu": {"type": "LeastAllocated", "weight": 1}})
    most = built(PLUGIN, state, resources={"cpu": {"type": "MostAllocated", "weight": 1}})

    assert scored(least, state, pod("new", cpu=1)) == {"over": 0, "none": 0}
    assert scored(most, state, pod("new", cpu=1)) == {"over": 100, "none": 0}


def test_pods_without_requests_on_the_node_count_with_defaults(world: World) -> None:
    """Two such pods are 200 milli-CPU: (2000 - 200 - 800) / 2000 is 50 %."""
    state = world(node("n", cpu=2), pod("p", on="n"), pod("q", on="n"))
    least = built(PLUGIN, state, resources={"cpu": {"type": "LeastAllocated", "weight": 1}})

    assert scored(least, state, pod("new", cpu="800m")) == {"n": 50}
