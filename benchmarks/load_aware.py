"""Cost of load-aware scheduling: the same pods with it and without, reports every 60 s.

Pods come in runs or mixed, and every node reports its usage and that of its pods once a minute, at
a time of its own.  Virtual time passes as the scheduler without the plugin needs it, so that there
are as many reports as a scheduler sees that is never idle; or evenly at 1,000 pods/s, which is ten
times as many reports per pod and more.  Measured is ``Scheduler.step``, which takes in the reports;
making them is not part of it.  Both worlds run in turns, slice by slice, and processor time counts,
so that what else the machine does concerns neither much; of the ratios of slices the median counts.
"""

import datetime as dt
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.benchmark import Benchmark
from benchmarks.throughput import PROFILE, in_runs, interleaved, nodes
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.kubescheduler.config import Plugin
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_metric import (
    AggregatedUsage,
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    ResourceMap,
)
from koordinator.api.pod import Pod
from koordinator.cli.main import tune_garbage_collector
from koordinator.foundation.clock import UTC, Duration
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.simulator import Embedded

NODES = 5_000
PODS = 100_000
WARM_UP = 1_000
SLOW = 1_000  # pods per second of virtual time
INTERVAL_S = 60  # between two reports of a node
SLICE = 2_000  # pods
START_S = 1_700_000_000.0
NAME = "LoadAwareScheduling"
POINTS = ("filter", "score", "reserve")


class Cluster:
    """A world with or without the plugin; its nodes report in both."""

    def __init__(self, configuration: KubeSchedulerConfiguration, node_count: int) -> None:
        self.world = Embedded(configuration, now_s=START_S, options=SchedulerOptions(report=False))
        self.nodes = nodes(node_count)
        self.world.load(self.nodes)
        self.seconds = 0.0
        self.bound = 0
        self._reports = 0
        self._known: dict[str, NodeMetric] = {}
        self._random = np.random.default_rng(4)

    def report_until(self, virtual_s: float) -> None:
        """Send the reports of nodes that are due until then."""
        state = self.world.state
        due = int(virtual_s * len(self.nodes) / INTERVAL_S)
        for attempt in range(self._reports, due):
            now = dt.datetime.fromtimestamp(START_S + attempt * INTERVAL_S / len(self.nodes), UTC)
            node = self.nodes[attempt % len(self.nodes)]
            pods = list(state.pods.on_row[state.nodes.rows[node.metadata.name]])
            self._put(self._measured(node, pods, now))
        self._reports = due

    def _put(self, metric: NodeMetric) -> None:
        """Write a report."""
        cluster, name = self.world.cluster, metric.metadata.name
        if name not in self._known:
            self._known[name] = cluster.create(metric)
        known = replace(self._known[name], status=metric.status)
        self._known[name] = cluster.update_status(known)

    def work(self, pods: list[Pod], now_s: float) -> None:
        """Schedule pods that have come."""
        self.world.clock.advance_to(now_s)
        self.world.cluster.load(pods)
        started = time.process_time()
        outcomes = self.world.scheduler.step()
        self.seconds += time.process_time() - started
        self.bound += sum(isinstance(outcome, Bound) for outcome in outcomes)

    def _measured(self, node: Node, pods: list[str], now: dt.datetime) -> NodeMetric:
        cpu = node.status.allocatable["cpu"].milli()
        memory = node.status.allocatable["memory"].value()
        share = self._random.uniform(0.05, 0.5)
        usage = _usage(int(cpu * share), int(memory * share))
        return NodeMetric(
            metadata=ObjectMeta(name=node.metadata.name),
            status=NodeMetricStatus(
                update_time=now,
                node_metric=NodeUsage(
                    node_usage=usage,
                    system_usage=_usage(500, 1 << 30),
                    aggregated_node_usages=(
                        AggregatedUsage(usage={"p95": usage}, duration=Duration(minutes=5)),
                    ),
                ),
                pods_metric=tuple(
                    PodUsage(
                        name=key.partition("/")[2],
                        namespace=key.partition("/")[0],
                        pod_usage=_usage(200, 256 << 20),
                        priority="koord-prod",
                    )
                    for key in pods
                ),
            ),
        )


def _usage(cpu_milli: int, memory_bytes: int) -> ResourceMap:
    amounts = {
        "cpu": Quantity.from_milli(cpu_milli),
        "memory": Quantity.from_int(memory_bytes, binary=True),
    }
    return ResourceMap(resources=amounts)


def profile(*, with_load: bool) -> KubeSchedulerConfiguration:
    """Return the profile of the other benchmarks with or without the plugin."""
    (one,) = PROFILE.profiles
    assert one.plugins is not None
    changed = {}
    for point in POINTS:
        plugins = one.plugins.at(point)
        others = tuple(plugin for plugin in plugins.enabled if plugin.name != NAME)
        load = (Plugin(name=NAME, weight=int(point == "score")),) if with_load else ()
        changed[point] = replace(plugins, enabled=(*load, *others))
    return replace(PROFILE, profiles=(replace(one, plugins=replace(one.plugins, **changed)),))


def compare(
    make: Callable[[int], Iterator[Pod]], scale: float, pods_per_s: int | None = None
) -> dict[str, Any]:
    """Return pods per second with and without the plugin, and the share that is left with it.

    Without ``pods_per_s`` virtual time passes as the scheduler without the plugin needs it.
    """
    count = max(int(PODS * scale), SLICE)
    without, with_load = (Cluster(profile(with_load=on), NODES) for on in (False, True))
    with_load.report_until(INTERVAL_S)
    everyone = list(make(count + WARM_UP))
    for cluster in (without, with_load):
        cluster.work(everyone[:WARM_UP], START_S + INTERVAL_S)
        cluster.seconds = cluster.bound = 0
    gc.collect()
    tune_garbage_collector()
    ratios = []
    for number, start in enumerate(range(WARM_UP, count + WARM_UP, SLICE)):
        some = everyone[start : start + SLICE]
        passed_s = without.seconds if pods_per_s is None else (start - WARM_UP) / pods_per_s
        now_s = INTERVAL_S + passed_s
        with_load.report_until(now_s)
        before = [cluster.seconds for cluster in (without, with_load)]
        for cluster in (without, with_load)[:: -1 if number % 2 else 1]:
            cluster.work(some, START_S + now_s)
        ratios.append((without.seconds - before[0]) / (with_load.seconds - before[1]))
    off, on = (cluster.bound / cluster.seconds for cluster in (without, with_load))
    return {
        "pods/s with": round(on),
        "without": round(off),
        "left": f"{statistics.median(ratios):.1%}",
        "bound": f"{with_load.bound}, {without.bound}",
    }


BENCHMARKS = {
    f"load{name}": Benchmark(
        f"load-aware, 5,000 nodes reporting each minute, {what}",
        "90 % of the rate without",
        partial(compare, make, pods_per_s=pods_per_s),
    )
    for name, what, make, pods_per_s in (
        ("", "200 classes", interleaved, None),
        ("-runs", "runs", in_runs, None),
        ("-slow", "200 classes, 1,000 pods/s", interleaved, SLOW),
        ("-slow-runs", "runs, 1,000 pods/s", in_runs, SLOW),
    )
}
