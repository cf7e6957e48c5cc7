"""Pods in reservation operating mode."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.keywords import as_keywords
from tests.reservations import affinity, config, reservation
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.test_reservations import WEB, Played
from tests.worlds import node, pod

from koordinator.api.annotations.reservation import ALLOCATED, CURRENT_OWNER, OWNERS
from koordinator.api.labels import OPERATING_MODE
from koordinator.api.meta import Condition, KubeObject
from koordinator.api.pod import ContainerStatus, Pod
from koordinator.foundation.quantity import Quantity

FOR_WEB = {OWNERS.key: '[{"labelSelector":{"matchLabels":{"app":"web"}}}]'}


@pytest.fixture
def play(embedded: NewEmbedded) -> Any:
    def start(*objects: KubeObject) -> Played:
        return Played(embedded(*objects, config=config()))

    return start


def holder(mode: str = "Reservation", *, ready: bool = True, **annotations: str) -> Pod:
    """Return a pod of 6 CPUs that holds them for the pods of an app."""
    reserving = pod(
        "holder", 6, on="n", labels={OPERATING_MODE: mode}, annotations={**FOR_WEB, **annotations}
    )
    condition = Condition(type="Ready", status="True" if ready else "False")
    return replace(reserving, status=replace(reserving.status, conditions=(condition,)))


def test_running_ready_pod_is_a_reservation(play: Any) -> None:
    """Owners are listed in the pod's annotation."""
    played = play(node("n", cpu=8), holder(), pod("p", 5, labels=WEB), pod("other", 3))

    assert played.uses("p") == "holder"
    assert played.nodes()["other"] == ""
    assert play(node("n", cpu=8), holder(ready=False), pod("p", 5, labels=WEB)).nodes()["p"] == ""


def test_pod_with_a_current_owner_takes_no_other(play: Any) -> None:
    """The component that runs the owner, such as a container runtime, has written it."""
    taken = json.dumps({"namespace": "default", "name": "trainer", "uid": "7"})
    played = play(
        node("n", cpu=8), holder(**as_keywords({CURRENT_OWNER.key: taken})), pod("p", 5, labels=WEB)
    )
    assert played.nodes()["p"] == ""

    played.annotate("holder", {CURRENT_OWNER.key: None})
    assert played.uses("p") == "holder"


def test_pod_with_a_malformed_owner_takes_none(play: Any) -> None:
    """An owner exists, and the malformed annotation is reported."""
    wrong = holder(**as_keywords({CURRENT_OWNER.key: "trainer"}))
    played = play(node("n", cpu=8), wrong, pod("p", 5, labels=WEB))

    assert played.nodes()["p"] == ""
    assert "reservation-current-owner" in played.warning("holder")


def test_runnable_pod_is_an_ordinary_pod(play: Any) -> None:
    """In this default mode it offers nothing, and may use reservations."""
    runnable = {**WEB, OPERATING_MODE: "Runnable"}
    played = play(node("n", cpu=8), reservation("r", 6, on="n"), pod("p", 5, labels=runnable))
    assert played.uses("p") == "r"

    offered = play(node("n", cpu=8), holder("Runnable"), pod("p", 5, labels=WEB))
    assert offered.nodes()["p"] == ""


def test_reserving_pod_may_use_a_reservation(play: Any) -> None:
    """A migration may have created the reserving pod; shared amounts count once."""
    moved = {**WEB, OPERATING_MODE: "Reservation"}
    reserved = reservation("r", 6, on="n")
    played = play(node("n", cpu=8), reserved, pod("p", 5, labels=moved, annotations=affinity()))
    assert played.uses("p") == "r"

    assert played.add(pod("q", 2), pod("x", 1)).nodes()["q"] == "n"
    assert played.nodes()["x"] == ""


def test_reserving_pod_shares_no_node_with_default_reservations(play: Any) -> None:
    """Evictions cannot help."""
    holds = {OPERATING_MODE: "Reservation"}
    legacy = reservation("r", 1, on="n", policy="")
    less = pod("less", 1, on="n", priority=-1)
    played = play(node("n", cpu=8), legacy, less, pod("p", 1, labels=holds))

    message = played.message("p")
    assert "1 node(s) reservation allocate policy conflict" in message
    assert "1 Preemption is not helpful for scheduling" in message
    assert played.nodes()["less"] == "n"


@pytest.mark.parametrize("ignores", [False, True])
def test_reserving_pod_offers_nothing_to_other_namespaces(play: Any, *, ignores: bool) -> None:
    """The reserving pod keeps running on its node with its amounts."""
    any_owner = as_keywords({OWNERS.key: '[{"labelSelector":{}}]'})
    labels = WEB | ({"scheduling.koordinator.sh/reservation-ignored": "true"} if ignores else {})
    played = play(
        node("n", cpu=8),
        node("m", cpu=8),
        holder(**any_owner),
        pod("p", 5, namespace="other", labels=labels),
    )

    assert played.nodes()["p"] == "m"


def test_forged_user_of_another_namespace_counts_beside_it(play: Any) -> None:
    """A copied annotation frees nothing on the node."""
    reserving = replace(holder(), metadata=replace(holder().metadata, uid="7"))
    forged = {ALLOCATED.key: '{"name":"holder","uid":"7"}'}
    played = play(
        node("n", cpu=8),
        reserving,
        pod("forger", 2, namespace="other", on="n", annotations=forged),
        pod("p", 1),
    )

    assert played.nodes()["p"] == ""


def test_reserving_pod_offers_the_granted_amounts(play: Any) -> None:
    """A pending resize frees nothing for others."""
    reserving = holder()
    granted = ContainerStatus(name="c0", allocated_resources={"cpu": Quantity.parse("1")})
    reserving = replace(reserving, status=replace(reserving.status, container_statuses=(granted,)))
    played = play(node("n", cpu=8), reserving, pod("p", 5, labels=WEB), pod("q", 3, labels=WEB))

    assert played.nodes()["p"] == ""
    assert played.nodes()["q"] == "n"
    assert played.add(pod("x", 1)).nodes()["x"] == ""


def test_ports_and_pod_count_of_a_reserving_pod_stay_its_own(play: Any) -> None:
    """The owner runs beside the reserving pod."""
    asking, reserving = pod("p", 1, labels=WEB, ports=[80]), holder()
    containers = tuple(
        replace(each, ports=asking.spec.containers[0].ports) for each in reserving.spec.containers
    )
    reserving = replace(reserving, spec=replace(reserving.spec, containers=containers))

    assert play(node("n", cpu=8), reserving, asking).nodes()["p"] == ""
    small = node("n", cpu=8, pods=1)
    assert play(small, holder(), pod("p", 1, labels=WEB)).nodes()["p"] == ""
