"""Pods that a kubelet rejects, and their replacements."""

from typing import Any

import pytest
from tests.unit.scheduler.conftest import NewEmbedded
from tests.worlds import node, pod

from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

OUT_OF_CPU = {"phase": "Failed", "reason": "OutOfcpu"}


def rejected(one: Embedded, name: str, status: dict[str, Any] = OUT_OF_CPU) -> None:
    """Make the kubelet reject a pod."""
    one.cluster.patch(Pod, name, "default", {"status": status}, "status")


def node_of(one: Embedded, name: str) -> str:
    """Schedule, and return the node of the pod."""
    one.scheduler.step()
    return one.cluster.get(Pod, name, "default").spec.node_name


def later(one: Embedded, seconds: float) -> None:
    one.clock.advance_to(one.clock.now_s() + seconds)


@pytest.mark.parametrize("owner", [None, ("ReplicaSet", "web")])
def test_replacement_goes_elsewhere(embedded: NewEmbedded, owner: Any) -> None:
    """Another node must fit; pods of other kinds are not affected."""
    one = embedded(node("large", 64), node("small", 8), pod("a", 1, owner=owner))
    assert node_of(one, "a") == "large"

    rejected(one, "a")
    one.load([pod("b", 1, owner=owner), pod("other", 2)])

    assert node_of(one, "b") == "small"
    assert node_of(one, "other") == "large"


def test_replacement_waits_without_another_node(embedded: NewEmbedded) -> None:
    """The replacement is retried, with a longer pause after each rejection."""
    one = embedded(node("n", 8), pod("a", 1))
    assert node_of(one, "a") == "n"
    for name, wait_s in (("b", 30.0), ("c", 60.0), ("d", 120.0)):
        rejected(one, chr(ord(name) - 1))
        one.load([pod(name, 1)])
        assert node_of(one, name) == ""
        waiting = one.cluster.get(Pod, name, "default").status.conditions
        assert "refused a moment ago by the kubelet of n" in waiting[0].message
        later(one, wait_s - 11)
        assert node_of(one, name) == ""

        later(one, 22)
        assert node_of(one, name) == "n"


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed", "reason": "Evicted"},
        {"phase": "Failed"},
        {"phase": "Succeeded"},
        {"phase": "Failed", "reason": "OutOfcpu", "containerStatuses": [{"name": "c0"}]},
    ],
)
def test_other_failures_keep_the_node_open(embedded: NewEmbedded, status: dict[str, Any]) -> None:
    """The pod ran, or was deleted."""
    one = embedded(node("n", 8), pod("a", 1))
    assert node_of(one, "a") == "n"

    rejected(one, "a", status)
    one.load([pod("b", 1)])

    assert node_of(one, "b") == "n"
