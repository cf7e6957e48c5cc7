"""What the scheduler measures about itself."""

from koordinator.scheduler.features.metrics.scheduler_metrics import Metrics

__all__ = ["Metrics"]
