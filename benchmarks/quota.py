"""Elastic quotas: what one pod's change costs in a large tree, and scheduling with quotas."""

import functools
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.benchmark import Benchmark
from benchmarks.throughput import PROFILE, in_runs, interleaved, nodes
from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota, ElasticQuotaSpec
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, Plugin
from koordinator.api.labels import QUOTA_NAME, QUOTA_PARENT
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.cli.main import tune_garbage_collector
from koordinator.domain.quota import QuotaPod, QuotaRules, QuotaTrees
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.simulator import Embedded

QUOTAS, LEVELS, CHANGES = 10_000, 8, 2_000
TEAMS = 100
RESOURCES = ("cpu", "memory")


def large_tree(pod_count: int) -> tuple[QuotaTrees, list[str]]:
    """Return a tree of 10,000 quotas on 8 levels, with pods that use half of it; and the leaves."""
    rng = np.random.default_rng(4)
    trees = QuotaTrees(QuotaRules(system_max={}, default_max={}))
    levels: list[list[str]] = [[ROOT_QUOTA]]
    sizes = np.geomspace(4, QUOTAS // 2, LEVELS).astype(int)
    sizes[-1] = QUOTAS - sizes[:-1].sum()
    for level, size in enumerate(sizes.tolist()):
        names = [f"q{level}-{i}" for i in range(size)]
        for name in names:
            parent = str(rng.choice(levels[-1]))
            trees.put(_quota(name, parent, most=1_000_000, least=int(rng.integers(0, 20))))
        levels.append(names)
    for i in range(pod_count):
        name = levels[-1][i % len(levels[-1])]
        amounts = dict.fromkeys(RESOURCES, int(rng.integers(1, 9)))
        trees.put_pod(QuotaPod(key=f"ns/{i}", namespace="ns", requests=amounts, quota_label=name))
        if i % 2:
            trees.assign(f"ns/{i}")
    trees.set_total(dict.fromkeys(RESOURCES, pod_count * 2))
    return trees, levels[-1]


def one_change(scale: float) -> dict[str, Any]:
    """Add one pod (its quota's request grows) and compute the runtime quota."""
    trees, leaves = large_tree(int(100_000 * scale))
    for name in leaves:
        trees.tree_of(name).runtime(name)
    gc.collect()
    tune_garbage_collector()
    rng = np.random.default_rng(5)
    took_us = []
    for i in range(CHANGES):
        name = leaves[int(rng.integers(len(leaves)))]
        pod = QuotaPod(
            key=f"new/{i}", namespace="new", requests=dict.fromkeys(RESOURCES, 3), quota_label=name
        )
        began = time.perf_counter()
        trees.put_pod(pod)
        trees.tree_of(name).runtime(name)
        took_us.append((time.perf_counter() - began) * 1e6)
    return {
        "median us": round(float(np.median(took_us))),
        "p99 us": round(float(np.percentile(took_us, 99))),
    }


def with_quotas(
    make: Callable[[int], Iterator[Pod]], quota_of: Callable[[int], int], scale: float
) -> dict[str, Any]:
    """Schedule pods of 100 quotas, one in ten far too small, and count decisions."""
    world = Embedded(_configuration(), options=SchedulerOptions(report=False))
    world.load(nodes(5_000))
    world.load(
        [
            _quota(f"team-{i}", "", most=20_000 if i % 10 else 50, least=10, unit="Gi")
            for i in range(TEAMS)
        ]
    )
    world.cluster.load(list(make(10)))
    world.scheduler.step()
    pods = list(make(10 + int(100_000 * scale)))[10:]
    world.load([_in_quota(pod, quota_of(i)) for i, pod in enumerate(pods)])
    gc.collect()
    tune_garbage_collector()
    began = time.perf_counter()
    outcomes = world.scheduler.step()
    seconds = time.perf_counter() - began
    bound = sum(isinstance(outcome, Bound) for outcome in outcomes)
    return {
        "decisions/s": round(len(outcomes) / seconds),
        "bound": bound,
        "refused": len(outcomes) - bound,
    }


def _configuration() -> KubeSchedulerConfiguration:
    (profile,) = PROFILE.profiles
    plugins = profile.plugins
    assert plugins is not None
    before = replace(
        plugins.pre_filter, enabled=(*plugins.pre_filter.enabled, Plugin(name="ElasticQuota"))
    )
    return replace(
        PROFILE, profiles=(replace(profile, plugins=replace(plugins, pre_filter=before)),)
    )


def _quota(name: str, parent: str, *, most: int, least: int, unit: str = "") -> ElasticQuota:
    def amounts(cpu: int) -> dict[str, Quantity]:
        return {"cpu": Quantity.from_int(cpu), "memory": Quantity.parse(f"{cpu * 4}{unit}")}

    labels = {QUOTA_PARENT: parent} if parent else {}
    return ElasticQuota(
        metadata=ObjectMeta(name=name, namespace="teams", labels=labels),
        spec=ElasticQuotaSpec(max=amounts(most), min=amounts(least)),
    )


def _in_quota(pod: Pod, number: int) -> Pod:
    labels = {**pod.metadata.labels, QUOTA_NAME: f"team-{number % TEAMS}"}
    return replace(pod, metadata=replace(pod.metadata, labels=labels))


BENCHMARKS = {
    "quota-change": Benchmark(
        "10,000 quotas, 8 levels, 100,000 pods: one pod changes", "200 us", one_change
    ),
    "quota-runs": Benchmark(
        "5,000 nodes, 100,000 pods in 100 quotas, runs of identical pods",
        "10,000 pods/s",
        functools.partial(with_quotas, in_runs, lambda i: i // 500),
    ),
    "quota-interleaved": Benchmark(
        "5,000 nodes, 100,000 pods in 100 quotas, 200 classes at random",
        "10,000 pods/s",
        functools.partial(with_quotas, interleaved, lambda i: i * 7919),
    ),
}
