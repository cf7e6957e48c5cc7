"""Findings of ``koord migrate check``: one per kind, field and outcome, with a count of objects."""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec


class FindingStatus(StrEnum):
    """Outcome for an object or a field, from the one without consequence to the worst."""

    SAME = "same"  # works unchanged
    CONVERTED = "converted"  # has another name or form here; the conversion is automatic
    IGNORED = "ignored"  # has no effect here
    DIFFERS = "differs"  # works, but not in the same way
    ACTION = "action"  # must be changed by hand before the migration


#: Statuses that a table shows by default.
NOTABLE: Final = (
    FindingStatus.ACTION,
    FindingStatus.DIFFERS,
    FindingStatus.IGNORED,
    FindingStatus.CONVERTED,
)


class MigrationFinding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Outcome for a field of an object, or of ``count`` objects of a kind; ``object`` is the first.

    ``kind`` is the kind of the object, or the kind of a file that is no manifest.
    """

    kind: str
    object: str
    status: FindingStatus
    source: str = ""  # file, or the cluster
    field: str = ""  # empty for the whole object
    message: str = ""
    action: str = ""  # what to do
    count: int = 1


def merged(findings: Iterable[MigrationFinding]) -> list[MigrationFinding]:
    """Return findings that differ in their object only as one each, the worst first."""
    firsts: dict[tuple[str, ...], MigrationFinding] = {}
    counts: Counter[tuple[str, ...]] = Counter()
    for each in findings:
        key = (each.kind, each.field, each.status, each.message, each.action)
        firsts.setdefault(key, each)
        counts[key] += each.count
    order = list(reversed(FindingStatus))
    return sorted(
        (msgspec.structs.replace(each, count=counts[key]) for key, each in firsts.items()),
        key=lambda each: order.index(each.status),
    )


def summary(findings: Iterable[MigrationFinding]) -> dict[str, int]:
    """Return the number of findings by status; every status is in it."""
    counts = Counter(each.status for each in findings)
    return {status.value: counts[status] for status in reversed(FindingStatus)}


def as_data(findings: Sequence[MigrationFinding]) -> dict[str, Any]:
    """Return summary and findings as plain data."""
    return {"summary": summary(findings), "findings": msgspec.to_builtins(findings)}


def table_rows(findings: Iterable[MigrationFinding]) -> list[tuple[str, str, str, str]]:
    """Return a row per finding: status, object, field, and message with action."""
    return [
        (
            each.status.value,
            f"{each.kind} {each.object}" + (f" and {each.count - 1} more" * (each.count > 1)),
            each.field,
            "; ".join(filter(None, (each.message, each.action))),
        )
        for each in findings
    ]
