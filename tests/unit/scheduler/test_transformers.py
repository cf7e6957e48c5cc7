"""Feature gates that transform pods before scheduling."""

from typing import Any

from tests.worlds import START_S, node, pod

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded


def world(gates: str) -> Embedded:
    return Embedded(now_s=START_S, gates=FeatureGates.parse(gates))


def test_replaced_resources_count_before_and_after_the_bind() -> None:
    """A node of 4 CPUs takes pods of 3 whose CPU is renamed, and a pod that requests CPU."""
    one = world("ReplaceResourcesTransformer=true")
    extended: dict[str, Any] = {"example.com/cpu": 6000}
    renames = {"pod.koordinator.sh/replace-resources": "cpu:example.com/cpu"}
    one.load([node("a", 4, **extended)])
    one.load([pod(f"p-{n}", 3, annotations=renames) for n in range(3)])
    one.load([pod("plain", 4)])
    one.run_to_fixed_point()
    one.scheduler.validate()

    bound = {it.metadata.name for it in one.cluster.list(Pod).items if it.spec.node_name}
    assert "plain" in bound
    assert len(bound) == 3


def test_pod_without_priority_has_that_of_its_class() -> None:
    """The pod preempts and is preempted by the priority of its class."""
    labels = {"koordinator.sh/priority-class": "koord-prod"}
    for gates, goes in (("", False), ("PriorityTransformer=true", True)):
        one = world(gates)
        one.load([node("a", 4), pod("low", 4, on="a", priority=5000)])
        one.load([pod("high", 4, labels=labels)])
        one.run_to_fixed_point()
        placed = {it.metadata.name for it in one.cluster.list(Pod).items if it.spec.node_name}
        assert ("high" in placed) is goes
