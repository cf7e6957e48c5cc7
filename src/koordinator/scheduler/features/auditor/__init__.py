"""Alerts about workloads that wait in a way that somebody should look at."""

from koordinator.scheduler.features.auditor.feature import WorkloadAuditor
from koordinator.scheduler.features.auditor.metrics import AuditorMetrics

__all__ = ["AuditorMetrics", "WorkloadAuditor"]
