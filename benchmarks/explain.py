"""Cost of one explanation of a pending pod: ``koord explain pod`` without its process.

5,000 nodes are full but for a core.  The pods wait for one reason or several, and every
explanation searches for remedies again.
"""

import time
from typing import Any

from msgspec.structs import replace

from benchmarks.benchmark import Benchmark
from benchmarks.throughput import HOSTNAME, PROFILE, ZONE, nodes
from koordinator.api.core import ResourceRequirements, TopologySpreadConstraint
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.features.explanations.explainer import explain
from koordinator.scheduler.loop import SchedulerOptions
from koordinator.simulator import Embedded

NODES = 5_000
TIMES = 12
NOW_S = 1_700_000_000.0
SPREAD = TopologySpreadConstraint(
    topology_key=ZONE,
    max_skew=1,
    when_unsatisfiable="DoNotSchedule",
    label_selector=LabelSelector(match_labels={"app": "spread"}),
)

#: By name, the requests of a pod and its other attributes.
WAITING: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "large": ({"cpu": "8"}, {}),
    "important": ({"cpu": "8"}, {"priority": 1000, "preemption_policy": "Never"}),
    "elsewhere": ({"cpu": "2"}, {"node_selector": {ZONE: "nowhere"}}),
    "here": ({"cpu": "2"}, {"node_selector": {HOSTNAME: "n00007"}}),
    "spread": ({"cpu": "2"}, {"topology_spread_constraints": (SPREAD,)}),
    "device": ({"cpu": "2", "nvidia.com/gpu": "1"}, {}),
}


def explained(scale: float) -> dict[str, Any]:
    """Return the milliseconds of one explanation, the best of several, for each of the pods."""
    world = Embedded(PROFILE, now_s=NOW_S, options=SchedulerOptions(report=False))
    cluster = nodes(max(int(NODES * scale), 10))
    world.load([*cluster, *map(_filler, cluster)])
    world.load(_pod(name, requests, **more) for name, (requests, more) in WAITING.items())
    world.run_to_fixed_point()
    return {name: f"{_milliseconds(world, f'default/{name}'):.1f} ms" for name in WAITING}


def _milliseconds(world: Embedded, key: str) -> float:
    took_s = []
    for _ in range(TIMES):
        started_s = time.process_time()
        explanation = explain(world.scheduler.handle, key)
        took_s.append(time.process_time() - started_s)
        assert explanation.causes, key
    return min(took_s) * 1e3


def _filler(node: Node) -> Pod:
    """Return a pod that leaves one core of a node."""
    cpu = node.status.allocatable["cpu"] - Quantity.from_int(1)
    return _pod(f"on-{node.metadata.name}", {"cpu": str(cpu)}, node_name=node.metadata.name)


def _pod(name: str, requests: dict[str, str], **more: Any) -> Pod:
    amounts = {resource: Quantity.parse(amount) for resource, amount in requests.items()}
    container = Container(name="c", resources=ResourceRequirements(requests=amounts))
    spec = PodSpec(containers=(container,), scheduler_name="default-scheduler", priority=0)
    meta = ObjectMeta(name=name, namespace="default", uid=name, labels={"app": name})
    return Pod(metadata=meta, spec=replace(spec, **more))


BENCHMARKS = {"explain": Benchmark("explanation of a pod, 5,000 full nodes", "20 ms", explained)}
