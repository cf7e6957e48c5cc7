"""Vendors of accelerators: their labels, resource names and device plugins.

A vendor without specifics needs no entry.

Allocations are adapted to the vendors' device plugins: annotations, and the lock of a node.  The
scheduler locks a node by an annotation; the device plugin unlocks it after serving the pod.

Source: koordinator pkg/scheduler/plugins/deviceshare: device_plugin_adapter.go, utils.go,
allocator_gpu_helper.go, ``GetDesignatedGPUPartitionIndexer``, ``lockNode``.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from koordinator.api.annotations.devices import (
    BIND_TIMESTAMP,
    CAMBRICON_ASSIGNED,
    CAMBRICON_LOCK,
    CAMBRICON_PROFILE,
    GPU_MINORS,
    HAMI_LOCK,
    HUAWEI_ASCEND_310P,
    HUAWEI_NPU_CORE,
    HUAWEI_PREDICATE_TIME,
    METAX_ALLOCATED,
    DeviceAllocation,
    DeviceAllocations,
    GpuPartition,
    GpuPartitionTable,
    MetaXAllocation,
)
from koordinator.api.device import DeviceType
from koordinator.api.labels import (
    GPU_MODEL,
    GPU_VENDOR,
    HAMI_CORE,
    VGPU_NODE,
    GpuVendor,
    gpu_isolation_provider,
)
from koordinator.api.resource_names import (
    AMD_GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HYGON_DCU,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    NVIDIA_GPU,
    WHOLE_DEVICE,
)
from koordinator.domain.devices.vendor import AdaptationError, Vendor, percentages
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

AMD = Vendor(labels=("amd",), whole_card=AMD_GPU)


_MLU_MEMORY_UNIT = 256 * 1024 * 1024  # bytes; the device plugin's min-dsmlu-unit


def _adapt_mlu(devices: Sequence[DeviceAllocation], *, model: str, now_ns: int) -> dict[str, str]:  # noqa: ARG001 (an Adapter)
    if len(devices) > 1:
        raise AdaptationError("multiple gpu share is not supported on device side")
    device = devices[0]
    if GPU_CORE not in device.resources:
        raise AdaptationError("gpu core resource is required")
    core = device.resources[GPU_CORE].value()
    memory = device.resources[GPU_MEMORY].value() if GPU_MEMORY in device.resources else 0
    if memory < _MLU_MEMORY_UNIT:
        raise AdaptationError(f"gpu memory must not be less than {_MLU_MEMORY_UNIT} bytes")
    return {
        CAMBRICON_ASSIGNED: "false",
        CAMBRICON_PROFILE: f"{device.minor}_{core}_{memory // _MLU_MEMORY_UNIT}",
    }


CAMBRICON = Vendor(labels=(GpuVendor.CAMBRICON,), adapt=_adapt_mlu, node_lock=CAMBRICON_LOCK)


_DUO = "Ascend-310P3-300I-DUO"


def _part_of_one(amounts: Mapping[str, int]) -> str | None:
    if amounts[GPU_SHARED] > 1:
        return GPU_SHARED
    return NPU_DVPP if amounts.get(NPU_DVPP, 0) > WHOLE_DEVICE else None


def _adapt_npu(devices: Sequence[DeviceAllocation], *, model: str, now_ns: int) -> dict[str, str]:
    first = devices[0]
    template = first.extension.gpu_shared_resource_template if first.extension else ""
    key, taken = HUAWEI_NPU_CORE, ",".join(str(device.minor) for device in devices)
    if model == _DUO:
        key, taken = HUAWEI_ASCEND_310P, ",".join(f"Ascend310P-{d.minor}" for d in devices)
    elif template:
        taken = f"{first.minor}-{template}"
    return {HUAWEI_PREDICATE_TIME: str(now_ns), key: taken}


HUAWEI = Vendor(
    labels=(GpuVendor.HUAWEI,),
    amounts=(NPU_CORE, NPU_CPU, NPU_DVPP),
    combinations={
        frozenset({NPU_CORE, GPU_MEMORY_RATIO}): percentages,
        frozenset({GPU_SHARED, NPU_CORE, NPU_CPU, GPU_MEMORY}): _part_of_one,
        frozenset({GPU_SHARED, NPU_CORE, NPU_CPU, NPU_DVPP, GPU_MEMORY}): _part_of_one,
    },
    adapt=_adapt_npu,
)


HYGON = Vendor(labels=("hygon",), whole_card=HYGON_DCU)


_METAX_MEMORY_UNIT = 1024 * 1024  # bytes


def _adapt_metax(devices: Sequence[DeviceAllocation], *, model: str, now_ns: int) -> dict[str, str]:  # noqa: ARG001 (an Adapter)
    return METAX_ALLOCATED.entry((tuple(_card(device) for device in devices),))


def _card(device: DeviceAllocation) -> MetaXAllocation:
    if GPU_CORE not in device.resources:
        raise AdaptationError("gpu core resource is required")
    memory = device.resources[GPU_MEMORY].value() if GPU_MEMORY in device.resources else 0
    if memory < _METAX_MEMORY_UNIT:
        raise AdaptationError(f"gpu memory must not be less than {_METAX_MEMORY_UNIT} bytes")
    return MetaXAllocation(
        uuid=device.id,
        compute=device.resources[GPU_CORE].value(),
        v_ram=memory // _METAX_MEMORY_UNIT,
    )


METAX = Vendor(labels=(GpuVendor.METAX,), adapt=_adapt_metax, node_lock=HAMI_LOCK)


_GPUS = 8  # GPUs of a machine with NVSwitch

HOPPER: GpuPartitionTable = {
    size: tuple(
        GpuPartition(
            minors=tuple(range(first, first + size)), gpu_link_type="NVLink", allocation_score=1
        )
        for first in range(0, _GPUS, size)
    )
    for size in (1, 2, 4, 8)
}

NVIDIA = Vendor(
    labels=(GpuVendor.NVIDIA, ""),  # nodes without the label are older than it
    whole_card=NVIDIA_GPU,
    partitions={"H100": HOPPER, "H800": HOPPER, "H20": HOPPER},
)


VENDORS: Final = (NVIDIA, AMD, HYGON, HUAWEI, CAMBRICON, METAX)

_UNKNOWN = Vendor(labels=())
_BY_LABEL = {label: vendor for vendor in VENDORS for label in vendor.labels}


def vendor_named(label: str) -> Vendor:
    """Return the vendor of a gpu-vendor label; one without specifics if it is unknown.

    An empty label is NVIDIA.
    """
    return _BY_LABEL.get(label, _UNKNOWN)


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Annotations and labels for the pod, and the node's lock annotation (empty: none)."""

    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    node_lock: str = ""


