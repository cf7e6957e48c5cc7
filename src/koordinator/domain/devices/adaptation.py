"""What a pod is marked with so that device plugins know which devices it was given.

Source: koordinator pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.api.annotations.devices import BIND_TIMESTAMP, GPU_MINORS, DeviceAllocations
from koordinator.api.device import DeviceType
from koordinator.api.labels import (
    GPU_MODEL,
    GPU_VENDOR,
    HAMI_CORE,
    VGPU_NODE,
    gpu_isolation_provider,
)
from koordinator.domain.devices.vendors import vendor_named


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Marks for the pod, and the annotation by which the node is to be locked (empty: none)."""

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
    """Return the marks of a pod that was given these devices, with their ids.

    ``device_labels`` are those of the node's Device object, ``now_ns`` counts from the epoch.
    Raises AdaptationError if the vendor's device plugin can't be told.
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
