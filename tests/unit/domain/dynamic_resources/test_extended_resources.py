"""Requests of a pod's claim in place of extended resources, container by container."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.worlds import made, pod

from koordinator.api.meta import ObjectMeta
from koordinator.domain.dynamic_resources.extended_resources import (
    ExtendedRequests,
    claim_names_of,
    extended_requests,
    resources_of,
)

GPU, NIC = "example.com/gpu", "example.com/nic"
ALWAYS = {"restartPolicy": "Always"}


def container(name: str, gpus: int = 0, **more: Any) -> dict[str, Any]:
    """Return a container that requests so many GPUs, and a CPU."""
    requests = {"cpu": "1"} | ({GPU: str(gpus)} if gpus else {})
    return {"name": name, "resources": {"requests": requests, "limits": requests}, **more}


def claimed(init: list[dict[str, Any]], *containers: dict[str, Any]) -> ExtendedRequests:
    """Return the requests of a pod of these containers."""
    of = pod("p", initContainers=init, containers=[*containers])
    return extended_requests(of.spec, {GPU: "gpu"})


def counts(requests: ExtendedRequests) -> dict[str, int]:
    """Return the number of devices of each request."""
    return {one.name: one.exactly.count for one in requests.requests if one.exactly is not None}


def users(requests: ExtendedRequests) -> list[tuple[str, str]]:
    """Return which container uses which request."""
    return [(one.container_name, one.request_name) for one in requests.mappings]


def test_each_container_that_runs_on_has_devices_of_its_own() -> None:
    """Requests are named after the place of the container and of the resource in it."""
    requests = claimed([container("side", 1, **ALWAYS)], container("a", 2), container("b"))

    assert counts(requests) == {"container-0-request-1": 1, "container-1-request-1": 2}
    assert users(requests) == [("side", "container-0-request-1"), ("a", "container-1-request-1")]


def test_init_containers_use_the_devices_of_later_ones() -> None:
    """Init containers share the remaining devices, too: the largest need is requested for all."""
    init = [container("first", 2), container("second", 5), container("third", 4)]
    requests = claimed(init, container("a", 1), container("b", 2))

    assert counts(requests) == {
        "container-1-request-1": 2,
        "container-3-request-1": 1,
        "container-4-request-1": 2,
    }
    last = ("container-3-request-1", "container-4-request-1")
    assert users(requests) == [
        ("a", last[0]),
        ("b", last[1]),
        *(("first", name) for name in last),
        *(("second", name) for name in (*last, "container-1-request-1")),
        *(("third", name) for name in (*last, "container-1-request-1")),
    ]


def test_init_containers_use_no_sidecar_before_them() -> None:
    """A sidecar that has begun keeps its devices."""
    requests = claimed([container("side", 1, **ALWAYS), container("init", 1)], container("a"))

    assert counts(requests) == {"container-0-request-1": 1, "container-1-request-1": 1}


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
)
def test_every_container_gets_what_it_asks_for(
    init: list[tuple[int, bool]], gpus: list[int]
) -> None:
    """No two that run at the same time share a request, and no device is requested in vain."""
    begun = [
        container(f"i{n}", count, **(ALWAYS if always else {}))
        for n, (count, always) in enumerate(init)
    ]
    requests = claimed(begun, *(container(f"c{n}", count) for n, count in enumerate(gpus)))
    amounts, used = counts(requests), users(requests)

    wanted = {f"i{n}": count for n, (count, _) in enumerate(init)}
    wanted |= {f"c{n}": count for n, count in enumerate(gpus)}
    for name, count in wanted.items():
        got = [amounts[request] for by, request in used if by == name]
        assert sum(got) >= count
        assert bool(got) is bool(count)
    assert {request for _, request in used} == amounts.keys()
    lasting = {f"i{n}" for n, (_, always) in enumerate(init) if always} | {*wanted} - {
        f"i{n}" for n in range(len(init))
    }
    lasting_requests = [request for by, request in used if by in lasting]
    assert len(lasting_requests) == len(set(lasting_requests))
    running = sum(count for name, count in wanted.items() if name in lasting)
    most = running + max((n for n, always in init if not always), default=0)
    assert running <= sum(amounts.values()) <= most


def test_several_resources_are_requested_in_one_claim() -> None:
    """Sorted by name; the mappings name the resource."""
    both = {GPU: "1", NIC: "2"}
    of = pod("p", containers=[{"name": "a", "resources": {"requests": both, "limits": both}}])
    requests = extended_requests(of.spec, {NIC: "net", GPU: "gpu"})

    assert [
        (one.name, one.exactly.device_class_name) for one in requests.requests if one.exactly
    ] == [
        ("container-0-request-0", "gpu"),
        ("container-0-request-1", "net"),
    ]
    assert [one.resource_name for one in requests.mappings] == [GPU, NIC]


def test_a_class_has_a_resource_by_its_name_and_may_have_another() -> None:
    """A name that is no extended resource is ignored."""

    def names(**spec: Any) -> list[str]:
        device_class: Any = made("DeviceClass", "gpu", "resource.k8s.io/v1", spec=spec)
        return list(resources_of(device_class))

    implicit = "deviceclass.resource.kubernetes.io/gpu"
    assert names() == [implicit]
    assert names(extendedResourceName=GPU) == [implicit, GPU]
    for wrong in ("cpu", "kubernetes.io/x", implicit, "requests.example.com/gpu", ""):
        assert names(extendedResourceName=wrong) == [implicit]


def test_names_of_claims_are_short_and_the_pods_own() -> None:
    """As the API server would cut them; another pod of that name gets another claim."""
    long = ObjectMeta(name="p" * 200, namespace="default", uid="u")
    names = list(claim_names_of(long))
    assert len(set(names)) == len(names)
    assert all(len(name) == 63 and name.startswith("p" * 58) for name in names)
    assert names == list(claim_names_of(long))
    assert names != list(claim_names_of(ObjectMeta(name="p" * 200, uid="v")))
