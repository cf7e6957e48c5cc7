"""Lists come in pages, and what can't be decoded doesn't spoil the rest."""

import json
from http import HTTPStatus

import pytest
from tests.unit.cluster.kubernetes.objects import PODS, pod, pod_list
from tests.unit.cluster.kubernetes.scripted_server import ScriptedServer, fail, reply

from koordinator.api.device import Device
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.foundation.errors import InvalidError

GET = f"GET {PODS}"
EXPIRED = fail(HTTPStatus.GONE, "Expired")
FIRST = reply(pod_list(pod("a"), version="7", next_page="more"))
SECOND = reply(pod_list(pod("b"), version="7"))


def names(cluster: KubernetesCluster) -> list[str]:
    return [item.metadata.name for item in cluster.list(Pod).items]


def test_pages_are_put_together(server: ScriptedServer) -> None:
    """Objects of all pages have the version of the whole list."""
    server.on(GET, FIRST, SECOND)
    with server.cluster(page_size=1) as cluster:
        listing = cluster.list(Pod)

    assert [item.metadata.name for item in listing.items] == ["a", "b"]
    assert listing.resource_version == "7"
    assert server.queries(GET) == [{"limit": "1"}, {"limit": "1", "continue": "more"}]


def test_a_list_that_is_forgotten_half_way_begins_again(server: ScriptedServer) -> None:
    """Nothing is there twice."""
    server.on(GET, FIRST, EXPIRED, FIRST, SECOND)
    with server.cluster() as cluster:
        assert names(cluster) == ["a", "b"]


def test_list_that_always_expires_is_requested_without_pages(server: ScriptedServer) -> None:
    """Without pages there is nothing to forget."""
    whole = reply(pod_list(pod("a"), pod("b")))
    server.on(GET, *[FIRST, EXPIRED] * 3, whole)
    with server.cluster() as cluster:
        assert names(cluster) == ["a", "b"]
    assert server.queries(GET)[-1] == {}


def test_undecodable_objects_are_left_out(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names kind, object and field."""
    server.on(GET, reply(pod_list(pod("a"), pod("bad", nodeName=[1]), pod("c"))))
    with server.cluster() as cluster:
        assert names(cluster) == ["a", "c"]

    (record,) = caplog.records
    assert record.__dict__["kind"] == "Pod"
    assert record.__dict__["object"] == "default/bad"
    assert "spec.nodeName: must be a string, got [1]" in record.__dict__["error"]


def test_null_is_absent(server: ScriptedServer) -> None:
    """As everywhere in Kubernetes."""
    server.on(GET, reply(pod_list(pod("a", nodeName=None, tolerations=None))))
    with server.cluster() as cluster:
        assert cluster.list(Pod).items[0].spec.tolerations == ()


def test_no_items_may_be_null(server: ScriptedServer) -> None:
    """Some API servers encode an empty list as null."""
    server.on(GET, reply({"metadata": {}, "items": None}))
    with server.cluster() as cluster:
        assert names(cluster) == []


def test_of_a_kind_that_is_not_installed_there_is_nothing(server: ScriptedServer) -> None:
    """The CRD of the kind may be installed later."""
    with server.cluster() as cluster:
        assert list(cluster.list(Device).items) == []
    assert [str(received) for received in server.received] == [
        "GET /apis/scheduling.koordinator.sh/v1alpha1/devices"
    ]


def test_selectors_travel_to_the_server(server: ScriptedServer) -> None:
    """Spelled as kubectl spells them."""
    requirements = [
        LabelSelectorRequirement(key="a", operator="In", values=("1", "2")),
        LabelSelectorRequirement(key="b", operator="NotIn", values=("3",)),
        LabelSelectorRequirement(key="c", operator="Exists"),
        LabelSelectorRequirement(key="d", operator="DoesNotExist"),
    ]
    selector = LabelSelector(match_labels={"x": "y"}, match_expressions=tuple(requirements))
    path = "GET /api/v1/namespaces/n/pods"
    server.on(path, SECOND)
    with server.cluster(page_size=5) as cluster:
        cluster.list(
            Pod, namespace="n", label_selector=selector, field_selector="spec.nodeName=,a=b"
        )
        with pytest.raises(InvalidError, match=r"operator: must be .*, got 'Near'"):
            cluster.list(
                Pod,
                label_selector=LabelSelector(
                    match_expressions=(LabelSelectorRequirement(key="a", operator="Near"),)
                ),
            )

    (query,) = server.queries(path)
    assert query == {
        "limit": "5",
        "labelSelector": "x=y,a in (1,2),b notin (3),c,!d",
        "fieldSelector": "spec.nodeName=,a=b",
    }


def test_an_object_nested_too_deep_does_not_spoil_the_list(server: ScriptedServer) -> None:
    """The list is read even if skipping the object would exhaust the stack."""
    text = json.dumps(pod_list(pod("a"), pod("evil"), pod("c")))
    deep = "[" * 50_000 + "]" * 50_000
    server.on(GET, reply(text.replace('"name": "evil"', f'"x": {deep}, "name": "evil"')))
    with server.cluster() as cluster:
        assert names(cluster) == ["a", "evil", "c"]
