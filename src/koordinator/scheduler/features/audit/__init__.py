"""The audit trail: what was decided, when, why, and what it took."""

from koordinator.scheduler.features.audit.trail import AUDIT_FILE, Audit

__all__ = ["AUDIT_FILE", "Audit"]
