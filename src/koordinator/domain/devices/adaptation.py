"""Annotations and labels by which device plugins learn the devices of a pod.

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
