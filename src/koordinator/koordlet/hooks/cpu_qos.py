"""CPU QoS of the NodeSLO: the policy, the settings of each class, and ``cpu.idle``.

Source: koordinator pkg/koordlet/runtimehooks/hooks/groupidentity/rule.go, coresched/rule.go.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.qos import KubeQos, QosClass
from koordinator.api.resource_names import CPU
from koordinator.api.resource_qos import CpuQos, ResourceQos
from koordinator.domain.cgroups.files import CgroupFile, shares_of_milli
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

CORE_SCHED: Final = "coreSched"


@dataclass(frozen=True, slots=True)
class CpuQosOfClasses:
    """CPU QoS by QoS class, and by kube QoS of unlabelled pods; SYSTEM has none."""

    classes: Mapping[QosClass, CpuQos]
    unlabelled: Mapping[KubeQos, CpuQos]

    @property
    def is_enabled(self) -> bool:
        """Whether CPU QoS is enabled for any class."""
        return any(cpu.enable for cpu in self.classes.values())


def cpu_policy(view: NodeView) -> str:
    """Return groupIdentity, coreSched, or an empty string."""
    policies = view.qos_strategy.policies
    return (policies.cpu_policy if policies is not None else None) or ""


def cpu_qos_of_classes(view: NodeView) -> CpuQosOfClasses:
    """Return the settings of each class; LSE has the settings of LSR."""
    strategy = view.qos_strategy
    lsr, ls, be = (
        _cpu(each) for each in (strategy.lsr_class, strategy.ls_class, strategy.be_class)
    )
    return CpuQosOfClasses(
        {QosClass.LSE: lsr, QosClass.LSR: lsr, QosClass.LS: ls, QosClass.BE: be},
        {
            KubeQos.GUARANTEED: lsr if lsr.enable else ls,
            KubeQos.BURSTABLE: ls,
            KubeQos.BEST_EFFORT: be,
        },
    )


def plan_sched_idle(view: NodeView) -> list[Intent]:
    """Return ``cpu.idle`` of pods: from the NodeSLO with core scheduling, otherwise 0."""
    cpu = cpu_qos_of_classes(view) if cpu_policy(view) == CORE_SCHED else None

    def is_idle(pod: PodView) -> bool:
        if cpu is None:
            return False
        settings = cpu.classes.get(pod.labelled_qos, cpu.unlabelled[pod.kube_qos])
        return settings.sched_idle == 1

    return plan_idle(view, is_idle, "CPU QoS: schedIdle")


def plan_idle(view: NodeView, is_idle: Callable[[PodView], bool], reason: str) -> list[Intent]:
    """Return ``cpu.idle`` of the tiers, always 0, and of the pods in the best-effort tier.

    The kernel rejects changes of the shares of an idle cgroup.  The kubelet writes the shares of
    its tiers at its start, and exits on failure; it writes a pod's shares at a resize, which pods
    of the best-effort tier do not support.  Idle cgroups have the same weight regardless of their
    shares, so pods are idle only while another pod in the tier is not.  Towards other tiers
    ``cpu.idle`` has no effect, because the kernel compares tiers there.
    Source: Linux kernel/sched/fair.c ``sched_group_set_shares``, ``find_matching_se``; kubernetes
    pkg/kubelet/cm/qos_container_manager_linux.go ``Start``.
    """
    intents: list[Intent] = []
    for tier in KubeQos:
        folder = view.layout.tier(tier)
        cgroup = _Cgroup(folder, kubelet_shares(view, tier), tier)
        intents += _set_idle(view, cgroup, 0, reason)
    pods = [pod for pod in view.active_pods if pod.kube_qos is KubeQos.BEST_EFFORT]
    idle = {pod.folder for pod in pods if is_idle(pod)}
    if len(idle) == len(pods):
        idle = set()
    for pod in pods:
        cgroup = _Cgroup(pod.folder, shares_of_milli(0), pod.key)
        intents += _set_idle(view, cgroup, int(pod.folder in idle), reason)
    return intents


@dataclass(frozen=True, slots=True)
class _Cgroup:
    folder: str
    shares: int  # as the kubelet sets them
    owner: str


def _set_idle(view: NodeView, cgroup: _Cgroup, value: int, reason: str) -> Iterator[Intent]:
    """Yield ``cpu.idle`` of a cgroup, and the kubelet's shares when it stops being idle.

    The kernel discards the shares of a cgroup that becomes idle, and afterwards applies the
    default (kernel/sched/fair.c, ``sched_group_set_idle``).
    """
    folder, owner = cgroup.folder, cgroup.owner
    yield SetCgroup(CgroupFile.CPU_IDLE, folder, str(value), reason, owner)
    if not value and view.cgroups.number(CgroupFile.CPU_IDLE, folder) == 1:
        shares, off = str(cgroup.shares), f"{reason} is off"
        yield SetCgroup(CgroupFile.CPU_SHARES, folder, shares, off, owner)


def kubelet_shares(view: NodeView, tier: KubeQos) -> int:
    """Return the shares that the kubelet sets for a tier.

    Source: kubernetes pkg/kubelet/cm/qos_container_manager_linux.go ``setCPUCgroupConfig``,
    node_container_manager_linux.go ``enforceNodeAllocatableCgroups``.
    """
    match tier:
        case KubeQos.GUARANTEED:
            return shares_of_milli(view.machine.raw_allocatable.get(CPU, 0))
        case KubeQos.BURSTABLE:
            pods = (pod for pod in view.active_pods if pod.kube_qos is tier)
            return shares_of_milli(sum(pod.requests.get(CPU, 0) for pod in pods))
        case KubeQos.BEST_EFFORT:
            return shares_of_milli(0)


def _cpu(qos: ResourceQos | None) -> CpuQos:
    return (qos.cpu_qos if qos is not None else None) or CpuQos()
