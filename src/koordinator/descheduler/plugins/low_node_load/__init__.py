"""LowNodeLoad: moves pods off nodes that use too much, as long as others use little.

``arguments``   what may be configured, and its pools
``usage``       what nodes use and may use, as arrays: rows are nodes
``detectors``   nodes that were too hot for long enough
``targets``     where pods could go, and what room is left there
``plugin``      one cycle
"""

from koordinator.descheduler.plugins.low_node_load.plugin import LOW_NODE_LOAD

__all__ = ["LOW_NODE_LOAD"]
