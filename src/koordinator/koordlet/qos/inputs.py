"""What a strategy decides on: the node, and what was measured of it."""

from dataclasses import dataclass

from koordinator.koordlet.metrics import Aggregate, Metric, MetricStore
from koordinator.koordlet.view.node_view import NodeView

_FRESH = 2  # intervals: an older sample is not the last one any more


@dataclass(frozen=True, slots=True)
class StrategyInputs:
    """``interval_s`` is how often is measured."""

    view: NodeView
    store: MetricStore
    interval_s: float = 1.0

    def last(self, metric: Metric, owner: str = "") -> float | None:
        """Return the newest sample unless it is older than two intervals."""
        return self.store.last(metric, owner, self.view.now_s - _FRESH * self.interval_s)

    def window(self, metric: Metric, seconds: float, owner: str = "") -> Aggregate | None:
        """Return the samples of the last seconds; None if there are none."""
        now_s = self.view.now_s
        return self.store.between(metric, owner, now_s - seconds, now_s)
