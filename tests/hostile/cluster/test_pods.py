"""A tenant creates objects on a real API server; scheduler and manager go on for all others."""

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.manifests import Manifest, node, pod
from tests.e2e.session.user import User
from tests.hostile.programs import rss_mib

KOORD = "scheduling.koordinator.sh/"
TOLERATIONS = [{"key": f"k{index}", "operator": "Exists"} for index in range(20_000)]
ANNOTATED: dict[str, dict[str, str]] = {
    "reserve-pod": {f"{KOORD}reserve-pod": "true"},
    "reservation": {
        f"{KOORD}reserve-pod": "true",
        f"{KOORD}reservation-name": "r",
        f"{KOORD}is-pre-allocation": "true",
    },
    "deep": {f"{KOORD}device-allocated": "[" * 20_000, f"{KOORD}resource-status": "[" * 20_000},
    "null": {f"{KOORD}resource-spec": "null", f"{KOORD}reservation-affinity": "null"},
}


def annotated(annotations: dict[str, str]) -> Manifest:
    made = pod("evil")
    made["metadata"]["annotations"] = annotations
    return made


@pytest.fixture
def user(controlplane: ControlPlane, namespace: str, kubelet: FakeKubelet) -> User:  # noqa: ARG001 -- it runs
    """Return a user with pods next to the pods of the tenant, on a cluster of one node."""
    made = User(controlplane, namespace)
    made.apply(node("n1"))
    return made


@pytest.mark.parametrize("case", ANNOTATED)
def test_a_pod_with_our_annotations_delays_no_other_pod(
    user: User, scheduler: SchedulerProcess, case: str
) -> None:
    """The pod of another user gets its node, and the scheduler has no fault."""
    user.apply(annotated(ANNOTATED[case]))
    user.apply(pod("good"))

    assert user.node_of("good") == "n1"
    assert scheduler.is_running
    assert "internal error" not in scheduler.last_words(400)


def test_deleted_large_pods_take_no_memory(
    controlplane: ControlPlane, user: User, scheduler: SchedulerProcess
) -> None:
    """Pods of almost a megabyte, one after the other."""
    before, path = rss_mib(scheduler.pid), user.path("pods")
    for index in range(16):
        evil = pod(
            "evil", "90", tolerations=[*TOLERATIONS, {"key": f"own-{index}", "operator": "Exists"}]
        )
        controlplane.api.request("POST", path, evil)
        user.refusal_of("evil")
        controlplane.api.request("DELETE", f"{path}/evil", {"gracePeriodSeconds": 0})
    user.apply(pod("good"))

    assert user.node_of("good") == "n1"
    grown = rss_mib(scheduler.pid) - before
    assert grown < 110, f"{grown} MiB more"
