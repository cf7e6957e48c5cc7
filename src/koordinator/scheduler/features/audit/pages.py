"""The audit trail under /apis/v1/audit: entries, and what they say together."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from koordinator.domain.audit import AuditChoice, AuditEntry, AuditOutcome, AuditSummary
from koordinator.foundation.errors import InputError
from koordinator.scheduler.loop.feature import Ask, Page


class AuditTrail(Protocol):
    """Remembers what was decided."""

    def entries(self, choice: AuditChoice, most: int) -> list[AuditEntry]:
        """Return the newest entries that are chosen, oldest first."""
        ...

    def summary(self, choice: AuditChoice, most: int) -> AuditSummary:
        """Return what the chosen entries say together."""
        ...


MOST_ENTRIES = 1000  # of one answer, if the question does not say


def audit_services(audit: AuditTrail, ask: Ask) -> dict[str, Page]:
    """Return the pages by path; ``ask`` has a question answered by the scheduler's own thread.

    Both take pod, node, job, plugin, outcome (several separated by commas) and since (seconds since
    the epoch); both take limit: of entries, or of the rows of each list.
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
    """Return what the parameters of a question choose.  Raises InputError."""
    return AuditChoice(
        pod=given.get("pod", ""),
        node=given.get("node", ""),
        job=given.get("job", ""),
        plugin=given.get("plugin", ""),
        outcomes=outcomes_of(given.get("outcome", "")),
        since_s=_number(given, "since", 0.0),
    )


def outcomes_of(text: str) -> frozenset[AuditOutcome]:
    """Return the outcomes in a list that is separated by commas.  Raises InputError."""
    names = list(filter(None, text.split(",")))
    wrong = [name for name in names if name not in set(AuditOutcome)]
    if wrong:
        accepted = ", ".join(AuditOutcome)
        raise InputError(f"must be one of {accepted}, got {wrong[0]!r}", source="outcome")
    return frozenset(map(AuditOutcome, names))


def _limit(given: Mapping[str, str], default: int) -> int:
    limit = _number(given, "limit", default)
    if limit < 1 or limit != int(limit):
        raise InputError(f"must be a number over 0, got {given['limit']!r}", source="limit")
    return int(limit)


def _number(given: Mapping[str, str], name: str, default: Any) -> float:
    try:
        return float(given.get(name, default))
    except ValueError:
        raise InputError(f"must be a number, got {given[name]!r}", source=name) from None
