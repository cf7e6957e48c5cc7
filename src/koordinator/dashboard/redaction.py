"""Texts without names that a reader has no right to know.

Plugins tell of other pods, gangs and quotas in their sentences: who holds a port, which gang comes
first, which quota lends.  What a reader may not list is replaced there, whoever wrote the sentence.
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

SOMEBODY = "somebody else's"
#: ``namespace/name``, or a word that may be the name of something.
_NAME = re.compile(r"[\w](?:[\w.-]*\w)?(?:/[\w](?:[\w.-]*\w)?)?")
#: What looks like ``namespace/name`` in the scheduler's own words.
_WORDS = frozenset({"affinity/selector", "and/or"})
_COUNT = re.compile(r"\d+/\d+")


@dataclass(frozen=True, slots=True)
class PrivateNames:
    """What sentences name without a namespace, the same for all readers: whose it is decides.

    ``owners`` are of quotas, and of namespaces: those in which something is called so.
    """

    owners: Mapping[str, frozenset[str]]
    reservations: frozenset[str]
    nodes: frozenset[str]

    @classmethod
    def of(cls, state: ClusterState, namespaces: Iterable[str] | None = None) -> "PrivateNames":
        """Return those of a cluster; ``namespaces`` are of pods that wait, if they are known.

        Sentences about pods name them with their namespace; that of a pod with a node is never told
        alone, and there are too many of those to look at for each frame.
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
        """Whether a reader may not be told this name."""
        if name in self.nodes and not scope.sees_nodes:
            return True
        if scope.namespaces is None:
            return False
        return name in self.reservations or not self.owners.get(name, _NOBODY) <= scope.namespaces


_NOBODY: frozenset[str] = frozenset()
NOTHING_PRIVATE = PrivateNames({}, _NOBODY, _NOBODY)


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces names in texts for one reader.

    A resource is no name: its first part has a dot, which a namespace never has.
    """

    scope: ViewScope
    names: PrivateNames = NOTHING_PRIVATE

    @classmethod
    def of(cls, state: ClusterState, scope: ViewScope) -> "Redactor":
        """Return one for a reader, who need not see everything."""
        return cls(scope, NOTHING_PRIVATE if scope.is_everything else PrivateNames.of(state))

    def text(self, text: str) -> str:
        """Return a text with the names replaced."""
        return text if self.scope.is_everything else _NAME.sub(self._told, text)

    def data(self, data: Any) -> Any:
        """Return what is sent as JSON with the names in all of its texts replaced."""
        if self.scope.is_everything:
            return data
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {self.text(key): self.data(value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.data(one) for one in data]
        return data

    def _told(self, found: re.Match[str]) -> str:
        name = found[0]
        if self.names.hide(name, self.scope):
            return SOMEBODY
        namespace, slash, _ = name.partition("/")
        is_object = bool(slash) and "." not in namespace and namespace == namespace.lower()
        if not is_object or name in _WORDS or _COUNT.fullmatch(name):
            return name
        return name if self.scope.sees(namespace) else SOMEBODY


def visible_pods(waiting: WaitingPods, redactor: Redactor) -> WaitingPods:
    """Return the pods of the namespaces that somebody may see, their causes without names."""
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
    """Return the nodes, and their sums, of whoever may list nodes; nothing for anybody else."""
    if scope.sees_nodes:
        return nodes, totals
    return NO_NODES, NO_TOTALS
