"""Pods that get devices by an extended resource of a DeviceClass.

The scheduler creates a claim for such a pod, and deletes it if the attempt fails.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.scheduler.plugins.test_dynamic_resources import (
    DRIVER,
    V1,
    claim,
    devices,
    places,
    slice_of,
    user,
)
from tests.worlds import configuration, made, node, pod
from tests.worlds import embedded as new_embedded

from koordinator.api.dynamic_resources import (
    DELETE_PROTECTION,
    EXTENDED_RESOURCE_CLAIM,
    DeviceClass,
    ResourceClaim,
)
from koordinator.api.kube_version import V1_35
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.simulator import Embedded

GPU = "example.com/gpu"
PLUGGED: dict[str, Any] = {GPU: 1}  # of a node with a device plugin
ON = FeatureGates.parse("DRAExtendedResource=true")


def gpu_class(name: str = "gpu", resource: str | None = GPU, **more: Any) -> KubeObject:
    """Return a class of GPUs with an extended resource name."""
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    spec = {"selectors": selectors, "extendedResourceName": resource}
    return made("DeviceClass", name, V1, spec=spec, **more)


def requesting(name: str, gpus: int = 1, resource: str = GPU, **more: Any) -> Pod:
    """Return a pod that requests a number of GPUs by an extended resource."""
    return pod(name, requests={resource: gpus}, **more)


def world(*objects: KubeObject, gates: FeatureGates = ON, **options: Any) -> Embedded:
    """Return a world with the gate on."""
    return new_embedded(*objects, gates=gates, **options)


def claims(one: Embedded) -> list[ResourceClaim]:
    """Return all claims in the cluster."""
    return list(one.cluster.list(ResourceClaim).items)


def given(one: Embedded) -> dict[str, list[str]]:
    """Return the devices of each claim, by the owning pod."""
    return {c.metadata.owner_references[0].name: devices(c) for c in claims(one)}


def why(one: Embedded, name: str = "p") -> str:
    """Schedule, and return why a pod is pending."""
    outcomes = one.run_to_fixed_point()
    rejected = [o for o in outcomes if isinstance(o, Unschedulable) and o.pod == f"default/{name}"]
    return rejected[-1].message


def test_claim_is_created_for_the_pod_and_named_in_its_status() -> None:
    """The pod owns the claim, which is allocated, reserved and protected as by kube-scheduler."""
    one = world(node("bare"), node("n"), slice_of("n", 2), gpu_class(), requesting("p", 2))

    assert places(one) == {"p": "n"}
    (got,), stored = claims(one), one.cluster.get(Pod, "p", "default")
    assert devices(got) == ["n/gpu-0", "n/gpu-1"]
    meta, uid = got.metadata, stored.metadata.uid
    assert meta.name.startswith("p-extended-resources-")
    assert meta.generate_name == "p-extended-resources-"
    assert meta.annotations == {EXTENDED_RESOURCE_CLAIM: "true"}
    assert meta.finalizers == (DELETE_PROTECTION,)
    (owner,) = meta.owner_references
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Pod", "p", uid, True)
    assert [(r.resource, r.name, r.uid) for r in got.status.reserved_for] == [("pods", "p", uid)]
    named = stored.status.extended_resource_claim_status
    assert named is not None
    assert named.resource_claim_name == meta.name
    (mapping,) = named.request_mappings
    assert mapping.container_name == stored.spec.containers[0].name
    assert (mapping.resource_name, mapping.request_name) == (GPU, "container-0-request-0")


def test_without_the_gate_the_resource_is_missing() -> None:
    """Until 1.35 kube-scheduler has the gate off; later it is on by default, or locked."""
    gates = FeatureGates.parse("", V1_35)
    one = world(node("n"), slice_of("n", 2), gpu_class(), requesting("p"), gates=gates)

    assert f"1 Insufficient {GPU}" in why(one)
    assert claims(one) == []


def test_every_class_can_be_requested_by_its_name() -> None:
    """The class needs no extended resource name in its spec."""
    resource = "deviceclass.resource.kubernetes.io/gpu"
    one = world(
        node("n"), slice_of("n", 1), gpu_class(resource=None), requesting("p", resource=resource)
    )

    assert places(one) == {"p": "n"}
    assert given(one) == {"p": ["n/gpu-0"]}


def test_a_node_with_a_device_plugin_serves_the_pod_itself() -> None:
    """The pod needs no claim; the node counts its devices."""
    plugin = node("n", **PLUGGED)
    one = world(plugin, slice_of("n", 5), gpu_class(), requesting("p"), requesting("q"))

    assert len(places(one)) == 1
    assert claims(one) == []
    (left,) = [p for p in one.cluster.list(Pod).items if not p.spec.node_name]
    assert left.status.conditions[0].message.startswith(
        f"0/1 nodes are available: 1 Insufficient {GPU}."
    )


def test_nodes_serve_a_pod_by_plugin_or_by_claim() -> None:
    """Pods are placed until plugin and claim have no device left."""
    pods = [requesting(f"p{i}") for i in range(4)]
    one = world(node("n", **PLUGGED), node("m"), slice_of("m", 2), gpu_class(), *pods)

    assert sorted(places(one).values()) == ["m", "m", "n"]
    assert sorted(map(len, given(one).values())) == [1, 1]
    (left,) = [p for p in one.cluster.list(Pod).items if not p.spec.node_name]
    message = left.status.conditions[0].message
    assert f"1 Insufficient {GPU}, 1 cannot allocate all claims. preemption: " in message


def test_claims_of_the_pod_are_allocated_too() -> None:
    """Each claim gets one device, distinct from the one of the resource."""
    both = pod("p", requests={GPU: 1}, resourceClaims=[{"name": "e", "resourceClaimName": "c"}])
    one = world(node("n"), slice_of("n", 2), gpu_class(), claim("c"), both)

    assert places(one) == {"p": "n"}
    got = sorted(device for each in claims(one) for device in devices(each))
    assert got == ["n/gpu-0", "n/gpu-1"]


def test_claims_are_allocated_where_a_device_plugin_serves_the_resource() -> None:
    """Unlike the original no empty claim is created, which would block the bind."""
    both = pod("p", requests={GPU: 1}, resourceClaims=[{"name": "e", "resourceClaimName": "c"}])
    one = world(node("n", **PLUGGED), slice_of("n", 1), gpu_class(), claim("c"), both)

    assert places(one) == {"p": "n"}
    assert [c.metadata.name for c in claims(one)] == ["c"]


def test_the_newest_class_of_a_resource_counts() -> None:
    """Of equally old classes the first by name counts; if it is deleted, the other one serves."""
    times = ("2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z")
    old, new = (
        made("DeviceClass", name, V1, spec=spec, metadata={"creationTimestamp": at})
        for name, at, spec in (
            ("old", times[0], {"extendedResourceName": GPU}),
            (
                "new",
                times[1],
                {
                    "extendedResourceName": GPU,
                    "selectors": [{"cel": {"expression": 'device.driver == "none"'}}],
                },
            ),
        )
    )
    one = world(node("n"), slice_of("n", 1), old, new, requesting("p"))

    assert "cannot allocate all claims" in why(one)
    one.cluster.delete(DeviceClass, "new")
    assert places(one) == {"p": "n"}
    (got,) = claims(one)
    request = got.spec.devices.requests[0].exactly
    assert request is not None
    assert request.device_class_name == "old"


def test_a_pod_waits_for_its_class() -> None:
    """The class requeues the pod, and so does a class that gets the name later."""
    one = world(
        node("n"), slice_of("n", 2), requesting("p"), requesting("q", resource="example.com/b")
    )

    assert places(one) == {}
    one.load([gpu_class()])
    assert places(one) == {"p": "n"}
    patch = {"spec": {"extendedResourceName": "example.com/b"}}
    one.cluster.patch(DeviceClass, "gpu", "", patch)
    assert places(one) == {"q": "n"}


def test_devices_are_released_with_the_pod() -> None:
    """The pod's claim is deleted, too."""
    one = world(node("n"), slice_of("n", 1), gpu_class(), requesting("p"), requesting("q"))

    (first,) = places(one)
    one.cluster.delete(Pod, first, "default")
    one.step_controllers()
    (second,) = places(one)
    assert {first, second} == {"p", "q"}
    assert given(one) == {second: ["n/gpu-0"]}


