"""What exists of jobs, units, queues and quotas, never older than what was known before.

Events come late: one that is older than the answer to a write of ours must not make a unit forget
that it was let in, or its quota would let in another one in its place.  Versions of one object are
numbers that grow (Kubernetes says so since 1.35, and etcd has always made them so).
"""

from typing import Any

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import KubeObject
from koordinator.api.namespace import Namespace
from koordinator.api.priority import PriorityClass
from koordinator.api.queue_unit import Queue, QueueUnit
from koordinator.api.quota_tree import ElasticQuotaTree
from koordinator.api.resource_quota import ResourceQuota
from koordinator.manager.queue_units.controller import QueueUnitOptions, QueueWorld
from koordinator.manager.queue_units.plugins import watched_by


class QueueMirror:
    """Objects by kind and key."""

    def __init__(self, options: QueueUnitOptions) -> None:
        self._job_kinds = tuple(kind.type for kind in options.kinds)
        self.kinds: tuple[type[KubeObject], ...] = (
            *watched_by(options.configuration),
            PriorityClass,
            Queue,
            QueueUnit,
            *self._job_kinds,
        )
        self._objects: dict[type[KubeObject], dict[str, Any]] = {kind: {} for kind in self.kinds}

    def take(self, obj: KubeObject, *, deleted: bool) -> bool:
        """Take in an object as it is now, or was last; return whether that is news."""
        kept = self._objects.get(type(obj))
        if kept is None:
            return False
        known = kept.get(obj.key)
        if known is not None and _is_older(obj, known):
            return False
        if deleted:
            return kept.pop(obj.key, None) is not None
        kept[obj.key] = obj
        return bool(known != obj)

    def world(self) -> QueueWorld:
        """Return everything, to be read."""
        objects = self._objects
        return QueueWorld(
            jobs=[job for kind in self._job_kinds for job in objects[kind].values()],
            units=objects[QueueUnit],
            queues=objects[Queue],
            quotas=objects.get(ElasticQuota, {}).values(),
            trees=objects.get(ElasticQuotaTree, {}).values(),
            namespaces=objects.get(Namespace, {}),
            resource_quotas=objects.get(ResourceQuota, {}).values(),
            priority_classes=objects[PriorityClass],
        )


def _is_older(obj: KubeObject, known: KubeObject) -> bool:
    """Return whether something newer is known; one of another uid that is as new replaces it."""
    here, there = obj.metadata.resource_version, known.metadata.resource_version
    return here.isdigit() and there.isdigit() and int(here) < int(there)
