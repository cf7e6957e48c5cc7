"""Intents that depend on objects only, without samples."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from koordinator.koordlet.app.isolation import PodIsolation
from koordinator.koordlet.hooks.batch_resources import plan_batch_resources
from koordinator.koordlet.hooks.core_scheduling import plan_core_scheduling
from koordinator.koordlet.hooks.cpuset import plan_cpusets
from koordinator.koordlet.hooks.group_identity import plan_group_identity
from koordinator.koordlet.hooks.oom_score import plan_oom_scores
from koordinator.koordlet.intents import Intent
from koordinator.koordlet.qos.blkio import DiskLookup, plan_blkio
from koordinator.koordlet.qos.memory_qos import plan_memory_qos
from koordinator.koordlet.qos.resctrl import ResctrlFacts, plan_class_resctrl, plan_pod_resctrl
from koordinator.koordlet.qos.system_config import plan_system_config
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

Plan = Callable[[NodeView], list[Intent]]

#: Plans by feature gate, in order of application: the last write to a file wins.
PLANS: Final[Mapping[str, Plan]] = MappingProxyType(
    {
        "CgroupReconcile": plan_memory_qos,
        "SystemConfig": plan_system_config,
        "CoreSched": plan_core_scheduling,
        "GroupIdentity": plan_group_identity,
        "BatchResource": plan_batch_resources,
        "OOMScoreAdj": plan_oom_scores,
    }
)


def plan_all(
    view: NodeView,
    gates: Collection[str],
    disks: DiskLookup,
    caches: ResctrlFacts | None,
    isolation: PodIsolation,
    *,
    keep_quota: bool,
) -> list[Intent]:
    """Return the intents of the enabled features; ``caches`` is None without resctrl.

    A feature that fails for a pod is planned without that pod; other features keep it.
    """
    intents: list[Intent] = []
    for gate, plan in _plans(gates, disks, caches, keep_quota=keep_quota):

        def of(pods: tuple[PodView, ...], plan: Plan = plan) -> list[Intent]:
            return plan(view if len(pods) == len(view.pods) else replace(view, pods=pods))

        intents += isolation.attempt(gate, view.pods, of) or ()
    return intents


def _plans(
    gates: Collection[str], disks: DiskLookup, caches: ResctrlFacts | None, *, keep_quota: bool
) -> Iterator[tuple[str, Plan]]:
    """Yield the plans of the enabled features in order of application."""
    for gate, plan in PLANS.items():
        if gate in gates:
            yield gate, plan
    if "BlkIOReconcile" in gates:
        yield "BlkIOReconcile", partial(plan_blkio, disks=disks)
    if "CPUSetAllocator" in gates:
        best_effort = "BECPUManager" in gates
        yield (
            "CPUSetAllocator",
            partial(plan_cpusets, best_effort_cpus=best_effort, keep_quota=keep_quota),
        )
    if "RdtResctrl" in gates and caches is not None:
        yield "RdtResctrl", partial(plan_class_resctrl, facts=caches)
    if "Resctrl" in gates and caches is not None:
        yield "Resctrl", partial(plan_pod_resctrl, facts=caches)