def test_a_claim_of_an_earlier_attempt_is_deleted_first() -> None:
    """A restart between its write and the bind left it; the pod gets a new one."""
    waiting = requesting("p")
    one = world(node("n"), gpu_class(), waiting)
    assert "cannot allocate all claims" in why(one)
    uid = one.cluster.get(Pod, "p", "default").metadata.uid
    left = made(
        "ResourceClaim",
        "left",
        V1,
        metadata={
            "namespace": "default",
            "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
            "finalizers": [DELETE_PROTECTION],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
            ],
        },
        spec={"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        status={
            "allocation": {
                "devices": {
                    "results": [{"request": "r", "driver": DRIVER, "pool": "n", "device": "gpu-0"}]
                }
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
        },
    )
    one.load([left, slice_of("n", 1)])
    outcomes = one.run_to_fixed_point()

    (message,) = [o.message for o in outcomes if isinstance(o, Unschedulable)]
    assert message.startswith(
        "0/1 nodes are available: 1 cannot schedule extended resource claim. "
        "deletion of ResourceClaim completed"
    )
    assert [o.node for o in outcomes if isinstance(o, Bound)] == ["n"]
    (got,) = claims(one)
    assert got.metadata.name.startswith("p-extended-resources-")
    assert devices(got) == ["n/gpu-0"]


@pytest.mark.parametrize("name", ["long" * 30, "p.with.dots"])
def test_long_pod_names_are_truncated(name: str) -> None:
    """The name of the claim is truncated."""
    one = world(node("n"), slice_of("n", 1), gpu_class(), requesting(name))
    assert places(one) == {name: "n"}


