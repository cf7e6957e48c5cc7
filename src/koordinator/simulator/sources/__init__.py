"""Sources of simulations: what a cluster is and which pods come.

``source``    what every source provides; workload files
``arrivals``  protocol of arrivals: pods come one after another, and never leave
``openb``     Alibaba's GPU trace of 2023
"""

from koordinator.simulator.sources.source import Source, workload_source

__all__ = ["Source", "workload_source"]
