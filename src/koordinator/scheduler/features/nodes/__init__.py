"""Pages about nodes: pods, devices, NUMA zones and load."""

from koordinator.scheduler.features.nodes.feature import NodePagesFeature

__all__ = ["NodePagesFeature"]
