"""Preemption by important pods, with events for all pods."""

from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.binaries import NOTHING_TO_FREE
from tests.e2e.session.manifests import (
    Manifest,
    disruption_budget,
    node,
    pod,
    priority_class,
)
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually

HIGH: dict[str, Any] = {"priorityClassName": "high"}
LOW: dict[str, Any] = {"priorityClassName": "low"}
CLASSES = (priority_class("high", 1000), priority_class("low", 10))
DISRUPTED = "DisruptionTarget"


def annotated(manifest: Manifest, **metadata: object) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


def test_victim_gets_an_event_and_a_condition(user: User) -> None:
    """Event and condition precede the deletion; the preemptor takes the victim's place."""
    user.apply(*CLASSES, node("n0", "2"), pod("victim", "2", **LOW))
    user.node_of("victim")
    before = user.now()

    user.apply(pod("important", "2", **HIGH))

    assert user.node_of("important") == "n0"
    uid = user.get("pods", "important")["metadata"]["uid"]
    event = user.event_of("victim", "Preempted")
    assert (event["type"], event["reportingComponent"], event["message"]) == (
        "Normal",
        "default-scheduler",
        f"Preempted by pod {uid} on node n0",
    )
    deleted = next(
        it for it in user.history("pods", "victim", before) if "deletionTimestamp" in it["metadata"]
    )
    condition = next(it for it in deleted["status"]["conditions"] if it["type"] == DISRUPTED)
    del condition["lastTransitionTime"], condition["lastProbeTime"]
    assert condition == {
        "type": DISRUPTED,
        "status": "True",
        "observedGeneration": 1,
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
    }


def test_the_place_is_kept_while_the_victim_ends(user: User) -> None:
    """The node is nominated: no pod of lower priority takes the place before or afterwards."""
    user.apply(*CLASSES, node("n0", "4"))
    user.apply(annotated(pod("victim", "3", **LOW), finalizers=["test/slow"]))
    user.node_of("victim")

    user.apply(pod("important", "3", **HIGH))
    eventually(lambda: user.get("pods", "important")["status"].get("nominatedNodeName") == "n0")
    wide = user.kubectl("get", "pod/important", "--output=wide", "--no-headers").split()
    assert wide[2] == "Pending"
    assert wide[7] == "n0"
    user.event_of("important", "FailedScheduling")
    user.apply(pod("beside", "1", **LOW), pod("late", "2", **LOW))
    user.refusal_of("beside")
    user.refusal_of("late")

    user.kubectl("patch", "pod/victim", '--patch={"metadata":{"finalizers":null}}')

    assert user.nodes_of("important", "beside") == ["n0", "n0"]
    eventually(lambda: "nominatedNodeName" not in user.get("pods", "important")["status"])
    assert user.is_pending("late")


def test_many_pods_preempt_concurrently(user: User) -> None:
    """Ten low pods end slowly for ten of the medium and high ones that come, the high ones first.

    As Kubernetes' own suite has it: all low pods are marked at once.
    """
    medium = priority_class("medium", 100)
    user.apply(*CLASSES, medium, node("n0", "10"))
    low = [f"low-{n}" for n in range(10)]
    user.apply(*(annotated(pod(name, "1", **LOW), finalizers=["test/slow"]) for name in low))
    user.nodes_of(*low)
    coming = {"medium": [f"medium-{n}" for n in range(10)], "high": [f"high-{n}" for n in range(5)]}

    user.apply(*(pod(n, "1", priorityClassName=c) for c, names in coming.items() for n in names))

    def nominated(kind: str) -> int:
        pods = [user.get("pods", name) for name in coming[kind]]
        return sum("nominatedNodeName" in it["status"] for it in pods)

    eventually(lambda: (nominated("high"), nominated("medium")) == (5, 5))
    assert all("deletionTimestamp" in user.get("pods", name)["metadata"] for name in low)

    for name in low:
        user.kubectl("patch", f"pod/{name}", '--patch={"metadata":{"finalizers":null}}')

    user.nodes_of(*coming["high"])
    eventually(lambda: sum(not user.is_pending(name) for name in coming["medium"]) == 5)


def test_the_least_important_pods_go(user: User) -> None:
    """Of two nodes the one with the cheaper victims, and there no more than necessary."""
    user.apply(
        *CLASSES,
        priority_class("middle", 100),
        node("n0", "3"),
        node("n1", "3"),
        pod("middle", "2", priorityClassName="middle", nodeSelector=host("n0")),
        pod("low", "1", nodeSelector=host("n1"), **LOW),
        pod("lowest", "1", nodeSelector=host("n1")),
        pod("bystander", "1", nodeSelector=host("n1")),
    )
    user.nodes_of("middle", "low", "lowest", "bystander")

    user.apply(pod("important", "2", **HIGH))

    assert user.node_of("important") == "n1"
    left = {it["metadata"]["name"] for it in user.get("pods")}
    assert left == {"important", "middle", "low"}


def host(name: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": name}


@pytest.mark.parametrize("hopeless", [False, True], ids=["one is free", "all are protected"])
def test_budgets_are_respected_while_that_is_possible(
    controlplane: ControlPlane, user: User, *, hopeless: bool
) -> None:
    """A protected pod goes only if there is no other way."""
    controlplane.start_controller_manager(("disruption-controller",))
    protected = {"app": "protected"}
    user.apply(
        *CLASSES,
        priority_class("middle", 100),
        node("n0", "2"),
        node("n1", "2"),
        disruption_budget("keep", protected, minAvailable="100%"),
        pod("cheap", "2", labels=protected, nodeSelector=host("n0"), **LOW),
        pod(
            "dear",
            "2",
            labels=protected if hopeless else {},
            nodeSelector=host("n1"),
            priorityClassName="middle",
        ),
    )
    user.nodes_of("cheap", "dear")
    wanted = 2 if hopeless else 1
    eventually(lambda: budget(user).get("currentHealthy") == wanted)

    user.apply(pod("important", "2", **HIGH))

    assert user.node_of("important") == ("n0" if hopeless else "n1")


def budget(user: User) -> Manifest:
    status: Manifest = user.get("poddisruptionbudgets", "keep", "/apis/policy/v1")["status"]
    return status


def test_a_pod_that_never_preempts_waits(user: User) -> None:
    """The pod's condition has the reason, and the pod is placed when a node has capacity."""
    user.apply(
        *CLASSES,
        priority_class("polite", 5000, preemptionPolicy="Never"),
        node("n0", "2"),
        pod("other", "2", **LOW),
    )
    user.node_of("other")

    user.apply(pod("waiting", "2", priorityClassName="polite"))

    assert user.refusal_of("waiting")["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        f"{NOTHING_TO_FREE}preemption: not eligible due to preemptionPolicy=Never."
    )
    user.kubectl("delete", "pod/other")
    assert user.node_of("waiting") == "n0"


def test_preemption_helps_only_where_pods_are_in_the_way(user: User) -> None:
    """A node that the pod may not use has no victims."""
    user.apply(
        *CLASSES,
        node("n0", "2"),
        node("n1", "2", labels={"disk": "ssd"}),
        pod("survivor", "2", nodeSelector=host("n0")),
        pod("victim", "2", nodeSelector=host("n1"), **LOW),
    )
    user.nodes_of("survivor", "victim")

    user.apply(pod("important", "2", nodeSelector={"disk": "ssd"}, **HIGH))

    assert user.node_of("important") == "n1"
    assert {it["metadata"]["name"] for it in user.get("pods")} == {"important", "survivor"}
