"""CPUs of pods: limits that the kubelet applies, shared pools, and ownership of bound CPUs.

The scheduler allocates no CPU to two pods.  A client that may patch a pod could state the CPUs of
another one, so the first pod that states a CPU in its annotation keeps it.
Source: kubernetes pkg/kubelet/cm/helpers_linux.go ``ResourceConfigForPod``;
pkg/kubelet/kuberuntime/kuberuntime_container_linux.go ``getCPULimit``; koordinator
pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go, ``calCPUSharePools``;
pkg/koordlet/qosmanager cpusuppress, ``calcBECPUSet``.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as replace_struct

from koordinator.api.annotations.numa import CpuSharedPool
from koordinator.api.conditions import is_condition_true
from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.pod import Container, ContainerStatus, Pod, PodSpec
from koordinator.api.qos import KubeQos, kube_qos_of
from koordinator.api.resource_names import CPU
from koordinator.domain.amounts import bounded
from koordinator.domain.pod_requests import pod_limits
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.foundation.files import PathComponent
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

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


def stated_cpu_requests(pod: Pod) -> dict[str, int]:
    """Return the CPU requests by container in milli-CPU, and of the whole pod by an empty name."""
    spec = pod.spec
    every = (*spec.containers, *spec.init_containers)
    whole = _milli(spec.resources.requests) if spec.resources is not None else 0
    return {each.name: _milli(each.resources.requests) for each in every} | {"": whole}


def is_resize_pending(pod: Pod) -> bool:
    """Return whether the kubelet has not accepted a resize: it is deferred or infeasible."""
    return is_condition_true(pod.status.conditions, _PENDING)


def is_whole_resize_pending(pod: Pod) -> bool:
    """Return whether a resize is pending that may concern the CPU limit of the pod as a whole."""
    whole = pod.spec.resources
    return is_resize_pending(pod) and whole is not None and CPU in whole.limits


def is_resize_in_progress(pod: Pod) -> bool:
    """Return whether the kubelet has accepted a resize and is applying it."""
    return is_condition_true(pod.status.conditions, _IN_PROGRESS)


def startable_containers(pod: Pod, running: Collection[str]) -> list[str]:
    """Return the containers that the kubelet may start: not ``running``, or failed to start.

    The kubelet writes their limits before any other component can lower them.
    """
    status = pod.status
    statuses = {
        each.name: each for each in (*status.container_statuses, *status.init_container_statuses)
    }
    names = []
    for each in (*pod.spec.containers, *pod.spec.init_containers):
        known = statuses.get(each.name)
        has_failed = known is not None and _starts_again(known)
        has_completed = known is not None and _has_completed(pod, each, known)
        if has_failed or not (each.name in running or has_completed):
            names.append(each.name)
    return names


def _starts_again(status: ContainerStatus) -> bool:
    waiting = status.state.waiting
    return waiting is not None and waiting.reason in _FAILED_STARTS


def _has_completed(pod: Pod, container: Container, status: ContainerStatus) -> bool:
    """Return whether a container has ended and is not restarted, by its pod's policy."""
    ended = status.state.terminated
    if ended is None or container.restart_policy:
        return False
    if container in pod.spec.init_containers:
        return ended.exit_code == 0
    policy = pod.spec.restart_policy
    return policy == "Never" or (policy == "OnFailure" and ended.exit_code == 0)


def _limits(pod: Pod, spec: PodSpec) -> CpuLimits:
    whole = _milli(spec.resources.limits) if spec.resources is not None else 0
    every = (*spec.containers, *spec.init_containers)
    own = {each.name: _milli(each.resources.limits) for each in every}
    limit = 0
    if (whole or all(own.values())) and kube_qos_of(pod) is not KubeQos.BEST_EFFORT:
        limit = pod_limits(spec).get(CPU, 0)
    return CpuLimits(limit, {name: milli or whole for name, milli in own.items()})


