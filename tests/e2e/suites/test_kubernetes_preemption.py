"""Preemption: the scenarios of Kubernetes' own suite, for the default profile.

``runs ReplicaSets to verify preemption running path`` has the pods of controllers; here they are
created directly, so that no controller recreates them: the victims are the same.

Source: kubernetes 1.35 test/e2e/scheduling/preemption.go, ``SchedulerPreemption``; "validates
various priority Pods preempt expectedly with the async preemption" is
``test_many_pods_preempt_concurrently`` in ``session/test_preemption.py``, and "validates pod
disruption condition is added to the preempted pod" is
``test_victim_gets_an_event_and_a_condition`` there.
"""

import pytest
from tests.e2e.suites.cluster import FAKE, SuiteCluster, having, node, priority_class, spread
from tests.e2e.waiting import eventually

NODES = ("n0", "n1")
CLASSES = tuple(
    priority_class(name, value) for name, value in (("low", 1), ("mid", 100), ("high", 1000))
)
TWO = {FAKE: "2"}


@pytest.mark.parametrize("important", ["high", "system-cluster-critical"])
def test_pod_of_lowest_priority_is_preempted(cluster: SuiteCluster, important: str) -> None:
    """Source: validates basic preemption works; … lower priority pod preemption by critical pod."""
    cluster.create(*CLASSES, *(node(name, more={FAKE: "5"}) for name in NODES))
    others = []
    for name in NODES:
        for number in range(2):
            is_low = (name, number) == ("n1", 0)
            others.append(f"pod-{name}-{number}")
            kind = "low" if is_low else "mid"
            cluster.run(others[-1], TWO, on=name, priorityClassName=kind)

    assert cluster.run("preemptor", TWO, priorityClassName=important) == "n1"

    assert cluster.is_going("pod-n1-0")
    assert not any(cluster.is_going(name) for name in others if name != "pod-n1-0")


def test_victims_for_an_even_spread(cluster: SuiteCluster) -> None:
    """Source: PodTopologySpread Preemption, validates proper pods are preempted."""
    key, label = "example.com/pts-preemption", "example.com/spread"
    cluster.create(*CLASSES, *(node(name, labels={key: name}, more={FAKE: "10"}) for name in NODES))
    common = {"labels": {label: ""}, "affinity": having(key, *NODES)}
    cluster.run("high", {FAKE: "9"}, priorityClassName="high", **common)
    lows = [f"low-{number}" for number in range(3)]
    for name in lows:
        cluster.run(name, {FAKE: "3"}, priorityClassName="low", **common)

    cluster.run(
        "medium",
        {FAKE: "3"},
        priorityClassName="mid",
        topologySpreadConstraints=spread(key, label),
        **common,
    )

    eventually(lambda: sum(not cluster.is_going(name) for name in lows) == 1)
    assert not cluster.is_going("high")


def test_no_more_pods_go_than_have_to(cluster: SuiteCluster) -> None:
    """Source: PreemptionExecutionPath, runs ReplicaSets to verify preemption running path."""
    cluster.create(node("n0", more={FAKE: "1000"}))
    cluster.create(*(priority_class(f"p{number}", number) for number in range(1, 5)))
    for number, amount in ((1, 200), (2, 300), (3, 450)):
        cluster.run(f"pod{number}", {FAKE: str(amount)}, priorityClassName=f"p{number}")

    cluster.run("pod4", {FAKE: "500"}, priorityClassName="p4")

    assert [cluster.is_going(f"pod{number}") for number in (1, 2, 3)] == [True, True, False]


def test_budgets_are_kept_while_others_can_go(cluster: SuiteCluster) -> None:
    """Source: test/integration/scheduler/preemption, "A pod of a budget is not a victim": PDB.

    The pod with a budget has the lower priority and is no victim.
    """
    cluster.create(*CLASSES, *(node(name, more={FAKE: "2"}) for name in NODES))
    labels = {"app": "guarded"}
    cluster.run("guarded", TWO, on="n0", labels=labels, priorityClassName="low")
    cluster.run("open", TWO, on="n1", priorityClassName="mid")
    budget = {"selector": {"matchLabels": labels}, "minAvailable": 1}
    cluster.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard"},
            "spec": budget,
        }
    )
    state = {
        "disruptionsAllowed": 0,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
        "observedGeneration": 1,
    }
    cluster.patch("PodDisruptionBudget", "guard", {"status": state}, "status")

    assert cluster.run("important", TWO, priorityClassName="high") == "n1"
    assert not cluster.is_going("guarded")
