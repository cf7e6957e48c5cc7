"""Audit trail of decisions with time, reason and duration."""

from koordinator.scheduler.features.audit.trail import AUDIT_FILE, Audit

__all__ = ["AUDIT_FILE", "Audit"]
