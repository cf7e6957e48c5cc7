"""CPU sets of containers: the CPUs that the scheduler allocated, or a shared pool.

Source: koordinator pkg/koordlet/runtimehooks/hooks/cpuset/rule.go, ``getContainerCPUSet``,
cpuset.go, ``UnsetPodCPUQuota``.
"""

from collections.abc import Collection, Iterator

from koordinator.api.qos import KubeQos, QosClass
from koordinator.domain.cgroups.files import UNLIMITED, CgroupFile, quota_of_milli
from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.cpus import CpuPools, applied_cpu_limits, cpu_pools
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView


def is_tier_suppressed(gates: Collection[str]) -> bool:
    """Return whether CPU suppress has the CPU sets of the best-effort tier."""
    return "BECPUSuppress" in gates and "BECPUManager" not in gates


def plan_cpusets(
    view: NodeView,
    *,
    best_effort_cpus: bool = False,
    is_suppressed: bool = True,
    keep_quota: bool = False,
) -> list[Intent]:
    """Return the CPU sets of containers and sandboxes, and lift quotas of pods with bound CPUs.

    CPU suppress manages best-effort pods, unless ``best_effort_cpus`` is set and the scheduler
    chose NUMA nodes.  ``is_suppressed`` is ``is_tier_suppressed``; ``keep_quota`` keeps the quotas.
    """
    pools = cpu_pools(view)
    intents: list[Intent] = []
    for pod in view.active_pods:
        cpus = pod_cpus(
            view, pod, pools, best_effort_cpus=best_effort_cpus, is_suppressed=is_suppressed
        )
        intents += pod_cpuset(view, pod, cpus, keep_quota=keep_quota)
        intents += _sandbox_cpuset(view, pod, cpus)
    intents += _host_applications(view, pools)
    return intents


def pod_cpuset(
    view: NodeView, pod: PodView, cpus: tuple[int, str], *, keep_quota: bool
) -> Iterator[Intent]:
    """Yield the CPU sets of one pod's containers, and lift the quota of bound CPUs.

    ``cpus`` is the result of ``pod_cpus``.
    """
    if not pod.is_active:
        return
    mask, reason = cpus
    if mask:
        text = format_cpu_list(mask)
        for container in pod.containers:
            owner = f"{pod.key}/{container.name}"
            yield SetCgroup(CgroupFile.CPUSET, container.folder, text, reason, owner)
    if keep_quota:
        return
    if pod.bound_cpus:
        yield from _lift_quota(pod)
    elif pod.stated_cpus:
        yield from _restore_quota(view, pod)


def _sandbox_cpuset(view: NodeView, pod: PodView, cpus: tuple[int, str]) -> Iterator[Intent]:
    mask, reason = cpus
    for folder in view.sandboxes[pod.folder] if mask else ():
        yield SetCgroup(CgroupFile.CPUSET, folder, format_cpu_list(mask), reason, pod.key)


def pod_cpus(
    view: NodeView, pod: PodView, pools: CpuPools, *, best_effort_cpus: bool, is_suppressed: bool
) -> tuple[int, str]:
    """Return the CPUs of a pod's containers as a mask, with the reason; 0 changes nothing.

    With ``is_suppressed``, CPU suppress has the CPU sets of the best-effort tier, regardless of the
    labels of its pods: the kernel rejects CPUs that the tier lacks.
    """
    bound = pod.bound_cpus
    if bound:
        return bound, "cpuset: the scheduler chose these CPUs"
    if pod.folder.startswith(f"{view.layout.besteffort}/") and is_suppressed:
        return 0, ""
    nodes = pod.numa_nodes
    if nodes and (pod.labelled_qos is not QosClass.BE or best_effort_cpus):
        pool = pools.best_effort if pod.labelled_qos is QosClass.BE else pools.shared
        mask = sum(pool.get(node, 0) for node in nodes)
        return mask, f"cpuset: the scheduler chose NUMA nodes {[*nodes]}"
    if pod.labelled_qos is QosClass.SYSTEM and view.machine.system_qos.cpuset:
        return _system_cpus(view), "cpuset: CPUs of class SYSTEM"
    is_unmanaged = pod.kube_qos is KubeQos.BEST_EFFORT or view.machine.kubelet_policy == "static"
    if pod.labelled_qos is not QosClass.LS and is_unmanaged:
        return 0, ""
    return pools.all_shared, "cpuset: shared CPUs"


def _system_cpus(view: NodeView) -> int:
    try:
        return parse_cpu_list(view.machine.system_qos.cpuset)
    except InputError:
        return 0


def _lift_quota(pod: PodView) -> Iterator[Intent]:
    reason, value = "cpuset: bound CPUs need no quota", str(UNLIMITED)
    yield SetCgroup(CgroupFile.CFS_QUOTA, pod.folder, value, reason, pod.key)
    for container in pod.containers:
        owner = f"{pod.key}/{container.name}"
        yield SetCgroup(CgroupFile.CFS_QUOTA, container.folder, value, reason, owner)


def _restore_quota(view: NodeView, pod: PodView) -> Iterator[Intent]:
    """Yield the spec's quotas where a rejected CPU allocation had lifted them earlier.

    The hook of batch resources sets their quotas.
    """
    reason = "cpuset: no bound CPUs"
    limits = applied_cpu_limits(pod.pod)
    of_folders = {each.folder: limits.of(each.name) for each in pod.containers}
    for folder, limit in {**of_folders, pod.folder: limits.pod}.items():
        if limit > 0 and (view.cgroups.number(CgroupFile.CFS_QUOTA, folder) or 0) < 0:
            value = str(quota_of_milli(limit))
            yield SetCgroup(CgroupFile.CFS_QUOTA, folder, value, reason, pod.key)


def _host_applications(view: NodeView, pools: CpuPools) -> Iterator[Intent]:
    if not pools.all_shared:
        return
    text = format_cpu_list(pools.all_shared)
    for application in view.slo.host_applications:
        if application.qos == QosClass.LS:
            folder = view.layout.host_application(application)
            reason = "cpuset: shared CPUs"
            yield SetCgroup(CgroupFile.CPUSET, folder, text, reason, application.name)
