"""Plugins of koord-queue over the cluster: places of units, their ledgers and their Queues.

Source: koord-queue, ``Mapping`` of the plugins ElasticQuota, ElasticQuotaV2 and DefaultGroup, and
pkg/framework/plugins/elasticquota/consts.go.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, Protocol

from koordinator.api.codec import encode_part
from koordinator.api.core import Namespace
from koordinator.api.elastic_quota import (
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    ElasticQuota,
    ElasticQuotaTree,
)
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.policy import ResourceQuota
from koordinator.api.queue_unit import Queue, QueueSpec, QueueUnit, UnitPolicy
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.queue_units.configuration import QueueConfiguration, UnitPlugin
from koordinator.manager.queue_units.ledgers import (
    POLICY_LABEL,
    PREFIXES,
    JointLedger,
    NamespaceLedger,
    UnitLedger,
    UnitPlace,
    UnitQuotas,
    marked,
    policy_named,
)
from koordinator.manager.queue_units.quota_tree import (
    TreeLedger,
    TreeQuota,
    UnitQuotaTree,
    chosen_tree,
)
from koordinator.manager.writes import Create, Delete, Patch, Write

DEFAULT_QUEUE: Final = "default"
QUEUE_NAME: Final = "queue-name"  # annotation of a job, with a prefix
FULL_NAME: Final = "quota-fullname"  # of the Queue that is made for a quota
PARENT_NAME: Final = "parent-quota-fullname"
AVAILABLE_QUOTAS: Final = ("available-quota-in-namespace", "available-quota")  # of a namespace
AVAILABLE_QUEUES: Final = "available-queue"  # annotation for the users of a namespace
_OF_QUEUE: Final = ("available-quota-in-queue", "available-quota")
_ALL: Final = "*"
_QUOTA_LABELS: Final = ("quota.scheduling.alibabacloud.com/name", QUOTA_NAME)
_LONGEST: Final = 50

QUEUE_PRIORITY: Final = 1000
#: Label of a Queue that was created for a quota and is deleted with it; the latter before 1.8.
MADE_HERE: Final = ("create-by-koordqueue", "create-by-kubequeue")
_NO_QUEUE: Final = frozenset((ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA))


class UnitPlaces(Protocol):
    """Mapping of units to queues and quotas."""

    def place(self, unit: QueueUnit) -> UnitPlace:
        """Return the queue and the quota of a unit."""
        ...


class QuotaPlaces:
    """Mapping by quota: each quota has a queue of the same name."""

    def place(self, unit: QueueUnit) -> UnitPlace:
        """Return the quota that a unit names."""
        return UnitPlace(unit.spec.queue, unit.spec.queue)


class DefaultPlaces:
    """Mapping of all units to one queue."""

    def place(self, unit: QueueUnit) -> UnitPlace:  # noqa: ARG002 -- the same for every unit
        """Return the queue named ``default``."""
        return UnitPlace(DEFAULT_QUEUE)


class TreePlaces:
    """Mapping to a quota of the tree, and to the quota's queue or one that the unit names."""

    def __init__(
        self,
        tree: UnitQuotaTree,
        queues: Iterable[Queue],
        namespaces: Mapping[str, Namespace],
        *,
        checks_available: bool = False,
    ) -> None:
        """Create a mapping; ``checks_available`` restricts units to quotas of their namespace."""
        self._tree, self._namespaces = tree, namespaces
        self._checks_available = checks_available
        self._queues: dict[str, Queue] = {}
        self._made_for: dict[str, str] = {}
        for queue in sorted(queues, key=lambda it: it.metadata.name, reverse=True):
            self._queues[queue.metadata.name] = queue
            self._made_for[marked(queue.metadata.annotations, FULL_NAME)] = queue.metadata.name

    def place(self, unit: QueueUnit) -> UnitPlace:
        """Return the queue and the quota of a unit, or the problem that prevents it."""
        quota = self._quota(unit)
        if isinstance(quota, str):
            return UnitPlace(problem=quota)
        name = marked(unit.metadata.annotations, QUEUE_NAME)
        if not name:
            made = self._made_for.get(quota.full_name, "")
            problem = "" if made else f"quota {quota.full_name} has no queue"
            return UnitPlace(made, quota.full_name, problem)
        queue = self._queues.get(name)
        if queue is None:
            return UnitPlace(quota=quota.full_name, problem=f"there is no queue {name}")
        if not _takes(queue, quota):
            problem = f"queue {name} does not accept quota {quota.name}"
            return UnitPlace(quota=quota.full_name, problem=problem)
        return UnitPlace(name, quota.full_name)

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
    """Return the quotas that the annotation of a namespace permits."""
    return _listed(namespace.metadata.annotations, AVAILABLE_QUOTAS)


def available_queues(namespace: Namespace, queues: Iterable[Queue]) -> dict[str, list[str]]:
    """Return the quotas of a namespace by the queues that accept them, in order of name."""
    quotas = available_quotas(namespace) - {_ALL}
    accepting: dict[str, list[str]] = {}
    for queue in sorted(queues, key=lambda it: it.metadata.name):
        listed = _listed(queue.metadata.annotations, _OF_QUEUE)
        taken = sorted(quotas if _ALL in listed else quotas & listed)
        if taken:
            accepting[queue.metadata.name] = taken
    return accepting


def queue_name(full_name: str) -> str:
    """Return the name of the Queue that is created for a quota of a tree."""
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


