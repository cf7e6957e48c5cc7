"""Texts without names that a reader has no right to know.

Plugins tell of other pods, gangs and quotas in their sentences: who holds a port, which gang comes
first, which quota lends.  What a reader may not list is replaced there, whoever wrote the sentence.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.reservation import Reservation
from koordinator.dashboard.access import ViewScope
from koordinator.dashboard.overview import ClusterOverview, ClusterTotals, NodeColumns
from koordinator.scheduler.snapshot import ClusterState

SOMEBODY = "somebody else's"
#: ``namespace/name``, or a word that may be the name of something.
_NAME = re.compile(r"[\w](?:[\w.-]*\w)?(?:/[\w](?:[\w.-]*\w)?)?")
#: What looks like ``namespace/name`` in the scheduler's own words.
_WORDS = frozenset({"affinity/selector", "and/or"})
_COUNT = re.compile(r"\d+/\d+")


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces names in texts; ``hidden`` are those of objects that are named without a namespace.

    A resource is no name: its first part has a dot, which a namespace never has.
    """

    scope: ViewScope
    hidden: frozenset[str]

    @classmethod
    def of(cls, state: ClusterState, scope: ViewScope) -> "Redactor":
        """Return one for a reader who does not see everything."""
        if scope.is_everything:
            return cls(scope, frozenset())
        hidden = set[str]()
        if scope.namespaces is not None:
            for quota in state.objects.all(ElasticQuota):
                if not scope.sees(quota.metadata.namespace):
                    hidden |= {quota.metadata.name, quota.metadata.namespace}
            hidden |= {one.metadata.name for one in state.objects.all(Reservation)}
            # Sentences about pods name them with their namespace; that of a pod with a node is
            # never told alone, and there are too many of those to look at for each frame.
            named = {key.partition("/")[0] for key in state.unbound}
            hidden |= {namespace for namespace in named if not scope.sees(namespace)}
        if not scope.sees_nodes:
            hidden |= set(state.nodes.rows)
        return cls(scope, frozenset(hidden))

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
        if name in self.hidden:
            return SOMEBODY
        namespace, slash, _ = name.partition("/")
        is_object = bool(slash) and "." not in namespace and namespace == namespace.lower()
        if not is_object or name in _WORDS or _COUNT.fullmatch(name):
            return name
        return name if self.scope.sees(namespace) else SOMEBODY


def visible(overview: ClusterOverview, redactor: Redactor) -> ClusterOverview:
    """Return what somebody may see: pods of their namespaces, nodes if they may list those."""
    scope = redactor.scope
    if scope.is_everything:
        return overview
    told: dict[str, str] = {}
    waiting = []
    for one in overview.waiting:
        if scope.sees(one.namespace):
            if one.cause not in told:
                told[one.cause] = redactor.text(one.cause)
            waiting.append(replace(one, cause=told[one.cause]))
    nodes, totals = overview.nodes, overview.totals
    if not scope.sees_nodes:
        nodes = NodeColumns((), nodes.values[:0])
        totals = ClusterTotals(0, 0, (0, 0), (0, 0), (0, 0))
    return replace(overview, waiting=waiting, nodes=nodes, totals=totals)
