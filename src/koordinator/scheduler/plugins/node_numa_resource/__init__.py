"""CPUs and NUMA nodes: candidate nodes, and the CPUs and NUMA nodes that a pod gets.

``requirements`` a pod's requirements, with cached results by row
``alignment``    NUMA nodes that satisfy a pod, on many rows and on one
``rows``         verdicts and scores of many rows
``plugin``       the extension points

The rules are in ``scheduler.rules.numa`` and ``scheduler.rules.cpus``.
Source: koordinator pkg/scheduler/plugins/nodenumaresource; pkg/scheduler/frameworkext
topologymanager.
"""

from koordinator.scheduler.plugins.node_numa_resource.plugin import PLUGIN, NodeNumaResource

__all__ = ["PLUGIN", "NodeNumaResource"]
