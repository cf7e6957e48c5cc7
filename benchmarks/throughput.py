"""Scheduling throughput: pending pods in, bound pods in the in-memory cluster out.

Measured is ``Scheduler.step``: queue, filter, score, choose, assume, bind, and the watch events
that come back.  Making the objects and queueing them is not part of it (it is of ``cli``, which is
the whole ``koord schedule`` process, with the stock profile).
"""

import functools
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark
from koordinator.api.core import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    ResourceRequirements,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.node import Node, NodeSpec, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.cli.input.configuration import read_configuration
from koordinator.cli.main import tune_garbage_collector
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.simulator import Embedded

CLASSES = 200
RUN = 500
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PROFILE = read_configuration(Path(__file__).with_name("koordinator.yaml"))
DEDICATED = Taint(key="dedicated", value="batch", effect="NoSchedule")


def nodes(count: int, seed: int = 1) -> list[Node]:
    """Return nodes of three sizes in ten zones; one in twenty is dedicated by a taint."""
    rng = np.random.default_rng(seed)
    return [
        Node(
            metadata=ObjectMeta(
                name=f"n{i:05d}", labels={HOSTNAME: f"n{i:05d}", ZONE: f"z{i % 10}"}
            ),
            spec=NodeSpec(taints=(DEDICATED,) if i % 20 == 0 else ()),
            status=NodeStatus(
                allocatable={
                    "cpu": Quantity.parse(str(rng.choice([32, 64, 96]))),
                    "memory": Quantity.parse(f"{rng.choice([128, 256, 512])}Gi"),
                    "pods": Quantity.parse("110"),
                }
            ),
        )
        for i in range(count)
    ]


def spec_of(number: int, **more: Any) -> PodSpec:
    """Return a spec whose requests depend on the number."""
    requests = {
        "cpu": Quantity.parse(f"{100 + number * 37 % 1900}m"),
        "memory": Quantity.parse(f"{128 + number * 91 % 4001}Mi"),
    }
    container = Container(name="c", resources=ResourceRequirements(requests=requests))
    return PodSpec(containers=(container,), scheduler_name="default-scheduler", priority=0, **more)


def in_runs(count: int) -> Iterator[Pod]:
    """Make runs of 500 identical pods, 200 classes."""
    specs = [spec_of(c) for c in range(CLASSES)]
    for i in range(count):
        c = i // RUN % CLASSES
        yield Pod(
            metadata=ObjectMeta(name=f"p{i}", namespace="default", labels={"app": f"a{c}"}),
            spec=specs[c],
        )


def interleaved(count: int, classes: int = CLASSES) -> Iterator[Pod]:
    """Make pods of so many classes in random order."""
    specs = [spec_of(c) for c in range(classes)]
    for i, c in enumerate(np.random.default_rng(2).integers(0, classes, count).tolist()):
        yield Pod(
            metadata=ObjectMeta(name=f"p{i}", namespace="default", labels={"app": f"a{c}"}),
            spec=specs[c],
        )


def all_different(count: int) -> Iterator[Pod]:
    """Make every pod a class of its own; spreading, anti-affinity and tolerations are in use."""
    for i in range(count):
        app = f"a{i % 50}"
        selector = LabelSelector(match_labels={"app": app})
        spread = TopologySpreadConstraint(
            max_skew=5,
            topology_key=ZONE,
            when_unsatisfiable="DoNotSchedule" if i % 2 else "ScheduleAnyway",
            label_selector=selector,
        )
        apart = WeightedPodAffinityTerm(
            weight=10,
            pod_affinity_term=PodAffinityTerm(topology_key=HOSTNAME, label_selector=selector),
        )
        anti = PodAffinity(preferred_during_scheduling_ignored_during_execution=(apart,))
        spec = spec_of(
            i,
            topology_spread_constraints=(spread,),
            affinity=Affinity(pod_anti_affinity=anti) if i % 4 == 0 else None,
            tolerations=(Toleration(key="dedicated", operator="Exists"),) if i % 3 == 0 else (),
        )
        labels = {"app": app, "pod": str(i)}
        yield Pod(metadata=ObjectMeta(name=f"p{i}", namespace="default", labels=labels), spec=spec)


