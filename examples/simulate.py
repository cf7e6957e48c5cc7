"""A workload through the scheduler in a few lines; runs in seconds, and in a notebook as well.

Compares how two scheduler configurations place the same small workload.
"""

from koordinator.api.kubescheduler import decode_configuration
from koordinator.simulator import parse_workload, simulate

WORKLOAD = parse_workload(
    """
    horizon: 12h
    nodePools:
    - {name: gpu, count: 8, cpu: 64, memory: 512Gi, gpus: {count: 8, memory: 80Gi}}
    podStreams:
    - name: training
      arrival: {bursts: [{count: 20}], poisson: {perHour: 14}}
      duration: {lognormal: {median: 1h, sigma: 0.7, most: 6h}}
      template: {cpu: 4, memory: 16Gi}
      variants: [{weight: 4, gpus: 1}, {weight: 2, gpus: 2}, {weight: 1, gpus: 8}]
    failures:
    - {pool: gpu, mtbf: 50h}
    """,
    source="WORKLOAD",
)

SPREADING = decode_configuration(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {
                    "filter": {"enabled": [{"name": "DeviceShare"}]},
                    "reserve": {"enabled": [{"name": "DeviceShare"}]},
                },
            }
        ],
    },
    source="SPREADING",
)

for name, configuration in (("kube-scheduler's scores", SPREADING), ("the demo's profile", None)):
    result = simulate(WORKLOAD, configuration, seed=3)
    report = result.report
    gpu = report.mean_over_time(report.allocated().gpu) or 0.0
    unusable = report.mean_over_time(report.samples.gpu_fragmentation) or 0.0
    waits_s = [p.bound_s - p.submitted_s for p in result.placements if p.bound_s is not None]
    print(f"{name}: {gpu:.0%} of the GPUs allocated, {unusable:.0%} of the free ones of no use,")
    print(
        f"  {report.total.scheduled} of {report.total.submitted} pods placed after "
        f"{sum(waits_s) / len(waits_s) / 60:.1f} minutes on average, "
        f"{report.samples.pods_pending[-1]} still waiting, "
        f"{report.total.failed} lost in {report.node_failures} node failures"
    )
