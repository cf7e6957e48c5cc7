"""Metrics of the scheduler."""

from koordinator.scheduler.features.metrics.scheduler_metrics import SchedulerMetrics

__all__ = ["SchedulerMetrics"]
