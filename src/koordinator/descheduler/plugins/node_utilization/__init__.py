"""LowNodeUtilization and HighNodeUtilization: balance or pack nodes by requested resources.

``arguments``   arguments of both plugins
``requested``   requested resources of nodes, in amounts and in percent
``plugins``     the two plugins
"""

from koordinator.descheduler.plugins.node_utilization.plugins import (
    HIGH_NODE_UTILIZATION,
    LOW_NODE_UTILIZATION,
)

__all__ = ["HIGH_NODE_UTILIZATION", "LOW_NODE_UTILIZATION"]
