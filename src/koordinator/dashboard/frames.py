"""An overview as readers get it: the whole, or what has changed since the last one.

Texts of the cluster travel as JSON strings only; the page puts them into text nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from koordinator.dashboard.access import ViewScope
from koordinator.dashboard.overview import COLUMNS, ClusterOverview, WaitingPod
from koordinator.dashboard.redaction import Redactor, visible
from koordinator.dashboard.timeline import Timeline

NAMED_PODS = 12  # of a cause, in a frame; the page asks for the others


class WaitingCause(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods that wait for the same thing; the longest waiting come first."""

    cause: str
    plugins: list[str]
    pods: int
    oldest_s: float
    namespaces: list[str]
    gangs: int
    named: list["NamedPod"]
    help: str = ""  # what would let the first of them start, if that has been found out


class NamedPod(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A waiting pod in a frame."""

    pod: str
    since_s: float
    position: int
    state: str
    priority: int = 0
    attempts: int = 0
    gang: str = ""


def by_cause(
    waiting: Sequence[WaitingPod], remedies: Mapping[str, str], named: int = NAMED_PODS
) -> list[WaitingCause]:
    """Return the causes, that of the most pods first; ``remedies`` are by pod."""
    groups: dict[str, list[WaitingPod]] = {}
    for one in waiting:
        groups.setdefault(one.cause, []).append(one)
    found = [_cause(cause, pods, remedies, named) for cause, pods in groups.items()]
    return sorted(found, key=lambda one: (-one.pods, one.cause))


def _cause(
    cause: str, pods: Sequence[WaitingPod], remedies: Mapping[str, str], named: int
) -> WaitingCause:
    return WaitingCause(
        cause,
        sorted({one.plugin for one in pods if one.plugin}),
        len(pods),
        pods[0].since_s,
        sorted({one.namespace for one in pods})[:NAMED_PODS],
        len({one.gang for one in pods if one.gang}),
        [
            NamedPod(
                one.key,
                one.since_s,
                one.position,
                one.state,
                one.priority,
                one.attempts,
                one.gang,
            )
            for one in pods[:named]
        ],
        next((remedies[one.key] for one in pods if remedies.get(one.key)), ""),
    )


@dataclass(frozen=True, slots=True)
class Published:
    """What has been sent last to the readers of one scope."""

    number: int
    overview: ClusterOverview
    causes: bytes


class FrameEncoder:
    """Makes frames for the readers of one scope; called by the publishing thread only."""

    def __init__(self, scope: ViewScope, heading: Mapping[str, Any]) -> None:
        self.scope, self._heading = scope, dict(heading)
        self._last: Published | None = None

    def next(
        self, overview: ClusterOverview, remedies: Mapping[str, str], redactor: Redactor
    ) -> tuple[Published, bytes]:
        """Return what to remember and the frame for whoever has the one before.

        ``redactor`` is that of the scope, as of this overview.
        """
        seen = visible(overview, redactor)
        causes = msgspec.json.encode(by_cause(seen.waiting, remedies))
        last = self._last
        number = last.number + 1 if last is not None else 1
        self._last = published = Published(number, seen, causes)
        if last is None or last.overview.nodes.facts is not seen.nodes.facts:
            return published, self.full(published, None)
        before, after = last.overview.nodes.values, seen.nodes.values
        changed = np.flatnonzero((before != after).any(axis=1))
        rows = np.column_stack((changed, after[changed])).tolist()
        frame: dict[str, Any] = {
            "kind": "delta",
            "number": number,
            **_moment(seen),
            "rows": rows,
        }
        if causes != last.causes:
            frame["waiting"] = msgspec.Raw(causes)
        return published, msgspec.json.encode(frame)

    def full(self, published: Published, timeline: Timeline | None) -> bytes:
        """Return everything that a reader needs who has nothing yet."""
        seen = published.overview
        facts = seen.nodes.facts
        frame: dict[str, Any] = {
            "kind": "full",
            "number": published.number,
            **self._heading,
            **_moment(seen),
            "columns": COLUMNS,
            "nodes": {
                "names": [one.name for one in facts],
                "pools": [one.pool for one in facts],
                "zones": [one.zone for one in facts],
                "blocks": [one.block for one in facts],
                "models": [one.gpu_model for one in facts],
                "gpus": [one.gpus for one in facts],
            },
            "values": seen.nodes.values.tolist(),
            "waiting": msgspec.Raw(published.causes),
        }
        if timeline is not None and self.scope.is_everything:
            frame["timeline"] = timeline.as_data()
        return msgspec.json.encode(frame)


def _moment(seen: ClusterOverview) -> dict[str, Any]:
    totals = seen.totals
    return {
        "status": seen.status,
        "totals": {
            "nodes": totals.nodes,
            "placed": totals.placed,
            "waiting": len(seen.waiting),
            "cpu": totals.cpu,
            "memory": totals.memory,
            "gpu": totals.gpu,
        },
    }
