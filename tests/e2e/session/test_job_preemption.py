"""Preemption by a job as a whole, with events for all pods."""

from tests.e2e.session.manifests import Manifest, node, pod, priority_class
from tests.e2e.session.test_preemption import CLASSES, DISRUPTED, HIGH, LOW, annotated, host
from tests.e2e.session.user import SOON_S, User
from tests.e2e.waiting import eventually

LABEL = "pod-group.scheduling.sigs.k8s.io"
SLOW = ["test/slow"]


def group(name: str, least: int) -> Manifest:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": least},
    }


def member(name: str, gang: str, **spec: object) -> Manifest:
    return pod(name, "2", labels={LABEL: gang}, schedulerName="jobs", **spec)


def nominated(user: User, name: str) -> str:
    node_name: str = user.get("pods", name)["status"].get("nominatedNodeName", "")
    return node_name


def test_a_job_gets_its_places_and_keeps_them(user: User) -> None:
    """All members are nominated while the victims end; no other pod gets the place; all start."""
    user.apply(*CLASSES, node("n0", "2"), node("n1", "2"))
    user.apply(
        *(
            annotated(pod(f"victim-{i}", "2", nodeSelector=host(f"n{i}"), **LOW), finalizers=SLOW)
            for i in range(2)
        )
    )
    user.nodes_of("victim-0", "victim-1")

    user.apply(group("train", 2), member("w-0", "train", **HIGH), member("w-1", "train", **HIGH))

    eventually(lambda: {nominated(user, f"w-{i}") for i in range(2)} == {"n0", "n1"}, SOON_S)
    for name in ("victim-0", "victim-1"):
        note = user.event_of(name, "Preempted")["message"]
        assert note.endswith(f"for gang group {user.namespace}/train")
        condition = user.condition_of(name, DISRUPTED)
        assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
        assert f"gang group {user.namespace}/train" in condition["message"]
    for name in ("w-0", "w-1"):
        user.wait_for_refusal(name, "evicted for 2 members of the gang; it is nominated to node")

    user.kubectl("patch", "pod/victim-0", '--patch={"metadata":{"finalizers":null}}')
    user.apply(pod("late", "2", **LOW))
    user.refusal_of("late")
    assert all(user.is_pending(name) for name in ("w-0", "w-1", "late"))

    user.kubectl("patch", "pod/victim-1", '--patch={"metadata":{"finalizers":null}}')
    assert set(user.nodes_of("w-0", "w-1")) == {"n0", "n1"}
    assert user.is_pending("late")


def test_no_pod_is_preempted_for_a_job_that_cannot_start(user: User) -> None:
    """Room for one of two could be made: the pod in the way runs on."""
    user.apply(*CLASSES, node("n0", "2"), pod("survivor", "2", **LOW))
    user.node_of("survivor")

    user.apply(group("train", 2), member("w-0", "train", **HIGH), member("w-1", "train", **HIGH))

    user.wait_for_refusal("w-0", "2 members do not fit even without all pods of lower priority")
    assert "deletionTimestamp" not in user.get("pods", "survivor")["metadata"]


def test_a_job_is_lost_as_a_whole(user: User) -> None:
    """A pod that preempts one worker ends the job, unless a cheaper victim exists."""
    user.apply(
        *CLASSES,
        priority_class("lowest", 1),
        node("n0", "2"),
        node("n1", "2"),
        group("old", 2),
        member("old-0", "old", **LOW),
        member("old-1", "old", **LOW),
    )
    user.nodes_of("old-0", "old-1")

    user.apply(pod("important", "2", schedulerName="jobs", **HIGH))

    user.node_of("important")
    eventually(lambda: {it["metadata"]["name"] for it in user.get("pods")} == {"important"})
