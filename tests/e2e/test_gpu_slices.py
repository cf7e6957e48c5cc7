"""Slices of a node's GPUs on a real API server: accepted as they are, renewed, and taken away."""

from collections.abc import Iterator

import pytest
from tests.e2e.claims import PREFIX
from tests.e2e.controlplane import ControlPlane
from tests.e2e.test_kubernetes_client import client
from tests.equipped_nodes import machine

from koordinator.api.device import Device
from koordinator.api.dynamic_resources import ResourceSlice
from koordinator.api.labels import GPU_VENDOR, GpuVendor
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import find_connection
from koordinator.koordlet.app.reports import write_slices
from koordinator.koordlet.report.gpu_slices import gpu_slices


@pytest.fixture
def cluster(controlplane: ControlPlane) -> Iterator[KubernetesCluster]:
    """Run a client as the agent has one; at the end there are no slices."""
    with client(find_connection(str(controlplane.kubeconfig()))) as running:
        yield running
    controlplane.api.request("DELETE", f"{PREFIX}/resourceslices")


def slices(gpus: int, *, shares: bool = False) -> tuple[ResourceSlice, ...]:
    """Return what the agent of a node with GPUs wants there to be."""
    labels = {GPU_VENDOR: GpuVendor.NVIDIA.value}
    objects = machine("n", gpus=gpus, device={"labels": labels})
    (device,) = [each for each in objects if isinstance(each, Device)]
    node = Node(metadata=ObjectMeta(name="n", uid="0f4b1c8e-7c0a-4d3e-9d4b-6d4a51c1f0aa"))
    return gpu_slices(node, device, shares=shares)


def stored(cluster: KubernetesCluster) -> list[tuple[int, int]]:
    """Return generation and number of devices of each slice."""
    items = cluster.list(ResourceSlice, field_selector="spec.nodeName=n").items
    return sorted((each.spec.pool.generation, len(each.spec.devices)) for each in items)


@pytest.mark.parametrize("shares", [False, True])
def test_slices_are_written_renewed_and_taken_away(
    cluster: KubernetesCluster, shares: bool
) -> None:
    """Each change is one generation; a second look writes nothing, whatever the server dropped."""
    kept = write_slices(cluster, "n", slices(130, shares=shares), {})
    assert stored(cluster) == [(1, 2), (1, 128)]
    kept = write_slices(cluster, "n", slices(130, shares=shares), kept)
    assert stored(cluster) == [(1, 2), (1, 128)]
    kept = write_slices(cluster, "n", slices(3, shares=shares), kept)
    assert stored(cluster) == [(2, 3)]
    kept = write_slices(cluster, "n", slices(1, shares=shares), kept)
    assert stored(cluster) == [(3, 1)]
    write_slices(cluster, "n", (), kept)
    assert stored(cluster) == []
