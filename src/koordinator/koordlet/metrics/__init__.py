"""Metrics of the node, in memory and bounded.

``names`` lists the metrics and their units; ``store`` keeps a series of samples per metric and
owner, and aggregates them.
"""

from koordinator.koordlet.metrics.names import Metric
from koordinator.koordlet.metrics.store import Aggregate, MetricStore

__all__ = ["Aggregate", "Metric", "MetricStore"]
