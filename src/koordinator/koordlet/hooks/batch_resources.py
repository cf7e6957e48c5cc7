"""Batch CPU and memory become shares, quota and limits: the kubelet doesn't know these resources.

Source: koordinator pkg/koordlet/runtimehooks/hooks/batchresource/batch_resource.go.
"""

import math
from collections.abc import Iterator, Mapping

from koordinator.api.annotations.pod_qos import EXTENDED_RESOURCE_SPEC, ExtendedContainerResources
from koordinator.api.core import ResourceList
from koordinator.api.qos import QosClass
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.domain.cgroups.files import (
    UNLIMITED,
    CgroupFile,
    quota_of_milli,
    shares_of_milli,
)
from koordinator.foundation.errors import InputError
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

Resources = Mapping[str, ExtendedContainerResources]  # by name of the container
_REASON = "batch resources"


def plan_batch_resources(view: NodeView) -> list[Intent]:
    """Return the files of best-effort pods that have batch resources, and of their containers."""
    return [intent for pod in view.active_pods for intent in pod_batch_resources(view, pod)]


def pod_batch_resources(view: NodeView, pod: PodView) -> Iterator[Intent]:
    """Yield the files of one pod and of its containers; none if it has no batch resources.

    No quotas while best effort is suppressed by quota as a whole.
    """
    if pod.labelled_qos is not QosClass.BE or not pod.is_active:
        return
    resources = batch_resources(pod)
    if not resources:
        return
    threshold = view.threshold
    is_limited = not (threshold.enable and threshold.cpu_suppress_policy == "cfsQuota")
    ratio = view.machine.cpu_normalization_ratio
    parts = resources.values()
    requests = [_amount(part.requests, BATCH_CPU) for part in parts]
    cpus = [_amount(part.limits, BATCH_CPU) for part in parts]
    memory = [_amount(part.limits, BATCH_MEMORY) for part in parts]
    quota = _quota(_sum(cpus), ratio) if is_limited else UNLIMITED
    yield from _writes(pod.folder, sum(requests), quota, _sum(memory), pod.key)
    for container in pod.containers:
        part = resources.get(container.name)
        if part is None:
            continue
        limit = _amount(part.limits, BATCH_CPU)
        quota = _quota(limit, ratio) if is_limited else UNLIMITED
        bytes_ = _amount(part.limits, BATCH_MEMORY) or UNLIMITED
        owner = f"{pod.key}/{container.name}"
        request = _amount(part.requests, BATCH_CPU)
        yield from _writes(container.folder, request, quota, bytes_, owner)


def batch_resources(pod: PodView) -> Resources:
    """Return the batch resources of a pod: of its annotation, else of its containers.

    Without any there is nothing; an annotation that can't be read counts for none.
    """
    try:
        stated = EXTENDED_RESOURCE_SPEC.read(pod.pod.metadata)
    except InputError:
        stated = None
    if stated is not None:
        return stated.containers
    found = {
        spec.name: ExtendedContainerResources(
            requests=spec.resources.requests, limits=spec.resources.limits
        )
        for spec in pod.pod.spec.containers
    }
    names = {BATCH_CPU, BATCH_MEMORY}
    if not any(names & {*part.requests, *part.limits} for part in found.values()):
        return {}
    return found


def normalized(quota_us: int, ratio: float | None) -> int:
    """Return a quota on CPUs that are worth more than they were when it was asked for."""
    if quota_us <= 0 or ratio is None or ratio <= 1:
        return quota_us
    return math.ceil(quota_us / ratio)


def _quota(limit_milli: int, ratio: float | None) -> int:
    return normalized(quota_of_milli(limit_milli), ratio)


def _sum(amounts: list[int]) -> int:
    """Return the sum; no limit if one of them has none."""
    return sum(amounts) if all(amounts) else UNLIMITED


def _amount(amounts: ResourceList, name: str) -> int:
    quantity = amounts.get(name)
    return max(quantity.value(), 0) if quantity is not None else 0


def _writes(
    folder: str, request_milli: int, quota_us: int, limit_bytes: int, owner: str
) -> list[Intent]:
    values = {
        CgroupFile.CPU_SHARES: shares_of_milli(request_milli),
        CgroupFile.CFS_QUOTA: quota_us,
        CgroupFile.MEMORY_LIMIT: limit_bytes,
    }
    return [SetCgroup(file, folder, str(v), _REASON, owner) for file, v in values.items()]
