"""An hour of a cluster, recorded and run again: whole seconds of ``koord replay`` on the file.

Pods come evenly over the hour; each comes, gets its node, runs and ends, which is four events, as a
watch shows them.  Every node reports its usage once a minute, at a time of its own, with what the
defaults of koordlet say: five statistics over three windows, and the pods that run there.  Making
the recording is not part of it.
"""

import datetime as dt
import heapq
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from benchmarks.benchmark import Benchmark
from benchmarks.throughput import interleaved, nodes
from koordinator.api.codec import encode
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_metric import (
    AggregatedUsage,
    AggregationType,
    NodeMetric,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    ResourceMap,
)
from koordinator.api.pod import Pod
from koordinator.foundation.clock import UTC, Duration, VirtualClock
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.recorder import RecordingFile
from koordinator.simulator.recording import RecordedBatch, RecordingHeader, to_line
from koordinator.simulator.recording.batch import FORMAT, EventKind, RecordedEvent

NODES = 5_000
POD_EVENTS = 50_000
HOUR_S = 3_600
START_S = 1_700_000_000.0
LIFE_S = 900
REPORT_S = 60  # between two reports of a node
WINDOWS = (Duration(minutes=5), Duration(minutes=10), Duration(minutes=30))
PODS_PER_EVENT = 1 / 3.75  # the last quarter of the pods doesn't end within the hour
CONFIGURATION = Path(__file__).with_name("koordinator.yaml")


def replay(scale: float) -> dict[str, Any]:
    """Return the seconds that the whole command takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hour.gz"
        events = _record(path, int(POD_EVENTS * scale * PODS_PER_EVENT))
        command = [
            sys.executable,
            "-c",
            "from koordinator.cli.main import main; main()",
            "replay",
            str(path),
        ]
        command += ["--config", str(CONFIGURATION), "--output", "json"]
        started = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        seconds = time.perf_counter() - started
        report = json.loads(done.stdout)
        return {
            "s": round(seconds, 1),
            "events": events,
            "placed": report["after"]["placed"],
            "MB": round(path.stat().st_size / 1e6, 1),
            "reports": NODES * HOUR_S // REPORT_S,
        }


def _record(path: Path, pods: int) -> int:
    """Write the recording of an hour; return the number of its events."""
    everyone = nodes(NODES)
    reports = Reports(everyone)
    count = 0
    with RecordingFile(path, VirtualClock(START_S)) as file:
        file.write(to_line(RecordingHeader(FORMAT, START_S)))
        first: list[tuple[EventKind, KubeObject]] = [
            ("ADDED", obj) for obj in (*everyone, *map(reports.of, range(NODES)))
        ]
        file.write(_line(START_S, first))
        lives: Iterator[tuple[float, EventKind, Pod | int]] = iter(
            sorted(_lives(pods), key=itemgetter(0))
        )
        happens = heapq.merge(lives, reports.all(), key=itemgetter(0))
        for at_s, kind, what in happens:
            if isinstance(what, Pod):
                reports.learn(kind, what)
                count += 1
            obj = reports.of(what, at_s) if isinstance(what, int) else what
            file.write(_line(at_s, [(kind, obj)]))
    return count


class Reports:
    """NodeMetrics of the nodes, with random usage of them and their pods."""

    def __init__(self, everyone: list[Node]) -> None:
        self._nodes = everyone
        self._pods: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._random = np.random.default_rng(5)

    def all(self) -> Iterator[tuple[float, EventKind, Pod | int]]:
        """Yield when each node reports, by its number, in order of time."""
        for attempt in range(HOUR_S // REPORT_S):
            for number in range(NODES):
                yield START_S + (attempt + (number + 0.5) / NODES) * REPORT_S, "MODIFIED", number

    def learn(self, kind: str, pod: Pod) -> None:
        """Note which pods run where."""
        if pod.spec.node_name:
            running = self._pods[pod.spec.node_name]
            running.pop(pod.key, None)
            if kind != "DELETED":
                running[pod.key] = pod

    def of(self, number: int, at_s: float = START_S) -> NodeMetric:
        """Return the report of a node."""
        node = self._nodes[number]
        has = node.status.allocatable
        cpu, memory = has["cpu"].milli(), has["memory"].value()
        used = self._random.uniform(0.05, 0.5, (1 + len(WINDOWS) * len(AggregationType), 2))
        usages = [_usage(int(cpu * a), int(memory * b)) for a, b in used.tolist()]
        statistics = iter(usages[1:])
        windows = tuple(
            AggregatedUsage(
                usage={kind.value: next(statistics) for kind in AggregationType}, duration=window
            )
            for window in WINDOWS
        )
        pods = self._pods[node.metadata.name].values()
        shares = self._random.uniform(0.1, 0.9, len(pods)).tolist()
        return NodeMetric(
            metadata=ObjectMeta(name=node.metadata.name, uid=f"m{number}"),
            status=NodeMetricStatus(
                update_time=dt.datetime.fromtimestamp(int(at_s), UTC),
                node_metric=NodeUsage(
                    node_usage=usages[0],
                    system_usage=_usage(500, 1 << 30),
                    aggregated_node_usages=windows,
                ),
                pods_metric=tuple(
                    PodUsage(
                        name=pod.metadata.name,
                        namespace=pod.metadata.namespace,
                        pod_usage=_usage(int(900 * share), int((2 << 30) * share)),
                        priority="koord-prod",
                    )
                    for pod, share in zip(pods, shares, strict=True)
                ),
            ),
        )


def _usage(cpu_milli: int, memory_bytes: int) -> ResourceMap:
    amounts = {
        "cpu": Quantity.from_milli(cpu_milli),
        "memory": Quantity.from_int(memory_bytes >> 10 << 10, binary=True),
    }
    return ResourceMap(resources=amounts)


def _lives(count: int) -> Iterator[tuple[float, EventKind, Pod]]:
    for number, pod in enumerate(interleaved(count)):
        came_s = START_S + 1 + number * (HOUR_S - 2) / count
        created = dt.datetime.fromtimestamp(int(came_s), UTC)
        meta = replace(pod.metadata, uid=f"u{number}", creation_timestamp=created)
        pending = replace(pod, metadata=meta, status=replace(pod.status, phase="Pending"))
        node = f"n{number * 7919 % NODES:05d}"
        bound = replace(pending, spec=replace(pending.spec, node_name=node))
        running = replace(bound, status=replace(bound.status, phase="Running"))
        stages: tuple[tuple[float, EventKind, Pod], ...] = (
            (0.0, "ADDED", pending),
            (0.01, "MODIFIED", bound),
            (1.5, "MODIFIED", running),
            (LIFE_S, "DELETED", running),
        )
        for after_s, kind, state in stages:
            if came_s + after_s <= START_S + HOUR_S:
                yield came_s + after_s, kind, state


def _line(at_s: float, events: list[tuple[EventKind, KubeObject]]) -> bytes:
    texts = [RecordedEvent(kind, msgspec.Raw(encode(obj))) for kind, obj in events]
    return to_line(RecordedBatch(at_s, texts))


BENCHMARKS = {
    "replay": Benchmark(
        "replay of an hour, 5,000 nodes, 50,000 pod events, reports each minute", "30 s", replay
    ),
}
