"""Pods with thousands of resources or labels: they cost no memory per node."""

from typing import Any

import pytest
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.watches import only, places
from tests.worlds import made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.scheduler.loop import Unschedulable
from koordinator.scheduler.snapshot.axis import MOST_OF_A_POD
from koordinator.simulator import Embedded

MANY = 3_000


def greedy(name: str, on: str = "", **more: str) -> KubeObject:
    """Return a pod that requests many unknown resources."""
    requests = {**{f"example.com/{name}{number}": "1" for number in range(MANY)}, **more}
    container = {"name": "c", "resources": {"requests": requests, "limits": requests}}
    spec: dict[str, Any] = {"containers": [container]}
    return made("Pod", name, spec=spec | ({"nodeName": on} if on else {}))


def selective(name: str) -> KubeObject:
    """Return a pod that selects many unknown labels."""
    return pod(name, nodeSelector={f"x{number}": "v" for number in range(MANY)})


def n_columns(one: Embedded) -> int:
    """Return the number of columns that cost memory per node."""
    nodes = one.state.nodes
    return len(nodes.requested) + len(nodes.labels)


@pytest.mark.parametrize("on", ["", "n"])
def test_unknown_resources_cost_nothing_per_node(embedded: NewEmbedded, on: str) -> None:
    """The pod is pending, or was bound by its creator; others are placed as without it."""
    one = embedded(node("n", cpu=4), *(greedy(f"g{i}", on, cpu="1") for i in range(3)), pod("p", 1))

    done = one.run_to_fixed_point()

    assert places(done) == {"p": "n"}
    for failed in only(Unschedulable, done):
        assert f"Insufficient resources-of-a-pod-beyond-{MOST_OF_A_POD}" in failed.message
    assert n_columns(one) < 100


def test_known_resources_are_charged_beside_unknown_ones(embedded: NewEmbedded) -> None:
    """Naming many unknown resources does not avoid the charge."""
    scarce = {"example.com/scarce": "1"}
    one = embedded(
        made(
            "Node",
            "n",
            status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"} | scarce},
        ),
        greedy("taker", "n", **scarce, cpu="3"),
        pod("p", 2),
        pod("q", requests=scarce),
        pod("r", 1),
    )

    assert places(one.run_to_fixed_point()) == {"r": "n"}


def test_many_known_resources_are_supported(embedded: NewEmbedded) -> None:
    """Resources that nodes have may be requested in any number."""
    amounts = {f"example.com/r{number}": "1" for number in range(2 * MOST_OF_A_POD)}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    one = embedded(
        made("Node", "n", status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}),
        made("Node", "m", status={"allocatable": {"cpu": "4", "pods": "9"} | amounts}),
        made("Pod", "p", spec={"containers": [container]}),
    )

    assert places(one.run_to_fixed_point()) == {"p": "m"}


def test_unknown_labels_cost_nothing_per_node(embedded: NewEmbedded) -> None:
    """Labels count from the time a node has them until it loses them."""
    one = embedded(node("n", cpu=4), selective("s"), pod("q", 1, nodeSelector={"late": "yes"}))
    assert places(one.run_to_fixed_point()) == {}
    assert n_columns(one) < 100

    bare = node("n", cpu=4)
    one.cluster.update(node("n", cpu=4, labels={"late": "yes"}))
    assert places(one.run_to_fixed_point()) == {"q": "n"}

    one.cluster.update(bare)
    one.cluster.load([pod("late", 1, nodeSelector={"late": "yes"})], admit=True)
    assert places(one.run_to_fixed_point()) == {}
    one.cluster.update(node("n", cpu=4, labels={"late": "yes"}))
    assert places(one.run_to_fixed_point()) == {"late": "n"}


@pytest.mark.parametrize("amount", ["-1", "-9e90"])
def test_negative_amount_counts_as_zero(embedded: NewEmbedded, amount: str) -> None:
    """A reservation's template may have one, because no API server validates it."""
    container = {"name": "c", "resources": {"requests": {"cpu": amount, "memory": amount}}}
    one = embedded(
        node("n", cpu=1),
        made("Pod", "evil", spec={"containers": [container]}),
        pod("p", 1),
        pod("q", 1),
    )

    assert len({"p", "q"} & places(one.run_to_fixed_point()).keys()) == 1
