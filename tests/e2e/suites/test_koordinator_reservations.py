"""Reservations: the scenarios of the original's own suite, for the profile of the chart.

Source: koordinator test/e2e/scheduling/reservation.go (R), reservation_scheduling.go (S),
hostport.go (H), preemption.go (P).
"""

import json
from typing import Any

import pytest
from tests.e2e.suites.cluster import (
    ALLOCATED,
    FAKE,
    SOON_S,
    Manifest,
    SuiteCluster,
    apart,
    having,
    node,
    spread,
)
from tests.e2e.waiting import eventually

OWNER: dict[str, Any] = {"labels": {"owner": "true"}}
ONE = {"cpu": "1", "memory": "1Gi"}
ALL = {FAKE: "1000"}
NODES = ("n0", "n1")


def amounts(**named: str) -> dict[str, str]:
    return named


def test_a_reservation_for_one_pod(koord: SuiteCluster) -> None:
    """Source: R, Create Reservation enables AllocateOnce and reserves CPU and Memory for Pod."""
    koord.create(node("n0"), node("n1"))
    where = koord.reserve("simple", ONE, allocateOnce=True)

    assert koord.run("p", ONE, **OWNER) == where

    eventually(lambda: koord.reserved("simple")["phase"] == "Succeeded", SOON_S)
    status, stored = koord.reserved("simple"), koord.get("Pod", "p")
    assert status["allocatable"] == status["allocated"] == ONE
    (owner,) = status["currentOwners"]
    assert (owner["namespace"], owner["name"], owner["uid"]) == (
        koord.namespace,
        "p",
        stored["metadata"]["uid"],
    )


def test_a_reservation_for_two_pods(koord: SuiteCluster) -> None:
    """Source: R, … disables AllocateOnce and reserves CPU and Memory for tow Pods."""
    koord.create(node("n0"), node("n1"))
    where = koord.reserve("simple", amounts(cpu="2", memory="2Gi"), allocateOnce=False)
    uid = koord.get("Reservation", "simple")["metadata"]["uid"]

    for name in ("p0", "p1"):
        assert koord.run(name, ONE, **OWNER) == where
        used = koord.annotation(name, ALLOCATED)
        assert (used["name"], used["uid"]) == ("simple", uid)

    assert koord.is_used_by("simple", "p0", "p1")
    status = koord.reserved("simple")
    assert status["allocatable"] == status["allocated"] == {"cpu": "2", "memory": "2Gi"}


def test_reserved_resources_are_not_for_other_pods(koord: SuiteCluster) -> None:
    """Source: R, reserve all remaining resources to prevent other pods from being scheduled."""
    koord.create(node("n0", more=ALL))
    koord.reserve("simple", ALL, pod={"nodeName": "n0"})

    koord.fail("p", ALL, on="n0")


def test_the_rest_of_a_node_can_be_reserved(koord: SuiteCluster) -> None:
    """Source: R, after a Pod uses a Reservation, the remaining resources of the node can be
    reserved by another reservation.
    """  # noqa: D205 -- a title
    koord.create(node("n0", more=ALL), node("n1"))
    half = {FAKE: "500"}
    koord.reserve("first", half, pod={"nodeName": "n0"}, allocateOnce=False)
    koord.run("p", half, on="n0", **OWNER)

    assert koord.reserve("other", half, owner="someone", pod={"nodeName": "n0"}) == "n0"


def wanting(value: str) -> dict[str, str]:
    """Return the annotation of a pod that wants a reservation with this label."""
    expression = {"key": "select", "operator": "In", "values": [value]}
    terms = {"reservationSelectorTerms": [{"matchExpressions": [expression]}]}
    text = json.dumps({"requiredDuringSchedulingIgnoredDuringExecution": terms})
    return {"scheduling.koordinator.sh/reservation-affinity": text}


def test_a_reservation_is_selected(koord: SuiteCluster) -> None:
    """Source: R, select reservation via reservation affinity."""
    koord.create(node("n0"))
    where = koord.reserve("simple", labels={"select": "true"})

    koord.fail("none", annotations=wanting("false"), on=where, **OWNER)
    assert koord.run("that", annotations=wanting("true"), on=where, **OWNER) == where
    assert koord.reservation_of("that") == "simple"


