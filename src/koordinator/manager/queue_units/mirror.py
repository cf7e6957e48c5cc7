"""Mirror of jobs, units, queues and quotas that ignores outdated watch events.

A watch event may be older than the response to a write.  Applying it would undo an admission in the
mirror, and the quota would be given to a second unit.  Resource versions of one object increase
monotonically; Kubernetes guarantees that since 1.35, and etcd always did.
"""

from typing import Any

from koordinator.api.core import Namespace
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaTree
from koordinator.api.meta import KubeObject, is_newer_version
from koordinator.api.policy import PriorityClass, ResourceQuota
from koordinator.api.queue_unit import Queue, QueueUnit
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
        """Store or remove an object; return whether the mirror has changed."""
        kept = self._objects.get(type(obj))
        if kept is None:
            return False
        known = kept.get(obj.key)
        if known is not None and is_newer_version(
            known.metadata.resource_version, obj.metadata.resource_version
        ):
            return False
        if deleted:
            return kept.pop(obj.key, None) is not None
        kept[obj.key] = obj
        return bool(known != obj)

    def world(self) -> QueueWorld:
        """Return a read-only view of all objects."""
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
