"""Gates about who preempts and whose places are kept: those of other schedulers' pods, too."""

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
def test_a_place_is_kept_for_a_more_important_pod_of_another_scheduler(
    gates: str, priority: int, goes: bool
) -> None:
    """Not for one that is as important, nor unless the gate says so."""
    one = world(node("a", 4), foreign("theirs", 4, "a", priority), gates=gates)
    one.load([pod("ours", 1, priority=5)])
    one.run_to_fixed_point()

    assert ("ours" in placed(one)) is goes
    assert one.cluster.get(Pod, "theirs", "default").status.nominated_node_name == "a"


def test_the_place_is_free_again_when_that_pod_is_gone() -> None:
    """Whoever waited for it is tried again."""
    one = world(node("a", 4), foreign("theirs", 4, "a", 9), gates=ON)
    one.load([pod("ours", 1, priority=5), group("g", 3), *members("g", 3)])
    one.run_to_fixed_point()
    assert placed(one) == {}

    one.cluster.delete(Pod, "theirs", "default", grace_period_s=0)
    one.run_to_fixed_point()

    assert set(placed(one)) == {"ours", "g-0", "g-1", "g-2"}


def test_runs_and_gangs_keep_that_place_as_well() -> None:
    """Many that are alike are decided at once only where nobody's place is to be kept."""
    one = world(node("a", 4), node("b", 2), foreign("theirs", 4, "a", 9), gates=ON)
    one.load([*(pod(f"p{i}", 1) for i in range(4)), group("g", 2), *members("g", 2)])
    one.run_to_fixed_point()

    assert set(placed(one).values()) == {"b"}
    assert len(placed(one)) == 2


@pytest.mark.parametrize(
    ("said", "goes"), [("PreemptLowerPriority", True), ("Never", False), ("", False), ("x", False)]
)
def test_the_label_says_who_preempts(said: str, goes: bool) -> None:
    """With the gate its word goes before that of the spec."""
    labels = {PREEMPTION_POLICY: said} if said else {}
    wants = pod("ours", 4, priority=5, labels=labels, preemptionPolicy="PreemptLowerPriority")
    one = world(node("a", 4), pod("low", 4, on="a"), gates="PreemptionPolicyTransformer=true")
    one.load([wants])
    one.run_to_fixed_point()

    assert ("ours" in placed(one)) is goes


def test_without_the_gate_the_spec_says_who_preempts() -> None:
    """A label that nobody reads changes nothing."""
    one = world(node("a", 4), pod("low", 4, on="a"), gates="")
    one.load([pod("ours", 4, priority=5, labels={PREEMPTION_POLICY: "Never"})])
    one.run_to_fixed_point()

    assert set(placed(one)) == {"ours"}
