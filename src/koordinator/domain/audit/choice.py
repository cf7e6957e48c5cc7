"""Which entries of the audit trail somebody wants to see."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from koordinator.domain.audit.entry import AuditEntry, AuditOutcome


@dataclass(frozen=True, slots=True)
class AuditChoice:
    """Every restriction that is given must hold; ``pod``, ``node`` and ``job`` may have ``*``."""

    pod: str = ""  # namespace/name
    node: str = ""
    job: str = ""
    plugin: str = ""
    outcomes: frozenset[AuditOutcome] = frozenset()
    since_s: float = 0.0  # seconds since the epoch

    def takes(self, entry: AuditEntry) -> bool:
        """Return whether the entry is chosen."""
        nodes = (entry.node, *(it.node for it in entry.pods)) if self.node else ()
        return (
            entry.at_s >= self.since_s
            and (not self.outcomes or entry.outcome in self.outcomes)
            and (not self.plugin or entry.plugin == self.plugin)
            and (not self.job or fnmatchcase(entry.job, self.job))
            and (not self.pod or any(fnmatchcase(it.pod, self.pod) for it in entry.pods))
            and (not self.node or any(fnmatchcase(node, self.node) for node in nodes))
        )
