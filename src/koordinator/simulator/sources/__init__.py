"""Sources of simulations: clusters and their pods.

``source``    what every source provides; workload files; protocol of arrivals: pods come one after
              another, and never leave
``openb``     Alibaba's GPU trace of 2023
``gpu_clusters``, ``google``  further traces in their published formats; ``trace_jobs`` has what
              their readers share
``manifests`` files and folders of manifests; ``queues`` makes quotas of the queues of Kueue and
              Volcano among them
``recordings``  recordings of a scheduler's input
"""

from koordinator.simulator.sources.source import Source, workload_source

__all__ = ["Source", "workload_source"]
