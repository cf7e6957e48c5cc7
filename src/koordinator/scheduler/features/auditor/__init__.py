"""Alerts about workloads that are pending abnormally."""

from koordinator.scheduler.features.auditor.feature import WorkloadAuditor
from koordinator.scheduler.features.auditor.metrics import AuditorMetrics

__all__ = ["AuditorMetrics", "WorkloadAuditor"]
