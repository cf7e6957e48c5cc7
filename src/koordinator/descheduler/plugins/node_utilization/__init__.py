"""LowNodeUtilization and HighNodeUtilization: balance, or pack, nodes by what pods ask for.

``arguments``   what may be configured
``requested``   what is asked for of nodes, in percent and in amounts
``plugins``     the two plugins
"""

from koordinator.descheduler.plugins.node_utilization.plugins import (
    HIGH_NODE_UTILIZATION,
    LOW_NODE_UTILIZATION,
)

__all__ = ["HIGH_NODE_UTILIZATION", "LOW_NODE_UTILIZATION"]