@pytest.mark.parametrize("policy", ["Restricted", "Aligned"])
def test_four_pods_and_a_policy(koord: SuiteCluster, policy: str) -> None:
    """Source: R, Create reservation with Restricted (Aligned) policy, reserves 4Core8Gi, and create
    4 Pods try to allocate from reservation ….

    The node has nothing beyond the reserved amounts, except for the second policy: if it has,
    Restricted permits owners to use it, as in the original, whose CI skips these scenarios.
    """  # noqa: D205 -- a title
    koord.create(node("n0", more={"memory": "8Gi" if policy == "Restricted" else "16Gi"}))
    eight = amounts(cpu="4", memory="8Gi")
    koord.reserve("simple", eight, allocateOnce=False, allocatePolicy=policy)
    for number in range(2):
        koord.run(f"p{number}", amounts(cpu="2", memory="2Gi"), **OWNER)
    koord.run("third", {"memory": "3Gi"}, on="n0", **OWNER)
    first = ("p0", "p1", "third")
    assert [koord.reservation_of(name) for name in first] == ["simple"] * 3

    if policy == "Restricted":
        koord.fail("fourth", {"memory": "2Gi"}, on="n0", **OWNER)
        assert koord.is_used_by("simple", *first)
        assert koord.reserved("simple")["allocated"] == {"cpu": "4", "memory": "7Gi"}
    else:
        koord.run("fourth", {"memory": "2Gi"}, on="n0", **OWNER)
        assert koord.reservation_of("fourth") == "simple"
        assert koord.is_used_by("simple", *first, "fourth")
        assert koord.reserved("simple")["allocated"] == {"cpu": "4", "memory": "9Gi"}
    assert koord.reserved("simple")["allocatable"] == eight


def test_small_aligned_reservations_that_fill_a_node(koord: SuiteCluster) -> None:
    """Source: R, Create a batch of small-sized Reservations that use the Aligned policy to fill up
    the machine …. expect allocation to fail.
    """  # noqa: D205 -- a title
    koord.create(node("n0", more=ALL))
    for number in range(5):
        koord.reserve(f"r{number}", {FAKE: "200"}, allocateOnce=False, allocatePolicy="Aligned")

    koord.fail("p", {FAKE: "300"}, on="n0", **OWNER)


@pytest.mark.parametrize("owns", [True, False])
def test_a_reservation_that_keeps_apart(koord: SuiteCluster, *, owns: bool) -> None:
    """Source: R, validates PodAntiAffinity with reservation (- Pod failed to schedule)."""
    koord.create(node("n0"))
    affinity = apart("app", "lonely")
    template = {"labels": {"app": "lonely"}}
    where = koord.reserve("simple", template=template, pod={"affinity": affinity})
    labels = {"app": "lonely", **(OWNER["labels"] if owns else {})}

    koord.create(koord.pod("p", labels=labels, on=where, affinity=affinity))

    if owns:
        assert koord.node_of("p") == where
    else:
        assert "anti-affinity" in koord.failure_of("p")


def test_spreading_with_a_reservation(koord: SuiteCluster) -> None:
    """Source: R, PodTopologySpread Filtering With Reservation, validates 4 pods with MaxSkew=1 are
    evenly distributed into 2 nodes.
    """  # noqa: D205 -- a title
    key, label = "example.com/pts-filter", "example.com/spread"
    koord.create(*(node(name, labels={key: name}) for name in NODES))
    spec: Manifest = {
        "affinity": having(key, *NODES),
        "topologySpreadConstraints": spread(key, label),
    }
    koord.reserve("simple", ONE, allocateOnce=False, template={"labels": {label: ""}}, pod=spec)
    names = [f"p{number}" for number in range(4)]
    labels = {label: "", **OWNER["labels"]}
    koord.create(*(koord.pod(name, ONE, labels=labels, **spec) for name in names))

    assert sorted(koord.node_of(name) for name in names) == ["n0", "n0", "n1", "n1"]


def test_a_reservation_expires(koord: SuiteCluster) -> None:
    """Source: S, reservation with short TTL should expire and transition to Failed phase."""
    koord.create(node("n0"))
    koord.reserve("short", ttl="2s")

    eventually(lambda: koord.reserved("short")["phase"] == "Failed", 2 * SOON_S)


def test_a_reservation_with_taints(koord: SuiteCluster) -> None:
    """Source: S, reservation with taints can be scheduled and pod with matching toleration can use
    it.
    """  # noqa: D205 -- a title
    koord.create(node("n0"))
    taint = {"key": "example.com/taint", "value": "x", "effect": "NoSchedule"}
    koord.reserve("tainted", allocateOnce=True, taints=[taint])

    koord.run("p", ONE, tolerations=[{**taint, "operator": "Equal"}], **OWNER)

    assert koord.reservation_of("p") == "tainted"


def test_a_used_reservation_stays_succeeded(koord: SuiteCluster) -> None:
    """Source: S, AllocateOnce reservation transitions to Succeeded after pod is deleted."""
    koord.create(node("n0"))
    koord.reserve("once", allocateOnce=True)
    koord.run("p", ONE, **OWNER)
    assert koord.reservation_of("p") == "once"
    eventually(lambda: koord.reserved("once")["phase"] == "Succeeded", SOON_S)

    koord.delete("Pod", "p")
    eventually(lambda: not koord.get("Pod", "p"), SOON_S)
    koord.run("later", ONE)  # whatever came of it has come by then

    assert koord.reserved("once")["phase"] == "Succeeded"


