"""Feature gates about preemption policy, and about nominations of other schedulers."""

from typing import Any

import pytest
from msgspec import structs
from tests.unit.scheduler.test_gangs import group, members, placed
from tests.unit.scheduler.test_job_preemption import STOCK
from tests.worlds import START_S, node, pod

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.labels import PREEMPTION_POLICY
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

ON = "CrossSchedulerNomination=true"


def world(*objects: Any, gates: str) -> Embedded:
    one = Embedded(STOCK, now_s=START_S, gates=FeatureGates.parse(gates))
    one.load(objects)
    one.scheduler.step()
    return one


def foreign(name: str, cpu: int, on: str, priority: int) -> Pod:
    """Return a pod that another scheduler has nominated to a node."""
    theirs = pod(name, cpu, priority=priority, schedulerName="another")
    return structs.replace(theirs, status=structs.replace(theirs.status, nominated_node_name=on))


@pytest.mark.parametrize(
    ("gates", "priority", "goes"), [(ON, 9, False), (ON, 5, True), ("", 9, True)]
)
def test_nomination_of_a_more_important_foreign_pod_is_respected(
    gates: str, priority: int, goes: bool
) -> None:
    """Equal priority does not count, nor does it apply with the gate off."""
    one = world(node("a", 4), foreign("theirs", 4, "a", priority), gates=gates)
    one.load([pod("ours", 1, priority=5)])
    one.run_to_fixed_point()

    assert ("ours" in placed(one)) is goes
    assert one.cluster.get(Pod, "theirs", "default").status.nominated_node_name == "a"


def test_node_is_free_after_the_foreign_pod_is_deleted() -> None:
    """The pod that waited for it is retried."""
    one = world(node("a", 4), foreign("theirs", 4, "a", 9), gates=ON)
    one.load([pod("ours", 1, priority=5), group("g", 3), *members("g", 3)])
    one.run_to_fixed_point()
    assert placed(one) == {}

    one.cluster.delete(Pod, "theirs", "default", grace_period_s=0)
    one.run_to_fixed_point()

    assert set(placed(one)) == {"ours", "g-0", "g-1", "g-2"}


def test_runs_and_gangs_respect_foreign_nominations() -> None:
    """Identical pods are decided in one step only without nominations."""
    one = world(node("a", 4), node("b", 2), foreign("theirs", 4, "a", 9), gates=ON)
    one.load([*(pod(f"p{i}", 1) for i in range(4)), group("g", 2), *members("g", 2)])
    one.run_to_fixed_point()

    assert set(placed(one).values()) == {"b"}
    assert len(placed(one)) == 2


@pytest.mark.parametrize(
    ("label", "goes"), [("PreemptLowerPriority", True), ("Never", False), ("", False), ("x", False)]
)
def test_label_overrides_the_preemption_policy(label: str, goes: bool) -> None:
    """With the gate on the label precedes the spec."""
    labels = {PREEMPTION_POLICY: label} if label else {}
    wants = pod("ours", 4, priority=5, labels=labels, preemptionPolicy="PreemptLowerPriority")
    one = world(node("a", 4), pod("low", 4, on="a"), gates="PreemptionPolicyTransformer=true")
    one.load([wants])
    one.run_to_fixed_point()

    assert ("ours" in placed(one)) is goes


def test_label_has_no_effect_without_the_gate() -> None:
    """The spec decides."""
    one = world(node("a", 4), pod("low", 4, on="a"), gates="")
    one.load([pod("ours", 4, priority=5, labels={PREEMPTION_POLICY: "Never"})])
    one.run_to_fixed_point()

    assert set(placed(one)) == {"ours"}
