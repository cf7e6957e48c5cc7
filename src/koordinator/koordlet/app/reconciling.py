"""What follows from objects alone: hooks and settings that need no samples."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final

from koordinator.koordlet.hooks.batch_resources import plan_batch_resources
from koordinator.koordlet.hooks.core_scheduling import plan_core_scheduling
from koordinator.koordlet.hooks.cpu_normalization import plan_cpu_normalization
from koordinator.koordlet.hooks.cpuset import plan_cpusets
from koordinator.koordlet.hooks.group_identity import plan_group_identity
from koordinator.koordlet.hooks.oom_score import plan_oom_scores
from koordinator.koordlet.intents import Intent
from koordinator.koordlet.qos.blkio import DiskLookup, plan_blkio
from koordinator.koordlet.qos.memory_qos import plan_memory_qos
from koordinator.koordlet.qos.resctrl import ResctrlFacts, plan_class_resctrl, plan_pod_resctrl
from koordinator.koordlet.qos.system_config import plan_system_config
from koordinator.koordlet.view.node_view import NodeView

#: By feature gate, in the order in which they are applied: of two that set one file the last wins.
PLANS: Final[Mapping[str, Callable[[NodeView], list[Intent]]]] = MappingProxyType(
    {
        "CgroupReconcile": plan_memory_qos,
        "SystemConfig": plan_system_config,
        "CoreSched": plan_core_scheduling,
        "GroupIdentity": plan_group_identity,
        "CPUNormalization": plan_cpu_normalization,
        "BatchResource": plan_batch_resources,
        "OOMScoreAdj": plan_oom_scores,
    }
)


def plan_all(
    view: NodeView,
    gates: Collection[str],
    disks: DiskLookup,
    caches: ResctrlFacts | None,
    *,
    keep_quota: bool,
) -> list[Intent]:
    """Return what the features that are on want; ``caches`` None if there is no resctrl."""
    intents: list[Intent] = []
    for gate, plan in PLANS.items():
        if gate in gates:
            intents += plan(view)
    if "BlkIOReconcile" in gates:
        intents += plan_blkio(view, disks)
    if "CPUSetAllocator" in gates:
        intents += plan_cpusets(
            view, best_effort_cpus="BECPUManager" in gates, keep_quota=keep_quota
        )
    if "RdtResctrl" in gates and caches is not None:
        intents += plan_class_resctrl(view, caches)
    if "Resctrl" in gates and caches is not None:
        intents += plan_pod_resctrl(view, caches)
    return intents
