"""Translation of a pod's resources to batch, mid and shared GPU resources.

Source: koordinator pkg/webhook/pod/mutating/cluster_colocation_profile.go,
``mutatePodResourceSpec``; extended_resource_spec.go; device_resource_spec.go.
"""

from collections.abc import Callable, Mapping
from typing import Any

from koordinator.api.annotations.pod_qos import (
    EXTENDED_RESOURCE_SPEC,
    ExtendedContainerResources,
    ExtendedResourceSpec,
)
from koordinator.api.codec import decode
from koordinator.api.core import ResourceList
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.api.qos import PriorityBand
from koordinator.api.resource_names import (
    BAND_RESOURCES,
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    WHOLE_DEVICE,
)
from koordinator.foundation.quantity import Quantity

_BATCH = (BATCH_CPU, BATCH_MEMORY)
_GPU = (GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED)
_LISTS = ("requests", "limits")
_CONTAINERS = ("initContainers", "containers")
Resources = dict[str, Any]


def translated(pod: JsonObject, band: PriorityBand) -> JsonObject:
    """Return the pod with the resources of the priority band in place of CPU and memory.

    Bands other than batch and mid are returned unchanged.  Raises InputError for bad amounts.
    """
    names = BAND_RESOURCES.get(band)
    if names is None:
        return pod
    spec = dict(pod.get("spec") or {})
    for part in _CONTAINERS:
        if part in spec:
            spec[part] = _each(spec[part], lambda resources: _renamed(resources, names))
    if spec.get("overhead"):
        spec["overhead"] = _renamed_list(spec["overhead"], names)
    return {**pod, "spec": spec}


def with_extended_spec(pod: JsonObject) -> JsonObject:
    """Return the pod with an annotation that lists the batch resources of all its containers.

    The runtime hooks on the node see only annotations.  Init containers, such as sidecars, are
    included; the original omits them.  Raises InputError for an annotation that can't be parsed.
    """
    meta = pod.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    containers = {}
    spec = pod.get("spec") or {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        listed = ExtendedContainerResources(
            requests=_only(resources.get("requests"), _BATCH),
            limits=_only(resources.get("limits"), _BATCH),
        )
        if listed.requests or listed.limits:
            containers[container.get("name", "")] = listed
    wanted = ExtendedResourceSpec(containers=containers)
    known = EXTENDED_RESOURCE_SPEC.read(ObjectMeta(annotations=annotations))
    if wanted == (known or ExtendedResourceSpec()):
        return pod
    entry = EXTENDED_RESOURCE_SPEC.entry(wanted)
    return {**pod, "metadata": {**meta, "annotations": {**annotations, **entry}}}


def with_device_spec(pod: JsonObject) -> JsonObject:
    """Return the pod with GPU requests expanded to core, memory ratio and number of cards."""
    spec = pod.get("spec") or {}
    parts = {part: spec[part] for part in _CONTAINERS if spec.get(part)}
    expanded = {part: _each(containers, _expanded_gpus) for part, containers in parts.items()}
    return pod if expanded == parts else {**pod, "spec": {**spec, **expanded}}


def _each(containers: list[Any], change: Callable[[Resources], Resources]) -> list[Any]:
    changed = []
    for container in containers:
        resources = container.get("resources")
        new = change(resources) if resources else resources
        changed.append(container if new == resources else {**container, "resources": new})
    return changed


def _renamed(resources: Resources, names: Mapping[str, str]) -> Resources:
    renamed = dict(resources)
    for part in _LISTS:
        if renamed.get(part):
            renamed[part] = _renamed_list(renamed[part], names)
    limits = renamed.get("limits") or {}
    requests = dict(renamed.get("requests") or {})
    missing = {name: limits[name] for name in names.values() if name in limits}
    if missing.keys() - requests.keys():
        renamed["requests"] = {**missing, **requests}
    return renamed


def _renamed_list(amounts: Resources, names: Mapping[str, str]) -> Resources:
    renamed = {key: amount for key, amount in amounts.items() if key not in names}
    for key, name in names.items():
        if key in amounts:
            amount = amounts[key]
            renamed[name] = str(Quantity.parse(amount).milli()) if key == CPU else amount
    return renamed


def _only(amounts: Resources | None, names: tuple[str, ...]) -> ResourceList:
    kept = {name: amounts[name] for name in names if name in amounts} if amounts else {}
    return decode({"found": kept}, dict[str, ResourceList])["found"]


def _expanded_gpus(resources: Resources) -> Resources:
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    if not any(name in requests or name in limits for name in _GPU):
        return resources
    if GPU in requests:
        amount = str(Quantity.parse(requests.pop(GPU)).value())
        limits.pop(GPU, None)
        for amounts in (requests, limits):
            amounts |= {GPU_CORE: amount, GPU_MEMORY_RATIO: amount}
    if GPU_SHARED not in requests and NPU_CORE not in requests:
        shared = str(_shared(requests))
        requests[GPU_SHARED] = limits[GPU_SHARED] = shared
    return {**resources, "requests": requests, "limits": limits}


def _shared(requests: Resources) -> int:
    for name in (GPU_MEMORY_RATIO, GPU_CORE):
        if name in requests:
            percent = Quantity.parse(requests[name]).value()
            is_whole = percent > WHOLE_DEVICE and percent % WHOLE_DEVICE == 0
            return percent // WHOLE_DEVICE if is_whole else 1
    return 1
