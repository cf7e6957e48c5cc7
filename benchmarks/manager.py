"""The manager: what a minute of 5,000 nodes costs, and how fast a change is published.

Every node has 20 pods and reports once a minute; the JSON of each report is decoded as a watch
does it.  Usage drifts, so that some nodes are written because they differ by more than a tenth, and
a fifth of the others because their last write is five minutes old.  The API server is a dictionary:
what the network costs is not in the figure.
"""

import datetime as dt
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.benchmark import Benchmark
from koordinator.api.codec import apply_merge_patch, decode, encode, to_manifest
from koordinator.api.core import ConfigMap
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.cli.main import tune_garbage_collector
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.foundation.clock import VirtualClock
from koordinator.manager.app import Manager

NODES, PODS = 5_000, 20
MINUTES = 7  # after five of them what was written is written again
START_S = 1_767_225_600.0
PERCENTILE = 99


class Server(MemoryCluster):
    """Delivers events as they are fed, and stores patches of nodes without looking at them."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.events: list[WatchEvent] = []
        self.nodes: dict[str, Any] = {}
        self.writes = 0

    def watch(self, *_: Any, **__: Any) -> Any:
        return self

    def poll(self) -> Sequence[WatchEvent]:
        events, self.events = self.events, []
        return events

    def create(self, obj: Any) -> Any:
        return obj

    def patch(self, kind: Any, name: str, _: str, body: Mapping[str, Any], *__: Any) -> Any:
        self.writes += 1
        if kind is not Node:
            return decode({"metadata": {"name": name}}, kind)
        self.nodes[name] = apply_merge_patch(self.nodes[name], dict(body))
        return decode(self.nodes[name], Node)


def world() -> tuple[VirtualClock, Server, Manager]:
    """Return a cluster of nodes and pods that the manager has taken in."""
    clock = VirtualClock(START_S)
    server = Server(clock)
    config = ConfigMap(
        metadata=ObjectMeta(name="slo-controller-config", namespace="koordinator-system"),
        data={"colocation-config": '{"enable": true}'},
    )
    objects = [config, *_nodes(server), *_pods()]
    server.events = [WatchEvent(EventType.ADDED, obj) for obj in objects]
    server.events.append(WatchEvent(EventType.BOOKMARK, KubeObject()))
    manager = Manager(server, clock)
    while not manager.is_synced or manager.step():
        manager.step(0)
    return clock, server, manager


def minute(_: float) -> dict[str, Any]:
    """Return what part of a core the reports of all nodes take."""
    clock, server, manager = world()
    tune_garbage_collector()
    rng = np.random.default_rng(7)
    load = rng.integers(100, 900, size=(NODES, PODS))
    shares, writes = [], []
    for number in range(MINUTES):
        load = np.clip(load + rng.integers(-60, 61, size=load.shape), 50, 2000)
        clock.advance_to(START_S + 60.0 * (number + 1))
        texts = [_report(index, load[index], clock.now_s()) for index in range(NODES)]
        written = server.writes
        began_s = time.process_time()
        for text in texts:  # one by one, as they come over a minute
            server.events.append(WatchEvent(EventType.MODIFIED, decode(text, NodeMetric)))
            manager.step()
        shares.append((time.process_time() - began_s) / 60)
        writes.append(server.writes - written)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {
        "core": f"{float(np.mean(shares[1:])):.3f}",
        "writes a minute": int(np.mean(writes[1:])),
        "peak MiB": peak_mib,
    }


def change(_: float) -> dict[str, Any]:
    """Return how long it takes from the events of a node until its patch is under way."""
    clock, server, manager = world()
    tune_garbage_collector()
    rng = np.random.default_rng(7)
    times = []
    for index in rng.integers(0, NODES, 2000):
        load = rng.integers(100, 1500, size=PODS)
        text = _report(int(index), load, clock.now_s())
        began_s = time.perf_counter()
        server.events.append(WatchEvent(EventType.MODIFIED, decode(text, NodeMetric)))
        manager.step()
        times.append(time.perf_counter() - began_s)
    return {
        "median ms": f"{float(np.median(times)) * 1000:.2f}",
        "p99 ms": f"{float(np.percentile(times, PERCENTILE)) * 1000:.2f}",
    }


def _nodes(server: Server) -> Iterator[Node]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    for index in range(NODES):
        name = f"n{index}"
        meta = {"name": name, "annotations": {"a": "b"}, "labels": {"pool": f"p{index % 7}"}}
        node = decode(
            {"metadata": meta, "status": {"capacity": amounts, "allocatable": amounts}}, Node
        )
        server.nodes[name] = to_manifest(node)
        yield node


def _pods() -> Iterator[Pod]:
    template = decode(
        {
            "metadata": {"namespace": "default", "labels": {"koordinator.sh/qosClass": "LS"}},
            "spec": {
                "priority": 9500,
                "containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
                ],
            },
            "status": {"phase": "Running"},
        },
        Pod,
    )
    for index in range(NODES):
        spec = replace(template.spec, node_name=f"n{index}")
        for number in range(PODS):
            meta = replace(template.metadata, name=f"p{index}-{number}")
            yield replace(template, metadata=meta, spec=spec)


def _report(index: int, load: Any, now_s: float) -> bytes:
    total = int(load.sum())
    resources = {"cpu": f"{total + 500}m", "memory": f"{total * 4}Mi"}
    status = {
        "updateTime": dt.datetime.fromtimestamp(now_s, dt.UTC).isoformat(),
        "nodeMetric": {
            "nodeUsage": {"resources": resources},
            "systemUsage": {"resources": {"cpu": "500m", "memory": "2Gi"}},
        },
        "podsMetric": [
            {
                "name": f"p{index}-{number}",
                "namespace": "default",
                "priority": "koord-prod",
                "podUsage": {"resources": {"cpu": f"{each}m", "memory": f"{each * 3}Mi"}},
            }
            for number, each in enumerate(load.tolist())
        ],
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "10", "memory": "40Gi"}}},
    }
    policy = {
        "aggregateDurationSeconds": 300,
        "reportIntervalSeconds": 60,
        "nodeAggregatePolicy": {"durations": ["5m", "10m", "30m"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }
    whole = {
        "metadata": {"name": f"n{index}"},
        "spec": {"metricCollectPolicy": policy},
        "status": status,
    }
    return encode(decode(whole, NodeMetric))


BENCHMARKS = {
    "manager": Benchmark("manager: 5,000 reports a minute", "0.3 core, 300 MiB", minute),
    "published": Benchmark("manager: one node's change", "100 ms", change),
}
