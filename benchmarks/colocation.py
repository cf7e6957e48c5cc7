"""A simulated week of services and batch jobs that share 1,000 nodes, in steps of a minute.

The whole loop: usage, CPU suppress, evictions, a NodeMetric per node and hour through the API, the
manager, the scheduler.  Time is CPU time of the process: the cost of the simulation.
"""

import resource
import time
from typing import Any

from benchmarks.benchmark import Benchmark
from koordinator.simulator import Simulation, parse_workload

WEEK_S = 7 * 86_400.0
WORKLOAD = """
title: A week of 1,000 nodes
horizon: 168h
sampleEvery: 1h
nodePools:
- {name: node, count: 1000, cpu: 32, memory: 128Gi}
podStreams:
- name: service
  arrival: {bursts: [{count: 7000}]}
  template:
    {cpu: 4, memory: 8Gi, priority: 9000, qos: LS,
     usage: {low: 12, high: 45, peakAt: 15h, memory: 50}}
- name: batch
  arrival: {bursts: [{count: 13000, over: 160h}]}
  duration: {lognormal: {median: 6h, sigma: 0.6, most: 24h}}
  template:
    {cpu: 4, memory: 4Gi, priority: 5000, qos: BE, preempts: false, usage: {cpu: 90, memory: 80}}
colocation:
  spikes: [{stream: service, at: 59h, lasts: 40m, factor: 2}]
objects:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: slo-controller-config, namespace: koordinator-system}
  data:
    colocation-config: |
      {"enable": true, "metricReportIntervalSeconds": 3600, "degradeTimeMinutes": 130}
    resource-threshold-config: |
      {"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota",
       "cpuEvictBESatisfactionLowerPercent": 30, "cpuEvictBESatisfactionUpperPercent": 60}}
- apiVersion: config.koordinator.sh/v1alpha1
  kind: ClusterColocationProfile
  metadata: {name: batch}
  spec: {selector: {matchLabels: {app: batch}}, qosClass: BE, priorityClassName: koord-batch}
"""


def week(scale: float) -> dict[str, Any]:
    """Return what a week costs; ``scale`` is the share of it that is simulated."""
    simulation = Simulation(parse_workload(WORKLOAD, "benchmark"), until_s=WEEK_S * scale)
    began_s, spent_s = time.perf_counter(), time.process_time()
    report = simulation.run().report
    cpu_s = time.process_time() - spent_s
    colocation = report.colocation
    assert colocation is not None
    return {
        "cpu_s": round(cpu_s, 1),
        "wall_s": round(time.perf_counter() - began_s, 1),
        "virtual seconds per CPU second": round(WEEK_S * scale / cpu_s),
        "pods": report.total.scheduled,
        "batch core hours": round(colocation.totals.best_effort_core_hours),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


BENCHMARKS = {
    "colocation": Benchmark("simulated week, 1,000 nodes, 20,000 pods", "180 s", week),
}
