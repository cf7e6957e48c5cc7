"""LowNodeLoad: moves pods from nodes with high measured usage while other nodes have low usage.

``arguments``  arguments and node pools; nodes with high usage over several cycles
``usage``      usage and thresholds of nodes, as arrays with a row per node
``goal``       gain of moves by measured usage; target nodes and their headroom
``plugin``     the cycle
"""

from koordinator.descheduler.plugins.low_node_load.plugin import LOW_NODE_LOAD

__all__ = ["LOW_NODE_LOAD"]
