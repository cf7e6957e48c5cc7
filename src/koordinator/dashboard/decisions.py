"""Scheduling decisions from an audit trail, restricted to a reader's scope.

``koord audit`` shows the same entries.  They come from the dashboard's own scheduler, or from the
archive of the cluster's scheduler.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from koordinator.dashboard.access import REDACTED, Redactor, ViewScope
from koordinator.domain.audit import AuditEntry, AuditOutcome, summarise
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

MAX_SEARCHED = 20_000  # newest entries that a query searches
MAX_LISTED = 200  # entries in one answer
MAX_PODS = 20  # of one entry
#: Outcomes that appear in the summary only.
_SUMMARY_ONLY = frozenset({AuditOutcome.PLUGIN_TIMES})


class DecisionArchive(Protocol):
    """Thread-safe store with the decisions of a scheduler in another process."""

    @property
    def title(self) -> str:
        """Short name of the store for the page."""

    def newest(self, most: int) -> Sequence[AuditEntry]:
        """Return up to ``most`` entries, oldest first.  Raises InputError and ClusterError."""


@dataclass(frozen=True, slots=True)
class DecisionQuery:
    """Filter of decisions; an entry must match every field that is set."""

    pod: str = ""  # namespace/name
    text: str = ""  # part of the name of a pod, job or node, in lower case
    outcome: AuditOutcome | None = None
    since_s: float = 0.0

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "DecisionQuery":
        """Return the query of URL parameters.  Raises InputError."""
        outcome = parameters.get("outcome", "")
        if outcome and outcome not in set(AuditOutcome):
            known = ", ".join(AuditOutcome)
            raise InputError(f"must be one of {known}, got {outcome[:40]!r}", source="outcome")
        since = parameters.get("since", "") or "0"
        try:
            since_s = float(since)
        except ValueError:
            text = f"must be seconds since the epoch, got {since[:40]!r}"
            raise InputError(text, source="since") from None
        return cls(
            pod=parameters.get("pod", ""),
            text=parameters.get("text", "").strip().lower(),
            outcome=AuditOutcome(outcome) if outcome else None,
            since_s=since_s,
        )

    def matches(self, entry: AuditEntry) -> bool:
        """Return whether an entry matches; plugin times match where no field excludes them."""
        if entry.at_s < self.since_s or self.outcome not in (None, entry.outcome):
            return False
        if self.pod and all(it.pod != self.pod for it in entry.pods):
            return False
        if not self.text:
            return True
        names = (entry.job, entry.node, entry.by, *(f"{it.pod} {it.node}" for it in entry.pods))
        return any(self.text in name.lower() for name in names)


def decisions(
    entries: Iterable[AuditEntry],
    query: DecisionQuery,
    redactor: Redactor,
    title: str,
) -> dict[str, Any]:
    """Return the matching decisions, newest first, and a summary of them.

    Redacts entries before the query is applied, so that no query can detect redacted content.
    """
    visible = (visible_entry(entry, redactor.scope) for entry in entries)
    matching = [entry for entry in visible if entry is not None and query.matches(entry)]
    listed = [entry for entry in reversed(matching) if entry.outcome not in _SUMMARY_ONLY]
    answer = {
        "summary": msgspec.to_builtins(summarise(matching)),
        "count": len(listed),
        "entries": [_entry(entry) for entry in listed[:MAX_LISTED]],
    }
    return {"isKept": True, "title": title, **redactor.data(answer)}


def no_archive(why: str) -> dict[str, Any]:
    """Return the answer for a dashboard without an audit trail."""
    return {"isKept": False, "title": why, "count": 0, "entries": []}


def visible_entry(entry: AuditEntry, scope: ViewScope) -> AuditEntry | None:
    """Return the part of an entry within a scope; None if there is none.

    The scores belong to the first pod of an attempt and are visible with that pod only.
    """
    if scope.is_everything:
        return entry
    pods = tuple(it for it in entry.pods if scope.includes_namespace(it.pod.partition("/")[0]))
    if not pods and (entry.pods or not scope.sees_nodes or entry.outcome in _SUMMARY_ONLY):
        return None
    has_first = bool(pods) and pods[0] is entry.pods[0]
    if not scope.sees_nodes:
        pods = tuple(replace(it, node="") for it in pods)
    return replace(
        entry,
        pods=pods,
        node=entry.node if scope.sees_nodes else "",
        by=entry.by
        if scope.includes_namespace(entry.by.partition("/")[0]) or not entry.by
        else REDACTED,
        best=entry.best if scope.sees_nodes and has_first else (),
        turn_pods=0,
        took_s=0.0,
    )


def _entry(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry for JSON, without the plugin times, which only the summary uses."""
    data: dict[str, Any] = msgspec.to_builtins(replace(entry, pods=(), spent_us={}))
    data["pods"] = [[it.pod, it.node, it.attempt] for it in entry.pods[:MAX_PODS]]
    data["morePods"] = max(len(entry.pods) - MAX_PODS, 0)
    return data
