"""Machines with devices, requests on them, and what was taken, in short form."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koordinator.api.annotations.devices import AllocatedVirtualFunction
from koordinator.api.codec import decode, decode_object
from koordinator.api.device import Device, DeviceType
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.domain.devices.allocation import (
    NAMES,
    Allocation,
    DeviceShortage,
    TakenDevice,
    completed,
)
from koordinator.domain.devices.free_devices import DeviceUsage, headrooms
from koordinator.domain.devices.model import NodeDevices, NodeModels, TemplateTable
from koordinator.domain.devices.plan import DevicePlan
from koordinator.domain.devices.pod_request import PodDeviceRequest, pod_device_request
from koordinator.domain.devices.report import node_devices
from koordinator.domain.devices.scorer import Scorer, scorer_of

GPU, RDMA, FPGA = DeviceType.GPU, DeviceType.RDMA, DeviceType.FPGA
CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{what}" for what in ("core", "memory", "memory-ratio"))
SHARED, WHOLE = "koordinator.sh/gpu.shared", "nvidia.com/gpu"
NPU_CORE, NPU_CPU, NPU_DVPP = (f"huawei.com/npu-{what}" for what in ("core", "cpu", "dvpp"))
VENDOR, MODEL = "node.koordinator.sh/gpu-vendor", "node.koordinator.sh/gpu-model"
POLICY = "node.koordinator.sh/gpu-partition-policy"
GIB = 1 << 30

ASCEND = {NPU_CORE: "20", NPU_CPU: "7", NPU_DVPP: "100", MEMORY: "64Gi", RATIO: "100"}
JOINT: JsonObject = {"deviceTypes": ["gpu", "rdma"]}
SAME_PCIE: JsonObject = {**JOINT, "requiredScope": "SamePCIe"}
ANY_FUNCTION: JsonObject = {"rdma": {"vfSelector": {}}}

NOTHING = DeviceUsage()
WEIGHTS = {RATIO: 1, MEMORY: 1, "koordinator.sh/rdma": 1, "koordinator.sh/fpga": 1}
MOST = scorer_of(WEIGHTS, most_allocated=True)
LEAST = scorer_of(WEIGHTS, most_allocated=False)


def gpu(
    minor: int,
    root: str | None = None,
    numa: int = 0,
    *,
    healthy: bool = True,
    resources: Mapping[str, str] | None = None,
    **labels: str,
) -> JsonObject:
    """Return a GPU of 80 GiB; without root its PCIe root is unknown."""
    amounts = resources or {CORE: "100", MEMORY: "80Gi", RATIO: "100"}
    card = _device("gpu", minor, f"GPU-{minor}", healthy=healthy, resources=amounts, labels=labels)
    return card | _place(root, numa)


def nic(
    minor: int,
    root: str | None = None,
    numa: int = 0,
    *,
    healthy: bool = True,
    functions: Mapping[str, Sequence[str]] | None = None,
    **labels: str,
) -> JsonObject:
    """Return an RDMA card; ``functions`` are bus ids by kind (a label of their group)."""
    amounts, name = {"koordinator.sh/rdma": "100"}, f"0000:{minor:02x}:00.0"
    card = _device("rdma", minor, name, healthy=healthy, resources=amounts, labels=labels)
    groups = [
        {"labels": {"kind": kind}, "vfs": [{"minor": i, "busID": bus} for i, bus in enumerate(ids)]}
        for kind, ids in (functions or {}).items()
    ]
    return card | _place(root, numa) | ({"vfGroups": groups} if groups else {})


def report(
    *devices: JsonObject,
    labels: Mapping[str, str] | None = None,
    partitions: object = None,
) -> Device:
    """Return the Device object; ``partitions`` is the table, or any text."""
    text = partitions if isinstance(partitions, str) else json.dumps(partitions)
    annotations = {} if partitions is None else {"scheduling.koordinator.sh/gpu-partitions": text}
    manifest = {
        "apiVersion": Device.API_VERSION,
        "kind": "Device",
        "metadata": {"name": "n", "labels": labels or {}, "annotations": annotations},
        "spec": {"devices": list(devices)},
    }
    made = decode_object(manifest)
    assert isinstance(made, Device)
    return made


def node(*devices: JsonObject, on: Mapping[str, str] | None = None, **fields: Any) -> NodeDevices:
    """Return a node's devices; ``on`` are labels of the Node."""
    return node_devices(report(*devices, **fields), on or {}, NodeModels())


