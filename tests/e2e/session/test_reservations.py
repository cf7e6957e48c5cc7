"""A user keeps room for pods to come, and gets it back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.conftest import CONFIGURATION
from tests.e2e.session.manifests import Manifest, node, pod
from tests.e2e.session.test_dry_run import koord
from tests.e2e.session.user import SOON_S, User
from tests.e2e.waiting import eventually

MINE: dict[str, Any] = {"schedulerName": "reserving"}
KIND = "reservations.scheduling.koordinator.sh"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"


def reservation(name: str, cpu: str, *, app: str, **spec: object) -> Manifest:
    """Return a reservation for the pods of an app."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
            "template": {"spec": {**MINE, "containers": [container]}},
            **spec,
        },
    }


def stored_reservation(user: User, name: str) -> Manifest:
    """Return a reservation as kubectl prints it; empty if it does not exist."""
    text = user.kubectl("get", KIND, name, "--ignore-not-found", "--output=json")
    return dict(json.loads(text)) if text.strip() else {}


def phase(user: User, name: str) -> str:
    return str(stored_reservation(user, name).get("status", {}).get("phase", ""))


@pytest.fixture(autouse=True)
def clean(user: User) -> Iterator[None]:
    """Leave no reservations to the next test: they have no namespace."""
    yield
    user.kubectl("delete", KIND, "--all")


def test_room_is_kept_used_and_given_back(user: User, scheduler: SchedulerProcess) -> None:
    """Applied, available, used by its owner, expired, collected."""
    user.apply(node("n0", "4"))
    user.apply(reservation("warm", "3", app="web", ttl="25s", allocateOnce=False))
    eventually(lambda: phase(user, "warm") == "Available", SOON_S)
    assert stored_reservation(user, "warm")["status"]["nodeName"] == "n0"
    assert user.kubectl("get", KIND).splitlines()[1].split()[:2] == ["warm", "Available"]

    user.apply(pod("other", "2", **MINE))
    user.wait_for_refusal("other", "Insufficient cpu")
    user.apply(pod("owner", "2", labels={"app": "web"}, **MINE))
    assert user.node_of("owner") == "n0"
    used = json.loads(user.get("pods", "owner")["metadata"]["annotations"][ALLOCATED])
    assert used["name"] == "warm"
    eventually(lambda: "currentOwners" in stored_reservation(user, "warm")["status"], SOON_S)
    status = stored_reservation(user, "warm")["status"]
    assert [owner["name"] for owner in status["currentOwners"]] == ["owner"]
    assert status["allocated"] == {"cpu": "2"}
    page = json.loads(scheduler.get("/apis/v1/plugins/Reservation/nodeReservations/n0"))
    (item,) = page["items"]
    assert (item["name"], item["kind"], item["allocated"]) == ("warm", "Reservation", {"cpu": "2"})
    assert [assigned["Name"] for assigned in item["assignedPods"]] == ["owner"]

    assert user.node_of("other", within_s=60.0) == "n0"  # when the rest is not kept any more
    eventually(lambda: not stored_reservation(user, "warm"), SOON_S)


def test_a_reservation_that_is_used_once_is_done(user: User) -> None:
    """The status of the reservation is Succeeded, and its remainder is free."""
    user.apply(node("n0", "4"), reservation("once", "4", app="web"))
    eventually(lambda: phase(user, "once") == "Available", SOON_S)
    user.apply(pod("owner", "1", labels={"app": "web"}, **MINE))
    assert user.node_of("owner") == "n0"

    user.apply(pod("other", "3", **MINE))
    assert user.node_of("other") == "n0"


def test_unschedulable_reservation_has_the_reason(user: User) -> None:
    """In its condition and in an event; it gets a node that comes later."""
    user.apply(node("n0", "1"), reservation("big", "3", app="web"))
    eventually(
        lambda: bool(stored_reservation(user, "big").get("status", {}).get("conditions")), SOON_S
    )
    (condition,) = stored_reservation(user, "big")["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Scheduled",
        "False",
        "Unschedulable",
    )
    assert "1 Insufficient cpu" in condition["message"]
    assert "FailedScheduling" in user.kubectl("describe", KIND, "big")

    user.apply(node("n1", "4"))
    eventually(lambda: phase(user, "big") == "Available", SOON_S)
    assert stored_reservation(user, "big")["status"]["nodeName"] == "n1"


def test_missing_reservation_is_explained(user: User, controlplane: ControlPlane) -> None:
    """By the command, of a pod and of a reservation."""
    user.apply(node("n0", "4"), reservation("small", "1", app="web", allocatePolicy="Restricted"))
    user.apply(reservation("big", "9", app="web"))
    eventually(lambda: phase(user, "small") == "Available", SOON_S)
    needs = pod("needs", "2", labels={"app": "web"}, **MINE)
    affinity = {"scheduling.koordinator.sh/reservation-affinity": '{"name":"small"}'}
    needs["metadata"]["annotations"] = affinity
    user.apply(needs)
    user.wait_for_refusal("needs", "Reservation(s) Insufficient cpu")
    config = controlplane.state_dir / "reserving.yaml"
    kind = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    config.write_text(json.dumps({**CONFIGURATION, **kind}))
    cluster = (f"--kubeconfig={controlplane.kubeconfig()}", f"--config={config}", "--output=json")

    explained = koord("explain", "pod", f"{user.namespace}/needs", "reservation/big", *cluster)
    explanations = json.loads(explained.stdout)["pods"]

    assert [one["verdict"] for one in explanations] == ["waits", "waits"]
    (short,) = explanations[0]["causes"]
    assert short["reason"].startswith("Reservation(s) Insufficient cpu, requested: 2000")
    assert explanations[1]["pod"] == "reservation/big"
    assert explanations[1]["causes"][0]["reason"] == "Insufficient cpu"