def test_name_taken_by_another_claim_is_avoided() -> None:
    """The new claim gets another name."""
    waiting = requesting("p")
    first = world(node("n"), slice_of("n", 1), gpu_class(), waiting)
    assert places(first) == {"p": "n"}
    (got,) = claims(first)
    second = world(node("n"), slice_of("n", 1), gpu_class(), claim(got.metadata.name), waiting)
    assert places(second) == {"p": "n"}
    assert sorted(map(devices, claims(second))) == [[], ["n/gpu-0"]]


def test_pod_waits_if_its_class_was_deleted_after_a_failed_attempt() -> None:
    """The pod waits for the resource and holds no devices."""
    one = world(node("n"), slice_of("n", 1), gpu_class(), requesting("p"))
    one.cluster.delete(DeviceClass, "gpu")
    assert f"Insufficient {GPU}" in why(one)
    assert claims(one) == []


class FailingStatus:
    """Cluster that refuses updates of the status of a pod."""

    def __init__(self, cluster: Any, error: ClusterError) -> None:
        self._cluster, self._error = cluster, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def patch(
        self, kind: Any, name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
    ) -> Any:
        if kind is Pod and subresource == "status":
            raise self._error
        return self._cluster.patch(kind, name, namespace, patch, subresource)


def test_claim_of_a_failed_attempt_is_deleted() -> None:
    """The pod's status cannot be written; others may use the device immediately."""
    one = world(node("n"), slice_of("n", 1), gpu_class(), requesting("p"))
    binder: Any = one.scheduler.handle.binder
    cluster = binder._cluster
    binder._cluster = FailingStatus(cluster, ClusterError("refused"))
    one.scheduler.step()

    assert claims(one) == []
    assert one.cluster.get(Pod, "p", "default").spec.node_name == ""
    binder._cluster = cluster
    assert places(one) == {"p": "n"}
    one.scheduler.validate()


def test_claims_and_resources_share_the_devices_of_a_node() -> None:
    """A pod with a claim does not wait for a pod with an extended resource."""
    one = world(
        node("n"), slice_of("n", 2), gpu_class(), claim("c"), user("q", "c"), requesting("p")
    )
    assert places(one) == {"p": "n", "q": "n"}


def scoring(strategy: str, plugin: str = "NodeResourcesFit") -> Any:
    """Return a configuration in which only GPUs are scored."""
    resources = [{"name": GPU, "weight": 1}]
    args: dict[str, Any] = {"scoringStrategy": {"type": strategy, "resources": resources}}
    if strategy == "RequestedToCapacityRatio":
        shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
        args["scoringStrategy"]["requestedToCapacityRatio"] = {"shape": shape}
    if plugin != "NodeResourcesFit":
        args = {"resources": [{"name": name, "weight": 1} for name in ("cpu", GPU)]}
    others = ("NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality")
    off = [{"name": name} for name in (*others, "PodTopologySpread") if name != plugin]
    plugins = {"score": {"disabled": off}}
    return configuration(plugins=plugins, pluginConfig=[{"name": plugin, "args": args}])


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("LeastAllocated", ["large", "large", "large", "small"]),  # of equal ones the first
        ("MostAllocated", ["small", "small", "large", "large"]),
        ("RequestedToCapacityRatio", ["small", "small", "large", "large"]),
    ],
)
def test_devices_count_for_the_score(strategy: str, expected: list[str]) -> None:
    """Devices of the class in reach of the node count as capacity, allocated ones as used."""
    nodes = (node("large"), node("small"))
    slices = (slice_of("large", 6), slice_of("small", 2))
    one = world(*nodes, *slices, gpu_class(), config=scoring(strategy))
    got: list[str] = []
    for number in range(4):
        one.load([requesting(f"p{number}")])
        got += places(one).values()

    assert got == expected


def test_devices_count_for_the_balance_of_a_node() -> None:
    """CPU and devices are used to the same degree; kube-scheduler crashes in this case."""
    nodes = (node("even", cpu=4), node("odd", cpu=64))
    slices = (slice_of("even", 4), slice_of("odd", 4))
    config = scoring("", "NodeResourcesBalancedAllocation")
    one = world(*nodes, *slices, gpu_class(), requesting("p", cpu=1), config=config)

    assert places(one) == {"p": "even"}


def test_devices_that_claims_take_count_for_the_score() -> None:
    """Devices of a slice created later count too, without any pod event."""
    config = scoring("MostAllocated")
    on_m = {"kubernetes.io/hostname": "m"}
    one = world(node("n"), node("m"), slice_of("n", 4), gpu_class(), claim("c"), config=config)
    one.load([slice_of("m", 4), user("q", "c", nodeSelector=on_m)])
    assert places(one) == {"q": "m"}
    one.load([requesting("p")])
    assert places(one) == {"p": "m"}
