"""Pages about nodes: what they hold, their devices, NUMA zones and load."""

from koordinator.scheduler.features.nodes.feature import NodePagesFeature

__all__ = ["NodePagesFeature"]
