"""An unschedulable pod has the reason, and is scheduled when there is room."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.e2e.controlplane.binaries import NOTHING_TO_FREE
from tests.e2e.session.manifests import (
    HOST,
    Manifest,
    node,
    pod,
    required_pod_affinity,
)
from tests.e2e.session.user import User

WHY = (
    "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node "
    "affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. "
    f"{NOTHING_TO_FREE}preemption: 0/4 nodes are available: "
    "4 Preemption is not helpful for scheduling."
)


def test_describe_and_get_events_show_the_reason(user: User) -> None:
    """The text is that of kube-scheduler, in the condition as in the event."""
    ssd = {"disk": "ssd"}
    user.apply(
        node("small", "1", labels=ssd),
        node("cordoned", labels=ssd),
        node("tainted", labels=ssd, taint="dedicated"),
        node("other"),
    )
    user.kubectl("cordon", "cordoned")

    user.apply(pod("big", "2", nodeSelector=ssd))

    condition, event = user.refusal_of("big"), user.event_of("big", "FailedScheduling")
    assert (condition["status"], condition["message"]) == ("False", WHY)
    assert event["message"] == WHY
    (row,) = user.described_events("big")
    row[2] = "age"
    assert row == ["Warning", "FailedScheduling", "age", "default-scheduler", WHY]
    listed = user.kubectl("get", "events", "--no-headers").split(maxsplit=4)
    assert listed[1:] == ["Warning", "FailedScheduling", "pod/big", WHY + "\n"]


def test_the_events_of_a_scheduled_pod(user: User) -> None:
    """There is one event, from the scheduler that the pod names."""
    user.apply(node("n0"), pod("web"))
    user.node_of("web")

    event = user.event_of("web", "Scheduled")

    message = f"Successfully assigned {user.namespace}/web to n0"
    assert (event["type"], event["message"], event["action"]) == ("Normal", message, "Binding")
    assert event["involvedObject"]["uid"] == user.get("pods", "web")["metadata"]["uid"]
    (row,) = user.described_events("web")
    row[2] = "age"
    assert row == ["Normal", "Scheduled", "age", "default-scheduler", message]


def test_a_new_reason_takes_the_place_of_the_old_one(user: User) -> None:
    """The condition follows the cluster; its transition time stays, as it is still False."""
    user.apply(pod("waiting", "2"))
    first = user.refusal_of("waiting")
    assert first["message"] == "no nodes available to schedule pods"

    user.apply(node("n0", "1"))
    user.wait_for_refusal("waiting", "1 Insufficient cpu")
    user.apply(node("n1", taint="dedicated"))
    user.wait_for_refusal("waiting", "1 node(s) had untolerated taint(s)")

    assert user.refusal_of("waiting")["lastTransitionTime"] == first["lastTransitionTime"]
    reasons = [it["reason"] for it in user.events_of("waiting")]
    assert reasons == ["FailedScheduling"] * 3


@dataclass(frozen=True, slots=True)
class Remedy:
    """Cause that keeps the pod ``waiting`` from the node n0, and its remedy."""

    cluster: tuple[Manifest, ...]
    waiting: Manifest
    warning: str
    help: Callable[[User], object]


def kubectl(*arguments: str) -> Callable[[User], object]:
    return lambda user: user.kubectl(*arguments)


def apply(manifest: Manifest) -> Callable[[User], object]:
    return lambda user: user.apply(manifest)


def tolerate(user: User) -> None:
    """Pods may get tolerations later, unlike most of their spec."""
    tolerations = user.get("pods", "waiting")["spec"]["tolerations"]
    patch = {"spec": {"tolerations": [*tolerations, {"operator": "Exists"}]}}
    user.kubectl("patch", "pod/waiting", "--type=merge", f"--patch={json.dumps(patch)}")


def offer_devices(user: User) -> None:
    """Do as a device plugin that starts."""
    devices = {"example.com/device": "1"}
    patch = json.dumps({"status": {"capacity": devices, "allocatable": devices}})
    user.kubectl("patch", "node/n0", "--subresource=status", "--type=merge", f"--patch={patch}")


def asking_for_a_device(manifest: Manifest) -> Manifest:
    one = {"example.com/device": "1"}
    manifest["spec"]["containers"][0]["resources"] = {"requests": one, "limits": one}
    return manifest


def with_host_port(manifest: Manifest) -> Manifest:
    manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    return manifest


FRIEND = {"role": "friend"}
NEAR = required_pod_affinity("podAffinity", FRIEND, HOST)
FAR = required_pod_affinity("podAntiAffinity", FRIEND, HOST)

REMEDIES = {
    "the pod in its place is deleted": Remedy(
        (node("n0", "1"), pod("other", "1")),
        pod("waiting", "1"),
        "1 Insufficient cpu",
        kubectl("delete", "pod/other"),
    ),
    "a node is added": Remedy(
        (node("small", "1"),), pod("waiting", "2"), "1 Insufficient cpu", apply(node("n0"))
    ),
    "the node gets the label": Remedy(
        (node("n0"),),
        pod("waiting", nodeSelector={"disk": "ssd"}),
        "1 node(s) didn't match Pod's node affinity/selector",
        kubectl("label", "node/n0", "disk=ssd"),
    ),
    "the node loses its taint": Remedy(
        (node("n0", taint="dedicated"),),
        pod("waiting"),
        "1 node(s) had untolerated taint(s)",
        kubectl("taint", "node", "n0", "dedicated-"),
    ),
    "the pod gets a toleration": Remedy(
        (node("n0", taint="dedicated"),),
        pod("waiting"),
        "1 node(s) had untolerated taint(s)",
        tolerate,
    ),
    "the node gets what was missing": Remedy(
        (node("n0"),),
        asking_for_a_device(pod("waiting")),
        "1 Insufficient example.com/device",
        offer_devices,
    ),
    "the port is free again": Remedy(
        (node("n0"), with_host_port(pod("other"))),
        with_host_port(pod("waiting")),
        "1 node(s) didn't have free ports for the requested pod ports",
        kubectl("delete", "pod/other"),
    ),
    "the pod that it wants to be near comes": Remedy(
        (node("n0"),),
        pod("waiting", affinity=NEAR),
        "1 node(s) didn't match pod affinity rules",
        apply(pod("other", labels=FRIEND)),
    ),
    "the pod that it wants to be near is known by its new label": Remedy(
        (node("n0"), pod("other")),
        pod("waiting", affinity=NEAR),
        "1 node(s) didn't match pod affinity rules",
        kubectl("label", "pod/other", "role=friend"),
    ),
    "the pod that it keeps away from loses its label": Remedy(
        (node("n0"), pod("other", labels=FRIEND)),
        pod("waiting", affinity=FAR),
        "1 node(s) didn't match pod anti-affinity rules",
        kubectl("label", "pod/other", "role-"),
    ),
    "the pod that keeps it away goes": Remedy(
        (node("n0"), pod("other", affinity=FAR)),
        pod("waiting", labels=FRIEND),
        "1 node(s) didn't satisfy existing pods anti-affinity rules",
        kubectl("delete", "pod/other"),
    ),
}


@pytest.mark.parametrize("remedy", REMEDIES.values(), ids=REMEDIES)
def test_a_waiting_pod_is_scheduled_when(user: User, remedy: Remedy) -> None:
    """The pod waits no longer than its backoff, which a change that helps does not shorten."""
    user.apply(*remedy.cluster)
    user.nodes_of(*(it["metadata"]["name"] for it in remedy.cluster if it["kind"] == "Pod"))
    user.apply(remedy.waiting)
    assert f": {remedy.warning}." in user.refusal_of("waiting")["message"]

    remedy.help(user)

    assert user.node_of("waiting", within_s=5) == "n0"


def test_a_cordoned_node_takes_pods_again(user: User) -> None:
    """As soon as it is uncordoned."""
    user.apply(node("n0"))
    user.kubectl("cordon", "n0")
    user.apply(pod("waiting"))
    user.wait_for_refusal("waiting", "1 node(s) were unschedulable")

    user.kubectl("uncordon", "n0")

    assert user.node_of("waiting", within_s=5) == "n0"
