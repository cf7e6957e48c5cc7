"""What was measured, in memory and bounded.

``names`` says what is measured and in which units, ``series`` keeps one of it over time, ``store``
all of it, ``aggregate`` makes one number of many.
"""

from koordinator.koordlet.metrics.aggregate import Aggregate
from koordinator.koordlet.metrics.names import Metric
from koordinator.koordlet.metrics.store import MetricStore

__all__ = ["Aggregate", "Metric", "MetricStore"]
