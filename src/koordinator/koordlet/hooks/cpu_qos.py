"""What the NodeSLO says of CPU QoS: the policy, and the settings of each class.

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
    """By QoS class, and by kube QoS of what has no class; SYSTEM has none."""

    classes: Mapping[QosClass, CpuQos]
    unlabelled: Mapping[KubeQos, CpuQos]

    @property
    def is_enabled(self) -> bool:
        """Whether any class has it."""
        return any(cpu.enable for cpu in self.classes.values())


def cpu_policy(view: NodeView) -> str:
    """Return groupIdentity or coreSched."""
    policies = view.qos_strategy.policies
    return (policies.cpu_policy if policies is not None else None) or ""


def cpu_qos_of_classes(view: NodeView) -> CpuQosOfClasses:
    """Return the settings of every class; LSE has those of LSR."""
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
    """Return ``cpu.idle`` of pods: as the NodeSLO says with core scheduling, else 0."""
    cpu = cpu_qos_of_classes(view) if cpu_policy(view) == CORE_SCHED else None

    def goes_last(pod: PodView) -> bool:
        if cpu is None:
            return False
        settings = cpu.classes.get(pod.labelled_qos, cpu.unlabelled[pod.kube_qos])
        return settings.sched_idle == 1

    return plan_idle(view, goes_last, "CPU QoS: schedIdle")


def plan_idle(view: NodeView, goes_last: Callable[[PodView], bool], reason: str) -> list[Intent]:
    """Return ``cpu.idle`` of the tiers, which is 0, and of the pods of the best-effort tier.

    The kernel refuses to change the shares of a cgroup that idles.  The kubelet writes those of
    its tiers at its start, and ends if it can't, and of a pod when that is resized, which pods of
    the best-effort tier are not.  Those that idle weigh all the same, whatever their shares are, so
    they do only while somebody in their tier goes before them: towards other tiers it changes
    nothing, since the kernel compares tiers there.
    Source: Linux kernel/sched/fair.c ``sched_group_set_shares``, ``find_matching_se``; kubernetes
    pkg/kubelet/cm/qos_container_manager_linux.go ``Start``.
    """
    intents: list[Intent] = []
    for tier in KubeQos:
        folder = view.layout.tier(tier)
        cgroup = _Cgroup(folder, kubelet_shares(view, tier), tier)
        intents += _set_idle(view, cgroup, 0, reason)
    pods = [pod for pod in view.active_pods if pod.kube_qos is KubeQos.BEST_EFFORT]
    last = {pod.folder for pod in pods if goes_last(pod)}
    if len(last) == len(pods):
        last = set()
    for pod in pods:
        cgroup = _Cgroup(pod.folder, shares_of_milli(0), pod.key)
        intents += _set_idle(view, cgroup, int(pod.folder in last), reason)
    return intents


@dataclass(frozen=True, slots=True)
class _Cgroup:
    folder: str
    shares: int  # that the kubelet gives it
    owner: str


def _set_idle(view: NodeView, cgroup: _Cgroup, value: int, reason: str) -> Iterator[Intent]:
    """Yield ``cpu.idle`` of a cgroup, and the shares of the kubelet where it ends to idle.

    The kernel forgets the shares of a cgroup that idles, and gives it those of a new one after
    that (kernel/sched/fair.c, ``sched_group_set_idle``).
    """
    folder, owner = cgroup.folder, cgroup.owner
    yield SetCgroup(CgroupFile.CPU_IDLE, folder, str(value), reason, owner)
    if not value and view.cgroups.number(CgroupFile.CPU_IDLE, folder) == 1:
        shares, off = str(cgroup.shares), f"{reason} is off"
        yield SetCgroup(CgroupFile.CPU_SHARES, folder, shares, off, owner)


def kubelet_shares(view: NodeView, tier: KubeQos) -> int:
    """Return the shares that the kubelet gives to a tier.

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
