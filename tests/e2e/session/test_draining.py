"""Maintenance of a node, as an operator does it."""

from tests.e2e.controlplane import ControlPlane
from tests.e2e.session.manifests import deployment, disruption_budget, node, pod, pod_spec
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually

CONTROLLERS = ("deployment-controller", "replicaset-controller", "disruption-controller")


def test_a_drained_node_is_empty_and_comes_back(controlplane: ControlPlane, user: User) -> None:
    """Evicted replicas are placed on another node, one by one if their budget requires it."""
    controlplane.start_controller_manager(CONTROLLERS)
    user.apply(
        node("n0", "4"),
        deployment("web", 3, pod_spec("1")),
        disruption_budget("web", {"app": "web"}, maxUnavailable=1),
    )
    user.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    user.apply(node("n1", "4"))
    eventually(lambda: allowed_disruptions(user) == 1)

    user.kubectl("drain", "n0", "--timeout=60s")

    user.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    assert [it["spec"]["nodeName"] for it in user.get("pods")] == ["n1"] * 3
    user.apply(pod("big", "4"))
    user.wait_for_refusal("big", "1 node(s) were unschedulable")

    user.kubectl("uncordon", "n0")

    assert user.node_of("big") == "n0"


def allowed_disruptions(user: User) -> int:
    budget = user.get("poddisruptionbudgets", "web", "/apis/policy/v1")
    allowed: int = budget["status"].get("disruptionsAllowed", 0)
    return allowed
