"""Gangs: how fast whole jobs are decided, and what waiting ones cost.

Measured is the processor time of ``Scheduler.step``; members and PodGroups exist before.
"""

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark
from benchmarks.throughput import nodes
from koordinator.api.core import ResourceRequirements
from koordinator.api.labels import POD_GROUP
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.pod_groups import PodGroup, PodGroupSpec
from koordinator.cli.input.configuration import read_configuration
from koordinator.cli.main import tune_garbage_collector
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.simulator import Embedded

PROFILE = read_configuration(Path(__file__).with_name("koordinator.yaml"))
NODES = 5_000


def gang(name: str, count: int, cpu: int, priority: int = 0) -> Iterator[KubeObject]:
    """Make a PodGroup and its members, and require all of them."""
    yield PodGroup(
        metadata=ObjectMeta(name=name, namespace="default"), spec=PodGroupSpec(min_member=count)
    )
    requests = {"cpu": Quantity.parse(str(cpu)), "memory": Quantity.parse("1Gi")}
    container = Container(name="c", resources=ResourceRequirements(requests=requests))
    spec = PodSpec(containers=(container,), scheduler_name="default-scheduler", priority=priority)
    for index in range(count):
        meta = ObjectMeta(name=f"{name}-{index}", namespace="default", labels={POD_GROUP: name})
        yield Pod(metadata=meta, spec=spec)


def large(scale: float) -> dict[str, Any]:
    """Place one gang of 1,000 members; the best of five."""
    count = int(1_000 * scale)
    took = []
    for number in range(5):
        world = Embedded(PROFILE, options=SchedulerOptions(report=False))
        world.load(nodes(NODES))
        world.load(gang("warm", 16, 3))
        world.scheduler.step()
        world.load(gang(f"g{number}", count, 4))
        gc.collect()
        tune_garbage_collector()
        started = time.process_time()
        bound = sum(isinstance(outcome, Bound) for outcome in world.scheduler.step())
        took.append(time.process_time() - started)
    return {"ms": round(min(took) * 1e3), "median ms": round(sorted(took)[2] * 1e3), "bound": bound}


def many(scale: float) -> dict[str, Any]:
    """Offer 500 gangs of 64, of ten shapes and five priorities, half as much again as there is."""
    count, size = int(500 * scale), 64
    random = np.random.default_rng(7)
    world = Embedded(PROFILE, options=SchedulerOptions(report=False))
    cluster = nodes(NODES)
    headroom = sum(node.status.allocatable["cpu"].value() for node in cluster)
    mean = 1.5 * headroom / (500 * size)  # CPUs of a member
    world.load(cluster)
    shapes = np.linspace(0.5 * mean, 1.5 * mean, 10).astype(int)
    offered = [
        obj
        for number in range(count)
        for obj in gang(
            f"g{number}", size, int(random.choice(shapes)), int(random.integers(0, 5)) * 100
        )
    ]
    started = time.process_time()
    world.load(offered)
    loading_s = time.process_time() - started
    gc.collect()
    tune_garbage_collector()
    started = time.process_time()
    outcomes = world.scheduler.step()
    seconds = time.process_time() - started
    bound = sum(isinstance(outcome, Bound) for outcome in outcomes)
    event_s = _event_s(world, "with")
    for pod in world.cluster.list(Pod).items:
        if not pod.spec.node_name:
            world.cluster.delete(Pod, pod.metadata.name, "default", grace_period_s=0)
    world.scheduler.step()
    alone_s = _event_s(world, "without")
    return {
        "pods/s": round(count * size / seconds),
        "bound": bound,
        "waiting": count * size - bound,
        "queued/s": round(count * size / loading_s),
        "ms per event": round(event_s * 1e3, 2),
        "ms with nobody waiting": round(alone_s * 1e3, 2),
    }


def _event_s(world: Embedded, name: str) -> float:
    """Return the seconds that it costs when a small pod comes or goes."""
    rounds = 50
    began = time.process_time()
    for number in range(rounds):
        world.load(gang(f"{name}-{number}", 1, 1, priority=1000))
        world.scheduler.step()
        world.cluster.delete(Pod, f"{name}-{number}-0", "default", grace_period_s=0)
        world.scheduler.step()
    return (time.process_time() - began) / (2 * rounds)


BENCHMARKS = {
    "gang": Benchmark("one gang of 1,000 members, 5,000 nodes", "50 ms", large),
    "gangs": Benchmark(
        "500 gangs of 64, 5,000 nodes, overfull by half", "10,000 pods/s decided", many
    ),
}