def throughput(make: Any, node_count: int, pod_count: int, scale: float) -> dict[str, Any]:
    """Schedule and report pods per second and the process's peak memory."""
    world = Embedded(PROFILE, options=SchedulerOptions(report=False))
    world.load(nodes(node_count))
    world.cluster.load(list(make(10)))  # compile and warm up
    world.scheduler.step()
    pods = list(make(10 + int(pod_count * scale)))[10:]
    world.load(pods)  # and queue them: from here on they are pending
    gc.collect()
    tune_garbage_collector()  # as the koord command does
    started = time.perf_counter()
    bound = sum(isinstance(outcome, Bound) for outcome in world.scheduler.step())
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "pods/s": round(bound / seconds),
        "bound": bound,
        "s": round(seconds, 1),
        "peak GB": round(peak, 2),
    }


def overloaded(scale: float) -> dict[str, Any]:
    """Offer 1.5 times what fits: the pods that fail are diagnosed and looked at for preemption."""
    world = Embedded(PROFILE, options=SchedulerOptions(report=False))
    world.load(nodes(1_000))
    offered = list(interleaved(int(90_000 * scale)))
    world.load(offered)
    tune_garbage_collector()
    started = time.perf_counter()
    outcomes = world.run_to_fixed_point()
    seconds = time.perf_counter() - started
    bound = sum(isinstance(outcome, Bound) for outcome in outcomes)
    return {"pods/s": round(len(offered) / seconds), "bound": bound, "failed": len(offered) - bound}


def cli(scale: float) -> dict[str, Any]:
    """Run ``koord schedule`` on one JSON list of 5,000 nodes and 100,000 pods of 200 classes."""
    random = np.random.default_rng(3)
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"n{i:05d}",
                "labels": {HOSTNAME: f"n{i:05d}", ZONE: f"z{i % 10}"},
            },
            "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
        }
        for i in range(5_000)
    ]
    for i, c in enumerate(random.integers(0, CLASSES, int(100_000 * scale)).tolist()):
        requests = {"cpu": f"{100 + c * 37 % 1900}m", "memory": f"{128 + c * 91 % 4001}Mi"}
        container = {
            "name": "c",
            "image": "registry.example/app:v1",
            "resources": {"requests": requests},
        }
        meta = {"name": f"p{i}", "namespace": "default", "labels": {"app": f"a{c}"}}
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta,
                "spec": {"containers": [container]},
            }
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        koord = str(Path(sys.executable).parent / "koord")
        started = time.perf_counter()
        done = subprocess.run(
            [koord, "schedule", "-f", str(path), "-o", "json"], stdout=subprocess.PIPE, check=True
        )
        seconds = time.perf_counter() - started
    return {"s": round(seconds, 1), "placed": len(json.loads(done.stdout)["placements"])}


def _throughput(title: str, target: str, make: Any, node_count: int, pod_count: int) -> Benchmark:
    return Benchmark(title, target, functools.partial(throughput, make, node_count, pod_count))


BENCHMARKS = {
    "runs": _throughput(
        "5,000 nodes, 100,000 pods, runs of identical pods",
        "50,000 pods/s",
        in_runs,
        5_000,
        100_000,
    ),
    "interleaved": _throughput(
        "5,000 nodes, 100,000 pods, 200 classes at random",
        "8,000 pods/s",
        interleaved,
        5_000,
        100_000,
    ),
    "different": _throughput(
        "5,000 nodes, 20,000 pods, every pod a class of its own",
        "800 pods/s",
        all_different,
        5_000,
        20_000,
    ),
    "large": _throughput(
        "50,000 nodes, 500,000 pods, 200 classes at random",
        "180 s, 4 GiB",
        interleaved,
        50_000,
        500_000,
    ),
    "overloaded": Benchmark("1,000 nodes, 90,000 pods, a third unschedulable", "-", overloaded),
    "cli": Benchmark("koord schedule, 5,000 nodes, 100,000 pods, whole process", "20 s", cli),
}
