"""Requests of gangs: NUMA nodes, GPU partitions and network domains."""

from typing import Any

from msgspec.structs import replace
from tests.unit.descheduler.plugins.test_gpu_defragmentation import waiting, world
from tests.worlds import made

from koordinator.api.annotations.devices import GPU_PARTITION_SPEC, GpuPartitionSpec
from koordinator.api.annotations.gang import (
    NETWORK_TOPOLOGY_SPEC,
    GatherRule,
    NetworkTopologySpec,
)
from koordinator.api.annotations.numa import NUMA_TOPOLOGY_SPEC, NumaTopologySpec
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.plugins.gpu_defragmentation.gpu_cluster import GpuCluster
from koordinator.descheduler.plugins.gpu_defragmentation.pending_gangs import (
    pending_gangs,
    request_of,
)
from koordinator.descheduler.plugins.gpu_defragmentation.room import RoomRequest
from koordinator.simulator.research.openb import TraceNode
from koordinator.simulator.sources.openb import node_objects


def wired(name: str, gpus: int = 8, **labels: str) -> list[KubeObject]:
    """Return a node whose GPUs are in two NUMA nodes and NVLink groups of two, four and eight."""
    result = node_objects(TraceNode(name, 64_000, 262_144, gpus, "A100"), with_topology=True)
    return [
        replace(obj, metadata=replace(obj.metadata, labels={**obj.metadata.labels, **labels}))
        for obj in result
    ]


def room_request(gang: list[Pod], *objects: KubeObject) -> RoomRequest:
    """Return the room that a gang with these annotations wants of a cluster."""
    one = world(*objects, *gang)
    view = one.descheduler.view
    (pending,) = pending_gangs(gang, view, one.clock.now_s() + 1.0)
    nodes = sorted(view.objects(Node).values(), key=lambda node: node.metadata.name)
    request = request_of(pending, GpuCluster.of(nodes, view, lambda _: True), view)
    assert request is not None
    return request


def annotated(gang: list[Pod], entry: dict[str, str]) -> list[Pod]:
    """Return the members with one more annotation."""
    return [
        replace(
            pod,
            metadata=replace(pod.metadata, annotations={**pod.metadata.annotations, **entry}),
        )
        for pod in gang
    ]


def test_pod_without_annotations_may_have_any_gpus() -> None:
    request = room_request(waiting("train", 2, gpus=2), *wired("n1"), *wired("n2"))
    assert (request.members, request.gpus) == (2, 2)
    assert request.groups is None
    assert request.domain is None


def test_single_numa_node_pod_needs_gpus_of_one_numa_node() -> None:
    entry = NUMA_TOPOLOGY_SPEC.entry(NumaTopologySpec(numa_topology_policy="SingleNUMANode"))
    request = room_request(
        annotated(waiting("train", 1, gpus=2), entry), *wired("n1"), *wired("n2", 4)
    )
    assert request.groups == (((0, 1, 2, 3), (4, 5, 6, 7)), ((0, 1), (2, 3)))


def test_partition_pod_needs_gpus_of_one_partition() -> None:
    """Of as many GPUs as it requests; a node that has no such groups has none."""
    entry = GPU_PARTITION_SPEC.entry(GpuPartitionSpec())
    request = room_request(
        annotated(waiting("train", 1, gpus=4), entry), *wired("n1"), *wired("n2", 2)
    )
    assert request.groups == (((0, 1, 2, 3), (4, 5, 6, 7)), ())


def test_gang_with_a_required_layer_needs_one_domain() -> None:
    """Nodes of one spine have one number; a node in none has -1, and does not count."""
    layers: list[dict[str, Any]] = [
        {"topologyLayer": "SpineLayer", "labelKey": ["spine"]},
        {"topologyLayer": "BlockLayer", "parentTopologyLayer": "SpineLayer", "labelKey": ["block"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
    ]
    api = "scheduling.koordinator.sh/v1alpha1"
    tree = made("ClusterNetworkTopology", "default", api, spec={"networkTopologySpec": layers})
    rule = GatherRule(layer="SpineLayer", strategy="MustGather")
    entry = NETWORK_TOPOLOGY_SPEC.entry(NetworkTopologySpec(gather_strategy=(rule,)))
    request = room_request(
        annotated(waiting("train", 2), entry),
        tree,
        *wired("n1", spine="s1", block="b1"),
        *wired("n2", spine="s2", block="b2"),
        *wired("n3", spine="s1", block="b3"),
        *wired("n4"),
    )
    assert request.domain is not None
    assert request.domain.tolist() == [0, 1, 0, -1]
