"""Cgroup values of batch pods, and OOM scores.

The author of a pod writes these annotations, so they must not protect it better than pods of a
better class: the lowest allowed value is the kubelet's value for the class.

Source: koordinator pkg/koordlet/runtimehooks/hooks/batchresource/batch_resource.go; koordinator
pkg/koordlet/runtimehooks/hooks/oomscoreadj; kubernetes pkg/kubelet/qos/policy.go.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.pod import Container, PodSpec
from koordinator.api.qos import KubeQos, QosClass
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY
from koordinator.domain.cgroups.files import (
    UNLIMITED,
    CgroupFile,
    normalized_quota,
    quota_of_milli,
    shares_of_milli,
)
from koordinator.domain.pod_requests import pod_limits, pod_requests
from koordinator.koordlet.intents import Intent, SetCgroup, SetOomScore
from koordinator.koordlet.view.bounded_annotations import BatchResources
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_REASON = "batch resources"


def plan_batch_resources(view: NodeView) -> list[Intent]:
    """Return the limits of best-effort pods with batch resources, and of their containers."""
    return [intent for pod in view.active_pods for intent in pod_batch_resources(view, pod)]


def pod_batch_resources(view: NodeView, pod: PodView) -> Iterator[Intent]:
    """Yield the limits of one pod and its containers; none without batch resources.

    There are no quotas while the best-effort tier as a whole is suppressed by quota.
    """
    if pod.labelled_qos is not QosClass.BE or not pod.is_active:
        return
    resources = pod.batch_resources
    if not resources:
        return
    threshold = view.threshold
    is_limited = not (threshold.enable and threshold.cpu_suppress_policy == "cfsQuota")
    ratio = view.machine.cpu_normalization_ratio
    spec = _spec_of(pod, resources)
    requested = pod_requests(spec).get(BATCH_CPU, 0)
    quota = _quota(_pod_limit(spec, BATCH_CPU), ratio) if is_limited else UNLIMITED
    yield from _writes(pod.folder, requested, quota, _pod_limit(spec, BATCH_MEMORY), pod.key)
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


def _spec_of(pod: PodView, resources: BatchResources) -> PodSpec:
    """Return the containers of a pod with these resources.

    A container missing from the spec (of a pod known from the runtime only) is a main container.
    """
    spec = pod.pod.spec
    main = {each.name: each for each in spec.containers}
    starting = {each.name: each for each in spec.init_containers}
    containers, init_containers = [], []
    for name in (*starting, *(name for name in resources if name not in starting)):
        part = resources.get(name)
        if part is None:
            continue
        amounts = ResourceRequirements(requests=part.requests, limits=part.limits)
        if name in starting:
            init_containers.append(replace(starting[name], resources=amounts))
        else:
            container = main.get(name) or Container(name=name)
            containers.append(replace(container, resources=amounts))
    return PodSpec(containers=tuple(containers), init_containers=tuple(init_containers))


def _quota(limit_milli: int, ratio: float | None) -> int:
    return normalized_quota(quota_of_milli(limit_milli), ratio)


def _pod_limit(spec: PodSpec, name: str) -> int:
    """Return the limit of a pod; unlimited if a main or sidecar container has no limit.

    An init container that ends and has no limit is covered by the pod's.
    """
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    containers = (*spec.containers, *sidecars)
    if not all(_amount(each.resources.limits, name) for each in containers):
        return UNLIMITED
    return pod_limits(spec).get(name, UNLIMITED)


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


_MOST: Final = 1000
#: Lowest value that the kubelet sets for a pod of the class.
_LEAST: Final = {KubeQos.GUARANTEED: -997, KubeQos.BURSTABLE: 3, KubeQos.BEST_EFFORT: 3}
_CRITICAL_PRIORITY: Final = 2_000_000_000  # system-cluster-critical


def plan_oom_scores(view: NodeView) -> list[Intent]:
    """Return the adjustments of containers that have one.

    An invalid value, or one below the minimum of the pod's class, is ignored, not clamped.
    """
    intents: list[Intent] = []
    for pod in view.active_pods:
        by_container, default = pod.oom_scores
        least = least_score(pod)
        for container in pod.containers:
            value = by_container.get(container.name, default)
            if value is not None and least <= value <= _MOST:
                owner = f"{pod.key}/{container.name}"
                intents.append(SetOomScore(container.folder, value, "OOM score annotation", owner))
    return intents


def least_score(pod: PodView) -> int:
    """Return the lowest allowed adjustment; critical pods are treated as Guaranteed ones."""
    is_critical = (pod.pod.spec.priority or 0) >= _CRITICAL_PRIORITY
    return _LEAST[KubeQos.GUARANTEED if is_critical else pod.kube_qos]
