"""CPU limits that the kubelet applies to a pod and its containers.

Source: kubernetes pkg/kubelet/cm/helpers_linux.go ``ResourceConfigForPod``;
pkg/kubelet/kuberuntime/kuberuntime_container_linux.go ``getCPULimit``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from koordinator.api.core import ResourceList
from koordinator.api.pod import Container, ContainerStatus, Pod, PodSpec
from koordinator.api.qos import KubeQos, kube_qos_of
from koordinator.api.resource_names import CPU
from koordinator.domain.pod_requests import bounded, pod_limits

_PENDING: Final = "PodResizePending"
_IN_PROGRESS: Final = "PodResizeInProgress"
_FAILED_STARTS: Final = frozenset({"CreateContainerError", "RunContainerError", "CrashLoopBackOff"})


@dataclass(frozen=True, slots=True)
class CpuLimits:
    """Limits in milli-CPU, 0 for none: of the whole pod, and of its containers by name."""

    pod: int
    containers: Mapping[str, int]

    def of(self, container: str) -> int:
        """Return the limit of a container."""
        return self.containers.get(container, 0)


def stated_cpu_limits(pod: Pod) -> CpuLimits:
    """Return the limits by the spec, which the kubelet applies unless a resize is pending."""
    return _limits(pod, pod.spec)


def applied_cpu_limits(pod: Pod) -> CpuLimits:
    """Return the limits in force: while a resize is pending, those that the status reports."""
    return _limits(pod, _in_force(pod)) if is_resize_pending(pod) else stated_cpu_limits(pod)


def is_resize_pending(pod: Pod) -> bool:
    """Return whether the kubelet has not accepted a resize: it is deferred or infeasible."""
    return _has_condition(pod, _PENDING)


def is_resize_in_progress(pod: Pod) -> bool:
    """Return whether the kubelet has accepted a resize and is applying it."""
    return _has_condition(pod, _IN_PROGRESS)


def starting_containers(pod: Pod) -> list[str]:
    """Return the containers that the kubelet failed to start, or starts again.

    The kubelet writes their limits before any other component can lower them.
    """
    status = pod.status
    statuses = (*status.container_statuses, *status.init_container_statuses)
    return [each.name for each in statuses if _starts_again(each)]


def _starts_again(status: ContainerStatus) -> bool:
    waiting = status.state.waiting
    return waiting is not None and waiting.reason in _FAILED_STARTS


def _has_condition(pod: Pod, kind: str) -> bool:
    return any(each.type == kind and each.status == "True" for each in pod.status.conditions)


def _limits(pod: Pod, spec: PodSpec) -> CpuLimits:
    whole = _milli(spec.resources.limits) if spec.resources is not None else 0
    every = (*spec.containers, *spec.init_containers)
    own = {each.name: _milli(each.resources.limits) for each in every}
    limit = 0
    if (whole or all(own.values())) and kube_qos_of(pod) is not KubeQos.BEST_EFFORT:
        limit = pod_limits(spec).get(CPU, 0)
    return CpuLimits(limit, {name: milli or whole for name, milli in own.items()})


def _in_force(pod: Pod) -> PodSpec:
    """Return the spec with the limits of containers that their statuses report."""
    status = pod.status
    statuses = {
        each.name: each for each in (*status.container_statuses, *status.init_container_statuses)
    }

    def applied(container: Container) -> Container:
        reported = statuses.get(container.name)
        if reported is None or reported.resources is None:
            return container
        limits = {**container.resources.limits, **reported.resources.limits}
        return replace(container, resources=replace(container.resources, limits=limits))

    spec = pod.spec
    return replace(
        spec,
        containers=tuple(map(applied, spec.containers)),
        init_containers=tuple(map(applied, spec.init_containers)),
    )


def _milli(limits: ResourceList) -> int:
    quantity = limits.get(CPU)
    return bounded(CPU, quantity) if quantity is not None else 0
