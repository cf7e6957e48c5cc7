"""What admission looks up, over a cluster that can be read."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from koordinator.api.authentication import UserInfo
from koordinator.api.authorization import ResourceAttributes
from koordinator.api.cluster_colocation_profile import ClusterColocationProfile
from koordinator.api.codec import merge_patch, subject_of
from koordinator.api.config_map import ConfigMap
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import KubeObject, LabelSelector
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.cluster.port import Cluster, EventType, Reader, Watch, WatchEvent
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.errors import ConflictError, InputError, NotFoundError
from koordinator.foundation.faults import FaultHandler, fault_of, raise_fault
from koordinator.manager.admission.lookup import QuotaDecision, ResultT
from koordinator.manager.metrics import QuotaWeights
from koordinator.manager.quota_record import QuotaRecord
from koordinator.manager.quota_view import QuotaView

KindT = TypeVar("KindT", bound=KubeObject)
Percent = Callable[[], int]

#: Whether a user has a right, as the API server says.
Rights = Callable[[UserInfo, ResourceAttributes], bool]
#: What requests are judged by besides quotas; of everything else the API server is asked.
FOLLOWED: tuple[type[KubeObject], ...] = (
    Namespace,
    PriorityClass,
    ClusterColocationProfile,
    ElasticQuotaProfile,
)
#: So many times as long as listing all quotas took, they are not listed again: requests that are
#: refused, one after the other, must not keep the server busy.
LISTING_PAUSES: Final = 10
REAL_TIME: Final = SystemClock()
_ATTEMPTS = 8
CHARGE_ATTEMPTS: Final = 3
#: A quota with what was charged to it, by its key, and the version that was charged.
ChargedQuotas = dict[str, tuple[str, ElasticQuota]]


def no_rights(_user: UserInfo, _asked: ResourceAttributes) -> bool:
    """Return False: where nobody can be asked, a request has no right beyond its namespace."""
    return False


class ReaderLookup:
    """Asks the cluster each time.  Implements ``admission.lookup.Lookup``."""

    def __init__(
        self,
        reader: Reader,
        percent: Percent,
        charged: ChargedQuotas | None = None,
        *,
        rights: Rights = no_rights,
    ) -> None:
        """``charged`` is what was charged before to quotas that are not written."""
        self._reader = reader
        self.permits = rights
        self._charged = {} if charged is None else charged
        self.percent = percent

    def namespace(self, name: str) -> Namespace | None:
        return self._found(Namespace, name)

    def priority_class(self, name: str) -> PriorityClass | None:
        return self._found(PriorityClass, name)

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
        quota: ElasticQuota,  # noqa: ARG002 -- nothing is under way here
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
        """Remember the charge until the quota is written by somebody: here nothing is."""
        version, known = self._charged.get(quota.key, ("", quota))
        current = known if version == quota.metadata.resource_version else quota
        charged = charge(current)
        if not is_dry_run:
            self._charged[quota.key] = (quota.metadata.resource_version, charged)

    def pods_of_quota(self, name: str, namespaces: Sequence[str]) -> Sequence[str]:
        labelled = LabelSelector(match_labels={QUOTA_NAME: name})
        found = {pod.key for pod in self._reader.list(Pod, label_selector=labelled).items}
        for namespace in {name, *namespaces}:
            pods = self._reader.list(Pod, namespace=namespace).items
            found |= {pod.key for pod in pods if QUOTA_NAME not in pod.metadata.labels}
        return sorted(found)

    def nodes(self) -> Iterable[Node]:
        return self._reader.list(Node).items

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self._found(ConfigMap, name, namespace)

    def pod(self, namespace: str, name: str) -> Pod | None:
        return self._found(Pod, name, namespace)

    def _found(self, kind: type[KindT], name: str, namespace: str = "") -> KindT | None:
        try:
            return self._reader.get(kind, name, namespace)
        except NotFoundError:
            return None


class WatchLookup(ReaderLookup):
    """Knows what requests are judged by from a watch; it and the cluster belong to one thread.

    ``record`` is shared with other replicas; without one, this is the only one that admits quotas.
    """

    def __init__(
        self,
        cluster: Cluster,
        percent: Percent,
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
        """Take in what has happened; to be called before each request and now and then.

        Never waits.  The first call opens the watch; ``is_synced`` says when all that existed then
        has been taken in.
        """
        if self._watch is None:
            self._watch = self._cluster.watch((*FOLLOWED, ElasticQuota))
        for event in self._watch.poll():
            obj = event.object
            if event.type is EventType.BOOKMARK:
                self.is_synced = True
                continue
            try:
                self._take_in(event)
            except Exception as error:  # noqa: BLE001 -- told: requests must not suffer from it
                fault = fault_of("admission news", error, obj.KIND, subject_of(obj))
                with suppress(Exception):
                    self._take_in(WatchEvent(EventType.DELETED, obj))
                self._on_fault(fault)
        self._quotas.expire(self._clock.now_s())

    def _take_in(self, event: WatchEvent) -> None:
        obj = event.object
        if isinstance(obj, ElasticQuota):
            self._quotas.take_event(event.type, obj)
            if self._weights is not None:
                is_gone = event.type is EventType.DELETED
                (self._weights.forget if is_gone else self._weights.show)(obj)
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
        """Return what ``decide`` makes of it; before it refuses, the cluster is asked for events.

        Raises ClusterError if the record can't be written, or others were faster each time, and
        InputError if ``decide`` does, or the record has no room for the change.
        """
        quotas, has_asked = self._quotas, False
        for _ in range(_ATTEMPTS):
            if quotas.lags:
                self._list_quotas()
            try:
                with quotas.deciding(quota.key, (quota.metadata.name, quota.parent)) as topology:
                    result, change = decide(topology)
            except InputError:
                if has_asked:
                    raise
                self._ask_for_changes()
                has_asked = True
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
            f"other quotas were changed {_ATTEMPTS} times while {quota.key} was judged"
        )

    def charge_quota(
        self,
        quota: ElasticQuota,
        charge: Callable[[ElasticQuota], ElasticQuota],
        *,
        is_dry_run: bool,
    ) -> None:
        """Write the charge on condition that nobody has written since the quota was read."""
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

    def _ask_for_changes(self) -> None:
        """Read what other replicas have admitted and, not too often, what is stored."""
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

    def _found(self, kind: type[KindT], name: str, namespace: str = "") -> KindT | None:
        known = self._known.get(kind)
        if known is None:
            return super()._found(kind, name, namespace)
        found = known.get(f"{namespace}/{name}" if kind.NAMESPACED else name)
        return found if isinstance(found, kind) else None
