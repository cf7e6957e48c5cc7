"""Audit trail of scheduling decisions, as data.

``entry``    one outcome of one or more pods, and its cause
``choice``   filter of entries
``summary``  aggregates: slow plugins, rejected jobs, flapping nodes

``scheduler.features.audit`` writes the trail.
"""

from koordinator.domain.audit.entry import (
    AuditChoice,
    AuditedPod,
    AuditEntry,
    AuditOutcome,
    ScoredNode,
)
from koordinator.domain.audit.summary import AuditSummary, summarise

__all__ = [
    "AuditChoice",
    "AuditEntry",
    "AuditOutcome",
    "AuditSummary",
    "AuditedPod",
    "ScoredNode",
    "summarise",
]
