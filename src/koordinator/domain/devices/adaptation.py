"""Adaptation of allocations to vendors' device plugins: annotations, and the lock of a node.

The scheduler locks a node by an annotation; the device plugin unlocks it after serving the pod.

Source: koordinator pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go; koordinator
pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go, ``lockNode``.
"""

import datetime as dt
from collections.abc import Callable, Mapping
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
from koordinator.foundation.errors import InputError


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
