"""Which queue and which quota a unit belongs to.

Source: koord-queue, ``Mapping`` of the plugins ElasticQuota, ElasticQuotaV2 and DefaultGroup, and
pkg/framework/plugins/elasticquota/consts.go.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, Protocol

from koordinator.api.labels import QUOTA_NAME
from koordinator.api.namespace import Namespace
from koordinator.api.queue_unit import Queue, QueueUnit
from koordinator.manager.queue_units.accounts import UnitPlace
from koordinator.manager.queue_units.queues import marked
from koordinator.manager.queue_units.quota_tree import TreeQuota, UnitQuotaTree

DEFAULT_QUEUE: Final = "default"
QUEUE_NAME: Final = "queue-name"  # annotation of a job, with a prefix
FULL_NAME: Final = "quota-fullname"  # of the Queue that is made for a quota
PARENT_NAME: Final = "parent-quota-fullname"
AVAILABLE_QUOTAS: Final = ("available-quota-in-namespace", "available-quota")  # of a namespace
AVAILABLE_QUEUES: Final = "available-queue"  # told to users of a namespace
_OF_QUEUE: Final = ("available-quota-in-queue", "available-quota")
_ALL: Final = "*"
_QUOTA_LABELS: Final = ("quota.scheduling.alibabacloud.com/name", QUOTA_NAME)
_LONGEST: Final = 50


class UnitPlaces(Protocol):
    """Tells units their places."""

    def place(self, unit: QueueUnit) -> UnitPlace:
        """Return where a unit waits and counts."""
        ...


class QuotaPlaces:
    """Each quota has a queue of its name."""

    def place(self, unit: QueueUnit) -> UnitPlace:
        """Return the quota that a unit names."""
        return UnitPlace(unit.spec.queue, unit.spec.queue)


class DefaultPlaces:
    """All units wait in one queue."""

    def place(self, unit: QueueUnit) -> UnitPlace:  # noqa: ARG002 -- of whatever unit
        """Return the queue that is called default."""
        return UnitPlace(DEFAULT_QUEUE)


class TreePlaces:
    """A unit counts in a quota of the tree and waits in the quota's queue, or one that it names."""

    def __init__(
        self,
        tree: UnitQuotaTree,
        queues: Iterable[Queue],
        namespaces: Mapping[str, Namespace],
        *,
        checks_available: bool = False,
    ) -> None:
        """``checks_available``: only quotas count that the unit's namespace names."""
        self._tree, self._namespaces = tree, namespaces
        self._checks_available = checks_available
        self._queues: dict[str, Queue] = {}
        self._made_for: dict[str, str] = {}
        for queue in sorted(queues, key=lambda it: it.metadata.name, reverse=True):
            self._queues[queue.metadata.name] = queue
            self._made_for[marked(queue.metadata.annotations, FULL_NAME)] = queue.metadata.name

    def place(self, unit: QueueUnit) -> UnitPlace:
        """Return where a unit waits and counts, or why nowhere."""
        quota = self._quota(unit)
        if isinstance(quota, str):
            return UnitPlace(problem=quota)
        asked = marked(unit.metadata.annotations, QUEUE_NAME)
        if not asked:
            made = self._made_for.get(quota.full_name, "")
            problem = "" if made else f"quota {quota.full_name} has no queue"
            return UnitPlace(made, quota.full_name, problem)
        queue = self._queues.get(asked)
        if queue is None:
            return UnitPlace(quota=quota.full_name, problem=f"there is no queue {asked}")
        if not _takes(queue, quota):
            problem = f"queue {asked} is not for quota {quota.name}"
            return UnitPlace(quota=quota.full_name, problem=problem)
        return UnitPlace(asked, quota.full_name)

    def _quota(self, unit: QueueUnit) -> TreeQuota | str:
        meta = unit.metadata
        name = next(filter(None, map(meta.labels.get, _QUOTA_LABELS)), None)
        if name is None:
            return self._tree.quota_of_namespace(meta.namespace)
        if self._checks_available:
            namespace = self._namespaces.get(meta.namespace)
            if namespace is None or name not in available_quotas(namespace):
                return f"quota {name} is not available in namespace {meta.namespace}"
        return self._tree.quota_named(name)


def available_quotas(namespace: Namespace) -> frozenset[str]:
    """Return the quotas that a namespace may use, as it says."""
    return _listed(namespace.metadata.annotations, AVAILABLE_QUOTAS)


def available_queues(namespace: Namespace, queues: Iterable[Queue]) -> dict[str, list[str]]:
    """Return the quotas of a namespace by the queues that take them, in order of name."""
    quotas = available_quotas(namespace) - {_ALL}
    found: dict[str, list[str]] = {}
    for queue in sorted(queues, key=lambda it: it.metadata.name):
        listed = _listed(queue.metadata.annotations, _OF_QUEUE)
        taken = sorted(quotas if _ALL in listed else quotas & listed)
        if taken:
            found[queue.metadata.name] = taken
    return found


def queue_name(full_name: str) -> str:
    """Return the name of the Queue that is made for a quota of a tree."""
    words = re.sub(r"[^a-z0-9]+", "-", full_name.lower())[-_LONGEST:].strip("-")
    digest = sha256(full_name.encode()).hexdigest()[:5]
    return f"{words}-{digest}" if words else digest


def _takes(queue: Queue, quota: TreeQuota) -> bool:
    listed = _listed(queue.metadata.annotations, _OF_QUEUE)
    made_for = marked(queue.metadata.annotations, FULL_NAME)
    return bool(listed & {_ALL, quota.name}) or made_for in (quota.full_name, quota.name)


def _listed(marks: Mapping[str, str], names: Iterable[str]) -> frozenset[str]:
    text = next(filter(None, (marked(marks, name) for name in names)), "")
    return frozenset(filter(None, (part.strip() for part in text.split(","))))
