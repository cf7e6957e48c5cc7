"""Claims of devices: how fast pods get theirs, and what it takes to judge all nodes for a claim.

5,000 nodes with eight GPUs each, which differ in a UUID, in slices of their own; pods with a claim
of one to four GPUs, of 20 kinds.
"""

import gc
import statistics
import time
from typing import Any

from benchmarks.benchmark import Benchmark
from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.api.meta import KubeObject
from koordinator.cli.main import tune_garbage_collector
from koordinator.domain.dynamic_resources.allocator import NO_GATES, allocate
from koordinator.domain.dynamic_resources.requests import PendingClaim, pending_claim
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.scheduler.plugins.dynamic_resources.verdicts import verdict_of, verdict_table
from koordinator.scheduler.snapshot import Snapshot
from koordinator.simulator import Embedded
from koordinator.testing.worlds import made, node, pod

NODES, PODS, KINDS, GPUS = 5_000, 4_000, 20, 8
V1, DRIVER = "resource.k8s.io/v1", "gpu.example.com"
_MEMORY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def machine(name: str) -> list[KubeObject]:
    """Return one node and its slice."""
    devices = [
        {
            "name": f"gpu-{i}",
            "attributes": {"index": {"int": i}, "uuid": {"string": f"GPU-{name}-{i}"}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for i in range(GPUS)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return [node(name, cpu=256, memory="2048Gi"), made("ResourceSlice", name, V1, spec=spec)]


def claim(name: str, kind: int) -> KubeObject:
    """Return a claim of one of the kinds."""
    own = f'{_MEMORY} && device.attributes["{DRIVER}"].index >= {kind % 5}'
    exactly = {
        "deviceClassName": "gpu",
        "count": 1 + kind // 5,
        "selectors": [{"cel": {"expression": own}}],
    }
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return made("ResourceClaim", name, V1, spec=spec)


def _world(scale: float) -> Embedded:
    world = Embedded(options=SchedulerOptions(report=False))
    world.load(obj for i in range(max(int(NODES * scale), 1)) for obj in machine(f"n{i:05d}"))
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    world.load([made("DeviceClass", "gpu", V1, spec={"selectors": selectors})])
    return world


def throughput(scale: float) -> dict[str, Any]:
    """Schedule and report pods per second."""
    world, count = _world(scale), int(PODS * scale)
    world.load([claim(f"c{i}", i % KINDS) for i in range(count)])
    world.load(
        pod(f"p{i}", cpu=1, resourceClaims=[{"name": "gpu", "resourceClaimName": f"c{i}"}])
        for i in range(count)
    )
    gc.collect()
    tune_garbage_collector()
    started = time.perf_counter()
    bound = sum(isinstance(outcome, Bound) for outcome in world.scheduler.step())
    seconds = time.perf_counter() - started
    return {"pods/s": round(bound / seconds), "bound": bound, "s": round(seconds, 1)}


def judging(scale: float) -> dict[str, Any]:
    """Return how long all nodes take for a claim of a new kind, at once and node by node."""
    world = _world(scale)
    world.scheduler.step()
    snapshot = Snapshot(world.state)
    table = verdict_table(snapshot, NO_GATES)
    quick, plain = [], []
    for kind in range(KINDS):
        pending = (_pending(world, kind),)
        started = time.perf_counter()
        verdicts = table.of_claims(pending, len(snapshot))
        between = time.perf_counter()
        for row in range(len(snapshot)):
            answer = allocate(table.devices.pools(row), pending, table.devices.use)
            if verdict_of(answer) != (verdicts.codes[row], verdicts.scores[row]):
                raise AssertionError(f"row {row} differs for claims of kind {kind}")
        quick.append(between - started)
        plain.append(time.perf_counter() - between)
    ratio = statistics.median(p / q for p, q in zip(plain, quick, strict=True))
    at_once, one_by_one = statistics.median(quick), statistics.median(plain)
    return {
        "at once ms": round(at_once * 1e3, 1),
        "node by node ms": round(one_by_one * 1e3, 1),
        "times": round(ratio, 1),
    }


def _pending(world: Embedded, kind: int) -> PendingClaim:
    wanted = claim("c", kind)
    if not isinstance(wanted, ResourceClaim):
        raise TypeError(wanted)
    pending = pending_claim(wanted, lambda name: world.state.objects.get(DeviceClass, name))
    if isinstance(pending, str):
        raise TypeError(pending)
    return pending


BENCHMARKS = {
    "claims": Benchmark(
        "5,000 nodes of 8 GPUs, 4,000 pods with claims of 20 kinds", "200 pods/s", throughput
    ),
    "claims-judging": Benchmark(
        "all nodes judged for a claim of a new kind", "3 times as fast as each", judging
    ),
}
