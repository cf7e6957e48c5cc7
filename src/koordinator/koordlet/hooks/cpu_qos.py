"""What the NodeSLO says of CPU QoS: the policy, and the settings of each class.

Source: koordinator pkg/koordlet/runtimehooks/hooks/groupidentity/rule.go, coresched/rule.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.qos import KubeQos, QosClass
from koordinator.api.resource_qos import CpuQos, ResourceQos
from koordinator.domain.cgroups.files import CgroupFile
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
    return [
        SetCgroup(CgroupFile.CPU_IDLE, view.layout.tier(tier), str(value), reason, tier)
        for tier, value in values.items()
    ]


def _cpu(qos: ResourceQos | None) -> CpuQos:
    return (qos.cpu_qos if qos is not None else None) or CpuQos()
