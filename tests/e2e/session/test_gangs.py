"""Pods of a PodGroup start together, and their user can see why they don't."""

from tests.e2e.session.manifests import Manifest, node, pod
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually

LABEL = "pod-group.scheduling.sigs.k8s.io"
GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1"


def member(name: str, cpu: str = "1") -> Manifest:
    return pod(name, cpu, labels={LABEL: "train"}, schedulerName="gangs")


def test_a_gang_waits_for_its_members_and_for_room(user: User) -> None:
    """An incomplete gang gets the reason; a complete one starts as a whole when there is room."""
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"minMember": 3},
    }
    user.apply(node("n0", "2"), group, member("w-0"), member("w-1"))
    event = user.event_of("w-0", "FailedScheduling")
    assert f"gang {user.namespace}/train needs 3 members" in event["message"]
    assert eventually(lambda: user.condition_of("w-0", "PodScheduled"))["reason"] == (
        "SchedulingGated"
    )

    user.apply(member("w-2"))
    eventually(lambda: "Insufficient cpu" in user.condition_of("w-0", "PodScheduled")["message"])
    assert all(user.is_pending(name) for name in ("w-0", "w-1", "w-2"))

    user.apply(node("n1", "2"))
    user.nodes_of("w-0", "w-1", "w-2")
    eventually(lambda: user.get("podgroups", "train", GROUPS)["status"].get("scheduled") == 3)


def test_invalid_pod_group_is_reported(user: User) -> None:
    """In an event and in a condition, which is taken back when the group is put right."""
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "odd"},
        "spec": {"minMember": 0},
    }
    user.apply(group)
    event = user.event_of("odd", "InvalidPodGroup")
    assert "spec.minMember: must be at least 1, got 0" in event["message"]
    eventually(lambda: user.validity("podgroups", "odd", GROUPS) == "False")

    user.apply(group | {"spec": {"minMember": 1}})
    eventually(lambda: user.validity("podgroups", "odd", GROUPS) == "True")
    assert user.get("podgroups", "odd", GROUPS)["status"]["phase"] == "Pending"
