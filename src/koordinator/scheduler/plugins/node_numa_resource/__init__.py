"""CPUs and NUMA nodes: which nodes can give a pod what it wants of them, and which ones it gets.

``requirements`` what a pod wants of NUMA nodes and CPUs
``alignment``    from which NUMA nodes it would get that, on many rows and on one
``known_zones``  what of it was found when nodes were compared
``rows``         verdicts and scores of many rows
``plugin``       the plugin

The rules are in ``scheduler.rules.numa`` and ``scheduler.rules.cpus``.
Source: koordinator pkg/scheduler/plugins/nodenumaresource; pkg/scheduler/frameworkext
topologymanager.
"""

from koordinator.scheduler.plugins.node_numa_resource.plugin import PLUGIN, NodeNumaResource

__all__ = ["PLUGIN", "NodeNumaResource"]
