"""All quotas, including admitted changes that may not be stored yet.

A watch lags behind the store, and an admitted request is stored only after its response, or never
if another webhook denies it.  A decision on another quota must be valid in both cases.  A watch
that lags by more than ``ADMITTED_FOR_S`` is not compensated.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.quota import NAMESPACES, bound_namespaces
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.labels import QUOTA_IS_PARENT, QUOTA_PARENT
from koordinator.cluster.port import EventType, Listing
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.foundation.quantity import Quantity
from koordinator.manager.admission.lookup import QuotaChange
from koordinator.manager.admission.request import AdmissionOperation

#: Time within which an admitted change may be stored: the longest timeout of webhooks.
ADMITTED_FOR_S: Final = 30.0
_ZERO = Quantity(0)


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
        self._settle(key)
        self._show(key, self._current(key))

    def take_listing(self, listing: Listing[ElasticQuota]) -> None:
        """Replace all stored quotas by a listing."""
        before = set(self._stored)
        self._stored = {quota.key: quota for quota in listing.items}
        self._listed = max(self._listed, _number(listing.resource_version))
        self._seen = max(self._seen, self._listed)
        for key in before | set(self._stored) | set(self._admitted):
            self._settle(key)
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
        self._settle(change.key)
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

    def _settle(self, key: str) -> None:
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
