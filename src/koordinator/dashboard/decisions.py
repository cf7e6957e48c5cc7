"""What a scheduler has decided, from its audit trail: as far as a reader may see it.

``koord audit`` tells the same.  Entries come from the scheduler that the dashboard runs itself, or
from where the one of a cluster keeps them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from koordinator.dashboard.access import ViewScope
from koordinator.dashboard.redaction import SOMEBODY, Redactor
from koordinator.domain.audit import AuditEntry, AuditOutcome, summarise
from koordinator.foundation.errors import InputError

MOST_REMEMBERED = 20_000  # entries that are looked through, the newest ones
MOST_TOLD = 200  # entries in one answer
MOST_PODS = 20  # of one entry
_UNASKED = frozenset({AuditOutcome.PLUGIN_TIMES})  # no outcome: it counts in the summary alone


class DecisionArchive(Protocol):
    """Where a scheduler that runs elsewhere keeps what it decides; asked by several threads."""

    @property
    def title(self) -> str:
        """Where that is, in a few words."""

    def newest(self, most: int) -> Sequence[AuditEntry]:
        """Return so many entries, oldest first.  Raises InputError and ClusterError."""


@dataclass(frozen=True, slots=True)
class DecisionQuestion:
    """Which decisions somebody wants to see; every restriction that is given must hold."""

    pod: str = ""  # namespace/name
    text: str = ""  # part of the name of a pod, job or node, in lower case
    outcome: AuditOutcome | None = None
    since_s: float = 0.0

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> "DecisionQuestion":
        """Return what the parameters of a question choose.  Raises InputError."""
        outcome = asked.get("outcome", "")
        if outcome and outcome not in set(AuditOutcome):
            accepted = ", ".join(AuditOutcome)
            raise InputError(f"found {outcome[:40]!r}; accepted is {accepted}", source="outcome")
        since = asked.get("since", "") or "0"
        try:
            since_s = float(since)
        except ValueError:
            text = f"found {since[:40]!r}; accepted is seconds since the epoch"
            raise InputError(text, source="since") from None
        return cls(
            pod=asked.get("pod", ""),
            text=asked.get("text", "").strip().lower(),
            outcome=AuditOutcome(outcome) if outcome else None,
            since_s=since_s,
        )

    def takes(self, entry: AuditEntry) -> bool:
        """Return whether a decision is one of those; times of plugins are, if all of them are."""
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
    question: DecisionQuestion,
    redactor: Redactor,
    title: str,
) -> dict[str, Any]:
    """Return the chosen decisions, newest first, and what they say together.

    What a reader may not see is taken away before anything is chosen, so that no question finds it.
    """
    seen = (seen_by(entry, redactor.scope) for entry in entries)
    chosen = [entry for entry in seen if entry is not None and question.takes(entry)]
    listed = [entry for entry in reversed(chosen) if entry.outcome not in _UNASKED]
    told = {
        "summary": msgspec.to_builtins(summarise(chosen)),
        "count": len(listed),
        "entries": [_entry(entry) for entry in listed[:MOST_TOLD]],
    }
    return {"isKept": True, "title": title, **redactor.data(told)}


def nothing_kept(why: str) -> dict[str, Any]:
    """Return the answer where nobody keeps what is decided."""
    return {"isKept": False, "title": why, "count": 0, "entries": []}


def seen_by(entry: AuditEntry, scope: ViewScope) -> AuditEntry | None:
    """Return what somebody may see of an entry: their own pods, nodes if they may list those.

    Scores are those of the first pod of an attempt: they go with it.
    """
    if scope.is_everything:
        return entry
    pods = tuple(it for it in entry.pods if scope.sees(it.pod.partition("/")[0]))
    if not pods and (entry.pods or not scope.sees_nodes or entry.outcome in _UNASKED):
        return None
    has_first = bool(pods) and pods[0] is entry.pods[0]
    if not scope.sees_nodes:
        pods = tuple(replace(it, node="") for it in pods)
    return replace(
        entry,
        pods=pods,
        node=entry.node if scope.sees_nodes else "",
        by=entry.by if scope.sees(entry.by.partition("/")[0]) or not entry.by else SOMEBODY,
        best=entry.best if scope.sees_nodes and has_first else (),
        turn_pods=0,
        took_s=0.0,
    )


def _entry(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as JSON has it, but for what only counts in the summary."""
    data: dict[str, Any] = msgspec.to_builtins(replace(entry, pods=(), spent_us={}))
    data["pods"] = [[it.pod, it.node, it.attempt] for it in entry.pods[:MOST_PODS]]
    data["morePods"] = max(len(entry.pods) - MOST_PODS, 0)
    return data
