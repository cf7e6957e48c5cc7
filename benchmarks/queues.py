"""Queues: what ten thousand waiting jobs cost, and how fast a queue is worked off."""

import gc
import time
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from benchmarks.benchmark import Benchmark
from benchmarks.gangs import PROFILE, gang
from benchmarks.throughput import nodes
from koordinator.api.core import ResourceRequirements
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaSpec
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, Plugin
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.cli.main import tune_garbage_collector
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.simulator import Embedded

QUEUE = "quota.scheduling.koordinator.sh/queue-"
EVENTS = 200  # pods of others that come and go while jobs wait


def quota(policy: str, order: str, cpu: int) -> ElasticQuota:
    """Return the quota ``team`` with so many CPUs."""
    amounts = {"cpu": Quantity.from_int(cpu)}
    settings = {QUEUE + "policy": policy, QUEUE + "order": order}
    meta = ObjectMeta(name="team", namespace="teams", annotations=settings)
    return ElasticQuota(metadata=meta, spec=ElasticQuotaSpec(max=amounts, min=amounts))


def jobs(count: int, size: int, cpu: int) -> Iterator[KubeObject]:
    """Make jobs of the quota ``team``, in ten namespaces."""
    for number in range(count):
        for obj in gang(f"j{number}", size, cpu):
            meta = replace(obj.metadata, namespace=f"ns{number % 10}")
            if isinstance(obj, Pod):
                meta = replace(meta, labels={**meta.labels, QUOTA_NAME: "team"})
            yield replace(obj, metadata=meta)


def single(name: str, cpu: int = 1) -> Pod:
    """Return a pod without a quota or a job."""
    requests = {"cpu": Quantity.from_int(cpu)}
    container = Container(name="c", resources=ResourceRequirements(requests=requests))
    spec = PodSpec(containers=(container,), scheduler_name="default-scheduler", priority=100)
    return Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


def waiting(policy: str, order: str, scale: float) -> dict[str, Any]:
    """Measure scheduling of other pods while 10,000 jobs of two wait for an exhausted quota.

    The same is measured without waiting jobs: the difference is the cost of the jobs.
    """
    cost = []
    for count in (0, int(10_000 * scale)):
        world = _world(quota(policy, order, 1))
        world.load(jobs(count, 2, 4))
        for _ in range(10):  # positions are reported in the beginning
            world.scheduler.step()
            world.clock.advance_to(world.clock.now_s() + 60)
        _come_and_go(world)
        gc.collect()
        tune_garbage_collector()
        began = time.process_time()
        _come_and_go(world)
        cost.append((time.process_time() - began) / (2 * EVENTS) * 1e6)
    counts = {state.value: count for state, count in world.scheduler.queue.counts().items()}
    return {
        "us per event": round(cost[1]),
        "without waiting jobs": round(cost[0]),
        "gated": counts["gated"],
        "tried": counts["unschedulable"] + counts["backoff"] + counts["active"],
    }


def working_off(policy: str, order: str, scale: float) -> dict[str, Any]:
    """Start 10,000 jobs of two one after the other, as they all have room."""
    count = int(10_000 * scale)
    rates = {}
    for name, chosen in (("queued", policy), ("unqueued", "none")):
        world = _world(quota(chosen, order, 1_000_000))
        world.load(jobs(count, 2, 1))
        gc.collect()
        tune_garbage_collector()
        began = time.process_time()
        bound = sum(isinstance(outcome, Bound) for outcome in world.scheduler.step())
        rates[name] = round(bound / (time.process_time() - began))
        assert bound == 2 * count
    return {"pods/s": rates["queued"], "without a queue": rates["unqueued"]}


def _come_and_go(world: Embedded) -> None:
    for number in range(EVENTS):
        world.load([single(f"p{number}")])
        world.scheduler.step()
        world.cluster.delete(Pod, f"p{number}", "default", grace_period_s=0)
        world.scheduler.step()


def _world(*objects: KubeObject) -> Embedded:
    world = Embedded(_configuration(), options=SchedulerOptions(report=False))
    world.load(nodes(5_000))
    world.load(objects)
    world.scheduler.step()
    return world


def _configuration() -> KubeSchedulerConfiguration:
    (profile,) = PROFILE.profiles
    plugins = profile.plugins
    assert plugins is not None
    before = replace(
        plugins.pre_filter, enabled=(*plugins.pre_filter.enabled, Plugin(name="ElasticQuota"))
    )
    profile = replace(profile, plugins=replace(plugins, pre_filter=before))
    return replace(PROFILE, profiles=(profile,))


BENCHMARKS = {
    "queue-waiting": Benchmark(
        "10,000 jobs wait in a strict queue, 5,000 nodes",
        "as without them",
        lambda scale: waiting("strict", "fifo", scale),
    ),
    "queue-fair": Benchmark(
        "10,000 jobs wait in a best-effort queue with fair shares",
        "as without them",
        lambda scale: waiting("best-effort", "fair-share", scale),
    ),
    "queue-start": Benchmark(
        "10,000 jobs of two start in a strict queue",
        "-",
        lambda scale: working_off("strict", "fifo", scale),
    ),
    "queue-start-fair": Benchmark(
        "10,000 jobs of two start in a backfill queue with fair shares",
        "-",
        lambda scale: working_off("backfill", "fair-share", scale),
    ),
}
