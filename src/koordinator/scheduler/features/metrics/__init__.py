"""What the scheduler measures about itself."""

from koordinator.scheduler.features.metrics.scheduler_metrics import SchedulerMetrics

__all__ = ["SchedulerMetrics"]
