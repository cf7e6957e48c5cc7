"""Cost of the node agent: 110 pods of two containers in real cgroups, default intervals.

The cgroups are the kernel's and everything is read from them; the cluster is in memory.  Metrics
are scraped as by Prometheus.  CPU is what this process takes while it does nothing but the
agent's work.
"""

import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from tests.e2e.host.machine import PodsMachine, missing
from tests.nodes import slo

import koordinator.cli.koordlet.process  # noqa: F401 -- its memory counts
from benchmarks.benchmark import Benchmark
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.metrics import Metric

PODS, CONTAINERS = 110, 2
WARM_UP_S, MEASURED_S, SCRAPED_EVERY_S = 10, 60, 15
_PAGE_KIB = 4


def _cost(scale: float) -> dict[str, Any]:
    problem = missing()
    if problem:
        return {"skipped": problem}
    with tempfile.TemporaryDirectory() as folder:
        machine = PodsMachine(Path(folder))
        try:
            return _measured(machine, max(MEASURED_S * scale, 5.0))
        finally:
            machine.remove()


def _measured(machine: PodsMachine, seconds: float) -> dict[str, Any]:
    on = {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True}}
    machine.slo(
        slo(
            resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 65},
            cpuBurstStrategy={"policy": "auto"},
            resourceQOSStrategy={"lsClass": on, "beClass": on},
        )
    )
    for number in range(PODS):
        if number % 3:
            resources: dict[str, Any] = {
                "requests": {"cpu": "100m", "memory": "64Mi"},
                "limits": {"cpu": "200m", "memory": "128Mi"},
            }
            machine.place(f"ls-{number}", "LS", CONTAINERS, **resources)
        else:
            batch = {"kubernetes.io/batch-cpu": 200, "kubernetes.io/batch-memory": "64Mi"}
            machine.place(f"be-{number}", "BE", CONTAINERS, requests=batch, limits=batch)
    registry = CollectorRegistry()
    machine.agent.close()
    machine.agent = machine.start(NodeGauges(registry, "n1", 0.0))
    machine.count()
    _work(machine, registry, WARM_UP_S)
    started, before = time.perf_counter(), _cpu_s()
    _work(machine, registry, seconds)
    cores = (_cpu_s() - before) / (time.perf_counter() - started)
    store, now_s = machine.agent.store, machine.clock.now_s()
    samples = [
        len(series.values)
        for uid in store.owners(Metric.POD_CPU)
        if (series := store.between(Metric.POD_CPU, uid, now_s - seconds, now_s)) is not None
    ]
    return {
        "cores": round(cores, 3),
        "rss_mib": round(_rss_mib()),
        "pods": len(samples),
        "samples_per_s": round(sum(samples) / len(samples) / seconds, 2),
    }


def _work(machine: PodsMachine, registry: CollectorRegistry, seconds: float) -> None:
    end = time.perf_counter() + seconds
    scraped = 0.0
    while (now := time.perf_counter()) < end:
        machine.agent.step()
        if now - scraped >= SCRAPED_EVERY_S:
            generate_latest(registry)
            scraped = now
        time.sleep(max(min(machine.agent.next_s() - machine.clock.now_s(), 0.5), 0.001))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _rss_mib() -> float:
    pages = int(Path(f"/proc/{os.getpid()}/statm").read_text().split()[1])
    return pages * _PAGE_KIB / 1024


BENCHMARKS = {
    "koordlet": Benchmark("koordlet, 110 pods / 220 containers", "<= 0.15 core, <= 120 MiB", _cost),
}
