"""Redaction of names outside a reader's scope in texts and data.

Messages of plugins name other pods, gangs and quotas: the pod that uses a port, the gang ahead in
the queue, the quota that lends.  Names that the reader may not list are replaced in all of them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.reservation import Reservation
from koordinator.dashboard.access import ViewScope
from koordinator.dashboard.overview import NO_NODES, NO_TOTALS, ClusterTotals, NodeColumns
from koordinator.dashboard.waiting_pods import WaitingPods
from koordinator.scheduler.snapshot import ClusterState

REDACTED = "(another tenant)"
#: ``namespace/name``, or a word that may be an object's name.
_NAME = re.compile(r"[\w](?:[\w.-]*\w)?(?:/[\w](?:[\w.-]*\w)?)?")
#: Words of the scheduler's messages that look like ``namespace/name``.
_WORDS = frozenset({"affinity/selector", "and/or"})
_COUNT = re.compile(r"\d+/\d+")


@dataclass(frozen=True, slots=True)
class PrivateNames:
    """Names that messages mention without a namespace; the same object serves all readers."""

    #: Owning namespaces by name of a quota or namespace; the reader must see all of them.
    owners: Mapping[str, frozenset[str]]
    reservations: frozenset[str]
    nodes: frozenset[str]

    @classmethod
    def of(cls, state: ClusterState, namespaces: Iterable[str] | None = None) -> "PrivateNames":
        """Return the names of a cluster; ``namespaces`` are the pending pods' namespaces, if known.

        Namespaces of placed pods are left out: messages mention these pods with their namespace
        only, and there are too many to collect for each frame.
        """
        if namespaces is None:
            namespaces = {key.partition("/")[0] for key in state.unbound}
        owners: dict[str, set[str]] = {name: {name} for name in namespaces}
        for quota in state.objects.all(ElasticQuota):
            for name in (quota.metadata.name, quota.metadata.namespace):
                owners.setdefault(name, set()).add(quota.metadata.namespace)
        return cls(
            {name: frozenset(own) for name, own in owners.items()},
            frozenset(one.metadata.name for one in state.objects.all(Reservation)),
            frozenset(state.nodes.rows),
        )

    def hide(self, name: str, scope: ViewScope) -> bool:
        """Return whether a name is outside a scope."""
        if name in self.nodes and not scope.sees_nodes:
            return True
        if scope.namespaces is None:
            return False
        return name in self.reservations or not self.owners.get(name, _NO_NAMES) <= scope.namespaces


_NO_NAMES: frozenset[str] = frozenset()
NOTHING_PRIVATE = PrivateNames({}, _NO_NAMES, _NO_NAMES)


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces names in texts for one reader.

    Resource names stay: their first part contains a dot, which a namespace cannot.
    """

    scope: ViewScope
    names: PrivateNames = NOTHING_PRIVATE

    @classmethod
    def of(cls, state: ClusterState, scope: ViewScope) -> "Redactor":
        """Return the redactor for a scope."""
        return cls(scope, NOTHING_PRIVATE if scope.is_everything else PrivateNames.of(state))

    def text(self, text: str) -> str:
        """Return a text with the names outside the scope replaced."""
        return text if self.scope.is_everything else _NAME.sub(self._replacement, text)

    def data(self, data: Any) -> Any:
        """Return JSON data with the names outside the scope replaced in keys and values."""
        if self.scope.is_everything:
            return data
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {self.text(key): self.data(value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.data(one) for one in data]
        return data

    def _replacement(self, match: re.Match[str]) -> str:
        name = match[0]
        if self.names.hide(name, self.scope):
            return REDACTED
        namespace, slash, _ = name.partition("/")
        is_object = bool(slash) and "." not in namespace and namespace == namespace.lower()
        if not is_object or name in _WORDS or _COUNT.fullmatch(name):
            return name
        return name if self.scope.sees(namespace) else REDACTED


def visible_pods(waiting: WaitingPods, redactor: Redactor) -> WaitingPods:
    """Return the pods in the redactor's scope, with redacted causes."""
    scope = redactor.scope
    if scope.is_everything:
        return waiting
    if scope.namespaces is not None:
        own = [namespace in scope.namespaces for namespace in waiting.namespaces.texts]
        waiting = waiting.only(np.array(own, np.bool_)[waiting.namespaces.place])
    used = set(waiting.causes.used().tolist())
    texts = enumerate(waiting.causes.texts)
    return waiting.with_causes([redactor.text(text) if n in used else "" for n, text in texts])


def visible_nodes(
    nodes: NodeColumns, totals: ClusterTotals, scope: ViewScope
) -> tuple[NodeColumns, ClusterTotals]:
    """Return the nodes and totals, or empty ones for a scope without nodes."""
    if scope.sees_nodes:
        return nodes, totals
    return NO_NODES, NO_TOTALS