def pairs(**fields: Any) -> NodeDevices:
    """Return eight GPUs, two per PCIe root and four per NUMA node, and NIC r+1 on root r."""
    cards = [gpu(minor, f"p{minor // 2}", minor // 4) for minor in range(8)]
    cards += [nic(r + 1, f"p{r}", r // 2, functions={"any": buses(r + 1)}) for r in range(4)]
    return node(*cards, **fields)


def singles(**fields: Any) -> NodeDevices:
    """Return eight GPUs, each with NIC minor+1 on a PCIe root of its own, on two NUMA nodes."""
    cards = [gpu(minor, f"p{minor}", minor // 4) for minor in range(8)]
    cards += [nic(m + 1, f"p{m}", m // 4, functions={"any": buses(m + 1)}) for m in range(8)]
    return node(*cards, **fields)


def buses(minor: int) -> list[str]:
    """Return bus ids of virtual functions: ``<minor>.a``, ``<minor>.b``, ``<minor>.c``."""
    return [f"{minor}.{letter}" for letter in "abc"]


def pod_request(
    requests: Mapping[str, int],
    *,
    hints: object = None,
    joint: object = None,
    partition: object = None,
    templates: Mapping[str, Mapping[str, Mapping[str, int]]] | None = None,
) -> PodDeviceRequest:
    """Return the request of a pod with these annotations; NPU cores are cut by template."""
    settings = {"allocate-hint": hints, "joint-allocate": joint}
    annotations = {f"scheduling.koordinator.sh/device-{k}": v for k, v in settings.items()}
    annotations["scheduling.koordinator.sh/gpu-partition-spec"] = partition
    meta = meta_with(**annotations)
    result = pod_device_request(meta, requests, TemplateTable(templates or {}), [NPU_CORE])
    assert result is not None
    return result


def meta_with(**annotations: object) -> ObjectMeta:
    """Return the metadata of a pod whose annotations are these, as JSON."""
    texts = {key: json.dumps(value) for key, value in annotations.items() if value is not None}
    return decode(json.dumps({"annotations": texts}).encode(), ObjectMeta)


def hold(on: NodeDevices, **minors: Iterable[int | tuple[int, str]]) -> Allocation:
    """Return whole devices by type; a NIC may be ``(minor, bus id)``, with 1 % in use."""
    return {
        kind: tuple(_taken(on, kind, each) for each in minors[kind])
        for kind in DeviceType
        if kind in minors
    }


def share(minor: int, ratio: int, *, gib: int = 80) -> Allocation:
    """Return so many percent of a GPU."""
    return {GPU: (TakenDevice(minor, gpu_amounts(ratio, ratio * gib * GIB // 100, ratio)),)}


def gpu_amounts(*amounts: int) -> tuple[int, ...]:
    """Return amounts of a GPU: core, memory, memory ratio, and amounts of vendors; 0 by default."""
    return (*amounts, *(0,) * (len(NAMES[GPU]) - len(amounts)))


def using(*allocations: Allocation) -> DeviceUsage:
    """Return what pods with these allocations hold together."""
    usage = DeviceUsage()
    for allocation in allocations:
        usage = usage.plus(allocation)
    return usage


def allocate(
    on: NodeDevices,
    wanted: PodDeviceRequest,
    used: DeviceUsage = NOTHING,
    *,
    scorer: Scorer | None = None,
    given_back: DeviceUsage = NOTHING,
    only: DeviceUsage | None = None,
    **how: Any,
) -> Allocation | DeviceShortage:
    """Return what the request gets."""
    headroom = headrooms(on, used, given_back, only)
    if scorer is not None:
        how["ranking"] = scorer.ranking(on.totals, headroom)
    return DevicePlan(on.model, wanted).allocate(headroom, on.totals, **how)


def take(
    on: NodeDevices, wanted: PodDeviceRequest, *args: Any, **how: Any
) -> dict[str, list[Any]] | str:
    """Return minors by type, of NICs with bus ids if there are any; or the reason of a refusal."""
    result = allocate(on, wanted, *args, **how)
    if isinstance(result, DeviceShortage):
        return result.reason
    return {
        str(kind): [
            (each.minor, each.functions[0].bus_id) if each.functions else each.minor
            for each in devices
        ]
        for kind, devices in result.items()
    }


def _device(kind: str, minor: int, name: str, *, healthy: bool, **more: object) -> JsonObject:
    return {"type": kind, "minor": minor, "id": name, "health": healthy, **more}


def _place(root: str | None, numa: int) -> JsonObject:
    if root is None:
        return {}
    return {"topology": {"socketID": 0, "nodeID": numa, "pcieID": root}}


def _taken(on: NodeDevices, kind: DeviceType, each: int | tuple[int, str]) -> TakenDevice:
    if isinstance(each, tuple):
        minor, bus = each
        return TakenDevice(minor, (1,), (AllocatedVirtualFunction(bus_id=bus),))
    total = tuple(on.totals[kind][each].tolist())
    return TakenDevice(each, completed(total, total) if kind is GPU else total)
