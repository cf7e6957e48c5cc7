"""Cost and benefit of proving moves.

``proven-plan``: a cycle of LowNodeLoad on 5,000 nodes with 150,000 pods that makes 200 moves, each
tried on the scheduler's state with the chart's configuration: a place is reserved, the pod goes,
its replacement lands.  Processor time counts.  It is a dry run: what an API server needs for the
jobs is not the descheduler's.

``evictions-in-vain``: a week of load on a small cluster, with and without proofs.  An eviction was
in vain if the pod's replacement is on the node that it left when it starts, or waits for a node
longer than the pod had run.
"""

import gc
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.benchmark import Benchmark
from benchmarks.descheduler import START_S, objects, reports
from koordinator.api.codec import decode
from koordinator.api.core import Affinity, ResourceRequirements
from koordinator.api.meta import Condition, KubeObject, ObjectMeta, OwnerReference
from koordinator.api.node import Node, NodeStatus
from koordinator.api.node_metric import (
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    ResourceMap,
)
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus
from koordinator.api.workload import ReplicaSet, WorkloadSpec
from koordinator.cli.main import tune_garbage_collector
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import EventType
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.evictor import MoveVerdict
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.fork import follow_cluster
from koordinator.simulator.descheduled import Descheduled
from koordinator.simulator.policies import BY_NAME, default_configuration
from koordinator.simulator.stages import Eviction

MOVES = 200
_ROUNDS = 3
_MANY = 1_000_000
_OWNERS = 1_500
_GIB = 1 << 30
_DAY_S = 86_400.0
SCHEDULER = "koord-scheduler"


def _policy(*, load: dict[str, Any], controller: dict[str, Any], **whole: Any) -> dict[str, Any]:
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [
            {
                "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
                "pluginConfig": [
                    {"name": "LowNodeLoad", "args": load},
                    {"name": "MigrationController", "args": controller},
                ],
            }
        ],
        **whole,
    }


def _replicated() -> Iterator[KubeObject]:
    """Yield the cluster, its pods being replicas of many workloads and the scheduler's."""
    for number in range(_OWNERS):
        yield ReplicaSet(
            metadata=ObjectMeta(name=f"r{number}", namespace="default", uid=f"r{number}"),
            spec=WorkloadSpec(replicas=100),
        )
    ready = (Condition(type="Ready", status="True"),)
    count = 0
    for obj in objects():
        if not isinstance(obj, Pod):
            yield obj
            continue
        name = f"r{count % _OWNERS}"
        count += 1
        owner = OwnerReference(
            api_version="apps/v1", kind="ReplicaSet", name=name, uid=name, controller=True
        )
        yield replace(
            obj,
            metadata=replace(obj.metadata, owner_references=(owner,)),
            spec=replace(obj.spec, scheduler_name=SCHEDULER),
            status=replace(obj.status, conditions=ready),
        )


def _with_total(report: NodeMetric) -> NodeMetric:
    """Return a report that includes the usage of the whole node, as the agent's does."""
    pods = [each.pod_usage.resources for each in report.status.pods_metric]
    total = {
        "cpu": Quantity(sum(each["cpu"].nanos for each in pods)),
        "memory": Quantity.from_int(sum(each["memory"].value() for each in pods)),
    }
    body = NodeUsage(node_usage=ResourceMap(resources=total))
    return replace(report, status=replace(report.status, node_metric=body))


def proven_plan(scale: float) -> dict[str, Any]:
    """Return what a cycle of 200 proven moves takes; ``scale`` changes nothing."""
    del scale
    tune_garbage_collector()
    rng, clock = np.random.default_rng(0), VirtualClock(START_S)
    cluster = MemoryCluster(clock)
    condition = {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1}
    load = {
        "anomalyCondition": condition,
        "lowThresholds": {"cpu": 40, "memory": 60},
        "highThresholds": {"cpu": 65, "memory": 80},
    }
    controller = {
        "maxMigratingPerNode": 0,
        "maxMigratingPerWorkload": _MANY,
        "maxUnavailablePerWorkload": _MANY,
        "skipCheckExpectedReplicas": True,
        "objectLimiters": {"workload": {"duration": "0s"}},
    }
    whole = {"dryRun": True, "maxNoOfPodsToEvictTotal": MOVES}
    verdicts: list[MoveVerdict] = []
    fork = follow_cluster(cluster, clock, BY_NAME["koordinator"]())
    descheduler = Descheduler(
        cluster,
        clock,
        decode_descheduler_configuration(
            _policy(load=load, controller=controller, **whole), "benchmark"
        ),
        fork=fork,
        on_move=verdicts.append,
    )
    cluster.load([*_replicated(), *map(_with_total, reports(clock.now_s(), rng))])
    descheduler.sync()
    best_s, first_s = float("inf"), 0.0
    for number in range(_ROUNDS):
        clock.advance_to(clock.now_s() + 60)
        for report in reports(clock.now_s(), rng):
            cluster.overwrite(_with_total(report))
        descheduler.request_cycle()
        descheduler.step(leads=False)
        gc.collect()
        verdicts.clear()
        began_s = time.process_time()
        descheduler.run_cycle()
        took_s = time.process_time() - began_s
        first_s = first_s if number else took_s
        best_s = min(best_s, took_s)
    made = [each for each in verdicts if each.skipped is None]
    return {
        "seconds of a cycle (processor time)": round(best_s, 2),
        "seconds of the first cycle": round(first_s, 2),
        "moves": len(made),
        "all to other nodes": all(each.target != each.pod.spec.node_name for each in made),
        "pods that stay": len(verdicts) - len(made),
    }