def _in_force(pod: Pod) -> PodSpec:
    """Return the spec with the limits that the status reports, of containers and of the pod."""
    status = pod.status
    statuses = {
        each.name: each for each in (*status.container_statuses, *status.init_container_statuses)
    }

    def applied(container: Container) -> Container:
        reported = statuses.get(container.name)
        if reported is None or reported.resources is None:
            return container
        return replace_struct(
            container, resources=_with_limits(container.resources, reported.resources)
        )

    spec, whole = pod.spec, pod.spec.resources
    if whole is not None and status.resources is not None:
        whole = _with_limits(whole, status.resources)
    return replace_struct(
        spec,
        resources=whole,
        containers=tuple(map(applied, spec.containers)),
        init_containers=tuple(map(applied, spec.init_containers)),
    )


def _with_limits(
    stated: ResourceRequirements, reported: ResourceRequirements
) -> ResourceRequirements:
    return replace_struct(stated, limits={**stated.limits, **reported.limits})


def _milli(limits: ResourceList) -> int:
    quantity = limits.get(CPU)
    return bounded(CPU, quantity) if quantity is not None else 0


@dataclass(frozen=True, slots=True)
class CpuPools:
    """Masks of CPUs by NUMA node, for latency-sensitive and for best-effort pods."""

    shared: Mapping[int, int]
    best_effort: Mapping[int, int]

    @property
    def all_shared(self) -> int:
        """Shared CPUs of all NUMA nodes."""
        return sum(self.shared.values())

    def without(self, mask: int) -> "CpuPools":
        """Return the pools without CPUs that become bound to a pod."""
        shared = {node: cpus & ~mask for node, cpus in self.shared.items()}
        return CpuPools(shared, self.best_effort)


def cpu_pools(view: NodeView) -> CpuPools:
    """Return the pools.  Best-effort pods may also use CPUs bound to pods other than LSE.

    No CPU is known to be shared while it is unknown which ones the kubelet has allocated.
    """
    machine = view.machine
    bound = 0
    for pod in view.active_pods:
        bound |= pod.bound_cpus
    kept = machine.reserved_cpus | machine.exclusive_system_cpus
    shared = machine.all_cpus & ~(bound | machine.kubelet_cpus | kept)
    if not machine.knows_allocations:
        shared = 0
    best_effort = view.best_effort_cpus
    return CpuPools(
        {node: cpus & shared for node, cpus in machine.numa_nodes.items()},
        {node: cpus & best_effort for node, cpus in machine.numa_nodes.items()},
    )


def pool_entries(view: NodeView, pool: Mapping[int, int]) -> tuple[CpuSharedPool, ...]:
    """Return a pool in the form of its annotation."""
    sockets = view.machine.sockets
    return tuple(
        CpuSharedPool(socket=sockets[node], node=node, cpuset=format_cpu_list(mask))
        for node, mask in pool.items()
    )


class CpuHolders:
    """Mutable registry of pods, in the order in which they stated their CPUs."""

    def __init__(self) -> None:
        self._stated: dict[PathComponent, int] = {}  # masks by UID, in order of precedence

    def resolved(self, pods: Iterable[PodView]) -> tuple[PodView, ...]:
        """Return the pods, each without the CPUs of pods with precedence.

        Pods that are new in the same call are ordered by their start.  A changed annotation counts
        as new.  Pods that offer their resources to others, such as the pod of a reservation, share
        their CPUs with these.
        """
        listed = tuple(pods)
        owners = {
            pod.uid: pod
            for pod in listed
            if pod.is_active and pod.stated_cpus and not pod.offers_resources
        }
        stated = {
            uid: mask
            for uid, mask in self._stated.items()
            if uid in owners and owners[uid].stated_cpus == mask
        }
        # Owners keep their precedence over the calls: a pod that comes later never takes the CPUs
        # of a running one, whatever its annotation states.
        new = [pod for uid, pod in owners.items() if uid not in stated]
        stated |= {pod.uid: pod.stated_cpus for pod in sorted(new, key=_start)}
        self._stated = stated
        if not stated:
            return listed
        taken = 0
        changed: dict[PathComponent, PodView] = {}
        for uid, mask in stated.items():
            pod = owners[uid]
            if mask & taken:
                pod = changed[uid] = replace(pod, others_cpus=taken)
            taken |= pod.bound_cpus
        return tuple(changed.get(pod.uid, pod) for pod in listed) if changed else listed


def _start(pod: PodView) -> tuple[float, str]:
    started = pod.pod.status.start_time
    return (started.timestamp() if started is not None else math.inf, pod.key)
