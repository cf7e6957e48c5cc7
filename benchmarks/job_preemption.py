"""Job preemption: how long it takes to find room for a large gang in a full cluster.

Measured is the time of the plan alone: which pods go, and where members get their places.  Nothing
is evicted for it.  Every node is full with pods of five priorities, half of them in gangs.
"""

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark
from benchmarks.gangs import gang
from koordinator.api.core import ResourceRequirements
from koordinator.api.kubescheduler import decode_configuration
from koordinator.api.labels import POD_GROUP
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node, NodeSpec, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus
from koordinator.api.pod_groups import PodGroup, PodGroupSpec
from koordinator.cli.main import tune_garbage_collector
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.cycle.job_headroom import free_headroom
from koordinator.scheduler.loop import SchedulerOptions
from koordinator.scheduler.post_filter import PostFilterResult
from koordinator.simulator import Embedded

NODES, PODS, CPUS = 5_000, 8, 64
PROFILE = decode_configuration(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {
                    "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
                    "queueSort": {
                        "disabled": [{"name": "*"}],
                        "enabled": [{"name": "Coscheduling"}],
                    },
                },
            }
        ],
    },
    "benchmark",
)


def full(count: int) -> Iterator[KubeObject]:
    """Make nodes of 64 CPUs with eight pods of 8 CPUs each; the pods of every other node are gangs.

    A gang has the eight places of the same number on eight nodes in a row.
    """
    each = {"cpu": Quantity.parse(str(CPUS // PODS)), "memory": Quantity.parse("16Gi")}
    container = Container(name="c", resources=ResourceRequirements(requests=each))
    headroom = {"cpu": str(CPUS), "memory": "256Gi", "pods": "110"}
    for row in range(count):
        name = f"n{row:05d}"
        yield Node(
            metadata=ObjectMeta(name=name),
            spec=NodeSpec(),
            status=NodeStatus(allocatable={k: Quantity.parse(v) for k, v in headroom.items()}),
        )
        for place in range(PODS):
            block, in_gang = row // (2 * PODS), row // PODS % 2
            label = f"old-{block}-{place}"
            priority = 10 * ((block + place if in_gang else row + 3 * place) % 5)
            if in_gang and row % PODS == 0:
                yield PodGroup(
                    metadata=ObjectMeta(name=label, namespace="default"),
                    spec=PodGroupSpec(min_member=min(PODS, count - row)),
                )
            yield Pod(
                metadata=ObjectMeta(
                    name=f"p-{row}-{place}",
                    namespace="default",
                    labels={POD_GROUP: label} if in_gang else {"app": f"a{row % 50}"},
                ),
                spec=PodSpec(
                    containers=(container,),
                    scheduler_name="default-scheduler",
                    node_name=name,
                    priority=priority,
                ),
                status=PodStatus(phase="Running"),
            )


def plan(size: int, cpu: int) -> Callable[[float], dict[str, Any]]:
    """Return a benchmark that finds room for members of so many CPUs; the best of seven."""

    def run(scale: float) -> dict[str, Any]:
        world = Embedded(PROFILE, options=SchedulerOptions(report=False))
        world.load(full(int(NODES * scale)))
        world.load([*gang("warm", 1, 1)])
        world.scheduler.step()
        world.scheduler.warm_up()
        cycle, state = world.scheduler.cycles["default-scheduler"], world.state
        job = [one for one in gang("g", size, cpu, 1000) if isinstance(one, Pod)]
        members = [(one, state.classes.of(one)) for one in job]
        gc.collect()
        tune_garbage_collector()
        took = []
        headroom = PostFilterResult()
        for _ in range(7):
            began = time.process_time()
            headroom = free_headroom(cycle.profile, state, {}, members)
            took.append(time.process_time() - began)
        priorities = [victim.priority for victim in headroom.victims]
        return {
            "ms": round(min(took) * 1e3),
            "first ms": round(took[0] * 1e3),
            "median ms": round(float(np.median(took)) * 1e3),
            "places": len(headroom.places),
            "victims": len(headroom.victims),
            "highest": max(priorities, default=0),
        }

    return run


BENCHMARKS = {
    "job-preemption": Benchmark(
        "room for 512 members of a whole node each, 5,000 full nodes", "200 ms", plan(512, CPUS)
    ),
    "job-preemption-small": Benchmark(
        "room for 512 members of a quarter node each, 5,000 full nodes",
        "200 ms",
        plan(512, CPUS // 4),
    ),
}
