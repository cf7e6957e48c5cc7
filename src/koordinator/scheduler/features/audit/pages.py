"""Pages of the audit trail under /apis/v1/audit: entries and their summary."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from koordinator.domain.audit import AuditChoice, AuditEntry, AuditOutcome, AuditSummary
from koordinator.foundation.errors import InputError
from koordinator.scheduler.loop.feature import Ask, Page


class AuditTrail(Protocol):
    """Source of audit entries."""

    def entries(self, choice: AuditChoice, most: int) -> list[AuditEntry]:
        """Return the newest selected entries, oldest first."""
        ...

    def summary(self, choice: AuditChoice, most: int) -> AuditSummary:
        """Return the summary of the selected entries."""
        ...


MOST_ENTRIES = 1000  # per response, without a limit parameter


def audit_services(audit: AuditTrail, ask: Ask) -> dict[str, Page]:
    """Return the pages by path; ``ask`` runs a query on the scheduler's thread.

    Both accept pod, node, job, plugin, outcome (several separated by commas) and since (seconds
    since the epoch); both accept limit: of entries, or of the rows of each list.
    """

    def entries(given: Mapping[str, str]) -> object:
        found = ask(partial(audit.entries, choice_of(given), _limit(given, MOST_ENTRIES)))
        return {"entries": msgspec.to_builtins(found)}

    def summary(given: Mapping[str, str]) -> object:
        return msgspec.to_builtins(
            ask(partial(audit.summary, choice_of(given), _limit(given, 10))), str_keys=True
        )

    return {"/audit": entries, "/audit/summary": summary}


def choice_of(given: Mapping[str, str]) -> AuditChoice:
    """Return the filter that the query parameters describe.  Raises InputError."""
    return AuditChoice(
        pod=given.get("pod", ""),
        node=given.get("node", ""),
        job=given.get("job", ""),
        plugin=given.get("plugin", ""),
        outcomes=outcomes_of(given.get("outcome", "")),
        since_s=_number(given, "since", 0.0),
    )


def outcomes_of(text: str) -> frozenset[AuditOutcome]:
    """Return the outcomes of a comma-separated list.  Raises InputError."""
    names = list(filter(None, text.split(",")))
    wrong = [name for name in names if name not in set(AuditOutcome)]
    if wrong:
        accepted = ", ".join(AuditOutcome)
        raise InputError(f"must be one of {accepted}, got {wrong[0]!r}", source="outcome")
    return frozenset(map(AuditOutcome, names))


def _limit(given: Mapping[str, str], default: int) -> int:
    limit = _number(given, "limit", default)
    if limit < 1 or limit != int(limit):
        raise InputError(f"must be an integer above 0, got {given['limit']!r}", source="limit")
    return int(limit)


def _number(given: Mapping[str, str], name: str, default: Any) -> float:
    try:
        return float(given.get(name, default))
    except ValueError:
        raise InputError(f"must be a number, got {given[name]!r}", source=name) from None