def watched_by(configuration: QueueConfiguration) -> tuple[type[KubeObject], ...]:
    """Return the kinds of objects that the plugins read."""
    plugins = configuration.plugins
    kinds: list[type[KubeObject]] = []
    if UnitPlugin.ELASTIC_QUOTA_V2 in plugins:
        kinds.append(ElasticQuota)
    if UnitPlugin.ELASTIC_QUOTA in plugins:
        kinds += [ElasticQuotaTree, Namespace]
    if UnitPlugin.RESOURCE_QUOTA in plugins:
        kinds.append(ResourceQuota)
    return tuple(kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginWorld:
    """Objects that plugins read.  ``queues`` are in the queue namespace."""

    queues: Iterable[Queue]
    quotas: Iterable[ElasticQuota] = ()
    trees: Iterable[ElasticQuotaTree] = ()
    namespaces: Mapping[str, Namespace]
    resource_quotas: Iterable[ResourceQuota] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePluginSettings:
    """Settings of all queues, from flags and files."""

    configuration: QueueConfiguration
    oversell_rate: float
    default_policy: UnitPolicy
    namespace: str
    checks_available: bool
    makes_queues: bool


class QueuePlugins:
    """The enabled plugins, over one state of the cluster."""

    def __init__(self, world: PluginWorld, rules: QueuePluginSettings) -> None:
        self._world, self._rules = world, rules
        self._tree = UnitQuotaTree(None)
        self.uses_names = False  # whether a job's queue has the name of its quota
        ledgers: list[UnitLedger] = []
        plugins = rules.configuration.plugins
        self.places: UnitPlaces = DefaultPlaces()
        if UnitPlugin.ELASTIC_QUOTA_V2 in plugins:
            self.uses_names = True
            self.places = QuotaPlaces()
            ledgers.append(UnitQuotas(world.quotas, rules.oversell_rate))
        if UnitPlugin.ELASTIC_QUOTA in plugins:
            self._tree = UnitQuotaTree(chosen_tree(world.trees), rules.oversell_rate)
            self.places = TreePlaces(
                self._tree,
                world.queues,
                world.namespaces,
                checks_available=rules.checks_available,
            )
            checks = rules.configuration.checks_oversold
            ledgers.append(TreeLedger(self._tree, checks_oversold=checks))
        if UnitPlugin.RESOURCE_QUOTA in plugins:
            ledgers.append(NamespaceLedger(world.resource_quotas))
        self.ledger = JointLedger(ledgers)

    def quota_names(self) -> set[str]:
        """Return the names of all quotas, as jobs refer to them."""
        named = {quota.metadata.name for quota in self._world.quotas}
        return named | {quota.name for quota in self._tree.quotas.values()}

    def queue_writes(self) -> list[tuple[str, Write]]:
        """Return the writes that create and delete Queues and annotate namespaces with them."""
        plugins = self._rules.configuration.plugins
        known = {queue.metadata.name for queue in self._world.queues}
        if UnitPlugin.ELASTIC_QUOTA in plugins:
            made = list(self._tree_queues()) if self._rules.makes_queues else []
            return [*made, *self._namespace_marks()]
        wanted = {DEFAULT_QUEUE: self._rules.default_policy}
        if UnitPlugin.ELASTIC_QUOTA_V2 in plugins:
            wanted = {
                quota.metadata.name: policy_named(
                    marked(quota.metadata.labels, POLICY_LABEL), self._rules.default_policy
                )
                for quota in self._world.quotas
                if quota.metadata.name not in _NO_QUEUE and not quota.is_parent
            }
        return [
            (name, self._create(name, policy))
            for name, policy in wanted.items()
            if name not in known
        ]

    def _create(self, name: str, policy: UnitPolicy) -> Create:
        meta = ObjectMeta(name=name, namespace=self._rules.namespace)
        spec = QueueSpec(queue_policy=policy, priority=QUEUE_PRIORITY)
        return Create(Queue(metadata=meta, spec=spec))

    def _tree_queues(self) -> Iterable[tuple[str, Write]]:
        """Yield writes that create a Queue for each quota, and delete Queues without a quota."""
        made_for = {
            marked(queue.metadata.annotations, FULL_NAME): queue for queue in self._world.queues
        }
        for full_name, quota in self._tree.quotas.items():
            if full_name in made_for:
                continue
            name = queue_name(full_name)
            parent = "" if quota.parent is None else quota.parent.name
            meta = ObjectMeta(
                name=name,
                namespace=self._rules.namespace,
                labels={MADE_HERE[0]: "true"},
                annotations={
                    f"{PREFIXES[0]}{FULL_NAME}": full_name,
                    f"{PREFIXES[0]}{PARENT_NAME}": parent,
                },
            )
            spec = QueueSpec(queue_policy=self._rules.default_policy)
            yield name, Create(Queue(metadata=meta, spec=spec))
        if not self._tree.quotas:
            return  # a missing or invalid tree must not delete all queues
        for full_name, queue in made_for.items():
            labels = queue.metadata.labels
            if full_name not in self._tree.quotas and any(
                labels.get(label) == "true" for label in MADE_HERE
            ):
                meta = queue.metadata
                yield meta.name, Delete(Queue, meta.name, meta.uid, meta.namespace)

    def _namespace_marks(self) -> Iterable[tuple[str, Write]]:
        """Yield writes that annotate namespaces with the queues that accept their quotas."""
        for namespace in self._world.namespaces.values():
            available = available_queues(namespace, self._world.queues)
            text = encode_part(available).decode() if available else ""
            meta = namespace.metadata
            if text == marked(meta.annotations, AVAILABLE_QUEUES):
                continue
            known = [f"{it}{AVAILABLE_QUEUES}" for it in PREFIXES]
            marks: dict[str, str | None] = {
                key: text or None for key in known if key in meta.annotations
            }
            marks.setdefault(known[0], text or None)
            yield meta.name, Patch(Namespace, meta.name, {"metadata": {"annotations": marks}})
