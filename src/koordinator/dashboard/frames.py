"""Encoder of overviews for readers: full frames, and deltas from the previous frame.

Texts of the cluster are JSON strings; the page inserts them as text nodes only.
"""

from collections.abc import Mapping
from dataclasses import field
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from koordinator.dashboard.access import (
    PrivateNames,
    Redactor,
    ViewScope,
    visible_nodes,
    visible_pods,
)
from koordinator.dashboard.overview import (
    COLUMNS,
    ClusterOverview,
    ClusterTotals,
    IntColumns,
    NodeColumns,
)
from koordinator.dashboard.sources import SourceStatus
from koordinator.dashboard.waiting_pods import IntColumn, WaitingPod, WaitingPods
from koordinator.foundation.lazy_dataclass import dataclass

NAMED_PODS = 12  # of a cause, in a frame; the page requests the others
MAX_CAUSES = 100  # in a frame
SCOPES_PER_FRAME = 10  # tenants whose pods are updated with one overview; each takes 0.2 ms
CAUSES_BYTES = 8 << 10  # causes of this size go with every frame, twice the size with every second

_NO_ROWS = msgspec.Raw(b"[]")


class WaitingCause(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods that wait for the same cause, the longest waiting first."""

    cause: str
    plugins: list[str]
    pods: int
    oldest_s: float
    namespaces: list[str]
    gangs: int
    named: list["NamedPod"]
    help: str = ""  # remedy for the first pod; empty if none is known


class NamedPod(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A waiting pod in a frame."""

    pod: str
    since_s: float
    position: int
    state: str
    priority: int = 0
    attempts: int = 0
    gang: str = ""

    @classmethod
    def of(cls, one: WaitingPod) -> "NamedPod":
        """Return the fields of a pod for a frame."""
        place = (one.key, one.since_s, one.position, one.state)
        return cls(*place, one.priority, one.attempts, one.gang)


def by_cause(
    waiting: WaitingPods, remedies: Mapping[str, str], named: int = NAMED_PODS
) -> list[WaitingCause]:
    """Return up to ``MAX_CAUSES`` causes, most pods first; ``remedies`` are by pod key."""
    causes = islice(waiting.by_cause.items(), MAX_CAUSES)
    return [_cause(waiting, cause, places, remedies, named) for cause, places in causes]


def _cause(
    waiting: WaitingPods, cause: str, places: IntColumn, remedies: Mapping[str, str], named: int
) -> WaitingCause:
    plugins, namespaces, gangs = (
        {column.texts[place] for place in np.unique(column.place[places]).tolist()}
        for column in (waiting.plugins, waiting.namespaces, waiting.gangs)
    )
    first = [waiting[place] for place in places[:named].tolist()]
    return WaitingCause(
        cause,
        sorted(plugins - {""}),
        len(places),
        first[0].since_s,
        sorted(namespaces)[:NAMED_PODS],
        len(gangs - {""}),
        [NamedPod.of(one) for one in first],
        next((remedies[one.key] for one in first if remedies.get(one.key)), ""),
    )


@dataclass(frozen=True, slots=True)
class SentState:
    """State that was sent last to the readers of one scope."""

    number: int
    status: SourceStatus
    nodes: NodeColumns
    totals: ClusterTotals
    waiting: WaitingPods
    causes: bytes  # the current causes, encoded
    sent: bytes  # the causes that readers have; updated less often than ``causes``


@dataclass(slots=True)
class SharedWork:
    """Work on one overview that all scopes share, and the budget for work per scope.

    ``scopes_left`` counts the scopes whose pending pods may still be updated with this overview;
    the other scopes are updated with one of the next frames.
    """

    scopes_left: int = SCOPES_PER_FRAME
    _encoded: list[tuple[IntColumns, msgspec.Raw]] = field(default_factory=list)  # values before

    def rows_between(self, before: NodeColumns, after: NodeColumns) -> msgspec.Raw:
        """Return the changed rows, each preceded by its index."""
        if before.values is after.values:
            return _NO_ROWS
        for values, encoded in self._encoded:
            if values is before.values:
                return encoded
        changed = np.flatnonzero((before.values != after.values).any(axis=1))
        rows = np.column_stack((changed, after.values[changed])).tolist()
        encoded = msgspec.Raw(msgspec.json.encode(rows))
        self._encoded.append((before.values, encoded))
        return encoded


class FrameEncoder:
    """Frame encoder for the readers of one scope; the publishing thread calls ``next``."""

    def __init__(self, scope: ViewScope, heading: Mapping[str, Any]) -> None:
        self.scope, self._heading = scope, dict(heading)
        self._last: SentState | None = None
        self._inputs: tuple[object, ...] = ()  # of ``waiting`` and ``causes``
        self._next_causes = 0  # number of the next frame that may carry causes

    def next(
        self,
        overview: ClusterOverview,
        remedies: Mapping[str, str],
        names: PrivateNames,
        shared: SharedWork | None = None,
    ) -> tuple[SentState, bytes]:
        """Return the published state and its frame for readers that have the previous one.

        ``names`` and ``shared`` belong to this overview.
        """
        last = self._last
        shared = shared or SharedWork()
        published = self._last = self._visible(overview, remedies, names, shared)
        if last is None or last.nodes.facts is not published.nodes.facts:
            return published, self.full(published)
        rows = shared.rows_between(last.nodes, published.nodes)
        frame: dict[str, Any] = {
            "kind": "delta",
            "number": published.number,
            **_moment(published),
            "rows": rows,
        }
        if published.sent is not last.sent:
            frame["waiting"] = msgspec.Raw(published.sent)
        return published, msgspec.json.encode(frame)

    def _visible(
        self,
        overview: ClusterOverview,
        remedies: Mapping[str, str],
        names: PrivateNames,
        shared: SharedWork,
    ) -> SentState:
        last, scope = self._last, self.scope
        number = last.number + 1 if last is not None else 1
        inputs = (overview.waiting, names, dict(remedies))
        is_same = last is not None and all(
            old is new or (isinstance(old, dict) and old == new)
            for old, new in zip(self._inputs, inputs, strict=True)
        )
        is_deferred = not scope.is_everything and shared.scopes_left <= 0
        if last is not None and (is_same or is_deferred):
            waiting, causes = last.waiting, last.causes
        else:
            shared.scopes_left -= not scope.is_everything
            waiting = visible_pods(overview.waiting, Redactor(scope, names))
            causes = msgspec.json.encode(by_cause(waiting, remedies))
            self._inputs = inputs
        nodes, totals = visible_nodes(overview.nodes, overview.totals, scope)
        sent = self._causes_to_send(number, causes)
        return SentState(number, overview.status, nodes, totals, waiting, causes, sent)

    def _causes_to_send(self, number: int, causes: bytes) -> bytes:
        """Return the causes for this frame; large ones are updated less often."""
        last = self._last
        if last is None:
            return causes
        if causes == last.sent or number < self._next_causes:
            return last.sent
        self._next_causes = number + len(causes) // CAUSES_BYTES
        return causes

    def full(self, published: SentState) -> bytes:
        """Return a frame with the complete state, for a new reader.  Thread-safe."""
        facts = published.nodes.facts
        frame: dict[str, Any] = {
            "kind": "full",
            "number": published.number,
            **self._heading,
            **_moment(published),
            "columns": COLUMNS,
            "nodes": {
                "names": [one.name for one in facts],
                "pools": [one.pool for one in facts],
                "zones": [one.zone for one in facts],
                "blocks": [one.block for one in facts],
                "models": [one.gpu_model for one in facts],
                "gpus": [one.gpus for one in facts],
            },
            "values": published.nodes.values.tolist(),
            "waiting": msgspec.Raw(published.sent),
        }
        return msgspec.json.encode(frame)


def _moment(published: SentState) -> dict[str, Any]:
    totals = published.totals
    return {
        "status": published.status,
        "totals": {
            "nodes": totals.nodes,
            "placed": totals.placed,
            "waiting": len(published.waiting),
            "causes": len(published.waiting.by_cause),
            "cpu": totals.cpu,
            "memory": totals.memory,
            "gpu": totals.gpu,
        },
    }
