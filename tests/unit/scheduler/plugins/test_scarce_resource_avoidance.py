"""Pods without need for a scarce resource; figures from ``devices-numa.md``, section 16."""

from typing import Any

import pytest
from tests.keywords import as_keywords
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, scored
from tests.worlds import node, pod

from koordinator.scheduler.plugins.scarce_resource_avoidance import PLUGIN
from koordinator.scheduler.snapshot import ClusterState

GPU, RDMA = "nvidia.com/gpu", "koordinator.sh/rdma"
SCARCE = [GPU, RDMA]


@pytest.fixture
def servers(world: World) -> ClusterState:
    storage: dict[str, Any] = {"ephemeral-storage": "1Ti"}
    return world(node("gpu", **storage, **as_keywords({GPU: 8, RDMA: 4})), node("cpu", **storage))


def test_idle_scarce_resources_lower_the_score(servers: ClusterState) -> None:
    """Idle are storage, GPU and RDMA: (3 - 2) * 100 / 3 = 33; the other node has nothing scarce."""
    plugin = built(PLUGIN, servers, resources=SCARCE)

    assert scored(plugin, servers, pod("p", cpu=1, memory="1Gi")) == {"gpu": 33, "cpu": 100}


def test_one_of_two_scarce_resources_is_used(servers: ClusterState) -> None:
    """Idle are storage and RDMA: (2 - 1) * 100 / 2 = 50."""
    plugin = built(PLUGIN, servers, resources=SCARCE)
    pending = pod("p", cpu=1, memory="1Gi", requests={GPU: 1})

    assert scored(plugin, servers, pending) == {"gpu": 50, "cpu": 100}


def test_all_scarce_resources_are_used(servers: ClusterState) -> None:
    """Nothing scarce is left idle."""
    plugin = built(PLUGIN, servers, resources=SCARCE)
    pending = pod("p", cpu=1, requests={GPU: 1, RDMA: 1})

    assert scored(plugin, servers, pending) == {"gpu": 100, "cpu": 100}


def test_node_of_which_every_resource_is_used_has_the_highest_score(world: World) -> None:
    """Nothing is left idle, neither scarce nor other."""
    server = world(node("plain"))
    plugin = built(PLUGIN, server, resources=SCARCE)

    assert scored(plugin, server, pod("p", cpu=1, memory="1Gi")) == {"plain": 100}


def test_without_arguments_all_nodes_are_alike(servers: ClusterState) -> None:
    """Nothing is scarce."""
    assert scored(built(PLUGIN, servers), servers, pod("p")) == {"gpu": 100, "cpu": 100}
