"""Nodes of a pool, with the Device objects of their GPUs."""

from collections.abc import Iterator

from koordinator.api import labels, resource_names
from koordinator.api.core import ResourceList, Taint
from koordinator.api.device import Device, DeviceInfo, DeviceSpec, DeviceType
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node, NodeSpec, NodeStatus
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.stages import READY_CONDITION
from koordinator.simulator.workload import NodePool

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
POOL = "koordinator.sh/node-pool"


def nodes_of(pool: NodePool) -> Iterator[KubeObject]:
    """Yield the nodes of a pool, each followed by its Device object if it has GPUs."""
    digits = len(str(pool.count - 1))
    for number in range(pool.count):
        labels = {POOL: pool.name}
        if pool.zones:
            labels[ZONE] = pool.zones[number % len(pool.zones)]
        yield from node_objects(pool, f"{pool.name}-{number:0{digits}}", labels)


def node_objects(pool: NodePool, name: str, labels: dict[str, str]) -> Iterator[KubeObject]:
    """Yield one node of a pool with further labels, and its Device object if it has GPUs."""
    own = {HOSTNAME: name, **labels}
    amounts: ResourceList = {
        resource_names.CPU: pool.cpu,
        resource_names.MEMORY: pool.memory,
        resource_names.PODS: Quantity.from_int(pool.max_pods),
    }
    device = _device(pool, name)
    if device is not None:
        own |= device.metadata.labels
        amounts |= _published(device)
    yield Node(
        metadata=ObjectMeta(name=name, labels={**own, **pool.labels}),
        spec=NodeSpec(
            taints=tuple(Taint(key=t.key, effect=t.effect, value=t.value) for t in pool.taints)
        ),
        status=NodeStatus(capacity=amounts, allocatable=amounts, conditions=(READY_CONDITION,)),
    )
    if device is not None:
        yield device


def _device(pool: NodePool, node: str) -> Device | None:
    """Return the Device that koordlet would report for the node's GPUs."""
    if pool.gpus is None:
        return None
    whole = Quantity.from_int(resource_names.WHOLE_DEVICE)
    resources = {
        resource_names.GPU_CORE: whole,
        resource_names.GPU_MEMORY_RATIO: whole,
        resource_names.GPU_MEMORY: pool.gpus.memory,
    }
    own = {labels.GPU_VENDOR: labels.GpuVendor.NVIDIA.value}
    if pool.gpus.model:
        own[labels.GPU_MODEL] = pool.gpus.model
    infos = tuple(
        DeviceInfo(
            type=DeviceType.GPU,
            id=f"GPU-{node}-{minor}",
            minor=minor,
            health=True,
            resources=resources,
        )
        for minor in range(pool.gpus.count)
    )
    return Device(metadata=ObjectMeta(name=node, labels=own), spec=DeviceSpec(devices=infos))


def _published(device: Device) -> ResourceList:
    """Return the resources that koord-manager and NVIDIA's device plugin publish on the node.

    Source: koordinator pkg/slo-controller/noderesource/plugins/gpudeviceresource.
    """
    infos = device.spec.devices
    amounts: ResourceList = {}
    for name in (
        resource_names.GPU_CORE,
        resource_names.GPU_MEMORY_RATIO,
        resource_names.GPU_MEMORY,
    ):
        total = sum(info.resources[name].value() for info in infos)
        amounts[name] = Quantity.from_int(total, binary=name == resource_names.GPU_MEMORY)
    amounts[resource_names.GPU] = amounts[resource_names.GPU_CORE]
    amounts[resource_names.NVIDIA_GPU] = Quantity.from_int(len(infos))
    return amounts
