"""Index of ElasticQuota objects for admission: parents, children and bound namespaces.

Source: koordinator pkg/webhook/elasticquota/quota_topology.go, quota_handler.go.
"""

from collections.abc import Iterator

from koordinator.api.annotations.quota import bound_namespaces
from koordinator.api.elastic_quota import ElasticQuota


class QuotaTopology:
    """Quotas by name.  A name identifies a quota across namespaces."""

    def __init__(self) -> None:
        self._quotas: dict[str, ElasticQuota] = {}
        self._children: dict[str, set[str]] = {}
        self._bound: dict[str, set[str]] = {}

    def put(self, quota: ElasticQuota) -> None:
        """Add a quota, or replace the quota with that name."""
        self.remove(quota.metadata.name)
        name = quota.metadata.name
        self._quotas[name] = quota
        self._children.setdefault(quota.parent, set()).add(name)
        for namespace in bound_namespaces(quota):
            self._bound.setdefault(namespace, set()).add(name)

    def remove(self, name: str) -> None:
        """Remove a quota if it exists."""
        quota = self._quotas.pop(name, None)
        if quota is None:
            return
        _remove(self._children, quota.parent, name)
        for namespace in set(bound_namespaces(quota)):
            _remove(self._bound, namespace, name)

    def get(self, name: str) -> ElasticQuota | None:
        """Return the quota with that name, None if there is none."""
        return self._quotas.get(name)

    def children(self, name: str) -> list[ElasticQuota]:
        """Return the quotas whose parent has that name, in order of name."""
        return [self._quotas[child] for child in sorted(self._children.get(name, ()))]

    def ancestors(self, quota: ElasticQuota) -> Iterator[ElasticQuota]:
        """Yield the existing ancestors, nearest first; stop at a cycle."""
        seen = {quota.metadata.name}
        parent = self._quotas.get(quota.parent)
        while parent is not None and parent.metadata.name not in seen:
            yield parent
            seen.add(parent.metadata.name)
            parent = self._quotas.get(parent.parent)

    def bound_to(self, namespace: str) -> list[str]:
        """Return the names of the quotas bound to a namespace, in order."""
        return sorted(self._bound.get(namespace, ()))


def _remove(names_by: dict[str, set[str]], key: str, name: str) -> None:
    """Remove a name from its set, and drop the set when it is empty."""
    names_by[key].remove(name)
    if not names_by[key]:
        del names_by[key]