# -- a week of load ------------------------------------------------------------------------------

NODES, WORKLOADS, REPLICAS = 12, 18, 4
EVERY_S = 300.0


class _Week:
    """Services whose load goes up and down by the time of day, each in its own phase.

    Requests differ from usage by far, some services prefer a node, some have anti-affinity, and
    some pods are larger than any node: as in clusters of today.
    """

    def __init__(
        self, seed: int, *, proves: bool, direct: bool, scheduler: str = SCHEDULER
    ) -> None:
        self._scheduler = scheduler
        self._rng = np.random.default_rng(seed)
        self._phases = self._rng.uniform(0.0, 1.0, WORKLOADS)
        self._peaks = self._rng.choice(
            [0.8, 1.5, 2.5, 4.0, 9.0], WORKLOADS, p=[0.3, 0.3, 0.2, 0.15, 0.05]
        )
        evictor = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}
        load = {
            "anomalyCondition": {"consecutiveAbnormalities": 2, "consecutiveNormalities": 1},
            "lowThresholds": {"cpu": 40, "memory": 80},
            "highThresholds": {"cpu": 65, "memory": 90},
            "nodeMetricExpirationSeconds": 600,
        }
        controller = {
            "maxMigratingPerNode": 2,
            "maxMigratingPerWorkload": 1,
            "maxUnavailablePerWorkload": 2,
            "objectLimiters": {"workload": {"duration": "0s"}},
        }
        whole: dict[str, Any] = {"deschedulingInterval": "5m", "proveMoves": proves}
        policy = _policy(load=load, controller=controller, **whole)
        if direct:
            policy["profiles"][0]["plugins"] |= {"evict": evictor, "filter": evictor}
            policy["profiles"][0]["pluginConfig"].pop()
        self.world = Descheduled(
            decode_descheduler_configuration(policy, "benchmark"),
            now_s=START_S,
            scheduler=default_configuration(),
            prover=default_configuration(),
        )
        self.world.load(self._objects())
        self._watch = self.world.cluster.watch((Pod,))
        self._watch.poll()
        self._started_s = {pod.key: START_S for pod in self.world.cluster.list(Pod).items}
        self.evicted = self.in_vain = 0
        self._left: dict[str, list[Eviction]] = {}  # by owner
        self._pending: dict[str, tuple[float, Eviction | None]] = {}
        self.world.descheduler.sync()

    def run(self, days: float) -> None:
        """Advance the clock; reports arrive every five minutes, just before a cycle."""
        now_s, end_s = START_S, START_S + days * _DAY_S
        while now_s < end_s:
            self._report(now_s)
            self.world.run_until(now_s + EVERY_S - 1.0)
            self._count()
            now_s += EVERY_S
            self.world.clock.advance_to(now_s)
        for since_s, left in self._pending.values():
            if left is not None and left.was_wasted("", end_s - since_s):
                self.in_vain += 1

    def _objects(self) -> Iterator[KubeObject]:
        allocatable = {
            "cpu": Quantity.from_milli(16_000),
            "memory": Quantity.from_int(64 * _GIB),
            "pods": Quantity.from_int(110),
        }
        for index in range(NODES):
            name = f"n{index:02}"
            meta = ObjectMeta(name=name, labels={"kubernetes.io/hostname": name})
            yield Node(metadata=meta, status=NodeStatus(allocatable=allocatable))
            yield NodeMetric(metadata=ObjectMeta(name=name))
        for index in range(WORKLOADS):
            yield from self._workload(index)

    def _workload(self, index: int) -> Iterator[KubeObject]:
        name = f"w{index:02}"
        owner = OwnerReference(
            api_version="apps/v1", kind="ReplicaSet", name=name, uid=name, controller=True
        )
        yield ReplicaSet(
            metadata=ObjectMeta(name=name, namespace="default", uid=name),
            spec=WorkloadSpec(replicas=REPLICAS),
        )
        requests = {
            "cpu": Quantity.from_milli(500),
            "memory": Quantity.from_int(_GIB),
        }
        container = Container(name="c", resources=ResourceRequirements(requests=requests))
        affinity = _affinity(index, name)
        ready = (Condition(type="Ready", status="True"),)
        for number in range(REPLICAS):
            node = (index + number * 5) % NODES
            yield Pod(
                metadata=ObjectMeta(
                    name=f"{name}-{number}",
                    namespace="default",
                    uid=f"{name}-{number}",
                    labels={"app": name},
                    owner_references=(owner,),
                    creation_timestamp=to_datetime(START_S - 3600),
                ),
                spec=PodSpec(
                    containers=(container,),
                    node_name=f"n{node:02}",
                    scheduler_name=self._scheduler,
                    priority=5500,
                    affinity=affinity,
                ),
                status=PodStatus(phase="Running", conditions=ready),
            )

    def _report(self, now_s: float) -> None:
        """Write what every node uses by the time of day."""
        by_node: dict[str, list[PodUsage]] = {f"n{i:02}": [] for i in range(NODES)}
        for pod in self.world.cluster.list(Pod).items:
            if pod.spec.node_name and pod.metadata.deletion_timestamp is None:
                index = int(pod.metadata.labels["app"][1:])
                turn = 2 * np.pi * (now_s / _DAY_S + self._phases[index])
                share = 0.55 + 0.45 * np.sin(turn)
                used = self._peaks[index] * share * self._rng.uniform(0.9, 1.1)
                usage = ResourceMap(
                    resources={
                        "cpu": Quantity.from_milli(int(used * 1000)),
                        "memory": Quantity.from_int(_GIB // 2),
                    }
                )
                by_node[pod.spec.node_name].append(
                    PodUsage(namespace="default", name=pod.metadata.name, pod_usage=usage)
                )
        for name, pods in by_node.items():
            total = sum(each.pod_usage.resources["cpu"].nanos for each in pods)
            memory = sum(each.pod_usage.resources["memory"].value() for each in pods)
            node_usage = ResourceMap(
                resources={"cpu": Quantity(total), "memory": Quantity.from_int(memory)}
            )
            known = self.world.cluster.get(NodeMetric, name)
            status = NodeMetricStatus(
                update_time=to_datetime(now_s),
                node_metric=NodeUsage(node_usage=node_usage),
                pods_metric=tuple(pods),
            )
            self.world.cluster.overwrite(replace(known, status=status))

    def _count(self) -> None:
        """Follow evictions, and where replacements start."""
        for event in self._watch.poll():
            pod = event.object
            if not isinstance(pod, Pod):
                continue
            app, now_s = pod.metadata.labels["app"], self.world.clock.now_s()
            if event.type is EventType.DELETED:
                self.evicted += 1
                ran_s = now_s - self._started_s.pop(pod.key, now_s)
                self._left.setdefault(app, []).append(Eviction(pod.spec.node_name, now_s, ran_s))
            elif pod.key not in self._started_s:
                if pod.key not in self._pending:
                    ended = self._left.get(app)
                    self._pending[pod.key] = (now_s, ended.pop(0) if ended else None)
                if pod.spec.node_name:
                    since_s, left = self._pending.pop(pod.key)
                    self._started_s[pod.key] = now_s
                    waited_s = now_s - since_s
                    if left is not None and left.was_wasted(pod.spec.node_name, waited_s):
                        self.in_vain += 1


def _affinity(index: int, name: str) -> Affinity | None:
    host = "kubernetes.io/hostname"
    if index % 3 == 0:
        wanted = {"key": host, "operator": "In", "values": [f"n{index % NODES:02}"]}
        term = {"weight": 100, "preference": {"matchExpressions": [wanted]}}
        data = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    elif index % 3 == 1:
        term = {"topologyKey": host, "labelSelector": {"matchLabels": {"app": name}}}
        data = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    else:
        return None
    return decode(data, Affinity)


def evictions_in_vain(scale: float) -> dict[str, Any]:
    """Return how many evictions there were in a week, and how many of them in vain."""
    days = max(7.0 * min(scale, 1.0), 0.5)
    figures: dict[str, Any] = {"days": round(days, 1)}
    for direct, scheduler, how in (
        (False, SCHEDULER, "jobs that reserve first, scheduler that knows load"),
        (True, SCHEDULER, "evictions at once, scheduler that knows load"),
        (True, "default-scheduler", "evictions at once, kube-scheduler's profile"),
    ):
        for proves, what in ((True, "proven"), (False, "not proven")):
            evicted = in_vain = 0
            for seed in range(3):
                week = _Week(seed, proves=proves, direct=direct, scheduler=scheduler)
                week.run(days)
                evicted, in_vain = evicted + week.evicted, in_vain + week.in_vain
            figures[f"{how}, {what}: in vain"] = f"{in_vain} of {evicted}"
    return figures


BENCHMARKS = {
    "proven-plan": Benchmark(
        "a proven plan of 200 moves on 5,000 nodes with 150,000 pods", "5 s", proven_plan
    ),
    "evictions-in-vain": Benchmark(
        "a simulated week of load, three seeds: evictions in vain",
        "0 with proven moves; the figure without beside it",
        evictions_in_vain,
    ),
}
