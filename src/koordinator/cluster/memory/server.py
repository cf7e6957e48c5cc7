"""The API server of an in-process cluster: the port of components, and what only a world needs.

Carries each verb from the request through rules and admission to the store.  Behaves like
kube-apiserver where a component could observe a difference.  One thread, no wall clock, no
randomness: the same calls give the same objects, uids and versions.
Source: k8s.io/apiserver pkg/registry/generic/registry/store.go.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

from msgspec.structs import replace

from koordinator.api.codec import apply_merge_patch, decode, decode_object, to_manifest
from koordinator.api.core import Namespace
from koordinator.api.defaults import with_defaults
from koordinator.api.event import Event
from koordinator.api.meta import Condition, JsonObject, KubeObject, LabelSelector, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.selectors import matches
from koordinator.api.volume import PersistentVolumeClaim
from koordinator.cluster.memory import rules
from koordinator.cluster.memory.admission import (
    DEFAULT_ADMISSION,
    SYSTEM_PRIORITY_CLASSES,
    Admission,
    WriteOperation,
)
from koordinator.cluster.memory.fields import (
    IdentityGenerator,
    Manifest,
    Manifests,
    parse_field_selector,
)
from koordinator.cluster.memory.rules import (
    DisruptionBudgets,
    bound,
    needs_no_budget,
    scheduled_at,
    with_condition,
)
from koordinator.cluster.memory.store import MemoryWatch, Store, snapshot_events
from koordinator.cluster.port import (
    NO_SELECTORS,
    NO_TRANSFORMS,
    Binding,
    Listing,
    ObjectPatch,
    PodReport,
    Report,
    Transform,
    guarded,
)
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import (
    AlreadyExistsError,
    BugError,
    ClusterError,
    InputError,
    InvalidError,
    NotFoundError,
)

KindT = TypeVar("KindT", bound=KubeObject)

_NAME_ATTEMPTS = 8  # as the API server has it
EVENT_TTL_S = 3600.0  # kube-apiserver --event-ttl
_ADMITTED_LAST = (Pod, PersistentVolumeClaim)  # admission looks for classes on their behalf
_GATED = Condition(
    type="PodScheduled",
    status="False",
    reason="SchedulingGated",
    message="Scheduling is blocked due to non-empty scheduling gates",
)
_EVICTED = Condition(
    type="DisruptionTarget",
    status="True",
    reason="EvictionByEvictionAPI",
    message="Eviction API: evicting",
)


class EndedBinds:
    """Bindings whose results are known at once.  Implements ``port.Binds``."""

    def __init__(self, results: Sequence[ClusterError | None]) -> None:
        self._results = results
        self._is_delivered = False

    def finished(self) -> Sequence[tuple[int, ClusterError | None]]:
        is_delivered, self._is_delivered = self._is_delivered, True
        return [] if is_delivered else list(enumerate(self._results))

    def results(self) -> Sequence[ClusterError | None]:
        return self._results


class MemoryCluster:
    """Implements ``port.Cluster``.

    ``admission``               runs on create, update, patch and delete
    ``status_admission``        runs on writes of a status; reports of pods pass
    ``immediate_pod_deletion``  a deleted pod is removed immediately; else a pod with a node is only
                                marked, and the simulated kubelet deletes it with grace 0
    ``strict_namespaces``       a namespace must be created before it is used; else its first
                                object creates it
    ``seed``                    of the uids
    """

    def __init__(
        self,
        clock: Clock,
        *,
        admission: Sequence[Admission] = DEFAULT_ADMISSION,
        status_admission: Sequence[Admission] = (),
        immediate_pod_deletion: bool = True,
        strict_namespaces: bool = False,
        seed: int = 0,
    ) -> None:
        self._clock = clock
        self._admission = tuple(admission)
        self._status_admission = tuple(status_admission)
        self._immediate_pod_deletion = immediate_pod_deletion
        self._strict_namespaces = strict_namespaces
        self._store = Store()
        self._identities = IdentityGenerator(seed)
        self._manifests = Manifests()
        self._budgets = DisruptionBudgets(self._store)
        self._watches: WeakSet[MemoryWatch] = WeakSet()
        #: Objects that were implied, not created; an explicit one replaces them.
        self._implied: set[tuple[type[KubeObject], str]] = set()
        #: Events by namespace and name, and when they were written, the oldest first.
        self._reported: dict[tuple[str, str], float] = {}
        for priority_class in SYSTEM_PRIORITY_CLASSES:
            self._imply(priority_class)

    # ---- the port: reading

    def get(self, kind_type: type[KindT], name: str, namespace: str = "") -> KindT:
        self._refresh(kind_type)
        return self._require(kind_type, name, namespace)

    def list(
        self,
        kind_type: type[KindT],
        *,
        namespace: str | None = None,
        label_selector: LabelSelector | None = None,
        field_selector: str = "",
    ) -> Listing[KindT]:
        self._refresh(kind_type)
        requirements = parse_field_selector(field_selector, kind_type)
        # Pods of one node are the one frequent selection, so the store has an index for it.
        node = next(
            (r.value for r in requirements if r.path == "spec.nodeName" and not r.negated), ""
        )
        objects: Iterable[Any] = (
            self._store.pods_on(node)
            if node and kind_type is Pod
            else self._store.scan(kind_type, namespace)
        )
        if label_selector is None and not requirements:
            return Listing([*objects], str(self._store.log.version))
        try:
            items = [
                obj
                for obj in objects
                if (namespace is None or obj.metadata.namespace == namespace)
                and all(requirement.matches(obj) for requirement in requirements)
                and (label_selector is None or matches(label_selector, obj.metadata.labels))
            ]
        except InputError as error:
            raise InvalidError(f"label selector: {error}") from error
        return Listing(items, str(self._store.log.version))

    def watch(
        self,
        kind_types: Sequence[type[KubeObject]],
        field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
        transforms: Mapping[type[KubeObject], Transform] = NO_TRANSFORMS,
    ) -> MemoryWatch:
        self._refresh(*kind_types)
        selection = {
            kind: parse_field_selector(field_selectors.get(kind, ""), kind) for kind in kind_types
        }
        existing = [
            obj
            for kind, requirements in selection.items()
            for obj in self._store.scan(kind)
            if all(requirement.matches(obj) for requirement in requirements)
        ]
        watch = MemoryWatch(
            self._store.log,
            selection,
            snapshot_events(existing),
            lambda: self._refresh(*kind_types),
            transforms,
        )
        self._watches.add(watch)
        return watch

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002 -- the port's; nothing to wait for
        return any(watch.has_changes() for watch in self._watches)

    # ---- the port: writing

    def create(self, obj: KindT) -> KindT:
        if obj.metadata.resource_version:
            raise InvalidError(
                f"{obj.KIND} {obj.key}: metadata.resourceVersion: must not be set on objects "
                f"to be created, got {obj.metadata.resource_version!r}"
            )
        obj = self._named(rules.in_namespace(obj))
        replaced = self._replaced(obj)
        self._require_namespace(obj)
        obj = self._admitted(WriteOperation.CREATE, rules.without_status(obj))
        if isinstance(obj, Pod) and obj.spec.scheduling_gates:
            obj = replace(obj, status=with_condition(obj.status, _GATED, self._now()))
        meta = replace(
            obj.metadata,
            uid=self._identities.uid(obj),
            generation=1,
            creation_timestamp=self._now(),
            deletion_timestamp=None,
            deletion_grace_period_seconds=None,
            resource_version=self._store.next_version,
        )
        return self._add(obj, meta, replaced)

    def update(self, obj: KindT) -> KindT:
        return self._write(self._require_same(obj), obj)

    def update_status(self, obj: KindT) -> KindT:
        return self._write_status(self._require_same(obj), obj)

    def patch(
        self,
        kind_type: type[KindT],
        name: str,
        namespace: str,
        merge_patch: JsonObject,
        subresource: str = "",
    ) -> KindT:
        if subresource not in ("", "status"):
            raise NotFoundError(f"subresource: must be empty or 'status', got {subresource!r}")
        old = self._require(kind_type, name, namespace)
        expected = merge_patch.get("metadata") or {}
        rules.check_preconditions(
            old, expected.get("uid") or "", expected.get("resourceVersion") or ""
        )
        before = self._manifests.whole(old)
        after = apply_merge_patch(
            before, rules.restricted_patch(merge_patch, kind_type, subresource)
        )
        if after == before:
            return old
        try:
            decoded = decode(after, kind_type)
        except InputError as error:
            raise InvalidError(str(error)) from error
        write = self._write_report if subresource else self._write
        new = write(old, decoded, forced=True)
        if self._store.contains(new) and (
            self._manifests.has(new) or to_manifest(decoded) != after
        ):
            self._manifests.keep(new, after, decoded)
        return new

    def delete(
        self,
        kind_type: type[KubeObject],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_s: int | None = None,
    ) -> None:
        obj = self._require(kind_type, name, namespace)
        rules.check_preconditions(obj, uid)
        self._admitted(WriteOperation.DELETE, obj)
        self._begin_deletion(obj, grace_period_s)

    def bind(self, bindings: Sequence[Binding]) -> "EndedBinds":
        now = self._now()
        scheduled = scheduled_at(now)
        for namespace in {binding.namespace for binding in bindings}:
            self._budgets.touch(namespace)
        results: list[ClusterError | None] = []
        for binding in bindings:
            try:
                pod = self._require(Pod, binding.name, binding.namespace)
                version = self._store.next_version
                self._store.put_stamped(bound(pod, binding, now, scheduled, version), pod)
            except ClusterError as error:
                results.append(error)
            else:
                results.append(None)
        return EndedBinds(results)

    def report(self, reports: Sequence[Report]) -> None:
        for item in reports:
            with suppress(ClusterError):
                if isinstance(item, PodReport):
                    self._report_pod(item)
                elif isinstance(item, ObjectPatch):
                    self.patch(
                        item.kind_type, item.name, item.namespace, guarded(item), item.subresource
                    )
                else:
                    self._report_event(item)

    def evict(
        self, namespace: str, name: str, *, uid: str = "", grace_period_s: int | None = None
    ) -> None:
        pod = self._require(Pod, name, namespace)
        rules.check_preconditions(pod, uid)
        if not needs_no_budget(pod):
            self._budgets.charge(pod, self._now())
            status = with_condition(pod.status, _EVICTED, self._now())
            pod = self._put(replace(pod, status=status), pod)
        self._begin_deletion(pod, grace_period_s)

    # ---- what only a world needs

    def load(self, objects: Iterable[KubeObject], *, admit: bool = False) -> None:
        """Add objects that exist in the world already, with the uid, times and status they have.

        What is missing is filled in: namespace, uid, creation time, and the phase of a pod
        (Running if it has a node, else Pending).  ``admit`` also runs the admission steps, claims
        and pods last, so that default classes and priority classes are found wherever they stand.

        Raises AlreadyExistsError; with ``admit`` InvalidError.
        """
        if admit:
            objects = sorted(objects, key=lambda obj: isinstance(obj, _ADMITTED_LAST))
        now = self._now()
        for obj in objects:
            self._load_one(obj, now, admit=admit)

    def load_manifests(self, manifests: Iterable[Manifest], *, admit: bool = True) -> None:
        """Add manifests that exist in the world already; fields that our types don't have are kept.

        Raises InputError for a manifest that can't be decoded.
        """
        pairs = [(decode_object(manifest), manifest) for manifest in manifests]
        if admit:
            pairs.sort(key=lambda pair: isinstance(pair[0], _ADMITTED_LAST))
        now = self._now()
        for decoded, manifest in pairs:
            stored = self._load_one(decoded, now, admit=admit)
            self._manifests.keep(stored, manifest, decoded)

    def overwrite(self, obj: KindT) -> KindT:
        """Put an object that changed in the world in place of the one stored, with all it has.

        Raises NotFoundError.
        """
        meta = obj.metadata
        old = self._require(type(obj), meta.name, meta.namespace)
        if isinstance(obj, PodDisruptionBudget):
            self._budgets.keep_status(obj)
        self._manifests.forget(old)
        return self._put(obj, old)

    def force_delete(self, obj: KubeObject) -> None:
        """Remove an object regardless of its finalizers, since it has vanished from the world.

        Raises NotFoundError.
        """
        self._remove(self._require(type(obj), obj.metadata.name, obj.metadata.namespace))

    def create_manifest(self, manifest: Manifest) -> KubeObject:
        """Create the object of a manifest; fields that our types don't have are kept.

        Raises InputError for a manifest that can't be decoded.
        """
        decoded = decode_object(manifest)
        created = self.create(decoded)
        self._manifests.keep(created, manifest, decoded)
        return created

    def raw(self, kind_type: type[KubeObject], name: str, namespace: str = "") -> JsonObject:
        """Return the whole object as JSON, with the fields that our types don't have.

        Raises NotFoundError.
        """
        return self._manifests.whole(self.get(kind_type, name, namespace))

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the pods of a node in the order of namespace, then name."""
        return self._store.pods_on(node)

    # ---- steps of the verbs

    def _report_pod(self, item: PodReport) -> None:
        pod = self._require(Pod, item.name, item.namespace)
        rules.check_preconditions(pod, item.uid)
        status = pod.status
        if item.condition is not None:
            status = with_condition(status, item.condition, self._now())
        if item.nominated_node is not None:
            status = replace(status, nominated_node_name=item.nominated_node)
        self._write_status(pod, replace(pod, status=status))

    def _report_event(self, event: Event) -> None:
        """Write an event; it expires an hour after its last write, as in a real cluster."""
        meta, now_s = event.metadata, self._clock.now_s()
        if self._store.find(Event, meta.namespace, meta.name) is None:
            self.create(event)
        else:
            self.update(event)
        key = meta.namespace, meta.name
        self._reported.pop(key, None)
        self._reported[key] = now_s
        while self._reported:
            oldest, written_s = next(iter(self._reported.items()))
            if written_s + EVENT_TTL_S > now_s:
                break
            del self._reported[oldest]
            stored = self._store.find(Event, *oldest)
            if stored is not None:
                self._remove(stored)

    def _now(self) -> dt.datetime:
        return to_datetime(self._clock.now_s())

    def _refresh(self, *kind_types: type[KubeObject]) -> None:
        """Update derived objects before objects of these kinds are read."""
        if PodDisruptionBudget in kind_types:
            self._budgets.refresh()

    def _require(self, kind_type: type[KindT], name: str, namespace: str) -> KindT:
        obj = self._store.find(kind_type, namespace if kind_type.NAMESPACED else "", name)
        if obj is None:
            key = f"{namespace}/{name}" if kind_type.NAMESPACED else name
            raise NotFoundError(f'{kind_type.PLURAL} "{key}" not found')
        return obj

    def _require_same(self, obj: KindT) -> KindT:
        meta = obj.metadata
        old = self._require(type(obj), meta.name, meta.namespace)
        rules.check_preconditions(old, meta.uid, meta.resource_version)
        return old

    def _named(self, obj: KindT) -> KindT:
        meta = obj.metadata
        if meta.name or not meta.generate_name:
            return obj
        for _ in range(_NAME_ATTEMPTS):
            named = replace(obj, metadata=replace(meta, name=self._identities.name(obj)))
            if not self._store.contains(named):
                return named
        raise AlreadyExistsError(f"{obj.KIND} {meta.generate_name}*: no free name was found")

    def _replaced(self, obj: KindT) -> KindT | None:
        """Return the implied object that a new one replaces.  Raises AlreadyExistsError."""
        meta = obj.metadata
        stored = self._store.find(type(obj), meta.namespace, meta.name)
        if stored is not None and (type(obj), obj.key) not in self._implied:
            raise AlreadyExistsError(f'{obj.PLURAL} "{obj.key}" already exists')
        return stored

    def _require_namespace(self, obj: KubeObject) -> None:
        name = obj.metadata.namespace
        if not obj.NAMESPACED or self._store.find(Namespace, "", name) is not None:
            return
        if self._strict_namespaces:
            raise NotFoundError(f'namespaces "{name}" not found')
        self._imply(with_defaults(Namespace(metadata=ObjectMeta(name=name))))

    def _imply(self, obj: KubeObject) -> None:
        self._load_one(obj, self._now(), admit=False)
        self._implied.add((type(obj), obj.key))

    def _load_one(self, obj: KindT, now: dt.datetime, *, admit: bool) -> KindT:
        if isinstance(obj, Pod) and not obj.status.phase:
            phase = "Running" if obj.spec.node_name else "Pending"
            obj = replace(obj, status=replace(obj.status, phase=phase))
        obj = rules.in_namespace(obj)
        replaced = self._replaced(obj)
        self._require_namespace(obj)
        if admit:
            obj = self._admitted(WriteOperation.CREATE, obj)
        meta = obj.metadata
        meta = replace(
            meta,
            uid=meta.uid or self._identities.uid(obj),
            creation_timestamp=meta.creation_timestamp or now,
            resource_version=self._store.next_version,
        )
        stored = self._add(obj, meta, replaced)
        if isinstance(stored, PodDisruptionBudget) and stored.status != type(stored.status)():
            self._budgets.keep_status(stored)
        return stored

    def _admitted(
        self, operation: WriteOperation, obj: KindT, steps: Sequence[Admission] | None = None
    ) -> KindT:
        for step in self._admission if steps is None else steps:
            admitted = step(operation, obj, self)
            if not isinstance(admitted, type(obj)):
                raise BugError(f"admission step {step} made {type(admitted)} of {type(obj)}")
            obj = admitted
        return obj

    def _write(self, old: KindT, new: KindT, *, forced: bool = False) -> KindT:
        """Store ``new`` as an update of ``old``, unless it changes nothing and isn't forced."""
        new = self._admitted(WriteOperation.UPDATE, rules.replacement(old, new))
        if new == old and not forced:
            return old
        meta = replace(new.metadata, generation=rules.next_generation(old, new))
        new = replace(new, metadata=meta)
        if rules.is_ready_to_go(new):
            self._remove(new)
            return new
        return self._put(new, old)

    def _write_status(self, old: KindT, new: KindT) -> KindT:
        return self._put_status(old, rules.with_status_of(old, new), forced=False)

    def _write_report(self, old: KindT, new: KindT, *, forced: bool) -> KindT:
        return self._put_status(old, rules.with_report_of(old, new), forced=forced)

    def _put_status(self, old: KindT, changed: KindT, *, forced: bool) -> KindT:
        if self._status_admission:
            changed = self._admitted(WriteOperation.UPDATE, changed, self._status_admission)
        if isinstance(old, PodDisruptionBudget):
            self._budgets.keep_status(old)
        if changed == old and not forced:
            return old
        return self._put(changed, old)

    def _begin_deletion(self, obj: KubeObject, grace_period_s: int | None) -> None:
        meta = obj.metadata
        grace_s = rules.grace_period_of(obj, grace_period_s)
        if self._immediate_pod_deletion:
            grace_s = 0
        if not grace_s and not meta.finalizers:
            self._remove(obj)
            return
        pending_s = meta.deletion_grace_period_seconds or 0
        if meta.deletion_timestamp is not None and pending_s <= grace_s:
            return
        meta = replace(
            meta,
            deletion_timestamp=to_datetime(self._clock.now_s() + grace_s),
            deletion_grace_period_seconds=grace_s,
            generation=meta.generation + 1,
        )
        self._put(replace(obj, metadata=meta), obj)

    def _add(self, obj: KindT, meta: ObjectMeta, replaced: KindT | None) -> KindT:
        """Store a new object with this metadata, which has the next resourceVersion."""
        stored = replace(obj, metadata=meta)
        if replaced is not None:
            self._implied.discard((type(obj), obj.key))
        self._budgets.touch(meta.namespace)
        self._store.put_stamped(stored, replaced)
        return stored

    def _put(self, obj: KindT, previous: KindT | None) -> KindT:
        self._budgets.touch(obj.metadata.namespace)
        return self._store.put(obj, previous)

    def _remove(self, obj: KubeObject) -> None:
        self._budgets.touch(obj.metadata.namespace)
        self._identities.forget(obj)
        self._manifests.forget(obj)
        self._implied.discard((type(obj), obj.key))
        if isinstance(obj, PodDisruptionBudget):
            self._budgets.forget(obj)
        self._store.remove(obj)
