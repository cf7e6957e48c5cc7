"""The trail of what a scheduler decided, as data.

``entry``    one outcome of one or more pods, and what is known of how it came about
``choice``   which entries somebody wants to see
``summary``  what entries say together: slow plugins, rejected jobs, flapping nodes

What writes the trail is ``scheduler.features.audit``.
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
