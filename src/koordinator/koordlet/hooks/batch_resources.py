"""Cgroup values of batch pods, and OOM scores.

The author of a pod writes these annotations, so they must not protect it better than pods of a
better class: the lowest allowed value is the kubelet's value for the class.

Source: koordinator pkg/koordlet/runtimehooks/hooks/batchresource/batch_resource.go; koordinator
pkg/koordlet/runtimehooks/hooks/oomscoreadj; kubernetes pkg/kubelet/qos/policy.go.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.pod_qos import ExtendedContainerResources
from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.pod import Container, PodSpec
from koordinator.api.qos import KubeQos, QosClass
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordinator.domain.amounts import value_of
from koordinator.domain.cgroups.files import (
    UNLIMITED,
    CgroupFile,
    least_shares_of_weight,
    normalized_quota,
    quota_of_milli,
    runtime_weight_of_shares,
    shares_of_milli,
)
from koordinator.domain.pod_requests import pod_limits, pod_requests
from koordinator.foundation.quantity import NANOS, Quantity
from koordinator.koordlet.intents import Intent, SetCgroup, SetOomScore
from koordinator.koordlet.view.bounded_annotations import BatchResources
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_REASON = "batch resources"
_NO_BATCH: Final = ExtendedContainerResources()
_NATIVE: Final = {BATCH_CPU: CPU, BATCH_MEMORY: MEMORY}

_MOST: Final = 1000
#: Lowest value that the kubelet sets for a pod of the class.
_LEAST: Final = {KubeQos.GUARANTEED: -997, KubeQos.BURSTABLE: 3, KubeQos.BEST_EFFORT: 3}
_CRITICAL_PRIORITY: Final = 2_000_000_000  # system-cluster-critical


def plan_batch_resources(view: NodeView, *, is_suppressed: bool = True) -> list[Intent]:
    """Return the limits of best-effort pods with batch resources, and of their containers.

    ``is_suppressed`` is whether CPU suppress runs.
    """
    return [
        intent
        for pod in view.active_pods
        for intent in pod_batch_resources(view, pod, is_suppressed=is_suppressed)
    ]


def pod_batch_resources(
    view: NodeView, pod: PodView, *, is_suppressed: bool = True
) -> Iterator[Intent]:
    """Yield the limits of one pod and its containers; none without batch resources.

    A container without batch resources keeps the kubelet's values, and its pod has room for them.
    There are no quotas while CPU suppress limits the best-effort tier as a whole by quota.
    """
    if pod.labelled_qos is not QosClass.BE or not pod.is_active:
        return
    resources = pod.batch_resources
    if not resources:
        return
    is_limited = not (is_suppressed and view.is_tier_limited_by_quota)
    ratio = view.machine.cpu_normalization_ratio
    spec = _spec_of(pod, resources)

    def quota(limit: int) -> int:
        return normalized_quota(quota_of_milli(limit), ratio) if is_limited else UNLIMITED

    of_pod = quota(_pod_limit(spec, BATCH_CPU))
    yield from _writes(
        pod.folder,
        {
            CgroupFile.CPU_SHARES: shares_of_milli(pod_requests(spec).get(BATCH_CPU, 0)),
            CgroupFile.CFS_QUOTA: max(of_pod, _kubelet_quota(pod)) if of_pod > 0 else of_pod,
            CgroupFile.MEMORY_LIMIT: _pod_limit(spec, BATCH_MEMORY),
        },
        pod.key,
    )
    for container in pod.containers:
        part = resources.get(container.name)
        if part is None:
            continue
        owner, values = f"{pod.key}/{container.name}", {}
        if not _is_native(container.spec, part, BATCH_CPU):
            request, limit = value_of(part.requests, BATCH_CPU), value_of(part.limits, BATCH_CPU)
            yield _container_shares(view, container.folder, shares_of_milli(request), owner)
            values[CgroupFile.CFS_QUOTA] = quota(limit)
        if not _is_native(container.spec, part, BATCH_MEMORY):
            limit = value_of(part.limits, BATCH_MEMORY)
            values[CgroupFile.MEMORY_LIMIT] = limit or UNLIMITED
        yield from _writes(container.folder, values, owner)


def _container_shares(view: NodeView, folder: str, shares: int, owner: str) -> Intent:
    """Return shares with the weight that the runtime gives a container with these shares."""
    if not view.runtime_has_own_weights:
        return SetCgroup(CgroupFile.CPU_SHARES, folder, str(shares), _REASON, owner)
    value = str(least_shares_of_weight(runtime_weight_of_shares(shares)))
    return SetCgroup(
        CgroupFile.CPU_SHARES, folder, value, _REASON, owner, runtime_value=str(shares)
    )


def _kubelet_quota(pod: PodView) -> int:
    """Return the largest quota that the kubelet sets for a container; the pod's can't be less."""
    spec = pod.pod.spec
    limits = (each.resources.limits.get(CPU) for each in (*spec.containers, *spec.init_containers))
    return quota_of_milli(max((each.milli() for each in limits if each is not None), default=0))


def _spec_of(pod: PodView, resources: BatchResources) -> PodSpec:
    """Return the containers of a pod with their amounts under the names of batch resources.

    A native amount counts where a container has no batch amount; overheads are native, too.  A
    container missing from the spec (of a pod known from the runtime only) is a main container.
    """
    spec = pod.pod.spec

    def with_amounts(container: Container) -> Container:
        part = resources.get(container.name, _NO_BATCH)
        requests, limits = dict(part.requests), dict(part.limits)
        for name in _NATIVE:
            if _is_native(container, part, name):
                _take_native(container.resources.requests, name, requests)
                _take_native(container.resources.limits, name, limits)
        return replace(container, resources=ResourceRequirements(requests=requests, limits=limits))

    listed = {each.name for each in (*spec.containers, *spec.init_containers)}
    unlisted = (Container(name=name) for name in resources if name not in listed)
    overhead = dict(spec.overhead)
    for name in _NATIVE:
        _take_native(spec.overhead, name, overhead)
    return PodSpec(
        containers=tuple(map(with_amounts, (*spec.containers, *unlisted))),
        init_containers=tuple(map(with_amounts, spec.init_containers)),
        overhead=overhead,
    )


def _is_native(container: Container, part: ExtendedContainerResources, name: str) -> bool:
    """Return whether a container has a native amount of a resource, and no batch amount."""
    if name in part.requests or name in part.limits:
        return False
    own = container.resources
    return bool(value_of(own.requests, _NATIVE[name]) or value_of(own.limits, _NATIVE[name]))


def _take_native(amounts: ResourceList, name: str, into: dict[str, Quantity]) -> None:
    amount = amounts.get(_NATIVE[name])
    if amount is not None and name not in into:
        into[name] = Quantity(amount.milli() * NANOS) if name == BATCH_CPU else amount


def _pod_limit(spec: PodSpec, name: str) -> int:
    """Return the limit of a pod; unlimited if a main or sidecar container has no limit.

    An init container that ends and has no limit is covered by the pod's.
    """
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    containers = (*spec.containers, *sidecars)
    if not all(value_of(each.resources.limits, name) for each in containers):
        return UNLIMITED
    return pod_limits(spec).get(name, UNLIMITED)


def _writes(folder: str, values: Mapping[CgroupFile, int], owner: str) -> Iterator[Intent]:
    for file, value in values.items():
        yield SetCgroup(file, folder, str(value), _REASON, owner)


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
