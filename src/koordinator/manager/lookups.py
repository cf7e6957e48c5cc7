"""Lookups of admission: one reads the API server for each request, one follows a watch."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from koordinator.api.codec import merge_patch, subject_of
from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.control_plane import ResourceAttributes, UserInfo
from koordinator.api.core import ConfigMap, Namespace
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import KubeObject, LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.policy import PriorityClass
from koordinator.cluster.port import Cluster, EventType, Reader, Watch, WatchEvent
from koordinator.domain.quota.spec import QuotaTopology
from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.errors import (
    ConflictError,
    FaultHandler,
    InputError,
    NotFoundError,
    fault_of,
    raise_fault,
)
from koordinator.manager.admission.lookup import QuotaDecision, ResultT
from koordinator.manager.metrics import QuotaWeights
from koordinator.manager.quota_view import QuotaRecord, QuotaView

KindT = TypeVar("KindT", bound=KubeObject)
PercentSource = Callable[[], int]

#: Access review of a user by the API server.
Rights = Callable[[UserInfo, ResourceAttributes], bool]
#: Kinds that the watch follows besides quotas; other kinds are read from the API server.
FOLLOWED: tuple[type[KubeObject], ...] = (
    Namespace,
    PriorityClass,
    ClusterColocationProfile,
    ElasticQuotaProfile,
)
#: Pause between two listings of all quotas, as a multiple of the time that the last one took:
#: repeated denials must not overload the API server.
LISTING_PAUSES: Final = 10
REAL_TIME: Final = SystemClock()
_ATTEMPTS = 8
CHARGE_ATTEMPTS: Final = 3
#: Charged quotas by key: the resourceVersion that was charged, and the quota with its charges.
ChargedQuotas = dict[str, tuple[str, ElasticQuota]]


def no_rights(_user: UserInfo, _access: ResourceAttributes) -> bool:
    """Return False: without access reviews, a request has no right beyond its namespace."""
    return False


class ReaderLookup:
    """Lookup that reads the cluster for each request.  Implements ``admission.lookup.Lookup``."""

    def __init__(
        self,
        reader: Reader,
        percent: PercentSource,
        charged: ChargedQuotas | None = None,
        *,
        rights: Rights = no_rights,
    ) -> None:
        """Create a lookup; ``charged`` keeps charges of quotas that are not written."""
        self._reader = reader
        self.permits = rights
        self._charged = {} if charged is None else charged
        self.percent = percent

    def namespace(self, name: str) -> Namespace | None:
        return self._get(Namespace, name)

    def priority_class(self, name: str) -> PriorityClass | None:
        return self._get(PriorityClass, name)

    def profiles(self) -> Iterable[ClusterColocationProfile]:
        return self._reader.list(ClusterColocationProfile).items

    def quota_profiles(self) -> Iterable[ElasticQuotaProfile]:
        return self._reader.list(ElasticQuotaProfile).items

    def quotas(self) -> QuotaTopology:
        topology = QuotaTopology()
        for quota in self._reader.list(ElasticQuota).items:
            topology.put(quota)
        return topology

    def decide_on_quota(
        self,
        quota: ElasticQuota,  # noqa: ARG002 -- there are no concurrent requests
        decide: QuotaDecision[ResultT],
    ) -> ResultT:
        result, _ = decide(self.quotas())
        return result

    def quotas_named(self, name: str) -> Sequence[ElasticQuota]:
        selector = f"metadata.name={name}"
        return self._reader.list(ElasticQuota, field_selector=selector).items

    def charge_quota(
        self,
        quota: ElasticQuota,
        charge: Callable[[ElasticQuota], ElasticQuota],
        *,
        is_dry_run: bool,
    ) -> None:
        """Keep the charge in memory until the quota changes; nothing is written."""
        version, known = self._charged.get(quota.key, ("", quota))
        current = known if version == quota.metadata.resource_version else quota
        charged = charge(current)
        if not is_dry_run:
            self._charged[quota.key] = (quota.metadata.resource_version, charged)

    def pods_of_quota(self, name: str, namespaces: Sequence[str]) -> Sequence[str]:
        labelled = LabelSelector(match_labels={QUOTA_NAME: name})
        keys = {pod.key for pod in self._reader.list(Pod, label_selector=labelled).items}
        for namespace in {name, *namespaces}:
            pods = self._reader.list(Pod, namespace=namespace).items
            keys |= {pod.key for pod in pods if QUOTA_NAME not in pod.metadata.labels}
        return sorted(keys)

    def nodes(self) -> Iterable[Node]:
        return self._reader.list(Node).items

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self._get(ConfigMap, name, namespace)

    def pod(self, namespace: str, name: str) -> Pod | None:
        return self._get(Pod, name, namespace)

    def _get(self, kind: type[KindT], name: str, namespace: str = "") -> KindT | None:
        try:
            return self._reader.get(kind, name, namespace)
        except NotFoundError:
            return None


class WatchLookup(ReaderLookup):
    """Lookup that follows a watch; it and its cluster client belong to one thread.

    ``record`` is shared with other replicas; without one, this must be the only replica.
    """

    def __init__(
        self,
        cluster: Cluster,
        percent: PercentSource,
        clock: Clock = REAL_TIME,
        record: QuotaRecord | None = None,
        *,
        on_fault: FaultHandler = raise_fault,
        charge_attempts: int = CHARGE_ATTEMPTS,
        weights: QuotaWeights | None = None,
        rights: Rights = no_rights,
    ) -> None:
        super().__init__(cluster, percent, rights=rights)
        self._cluster, self._clock, self._record = cluster, clock, record
        self._on_fault = on_fault
        self._charge_attempts = max(charge_attempts, CHARGE_ATTEMPTS)
        self._weights = weights
        self._watch: Watch | None = None
        self._known: dict[type[KubeObject], dict[str, KubeObject]] = {k: {} for k in FOLLOWED}
        self._quotas = QuotaView()
        self._next_listing_s = -math.inf
        self.is_synced = False

    def follow(self) -> None:
        """Process pending watch events without blocking; call it before each request.

        The first call opens the watch.  ``is_synced`` becomes true once the watch has delivered
        all objects that existed then.
        """
        if self._watch is None:
            self._watch = self._cluster.watch((*FOLLOWED, ElasticQuota))
        for event in self._watch.poll():
            obj = event.object
            if event.type is EventType.BOOKMARK:
                self.is_synced = True
                continue
            try:
                self._handle(event)
            except Exception as error:  # noqa: BLE001 -- reported; requests must still be served
                fault = fault_of("admission news", error, obj.KIND, subject_of(obj))
                with suppress(Exception):
                    self._handle(WatchEvent(EventType.DELETED, obj))
                self._on_fault(fault)
                del fault  # the traceback of its error refers to this frame
        self._quotas.expire(self._clock.now_s())

    def _handle(self, event: WatchEvent) -> None:
        obj = event.object
        if isinstance(obj, ElasticQuota):
            self._quotas.take_event(event.type, obj)
            if self._weights is not None:
                is_deleted = event.type is EventType.DELETED
                (self._weights.forget if is_deleted else self._weights.show)(obj)
        elif event.type is EventType.DELETED:
            self._known[type(obj)].pop(obj.key, None)
        else:
            self._known[type(obj)][obj.key] = obj

    def profiles(self) -> Iterable[ClusterColocationProfile]:
        return self._all(ClusterColocationProfile)

    def quota_profiles(self) -> Iterable[ElasticQuotaProfile]:
        return self._all(ElasticQuotaProfile)

    def quotas(self) -> QuotaTopology:
        return self._quotas.topology

    def decide_on_quota(self, quota: ElasticQuota, decide: QuotaDecision[ResultT]) -> ResultT:
        """Return the result of ``decide``; refresh the quotas once before a denial is final.

        Raises ClusterError if the record can't be written, ConflictError if every attempt met a
        concurrent change, and InputError if ``decide`` raises it or the record is full.
        """
        quotas, is_refreshed = self._quotas, False
        for _ in range(_ATTEMPTS):
            if quotas.lags:
                self._list_quotas()
            try:
                with quotas.deciding(quota.key, (quota.metadata.name, quota.parent)) as topology:
                    result, change = decide(topology)
            except InputError:
                if is_refreshed:
                    raise
                self._refresh()
                is_refreshed = True
                continue
            if change is None:
                return result
            try:
                if self._record is not None:
                    self._record.add(change)
            except ConflictError:
                self._read_record()
                continue
            quotas.admit(change, self._clock.now_s())
            return result
        raise ConflictError(
            f"other quotas were changed {_ATTEMPTS} times while {quota.key} was validated"
        )

    def charge_quota(
        self,
        quota: ElasticQuota,
        charge: Callable[[ElasticQuota], ElasticQuota],
        *,
        is_dry_run: bool,
    ) -> None:
        """Write the charge with optimistic locking on the resourceVersion; retry on conflict."""
        name, namespace = quota.metadata.name, quota.metadata.namespace
        for attempt in range(self._charge_attempts + 1):
            if attempt:
                quota = self._cluster.get(ElasticQuota, name, namespace)
            changed = charge(quota)
            if changed is quota or is_dry_run:
                return
            patch = merge_patch(quota, changed)
            patch["metadata"]["resourceVersion"] = quota.metadata.resource_version
            try:
                self._cluster.patch(ElasticQuota, name, namespace, patch)
            except ConflictError:
                continue
            return
        raise ConflictError(f"{quota.key} was changed {self._charge_attempts + 1} times")

    def _refresh(self) -> None:
        """Read the changes admitted by other replicas and, at a limited rate, the stored quotas."""
        if self._record is not None:
            self._read_record()
        if self._clock.now_s() >= self._next_listing_s:
            self._list_quotas()

    def _list_quotas(self) -> None:
        began_s = self._clock.now_s()
        self._quotas.take_listing(self._cluster.list(ElasticQuota))
        ended_s = self._clock.now_s()
        self._next_listing_s = ended_s + (ended_s - began_s) * LISTING_PAUSES

    def _read_record(self) -> None:
        if self._record is None:
            return
        self._record.read()
        for recorded in self._record.changes():
            self._quotas.admit(recorded.change, recorded.admitted_at)

    def _all(self, kind: type[KindT]) -> list[KindT]:
        return [each for each in self._known[kind].values() if isinstance(each, kind)]

    def _get(self, kind: type[KindT], name: str, namespace: str = "") -> KindT | None:
        known = self._known.get(kind)
        if known is None:
            return super()._get(kind, name, namespace)
        obj = known.get(f"{namespace}/{name}" if kind.NAMESPACED else name)
        return obj if isinstance(obj, kind) else None