def test_a_reservation_of_one_node(koord: SuiteCluster) -> None:
    """Source: S, reservation with NodeAffinity is scheduled to the targeted node."""
    koord.create(*(node(name) for name in NODES))
    affinity = having("kubernetes.io/hostname", "n1")
    assert koord.reserve("there", allocateOnce=True, pod={"affinity": affinity}) == "n1"

    assert koord.run("p", ONE, affinity=affinity, **OWNER) == "n1"
    assert koord.reservation_of("p") == "there"


def test_owners_are_those_of_the_selector(koord: SuiteCluster) -> None:
    """Source: S, pod matching reservation owner label selector can use the reservation; pod not
    matching reservation owner should not be allocated from reservation.
    """  # noqa: D205 -- a title
    koord.create(node("n0"))
    koord.reserve("simple", allocateOnce=False)

    koord.run("stranger", ONE, labels={"unmatched": "true"}, on="n0")
    assert koord.reservation_of("stranger") == ""
    assert not koord.reserved("simple").get("currentOwners")
    koord.run("p", ONE, on="n0", **OWNER)
    assert koord.reservation_of("p") == "simple"


def port(*numbers: int) -> list[Manifest]:
    return [{"containerPort": n, "hostPort": n, "protocol": "TCP"} for n in numbers]


def with_ports(*numbers: int) -> Manifest:
    """Return the requests of a reservation's pod."""
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"requests": {"cpu": "2"}},
        "ports": port(*numbers),
    }
    return {"containers": [container]}


@pytest.mark.parametrize("once", [True, False])
def test_a_reserved_port_is_given_once(koord: SuiteCluster, *, once: bool) -> None:
    """Source: H, Create Reservation disables (enable) AllocateOnce, reserve ports only can be
    allocated once.
    """  # noqa: D205 -- a title
    koord.create(node("n0"))
    where = koord.reserve("ports", allocateOnce=once, pod=with_ports(54321))
    cpu = {"cpu": "1"}

    koord.run("first", cpu, ports=port(54321), on=where, **OWNER)
    koord.fail("second", cpu, ports=port(54321), on=where, **OWNER)

    assert koord.reservation_of("first") == "ports"
    assert koord.is_used_by("ports", "first")


def test_reserved_ports_are_for_owners(koord: SuiteCluster) -> None:
    """Source: H, Create Reservation disables AllocateOnce, reserve ports to pod."""
    koord.create(*(node(name) for name in NODES))
    where = koord.reserve("ports", allocateOnce=False, pod=with_ports(54321, 54322))
    cpu = {"cpu": "1"}

    assert koord.run("first", cpu, ports=port(54321), **OWNER) == where
    assert koord.run("other", cpu, ports=port(54321, 54322), **OWNER) != where

    assert koord.is_used_by("ports", "first")


CRITICAL: dict[str, Any] = {"priorityClassName": "system-cluster-critical"}


@pytest.mark.parametrize("kind", [ALL, {"cpu": "8", "memory": "512Mi"}], ids=["fake", "cpu"])
def test_basic_preemption(koord: SuiteCluster, kind: dict[str, str]) -> None:
    """Source: P, basic preempt; basic CPU/Memory preempt."""
    koord.create(node("n0", more=ALL))
    koord.run("low", kind)

    koord.run("high", kind, **CRITICAL)

    assert koord.is_going("low")


def test_pod_without_reservation_preempts_no_owner(koord: SuiteCluster) -> None:
    """Source: P, pods outside Reservation cannot preempt pods in Reservation."""
    koord.create(node("n0", more=ALL))
    koord.reserve("simple", ALL, allocateOnce=False, pod={"nodeName": "n0"})
    koord.run("low", ALL, on="n0", **OWNER)

    koord.fail("high", ALL, on="n0", **CRITICAL)

    assert not koord.is_going("low")


@pytest.mark.parametrize("policy", ["", "Restricted"])
@pytest.mark.parametrize("kind", [ALL, {"cpu": "1", "memory": "512Mi"}], ids=["fake", "cpu"])
def test_owners_preempt_owners(koord: SuiteCluster, kind: dict[str, str], policy: str) -> None:
    """Source: P, highest priority pods in (Restricted) Reservation preempt lowest priority pods in
    (Restricted) Reservation; … for CPU/Memory.
    """  # noqa: D205 -- a title
    koord.create(node("n0", "1", more=ALL))
    spec: dict[str, Any] = {"allocatePolicy": policy} if policy else {}
    koord.reserve("simple", kind, allocateOnce=False, pod={"nodeName": "n0"}, **spec)
    koord.run("low", kind, on="n0", **OWNER)
    assert koord.reservation_of("low") == "simple"

    koord.run("high", kind, on="n0", **CRITICAL, **OWNER)

    assert koord.is_going("low")
    assert koord.reservation_of("high") == "simple"
