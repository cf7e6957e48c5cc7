"""Cost of the audit trail: the same pods with it and without, with metrics in both.

Both worlds run in turns, slice by slice, and processor time counts, so that what else the machine
does concerns neither much; of the ratios of slices the median counts.  Who goes first changes
with every slice.
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from benchmarks.benchmark import Benchmark
from benchmarks.throughput import PROFILE, all_different, in_runs, interleaved, nodes
from koordinator.api.pod import Pod
from koordinator.cli.main import tune_garbage_collector
from koordinator.process.logs import RotatedFile
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.simulator import Embedded

NODES = 5_000
PODS = 80_000
WARM_UP = 1_000
SLICE = 500


class _World:
    """``kept`` takes lines; None: there is no trail."""

    def __init__(self, kept: Callable[[bytes], None] | None, *, audited: bool = True) -> None:
        self._began_s: float | None = None
        self.seconds = 0.0
        self.bound = 0
        metrics = SchedulerMetrics(CollectorRegistry())
        metrics.now_s = self._now_s
        self.world = Embedded(
            PROFILE,
            options=SchedulerOptions(report=False),
            metrics=metrics,
            audit=Audit(kept) if audited else None,
        )
        self.world.load(nodes(NODES))

    def _now_s(self) -> float:
        """Return the time that this world alone has taken."""
        return self.seconds + (
            0.0 if self._began_s is None else time.process_time() - self._began_s
        )

    def work(self, pods: list[Pod]) -> None:
        self.world.cluster.load(pods)
        self.world.scheduler.step(limit=0)
        self._began_s = time.process_time()
        outcomes = self.world.scheduler.step()
        self.seconds, self._began_s = self._now_s(), None
        self.bound += sum(isinstance(outcome, Bound) for outcome in outcomes)


def compare(make: Callable[[int], Iterator[Pod]], pods: int, scale: float) -> dict[str, Any]:
    """Return what the trail in memory, and on disk, costs of the time without."""
    with tempfile.TemporaryDirectory() as folder:
        kept = RotatedFile(Path(folder), "audit.jsonl")
        worlds = [_World(None, audited=False), _World(None), _World(kept.write)]
        count = max(int(pods * scale), SLICE)
        everyone = list(make(count + WARM_UP))
        for world in worlds:
            world.work(everyone[:WARM_UP])
            world.bound = 0
        before = [world.seconds for world in worlds]
        ratios: list[list[float]] = [[], []]
        gc.collect()
        tune_garbage_collector()
        for number, start in enumerate(range(WARM_UP, count + WARM_UP, SLICE)):
            some = everyone[start : start + SLICE]
            for attempt in range(len(worlds)):
                worlds[(number + attempt) % len(worlds)].work(some)
            took = [w.seconds - b for w, b in zip(worlds, before, strict=True)]
            before = [world.seconds for world in worlds]
            for ratio, with_audit in zip(ratios, took[1:], strict=True):
                ratio.append(with_audit / took[0])
        ring, disk = (statistics.median(ratio) - 1 for ratio in ratios)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        return {
            "pods/s without": round(worlds[0].bound / worlds[0].seconds),
            "in memory": f"{ring:+.1%}",
            "on disk": f"{disk:+.1%}",
            "bytes per pod": size // worlds[2].bound,
        }


BENCHMARKS = {
    "audit-runs": Benchmark(
        "audit, 5,000 nodes, pods in runs", "+3 %", partial(compare, in_runs, PODS)
    ),
    "audit": Benchmark(
        "audit, 5,000 nodes, 200 classes at random",
        "+3 %",
        partial(compare, interleaved, PODS // 2),
    ),
    "audit-different": Benchmark(
        "audit, 5,000 nodes, every pod another class",
        "+3 %",
        partial(compare, all_different, PODS // 8),
    ),
}
