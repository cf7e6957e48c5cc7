"""Placement rules of pods and Deployments."""

import json
import time
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.session.manifests import (
    HOST,
    ZONE,
    deployment,
    having,
    node,
    pod,
    pod_spec,
    preferred_node_affinity,
    priority_class,
    required_node_affinity,
    required_pod_affinity,
)
from tests.e2e.session.user import SCHEDULED, User
from tests.e2e.waiting import eventually

BACKOFF_S = 2.0  # after one attempt, ended at a whole second: only pods past it wake together
ROLLED_OUT = ("rollout", "status", "deployment/web", "--timeout=30s")


@pytest.fixture
def controllers(controlplane: ControlPlane) -> None:
    """Run the controllers that make pods of Deployments and DaemonSets."""
    controlplane.start_controller_manager(
        ("deployment-controller", "replicaset-controller", "daemonset-controller")
    )


@pytest.mark.usefixtures("controllers")
def test_a_deployment_has_one_replica_per_node(user: User) -> None:
    """Replicas that required anti-affinity forbids wait for another node."""
    apart = required_pod_affinity("podAntiAffinity", {"app": "web"}, HOST)
    user.apply(*(node(f"n{i}") for i in range(3)))

    user.apply(deployment("web", 3, pod_spec(affinity=apart)))
    user.kubectl(*ROLLED_OUT)
    assert {it["spec"]["nodeName"] for it in user.get("pods")} == {"n0", "n1", "n2"}

    user.kubectl("scale", "deployment/web", "--replicas=4")
    fourth = eventually(lambda: pending(user))[0]
    why = user.refusal_of(fourth)["message"]
    assert why.startswith(
        "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. "
    )

    user.apply(node("n3"))
    user.kubectl(*ROLLED_OUT)
    assert user.node_of(fourth) == "n3"

    user.kubectl("scale", "deployment/web", "--replicas=1")
    eventually(lambda: len(user.get("pods")) == 1)


def pending(user: User) -> list[str]:
    return [it["metadata"]["name"] for it in user.get("pods") if "nodeName" not in it["spec"]]


@pytest.mark.usefixtures("controllers")
def test_a_daemon_runs_on_every_node(user: User) -> None:
    """Cordoned and new nodes get one as well; no node ever has two."""
    labels = {"app": "daemon"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "daemon"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    user.apply(node("n0"), node("n1"))
    user.kubectl("cordon", "n1")

    user.apply(daemon_set)
    user.kubectl("rollout", "status", "daemonset/daemon", "--timeout=30s")
    assert sorted(it["spec"]["nodeName"] for it in user.get("pods")) == ["n0", "n1"]

    user.apply(node("n2"))
    eventually(lambda: not pending(user) and len(user.get("pods")) == 3)
    assert sorted(it["spec"]["nodeName"] for it in user.get("pods")) == ["n0", "n1", "n2"]


def test_pods_are_spread_over_zones(user: User) -> None:
    """Each zone gets its share, however many nodes it has."""
    zones = {"a0": "a", "a1": "a", "a2": "a", "b0": "b"}
    user.apply(*(node(name, labels={ZONE: zone}) for name, zone in zones.items()))
    labels = {"app": "web"}
    evenly = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }

    names = [f"web-{i}" for i in range(6)]
    user.apply(*(pod(it, labels=labels, topologySpreadConstraints=[evenly]) for it in names))

    assert sorted(zones[it] for it in user.nodes_of(*names)) == ["a", "a", "a", "b", "b", "b"]


def test_node_labels_and_taints_are_respected(user: User) -> None:
    """Required affinity binds, preferred affinity leans, and a taint wants a toleration."""
    user.apply(
        node("plain"),
        node("ssd", labels={"disk": "ssd"}),
        node("dedicated", "64", taint="dedicated"),
    )
    tolerant: dict[str, Any] = {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    ssd = having("disk", "ssd")

    user.apply(
        pod("required", affinity=required_node_affinity(ssd)),
        pod("preferred", affinity=preferred_node_affinity(ssd)),
        pod("selected", nodeSelector={"disk": "ssd"}),
        pod("tolerant", "8", **tolerant),
        pod("too-large", "8"),
    )

    placed = user.nodes_of("required", "preferred", "selected", "tolerant")
    assert placed == ["ssd", "ssd", "ssd", "dedicated"]
    assert "1 node(s) had untolerated taint(s)" in user.refusal_of("too-large")["message"]


def test_pod_of_higher_priority_is_bound_first(user: User) -> None:
    """Priority decides which waiting pod gets a freed place, not the waiting time."""
    user.apply(
        node("n0", "1"),
        priority_class("high", 1000, preemptionPolicy="Never"),
        priority_class("low", 10),
    )
    user.kubectl("cordon", "n0")
    user.apply(pod("first", "1", priorityClassName="low"))
    user.apply(pod("second", "1", priorityClassName="high"))
    user.refusal_of("first")
    user.refusal_of("second")
    time.sleep(BACKOFF_S)

    user.kubectl("uncordon", "n0")

    assert user.node_of("second") == "n0"
    user.wait_for_refusal("first", "1 Insufficient cpu")
    assert user.is_pending("first")


def test_a_pod_of_another_scheduler_is_left_alone(user: User) -> None:
    """Every profile serves its scheduler name, and no profile serves other names."""
    user.apply(node("n0"))
    user.apply(pod("foreign", schedulerName="somebody-else"))
    user.apply(pod("batch", schedulerName="batch"))
    user.apply(pod("usual"))

    assert user.nodes_of("batch", "usual") == ["n0", "n0"]
    assert user.event_of("batch", "Scheduled")["reportingComponent"] == "batch"
    assert user.event_of("usual", "Scheduled")["reportingComponent"] == "default-scheduler"
    foreign = user.get("pods", "foreign")
    assert "nodeName" not in foreign["spec"]
    assert "conditions" not in foreign["status"]
    assert not user.events_of("foreign")


def test_a_gated_pod_waits_for_its_last_gate(user: User) -> None:
    """Nothing is tried before, so nothing is complained about."""
    user.apply(node("n0"))
    user.apply(pod("gated", schedulingGates=[{"name": "test/a"}, {"name": "test/b"}]))
    assert "SchedulingGated" in user.kubectl("get", "pod/gated")

    remove_gate(user)
    user.apply(pod("later"))
    user.node_of("later")
    assert user.is_pending("gated")
    assert user.condition_of("gated", SCHEDULED)["reason"] == "SchedulingGated"

    remove_gate(user)
    assert user.node_of("gated") == "n0"
    user.event_of("gated", "Scheduled")
    assert {it["reason"] for it in user.events_of("gated")} == {"Scheduled"}


def remove_gate(user: User) -> None:
    patch = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    user.kubectl("patch", "pod/gated", "--type=json", f"--patch={json.dumps(patch)}")
