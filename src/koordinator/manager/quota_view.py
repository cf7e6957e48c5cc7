"""View of quotas for reviews, and the record of pods that were admitted lately.

A watch lags behind the store, and an admitted request is stored only after its response, or never
if another webhook denies it.  A decision on another quota must be valid in both cases.  A watch
that lags by more than ``ADMITTED_FOR_S`` is not compensated.

Two replicas could admit two requests at the same time that are valid separately but not together.
Each admission is therefore written into one ConfigMap before the response is sent, with optimistic
locking; after a conflict, the replica reads the ConfigMap and decides again.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
from msgspec.structs import replace

from koordinator.api.annotations.quota import NAMESPACES, bound_namespaces
from koordinator.api.codec import decode, encode_part
from koordinator.api.core import ConfigMap, ResourceList
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.labels import QUOTA_IS_PARENT, QUOTA_PARENT
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.cluster.port import Cluster, EventType, Listing
from koordinator.domain.quota.spec import QuotaTopology
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import (
    AlreadyExistsError,
    ConflictError,
    InputError,
    NotFoundError,
)
from koordinator.foundation.quantity import Quantity
from koordinator.manager.admission.lookup import AdmissionOperation, QuotaChange

#: Time within which an admitted change may be stored: the longest timeout of webhooks.
ADMITTED_FOR_S: Final = 30.0
_ZERO = Quantity(0)

NAME: Final = "koordinator-quota-admissions"
#: Limits in bytes of one change, and of all changes of one namespace: a ConfigMap holds 1 MiB, and
#: the users of one namespace must not fill it.
LARGEST: Final = 16 << 10
SHARE: Final = 512 << 10


class QuotaView:
    """Stored quotas overlaid with admitted changes.

    Versions are resourceVersions, which increase over all objects of a kind.
    """

    def __init__(self) -> None:
        self.topology = QuotaTopology()  # read-only for callers
        self._stored: dict[str, ElasticQuota] = {}  # by key
        self._admitted: dict[str, tuple[QuotaChange, float]] = {}  # by key; with its expiry
        self._shown: dict[str, dict[str, ElasticQuota]] = {}  # by name, by key
        self._listed = 0  # the version of the last listing, which includes all older events
        self._seen = 0  # the newest version of any listing or event

    def take_event(self, event: EventType, quota: ElasticQuota) -> None:
        """Apply a watch event; ignore events that the last listing includes."""
        version = _number(quota.metadata.resource_version)
        if version and version <= self._listed:
            return
        self._seen = max(self._seen, version)
        key = quota.key
        if event is EventType.DELETED:
            self._stored.pop(key, None)
        else:
            self._stored[key] = quota
        self._drop_applied(key)
        self._show(key, self._current(key))

    def take_listing(self, listing: Listing[ElasticQuota]) -> None:
        """Replace all stored quotas by a listing."""
        before = set(self._stored)
        self._stored = {quota.key: quota for quota in listing.items}
        self._listed = max(self._listed, _number(listing.resource_version))
        self._seen = max(self._seen, self._listed)
        for key in before | set(self._stored) | set(self._admitted):
            self._drop_applied(key)
            self._show(key, self._current(key))

    @property
    def lags(self) -> bool:
        """Whether an admitted change replaces a version that has not been seen yet.

        The quotas must then be listed before a decision.
        """
        changes = (change for change, _ in self._admitted.values())
        return any(_number(change.previous_version) > self._seen for change in changes)

    def admit(self, change: QuotaChange, now_s: float) -> None:
        """Overlay a change that was admitted at ``now_s``, unless it is stored already."""
        self._admitted[change.key] = change, now_s + ADMITTED_FOR_S
        self._drop_applied(change.key)
        self._show(change.key, self._current(change.key))

    def expire(self, now_s: float) -> None:
        """Remove admitted changes that have expired."""
        for key, (_, end_s) in tuple(self._admitted.items()):
            if end_s <= now_s:
                del self._admitted[key]
                self._show(key, self._current(key))

    @contextmanager
    def deciding(self, key: str, names: Sequence[str]) -> Iterator[QuotaTopology]:
        """Yield the quotas for a decision on one of them, valid whether changes are stored or not.

        ``names`` are the names of the quota and its parent.  Admitted changes of other quotas are
        applied or not, whichever leaves less room.  Admitted changes of the quota itself are
        ignored, since this request follows them.
        """
        admitted = tuple(self._admitted)
        try:
            for each in admitted:
                shown = self._stored.get(each)
                self._show(each, shown if each == key else self._worst(each, names))
            yield self.topology
        finally:
            for each in admitted:
                self._show(each, self._current(each))

    def _worst(self, key: str, names: Sequence[str]) -> ElasticQuota | None:
        """Return the state of a quota that leaves the least room to the quotas in ``names``."""
        change, _ = self._admitted[key]
        stored, quota = self._stored.get(key), change.quota
        if change.operation is AdmissionOperation.CREATE:
            return quota
        if change.operation is AdmissionOperation.DELETE:
            return None if quota.metadata.name in names else stored
        if stored is None:
            return quota
        if quota.metadata.name in names:
            return _as_parent(stored, quota)
        return _as_child(stored, quota, names)

    def _drop_applied(self, key: str) -> None:
        """Remove an admitted change that is stored or superseded by a newer version."""
        if key not in self._admitted:
            return
        change, _ = self._admitted[key]
        stored = self._stored.get(key)
        before = _number(change.previous_version)
        if stored is None:
            is_over = change.operation is not AdmissionOperation.CREATE and self._seen >= before
        elif change.operation is AdmissionOperation.DELETE:
            is_over = False
        else:
            is_over = _number(stored.metadata.resource_version) > before
        if is_over:
            del self._admitted[key]

    def _show(self, key: str, quota: ElasticQuota | None) -> None:
        """Put a quota into the topology; of several with one name, the first by namespace."""
        name = key.rpartition("/")[2]
        shown = self._shown.setdefault(name, {})
        if quota is not None:
            shown[key] = quota
        else:
            shown.pop(key, None)
        if shown:
            self.topology.put(shown[min(shown)])
        else:
            del self._shown[name]
            self.topology.remove(name)

    def _current(self, key: str) -> ElasticQuota | None:
        change, _ = self._admitted.get(key, (None, 0.0))
        if change is None or change.operation is AdmissionOperation.DELETE:
            return self._stored.get(key)
        return change.quota


def _as_parent(old: ElasticQuota, new: ElasticQuota) -> ElasticQuota:
    """Return the parent that guarantees children only the smaller minimum of both."""
    least = {
        name: min(amount, new.spec.min[name])
        for name, amount in old.spec.min.items()
        if name in new.spec.min
    }
    labels = dict(new.metadata.labels)
    if not old.is_parent:
        labels[QUOTA_IS_PARENT] = "false"
    meta = replace(new.metadata, labels=labels)
    return replace(new, metadata=meta, spec=replace(new.spec, min=least))


def _as_child(old: ElasticQuota, new: ElasticQuota, names: Sequence[str]) -> ElasticQuota:
    """Return the child that takes the larger minimum of both from its parent.

    Its parent is the old one if that is in ``names``.
    """
    labels, annotations = dict(new.metadata.labels), dict(new.metadata.annotations)
    if old.parent in names:
        labels[QUOTA_PARENT] = old.parent
    bound = tuple(sorted({*bound_namespaces(old), *bound_namespaces(new)}))
    if bound:
        annotations |= NAMESPACES.entry(bound)
    meta = replace(new.metadata, labels=labels, annotations=annotations)
    return replace(
        new, metadata=meta, spec=replace(new.spec, min=_most(old.spec.min, new.spec.min))
    )


def _most(first: ResourceList, second: ResourceList) -> ResourceList:
    names = {**first, **second}
    return {name: max(first.get(name, _ZERO), second.get(name, _ZERO)) for name in names}


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0


class RecordedChange(msgspec.Struct, frozen=True, rename="camel"):
    """A value of the ConfigMap; the time is in seconds since the epoch, by the writer's clock."""

    admitted_at: float
    change: QuotaChange


