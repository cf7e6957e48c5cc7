"""Former spellings count as the current ones, and what is reserved is not offered."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from tests.keywords import as_keywords
from tests.worlds import node, pod

from koordinator.api.core import ResourceRequirements
from koordinator.api.labels import SCHEDULER_NAME
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.domain.transforms import as_scheduled, transform_node
from koordinator.foundation.quantity import Quantity

RESERVATION = "node.koordinator.sh/reservation"


def asking(requests: Mapping[str, str], limits: Mapping[str, str]) -> Pod:
    resources = ResourceRequirements(
        requests={name: Quantity.parse(text) for name, text in requests.items()},
        limits={name: Quantity.parse(text) for name, text in limits.items()},
    )
    plain = pod("p")
    (container,) = plain.spec.containers
    spec = replace(plain.spec, containers=(replace(container, resources=resources),))
    return replace(plain, spec=spec)


def reserving(annotation: str) -> Node:
    whole = node("n", cpu=8, memory="8Gi")
    return replace(whole, metadata=replace(whole.metadata, annotations={RESERVATION: annotation}))


def test_former_resource_names_of_a_node_count_as_the_current_ones() -> None:
    """A node that old device plugins report still takes the pods; the current name goes first."""
    old = node(
        "n",
        **as_keywords(
            {"kubernetes.io/gpu": 200, "kubernetes.io/rdma": 100, "koordinator.sh/rdma": 7}
        ),
    )
    offered = transform_node(old).node.status.allocatable

    assert offered["koordinator.sh/gpu"] == Quantity.parse("200")
    assert offered["koordinator.sh/rdma"] == Quantity.parse("7")
    assert offered.keys().isdisjoint({"kubernetes.io/gpu", "kubernetes.io/rdma"})
    assert transform_node(node("n")).node == node("n")


def test_a_pod_without_former_names_is_the_same_object() -> None:
    """Nothing is copied for the many that need nothing."""
    plain = pod("p", cpu=1)
    assert as_scheduled(plain) is plain


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("koordinator.sh/batch-cpu", "kubernetes.io/batch-cpu"),
        ("koordinator.sh/batch-memory", "kubernetes.io/batch-memory"),
        ("kubernetes.io/gpu", "koordinator.sh/gpu"),
        ("kubernetes.io/gpu-core", "koordinator.sh/gpu-core"),
        ("kubernetes.io/gpu-memory", "koordinator.sh/gpu-memory"),
        ("kubernetes.io/gpu-memory-ratio", "koordinator.sh/gpu-memory-ratio"),
        ("kubernetes.io/rdma", "koordinator.sh/rdma"),
        ("kubernetes.io/fpga", "koordinator.sh/fpga"),
    ],
)
def test_former_resource_names_count_as_the_current_ones(former: str, current: str) -> None:
    """In requests and limits; the amount stays."""
    old = asking({former: "5", "cpu": "1"}, {former: "6"})
    (container,) = as_scheduled(old).spec.containers

    assert container.resources.requests == {
        current: Quantity.parse("5"),
        "cpu": Quantity.parse("1"),
    }
    assert container.resources.limits == {current: Quantity.parse("6")}


def test_a_label_may_name_the_scheduler() -> None:
    """The label precedes the spec, for pods whose controller can't be changed."""
    labelled = pod("p", labels={SCHEDULER_NAME: "koord-scheduler"})
    assert as_scheduled(labelled).spec.scheduler_name == "koord-scheduler"


def allocatable(annotation: str) -> dict[str, str]:
    offered = transform_node(reserving(annotation)).node
    return {name: str(amount) for name, amount in offered.status.allocatable.items()}


def test_reserved_amounts_are_not_allocatable() -> None:
    """Amounts are taken from what the node has."""
    offered = allocatable('{"resources": {"cpu": "1500m", "memory": "2Gi"}}')
    assert (offered["cpu"], offered["memory"]) == ("6500m", "6Gi")


def test_a_list_of_cpus_goes_before_an_amount() -> None:
    """Three CPUs are reserved, not one."""
    assert allocatable('{"resources": {"cpu": "1"}, "reservedCPUs": "0-1,7"}')["cpu"] == "5"


def test_reserved_cpus_may_only_be_kept_from_binding() -> None:
    """The allocatable amount stays unchanged if CPUs are only excluded from binding."""
    policy = '{"reservedCPUs": "0-1", "applyPolicy": "ReservedCPUsOnly"}'
    assert allocatable(policy)["cpu"] == "8"


def test_more_than_there_is_leaves_nothing() -> None:
    """Never less."""
    assert allocatable('{"resources": {"cpu": "20"}}')["cpu"] == "0"


@pytest.mark.parametrize("text", ["{", '{"reservedCPUs": "x"}'])
def test_what_cannot_be_read_is_complained_about(text: str) -> None:
    """The node counts as if nothing were reserved."""
    whole = reserving(text)
    offered = transform_node(whole)
    assert offered.node is whole
    assert "node n: " in offered.warning
