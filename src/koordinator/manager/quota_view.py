"""All quotas, with what was admitted and may not be stored yet.

A watch tells late what was stored, and a request that was admitted is stored a moment after its
answer, or never: others may refuse it.  A decision about another quota must be right either way.
A watch that is later than ``ADMITTED_FOR_S`` is not made up for.
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

#: For so long an admitted change may still be stored: as long as an API server waits for webhooks.
ADMITTED_FOR_S: Final = 30.0
_ZERO = Quantity(0)


class QuotaView:
    """Stored quotas, with the admitted changes over them.

    Versions are resourceVersions, which the API server counts up over all objects of a kind.
    """

    def __init__(self) -> None:
        self.topology = QuotaTopology()  # not to be changed
        self._stored: dict[str, ElasticQuota] = {}  # by key
        self._admitted: dict[str, tuple[QuotaChange, float]] = {}  # by key; with its end
        self._shown: dict[str, dict[str, ElasticQuota]] = {}  # by name, by key
        self._listed = 0  # the version of the last listing: older events are in it
        self._seen = 0  # the newest version that a listing or the watch has told of

    def take_event(self, event: EventType, quota: ElasticQuota) -> None:
        """Take in what a watch delivered; what a listing has shown already is left out."""
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
        """Take in all quotas that are stored, as of one moment."""
        before = set(self._stored)
        self._stored = {quota.key: quota for quota in listing.items}
        self._listed = max(self._listed, _number(listing.resource_version))
        self._seen = max(self._seen, self._listed)
        for key in before | set(self._stored) | set(self._admitted):
            self._settle(key)
            self._show(key, self._current(key))

    @property
    def lags(self) -> bool:
        """Whether a quota was changed of which not even the state before is known: list them."""
        changes = (change for change, _ in self._admitted.values())
        return any(_number(change.previous_version) > self._seen for change in changes)

    def admit(self, change: QuotaChange, now_s: float) -> None:
        """Count a change that was admitted at ``now_s``, unless it is seen stored already."""
        self._admitted[change.key] = change, now_s + ADMITTED_FOR_S
        self._settle(change.key)
        self._show(change.key, self._current(change.key))

    def expire(self, now_s: float) -> None:
        """Cease to count what was admitted too long ago."""
        for key, (_, end_s) in tuple(self._admitted.items()):
            if end_s <= now_s:
                del self._admitted[key]
                self._show(key, self._current(key))

    @contextmanager
    def deciding(self, key: str, names: Sequence[str]) -> Iterator[QuotaTopology]:
        """Lend the quotas to a decision about one of them, whatever becomes of those under way.

        ``names`` are of the quota and its parent.  What was admitted of others counts as is worst
        for the decision; what was admitted of the quota itself doesn't: this request follows it.
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
        """Return a quota as it would leave the least to one of these names."""
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
        """Forget an admitted change that is stored, or that something newer has overtaken."""
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
        """Let the topology have this quota; of several of one name, the first by namespace."""
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
    """Return what of both is sure to be there for children."""
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
    """Return what may be taken of a parent by either; below the one of ``names``, if it was."""
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