class QuotaRecord:
    """Copy of the ConfigMap as last read or written.  Methods raise ClusterError."""

    def __init__(self, cluster: Cluster, clock: Clock, namespace: str) -> None:
        self._cluster, self._clock, self._namespace = cluster, clock, namespace
        self._version = ""  # empty: the ConfigMap has not been read
        self._changes: dict[str, RecordedChange] = {}  # by key in the ConfigMap
        self._sizes: dict[str, int] = {}  # in bytes, by key in the ConfigMap

    def changes(self) -> tuple[RecordedChange, ...]:
        """Return the changes admitted by all replicas that have not expired."""
        now_s = self._clock.now_s()
        return tuple(each for each in self._changes.values() if not _is_over(each, now_s))

    def read(self) -> None:
        """Read the ConfigMap; create it if it does not exist."""
        try:
            stored = self._cluster.get(ConfigMap, NAME, self._namespace)
        except NotFoundError:
            meta = ObjectMeta(name=NAME, namespace=self._namespace)
            try:
                stored = self._cluster.create(ConfigMap(metadata=meta))
            except AlreadyExistsError:
                stored = self._cluster.get(ConfigMap, NAME, self._namespace)
        self._take(stored)

    def add(self, change: QuotaChange) -> None:
        """Write a change before its response is sent, and remove expired changes.

        Raises ConflictError if another replica has written since the last ``read``, and InputError
        if the change is too large, or its namespace has too many changes.
        """
        if not self._version:
            self.read()
            raise ConflictError("the changes admitted by other replicas were not known yet")
        now_s = self._clock.now_s()
        data: JsonObject = {
            key: None for key, each in self._changes.items() if _is_over(each, now_s)
        }
        text = encode_part(RecordedChange(now_s, change.shortened())).decode()
        self._check_size(change.key, text, now_s)
        # Names may exceed the length limit of keys.
        data[hashlib.sha256(change.key.encode()).hexdigest()] = text
        patch: JsonObject = {"metadata": {"resourceVersion": self._version}, "data": data}
        try:
            self._take(self._cluster.patch(ConfigMap, NAME, self._namespace, patch))
        except NotFoundError:
            self._version = ""
            raise ConflictError(f"ConfigMap {self._namespace}/{NAME} was deleted") from None

    def _check_size(self, key: str, text: str, now_s: float) -> None:
        size, namespace = len(text.encode()), key.partition("/")[0]
        if size > LARGEST:
            raise InputError(
                f"quota {key}: its record must be at most {LARGEST} bytes, got {size}: use "
                "fewer resources in spec.min and spec.max, and shorter annotations"
            )
        others = sum(
            self._sizes[at]
            for at, each in self._changes.items()
            if each.change.quota.metadata.namespace == namespace
            and each.change.key != key
            and not _is_over(each, now_s)
        )
        if others + size > SHARE:
            raise InputError(
                f"quota {key}: too many quotas of namespace {namespace} were changed within "
                f"{ADMITTED_FOR_S:.0f} s; try again after that"
            )

    def _take(self, stored: ConfigMap) -> None:
        self._version = stored.metadata.resource_version
        self._changes, self._sizes = {}, {}
        for key, text in stored.data.items():
            try:
                self._changes[key] = decode(text.encode(), RecordedChange)
                self._sizes[key] = len(text.encode())
            except InputError:
                continue  # not written by a manager; it is kept unchanged


def _is_over(recorded: RecordedChange, now_s: float) -> bool:
    return abs(now_s - recorded.admitted_at) > ADMITTED_FOR_S
