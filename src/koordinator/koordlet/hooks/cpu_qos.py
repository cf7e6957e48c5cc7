"""What the NodeSLO says of CPU QoS: the policy, and the settings of each class.

Source: koordinator pkg/koordlet/runtimehooks/hooks/groupidentity/rule.go, coresched/rule.go.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.qos import KubeQos, QosClass
from koordinator.api.resource_names import CPU
from koordinator.api.resource_qos import CpuQos, ResourceQos
from koordinator.domain.cgroups.files import CgroupFile, shares_of_milli
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.node_view import NodeView

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
    """Return ``cpu.idle`` of the tiers: as the NodeSLO says with core scheduling, else 0."""
    unlabelled = cpu_qos_of_classes(view).unlabelled if cpu_policy(view) == CORE_SCHED else {}
    reason = "CPU QoS: schedIdle"
    values = {tier: unlabelled[tier].sched_idle or 0 if unlabelled else 0 for tier in KubeQos}
    return [each for tier, value in values.items() for each in set_idle(view, tier, value, reason)]


def set_idle(view: NodeView, tier: KubeQos, value: int, reason: str) -> Iterator[Intent]:
    """Yield ``cpu.idle`` of a tier, and its shares where it ends to idle.

    The kernel forgets the shares of a cgroup that idles, and gives it those of a new one after
    that (kernel/sched/fair.c, ``sched_group_set_idle``).
    """
    folder = view.layout.tier(tier)
    yield SetCgroup(CgroupFile.CPU_IDLE, folder, str(value), reason, tier)
    if not value and view.cgroups.number(CgroupFile.CPU_IDLE, folder) == 1:
        shares = str(kubelet_shares(view, tier))
        yield SetCgroup(CgroupFile.CPU_SHARES, folder, shares, f"{reason} is off", tier)


def kubelet_shares(view: NodeView, tier: KubeQos) -> int:
    """Return the shares that the kubelet gives to a tier.

    Source: kubernetes pkg/kubelet/cm/qos_container_manager_linux.go ``setCPUCgroupConfig``,
    node_container_manager_linux.go ``enforceNodeAllocatableCgroups``.
    """
    match tier:
        case KubeQos.GUARANTEED:
            return shares_of_milli(view.machine.raw_allocatable.get(CPU, 0))
        case KubeQos.BURSTABLE:
            pods = (pod for pod in view.pods if pod.is_active and pod.kube_qos is tier)
            return shares_of_milli(sum(pod.requests.get(CPU, 0) for pod in pods))
        case KubeQos.BEST_EFFORT:
            return shares_of_milli(0)


def _cpu(qos: ResourceQos | None) -> CpuQos:
    return (qos.cpu_qos if qos is not None else None) or CpuQos()
