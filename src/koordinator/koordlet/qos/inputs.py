"""Input of strategies: the node and its samples."""

from dataclasses import dataclass

from koordinator.koordlet.metrics import Aggregate, Metric, MetricStore
from koordinator.koordlet.view.node_view import NodeView

_FRESH = 2  # intervals, after which a sample is outdated


@dataclass(frozen=True, slots=True)
class StrategyInputs:
    """View and samples of the node; ``interval_s`` is the sampling interval."""

    view: NodeView
    store: MetricStore
    interval_s: float = 1.0

    def last(self, metric: Metric, owner: str = "") -> float | None:
        """Return the newest sample; None if it is older than two intervals."""
        return self.store.last(metric, owner, self.view.now_s - _FRESH * self.interval_s)

    def window(self, metric: Metric, seconds: float, owner: str = "") -> Aggregate | None:
        """Return the samples of the last ``seconds``; None if there are none."""
        now_s = self.view.now_s
        return self.store.between(metric, owner, now_s - seconds, now_s)
