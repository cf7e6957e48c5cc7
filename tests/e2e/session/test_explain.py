"""Explanations of pending pods, by a command and by an object."""

import json

from tests.e2e.controlplane import ControlPlane
from tests.e2e.session.manifests import node, pod
from tests.e2e.session.test_dry_run import koord
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually

QUESTIONS = "/apis/scheduling.koordinator.sh/v1alpha1"
CPU, TAINTED = "Insufficient cpu", "node(s) had untolerated taint(s)"


def test_a_command_explains_a_pod_of_the_cluster(user: User, controlplane: ControlPlane) -> None:
    """Every cause is named, with the node on which the least is missing."""
    user.apply(node("small", "1"), node("infra", "4", taint="infra"), pod("large", "2"))
    user.refusal_of("large")

    kubeconfig = f"--kubeconfig={controlplane.kubeconfig()}"
    done = koord("explain", "pod", f"{user.namespace}/large", kubeconfig, "--output=json")
    (explanation,) = json.loads(done.stdout)["pods"]

    assert explanation["verdict"] == "waits"
    assert {cause["reason"] for cause in explanation["causes"]} == {CPU, TAINTED}
    assert {near["node"]: near.get("lacks", {}) for near in explanation["nearest"]} == {
        "small": {"cpu": "1"},
        "infra": {},
    }
    assert any(remedy["kind"] == "change-node" for remedy in explanation["remedies"])


def test_object_requests_an_explanation(user: User) -> None:
    """The answer is in its status, and follows what happens."""
    question = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ScheduleExplanation",
        "metadata": {"name": "why"},
        "spec": {"questionObjectKey": f"{user.namespace}/large"},
    }
    user.apply(node("small", "1"), pod("large", "2"))
    user.refusal_of("large")
    user.apply(question)

    def answer() -> dict[str, object]:
        stored: dict[str, object] = user.get("scheduleexplanations", "why", QUESTIONS)
        status = stored.get("status", {})
        return status if isinstance(status, dict) else {}

    eventually(lambda: answer().get("failedMessage"))
    assert answer()["failedMessage"] == f"none of 1 nodes takes it: 1 {CPU}"
    assert "sched-exp" in user.kubectl("api-resources", "--api-group=scheduling.koordinator.sh")