def adaptation(
    allocations: DeviceAllocations,
    *,
    node_name: str,
    device_labels: Mapping[str, str],
    pod_labels: Mapping[str, str],
    now_ns: int,
) -> Adaptation:
    """Return the annotations and labels for a pod with these allocated devices.

    ``device_labels`` are the labels of the node's Device object, ``now_ns`` counts from the epoch.
    Raises AdaptationError if the vendor's device plugin can't represent the allocation.
    """
    annotations, labels, node_lock = {BIND_TIMESTAMP: str(now_ns)}, {}, ""
    gpus = allocations.get(DeviceType.GPU, ())
    if gpus:
        annotations[GPU_MINORS] = ",".join(str(device.minor) for device in gpus)
        if gpu_isolation_provider(pod_labels) == HAMI_CORE:
            labels[VGPU_NODE] = node_name
        vendor = vendor_named(device_labels.get(GPU_VENDOR, ""))
        if vendor.adapt is not None:
            model = device_labels.get(GPU_MODEL, "")
            annotations |= vendor.adapt(gpus, model=model, now_ns=now_ns)
        node_lock = vendor.node_lock
    return Adaptation(annotations, labels, node_lock)


#: Older locks are ignored as stale.
TIMEOUT = dt.timedelta(minutes=5)


def lock_text(now: dt.datetime, namespace: str, pod: str) -> str:
    """Return the lock annotation for a pod; ``now`` must have a time zone."""
    return f"{now.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%SZ},{namespace},{pod}"


def locked(node: str) -> str:
    """Return the message for a pod that waits for another pod's lock."""
    return f'node "{node}" has been locked'


def is_locked(text: str, now: dt.datetime, exists: Callable[[str, str], bool]) -> bool:
    """Return whether the lock in the node's annotation is still in force.

    ``exists`` answers for namespace and name of a pod. Raises InputError for a text that is no
    lock.
    """
    try:
        since, namespace, pod = text.split(",")
        locked = dt.datetime.fromisoformat(since)
        age = now - locked
    except (ValueError, TypeError):
        raise InputError(
            "must be a time such as 2024-05-01T08:00:00Z, a namespace and the name of a pod, "
            f"separated by commas, got {text!r}"
        ) from None
    return age <= TIMEOUT and exists(namespace, pod)
