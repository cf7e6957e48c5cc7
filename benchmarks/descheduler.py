"""Cost of a cycle of LowNodeLoad: 5,000 nodes, 150,000 pods, 500 nodes too hot.

Measured is ``Descheduler.step`` with every report new since the last cycle, as after a minute, and
the memory in use at its peak beside the mirror of the cluster.  News are taken in before.
Processor time counts, so that what else the machine does concerns it little.  Evictions are
counted, not made: what an API server needs for them is not the descheduler's.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark
from koordinator.api.core import ResourceRequirements
from koordinator.api.meta import KubeObject, ObjectMeta, OwnerReference
from koordinator.api.node import Node, NodeStatus
from koordinator.api.node_metric import (
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    ResourceMap,
)
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus
from koordinator.cli.main import tune_garbage_collector
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.foundation.quantity import Quantity

NODES, PODS_PER_NODE, HOT = 5_000, 30, 500
START_S = 1_700_000_000.0
GIB = 1 << 30
CPU_MILLI, MEMORY = 32_000, 128 * GIB
_MIB = 1 << 20
_ROUNDS = 3
_EVICTOR = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}


def configuration(**args: Any) -> dict[str, Any]:
    """Return a configuration of LowNodeLoad that acts at once, in a dry run."""
    condition = {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1}
    thresholds = {
        "lowThresholds": {"cpu": 40, "memory": 60},
        "highThresholds": {"cpu": 65, "memory": 80},
    }
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "dryRun": True,
        "profiles": [
            {
                "plugins": {
                    "balance": {"enabled": [{"name": "LowNodeLoad"}]},
                    "evict": _EVICTOR,
                    "filter": _EVICTOR,
                },
                "pluginConfig": [
                    {
                        "name": "LowNodeLoad",
                        "args": {"anomalyCondition": condition, **thresholds, **args},
                    }
                ],
            }
        ],
    }


def objects() -> Iterator[KubeObject]:
    """Yield nodes and pods: one in ten nodes is hot, and half of the others are cool."""
    owner = (OwnerReference(kind="ReplicaSet", name="r", uid="r", controller=True),)
    allocatable = {
        "cpu": Quantity.from_milli(CPU_MILLI),
        "memory": Quantity.from_int(MEMORY),
        "pods": Quantity.from_int(110),
    }
    requests = {"cpu": Quantity.from_milli(800), "memory": Quantity.from_int(3 * GIB)}
    container = Container(name="c", resources=ResourceRequirements(requests=requests))
    for index in range(NODES):
        name = f"n{index:05}"
        yield Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable=allocatable))
        for number in range(PODS_PER_NODE):
            meta = ObjectMeta(
                name=f"p{index:05}-{number:02}",
                namespace="default",
                uid=f"{index}-{number}",
                creation_timestamp=to_datetime(START_S - number),
                owner_references=owner,
            )
            priority = 9500 if number % 3 == 0 else 5500
            spec = PodSpec(containers=(container,), node_name=name, priority=priority)
            yield Pod(
                metadata=meta, spec=spec, status=PodStatus(phase="Running", qos_class="Burstable")
            )


def reports(now_s: float, rng: np.random.Generator) -> Iterator[NodeMetric]:
    """Yield the usage of every node as its agent reports it."""
    shares = np.where(np.arange(NODES) % (NODES // HOT) == 0, 0.8, 0.25)
    shares = shares + rng.uniform(-0.05, 0.05, NODES)
    shares[(np.arange(NODES) % 2 == 1) & (shares < 0.5)] += 0.25  # neither hot nor cool
    for index, share in enumerate(shares):
        milli = rng.multinomial(int(CPU_MILLI * share), np.full(PODS_PER_NODE, 1 / PODS_PER_NODE))
        pods = tuple(
            PodUsage(
                namespace="default",
                name=f"p{index:05}-{number:02}",
                pod_usage=ResourceMap(
                    resources={
                        "cpu": Quantity.from_milli(int(used)),
                        "memory": Quantity.from_int(int(used) * 2 * _MIB),
                    }
                ),
                priority="koord-prod" if number % 3 == 0 else "koord-batch",
            )
            for number, used in enumerate(milli)
        )
        yield NodeMetric(
            metadata=ObjectMeta(name=f"n{index:05}"),
            status=NodeMetricStatus(
                update_time=to_datetime(now_s), node_metric=NodeUsage(), pods_metric=pods
            ),
        )


def run(**args: Any) -> tuple[float, float, int]:
    """Return the best seconds of a cycle, the MiB at its peak, and how many pods would go."""
    rng, clock = np.random.default_rng(0), VirtualClock(START_S)
    descheduler = Descheduler(
        MemoryCluster(clock),
        clock,
        decode_descheduler_configuration(configuration(**args), "benchmark"),
    )
    for obj in objects():
        descheduler.view.put(obj)
    descheduler.sync()
    best_s, evicted = float("inf"), 0
    for _ in range(_ROUNDS):
        clock.advance_to(clock.now_s() + 60)
        for report in reports(clock.now_s(), rng):
            descheduler.view.put(report)
        descheduler.request_cycle()
        gc.collect()
        began_s = time.process_time()
        descheduler.run_cycle()
        best_s = min(best_s, time.process_time() - began_s)
        cycle = descheduler.last_cycle
        evicted = cycle.evicted if cycle is not None else 0
    tracemalloc.start()
    descheduler.run_cycle()
    peak = tracemalloc.get_traced_memory()[1] / _MIB
    tracemalloc.stop()
    return best_s, peak, evicted


def figures(scale: float, **args: Any) -> dict[str, Any]:
    """Return what a cycle takes; ``scale`` changes nothing, since a cycle is about all nodes."""
    del scale
    tune_garbage_collector()
    seconds, mib, evicted = run(**args)
    return {
        "seconds of a cycle (processor time)": round(seconds, 2),
        "MiB beside the state": round(mib, 1),
        "pods that would go": evicted,
    }


_TARGET = "1 s, 200 MiB"
BENCHMARKS = {
    "low-node-load": Benchmark(
        "a cycle of LowNodeLoad: 5,000 nodes, 150,000 pods, 500 nodes too hot", _TARGET, figures
    ),
    "low-node-load-prod": Benchmark(
        "as above, with thresholds for prod pods",
        _TARGET,
        partial(figures, prodLowThresholds={"cpu": 10}, prodHighThresholds={"cpu": 30}),
    ),
}
