"""Page /apis/v1/plugins/Reservation with the reservations of a node."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.keywords import as_keywords
from tests.reservations import config, reservation, uid
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.test_holding_pods import FOR_WEB, holder
from tests.unit.scheduler.test_reservations import WEB, Played
from tests.worlds import node, pod

from koordinator.api.annotations.reservation import CURRENT_OWNER
from koordinator.api.pod import ContainerPort

ANYWHERE = "0.0.0.0"  # noqa: S104 -- what a port without hostIP listens on
OWNERS = json.loads(next(iter(FOR_WEB.values())))


@pytest.fixture
def page(embedded: NewEmbedded) -> Any:
    def ask(*objects: Any, path: str = "nodeReservations/{nodeName}", on: str = "n") -> Any:
        one = Played(embedded(node("n", cpu=16), *objects, config=config())).one
        pages = one.scheduler.pages(lambda question: question())
        answer = pages[f"/plugins/Reservation/{path}"]({"nodeName": on})
        return json.loads(json.dumps(answer))  # plain data throughout

    return ask


def test_page_has_remaining_amounts_and_users(page: Any) -> None:
    """Amounts are quantities, and also numbers in the fields of kube-scheduler."""
    inner = {"node.koordinator.sh/reservation": '{"resources":{"cpu":"1"}}'}
    reserved = reservation("r", 6, "4Gi", on="n", policy="Restricted", annotations=inner)
    (item,) = page(reserved, pod("p", "500m", labels=WEB))["items"]

    (user,) = item.pop("assignedPods")
    assert (user["Namespace"], user["Name"], user["Requests"], user["Ports"]) == (
        "default",
        "p",
        {"cpu": "500m"},
        None,
    )
    assert item == {
        "name": "r",
        "uid": uid("r"),
        "kind": "Reservation",
        "available": True,
        "allocatable": {"cpu": "6", "memory": "4Gi"},
        "reserved": {"cpu": "1"},
        "allocated": {"cpu": "500m"},
        "availableResource": {
            "MilliCPU": 4500,
            "Memory": 4 << 30,
            "EphemeralStorage": 0,
            "AllowedPodNumber": 0,
            "ScalarResources": None,
        },
        "allocatedResource": {
            "MilliCPU": 500,
            "Memory": 0,
            "EphemeralStorage": 0,
            "AllowedPodNumber": 0,
            "ScalarResources": None,
        },
        "owners": OWNERS,
        "allocatePolicy": "Restricted",
    }


def test_host_ports_are_shown_by_address(page: Any) -> None:
    """Reserved and used ports are listed."""
    port = {"containerPort": 80, "hostPort": 8080}
    containers = [{"name": "hold", "resources": {"requests": {"cpu": "1"}}, "ports": [port]}]
    reserved = reservation("r", 1, on="n", template={"containers": containers})
    user = pod("p", "500m", labels=WEB)
    listening = replace(
        user.spec.containers[0], ports=(ContainerPort(container_port=80, host_port=8080),)
    )
    user = replace(user, spec=replace(user.spec, containers=(listening,)))
    (item,) = page(reserved, user)["items"]

    assert item["allocatablePorts"] == item["allocatedPorts"] == {ANYWHERE: ["TCP/8080"]}


def test_reserving_pod_has_its_owner_on_the_page(page: Any) -> None:
    """The pod is listed before it is ready, with the owner from its annotation."""
    owner = {"namespace": "default", "name": "trainer", "uid": "7"}
    taken = holder(**as_keywords({CURRENT_OWNER.key: json.dumps(owner)}))
    (item,) = page(taken)["items"]
    assert (item["kind"], item["namespace"], item["available"]) == ("Pod", "default", True)
    assert (item["allocateOnce"], item["allocatePolicy"]) == (True, "Aligned")
    assert [user["Name"] for user in item["assignedPods"]] == ["trainer"]

    (item,) = page(holder(ready=False))["items"]
    assert item["name"] == "holder"
    assert "available" not in item


def test_page_is_empty_without_reservations(page: Any) -> None:
    """The page of an unknown node is empty as well; there is no index of labels."""
    assert page() == page(on="m") == {}
    assert page(path="reservationSelectorIndex")["enabled"] is False
