"""Descheduler plans: the moves that a policy would make in a cluster.

Cycles run on a copy, as with ``koord descheduler --once``, until one of them selects a pod; its
verdicts are the plan.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

from koordinator.api.annotations.scheduling import (
    EVICT_REASON,
    EVICT_TRIGGER,
    JOB_CREATED_BY,
    eviction_cost,
)
from koordinator.api.core import ObjectReference
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
    PodMigrationJobMode,
    PodMigrationJobSpec,
)
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.qos import band_of, qos_of
from koordinator.api.selectors import matches
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.contract import DeschedulerPluginSpec, SkippedMove
from koordinator.descheduler.evictor import MoveVerdict
from koordinator.domain.amounts import canonical
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.resized_pods import DEFAULT_RULES, effective_requests
from koordinator.foundation.errors import FaultLog
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import NANOS_PER_MILLI, Quantity
from koordinator.scheduler.contract import PluginSpec
from koordinator.simulator.descheduled import Descheduled
from koordinator.simulator.move_plan import (
    BudgetLeft,
    MoveCost,
    MovePlan,
    NodeForecast,
    PlannedMove,
    StayingPod,
)

MAX_CYCLES = 10  # LowNodeLoad needs several cycles before a node counts as hot
_NAMES = UUID("5b1a3c1c-7d1e-5b52-8f0e-0d6d5d1f6a37")
_SHOWN = ("cpu", "memory", "nvidia.com/gpu", "koordinator.sh/gpu-core")


def plan_moves(
    objects: Iterable[KubeObject],
    configuration: DeschedulerConfiguration,
    *,
    now_s: float,
    prover: KubeSchedulerConfiguration,
    most_cycles: int = MAX_CYCLES,
    out_of_tree: Iterable[DeschedulerPluginSpec[Any]] = (),
    scheduler_plugins: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: frozenset[str] = frozenset(),
    scheduler_gates: FeatureGates = NO_GATES,
) -> MovePlan:
    """Return the plan of the first cycle that selects a pod.

    Usage reports do not change and do not expire between the cycles.
    Raises InputError for an invalid configuration, BugError for a plugin's fault.
    """
    objects, faults = list(objects), FaultLog()
    verdicts: list[MoveVerdict] = []
    world = Descheduled(
        configuration,
        now_s=now_s,
        out_of_tree=out_of_tree,
        scheduler_plugins=scheduler_plugins,
        source=source,
        gates=gates,
        on_fault=faults,
        prover=prover,
        on_move=verdicts.append,
        scheduler_gates=scheduler_gates,
    )
    world.load(objects)
    before = {job.key for job in world.cluster.list(PodMigrationJob).items}
    budgets = world.cluster.list(PodDisruptionBudget).items
    outlook = _Outlook.of(objects)
    world.descheduler.sync()
    problems: tuple[str, ...] = ()
    cycles = 0
    while cycles < most_cycles and not verdicts:
        if cycles:
            world.descheduler.request_cycle()
        cycles += 1
        world.descheduler.run_cycle()
        last = world.descheduler.last_cycle
        problems = tuple(last.problems) if last is not None else ()
    faults.check()
    moves = _in_order([each for each in verdicts if each.skipped is None])
    made = {
        job.spec.pod_ref.uid: job
        for job in world.cluster.list(PodMigrationJob).items
        if job.key not in before
    }
    planned = tuple(_planned(number, each, budgets) for number, each in enumerate(moves, 1))
    return MovePlan(
        moves=planned,
        stays=tuple(_staying(each) for each in verdicts if each.skipped is not None),
        nodes=outlook.after(moves),
        cycles=cycles,
        is_proven=all(each.target for each in planned),
        problems=problems,
        jobs=tuple(_as_applied(made.get(each.pod.metadata.uid), each, now_s) for each in moves),
    )


def _in_order(moves: Sequence[MoveVerdict]) -> list[MoveVerdict]:
    """Return the moves in a stable order in which each follows the moves that free its room."""
    remaining, ordered, done = list(moves), list[MoveVerdict](), set[str]()
    keys = {each.pod.key for each in moves}
    while remaining:
        ready = next(
            (each for each in remaining if not (set(each.after) & keys) - done), remaining[0]
        )
        remaining.remove(ready)
        ordered.append(ready)
        done.add(ready.pod.key)
    return ordered


def _planned(
    number: int, verdict: MoveVerdict, budgets: Sequence[PodDisruptionBudget]
) -> PlannedMove:
    pod, gain = verdict.pod, verdict.gain
    meta = pod.metadata
    return PlannedMove(
        order=number,
        pod=pod.key,
        uid=meta.uid,
        source=pod.spec.node_name,
        plugin=verdict.plugin,
        profile=verdict.profile,
        reason=verdict.reason,
        cost=MoveCost(
            priority=pod.spec.priority or 0,
            band=str(band_of(pod)),
            qos=str(qos_of(pod)),
            eviction_cost=eviction_cost(meta),
            budgets=tuple(
                BudgetLeft(each.metadata.name, each.status.disruptions_allowed)
                for each in budgets
                if each.metadata.namespace == meta.namespace
                and matches(each.spec.selector, meta.labels)
            ),
        ),
        target=verdict.target,
        gain=gain.amount if gain is not None else 0.0,
        gain_text=gain.text if gain is not None else "",
        after=verdict.after,
        gang=verdict.gang,
    )


def _staying(verdict: MoveVerdict) -> StayingPod:
    stays = verdict.skipped
    why, detail = (stays.why, stays.detail) if isinstance(stays, SkippedMove) else (str(stays), "")
    pod = verdict.pod
    return StayingPod(pod.key, pod.spec.node_name, verdict.plugin, verdict.reason, str(why), detail)


def _as_applied(
    made: PodMigrationJob | None, verdict: MoveVerdict, now_s: float
) -> PodMigrationJob:
    """Return the job to create: the one created on the copy, or one that evicts directly."""
    pod = verdict.pod
    if made is not None:
        meta, spec = made.metadata, made.spec
        return PodMigrationJob(
            metadata=ObjectMeta(name=meta.name, annotations=meta.annotations), spec=spec
        )
    meta = pod.metadata
    return PodMigrationJob(
        metadata=ObjectMeta(
            name=str(uuid5(_NAMES, f"{meta.uid} {now_s}")),
            annotations={
                EVICT_REASON: verdict.reason,
                EVICT_TRIGGER: verdict.plugin,
                JOB_CREATED_BY: verdict.profile,
            },
        ),
        spec=PodMigrationJobSpec(
            pod_ref=ObjectReference(
                kind=Pod.KIND, namespace=meta.namespace, name=meta.name, uid=meta.uid
            ),
            mode=PodMigrationJobMode.EVICT_DIRECTLY,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Outlook:
    """Allocatable, requested and used amounts of nodes, in canonical units (CPU in milli)."""

    has: Mapping[str, Mapping[str, int]]
    requested: Mapping[str, Mapping[str, int]]
    pods: Mapping[str, int]
    used: Mapping[str, Mapping[str, int]]
    used_by: Mapping[str, Mapping[str, int]]  # by pod key

    @classmethod
    def of(cls, objects: Iterable[KubeObject]) -> "_Outlook":
        has: dict[str, dict[str, int]] = {}
        requested: dict[str, dict[str, int]] = {}
        used: dict[str, dict[str, int]] = {}
        used_by: dict[str, dict[str, int]] = {}
        pods: dict[str, int] = {}
        for obj in objects:
            if isinstance(obj, Node):
                has[obj.metadata.name] = {
                    name: canonical(name, obj.status.allocatable[name])
                    for name in _SHOWN
                    if name in obj.status.allocatable
                }
            elif isinstance(obj, Pod) and obj.spec.node_name and not is_terminal(obj):
                node = obj.spec.node_name
                pods[node] = pods.get(node, 0) + 1
                _add(requested.setdefault(node, {}), effective_requests(obj, DEFAULT_RULES), 1)
            elif isinstance(obj, NodeMetric):
                body = obj.status.node_metric
                total = _amounts(body.node_usage.resources) if body is not None else {}
                system = _amounts(body.system_usage.resources) if body is not None else {}
                own: dict[str, int] = {}
                for each in obj.status.pods_metric:
                    amounts = _amounts(each.pod_usage.resources)
                    used_by[f"{each.namespace}/{each.name}"] = amounts
                    _add(own, amounts, 1)
                _add(own, system, 1)
                used[obj.metadata.name] = total or own
        return cls(has, requested, pods, used, used_by)

    def after(self, moves: Sequence[MoveVerdict]) -> tuple[NodeForecast, ...]:
        """Return the source and target nodes of the moves before and after, sorted by name."""
        pods: dict[str, int] = {}
        requested: dict[str, dict[str, int]] = {}
        used: dict[str, dict[str, int]] = {}
        for move in moves:
            for node, sign in ((move.pod.spec.node_name, -1), (move.target, 1)):
                if node:
                    pods[node] = pods.get(node, 0) + sign
                    amounts = (
                        pod_requests(move.pod.spec)
                        if sign > 0
                        else effective_requests(move.pod, DEFAULT_RULES)
                    )
                    _add(requested.setdefault(node, {}), amounts, sign)
                    usage = self.used_by.get(move.pod.key, {})
                    _add(used.setdefault(node, {}), usage, sign)
        return tuple(
            NodeForecast(
                node=node,
                pods=(self.pods.get(node, 0), self.pods.get(node, 0) + pods[node]),
                requested=self._shares(node, self.requested, requested[node]),
                used=self._shares(node, self.used, used[node]) if node in self.used else {},
            )
            for node in sorted(pods)
        )

    def _shares(
        self, node: str, amounts: Mapping[str, Mapping[str, int]], change: Mapping[str, int]
    ) -> dict[str, tuple[float, float]]:
        known = amounts.get(node, {})
        return {
            name: (
                round(known.get(name, 0) / has, 4),
                round((known.get(name, 0) + change.get(name, 0)) / has, 4),
            )
            for name, has in self.has.get(node, {}).items()
            if has > 0
        }


def _add(to: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        to[name] = to.get(name, 0) + sign * amount


def _amounts(resources: Mapping[str, Quantity]) -> dict[str, int]:
    return {
        name: quantity.nanos // NANOS_PER_MILLI if name == "cpu" else quantity.value()
        for name, quantity in resources.items()
    }
