"""What admission looks up, over a cluster that can be read."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from koordinator.api.cluster_colocation_profile import ClusterColocationProfile
from koordinator.api.config_map import ConfigMap
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import KubeObject, LabelSelector
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.cluster.port import Cluster, EventType, Reader, Watch
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.foundation.errors import NotFoundError

KindT = TypeVar("KindT", bound=KubeObject)
Percent = Callable[[], int]

#: What requests are judged by; of everything else the API server is asked.
FOLLOWED: tuple[type[KubeObject], ...] = (
    Namespace,
    PriorityClass,
    ClusterColocationProfile,
    ElasticQuota,
    ElasticQuotaProfile,
)


class ReaderLookup:
    """Asks the cluster each time.  Implements ``admission.lookup.Lookup``."""

    def __init__(self, reader: Reader, percent: Percent) -> None:
        self._reader = reader
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


class FollowingLookup(ReaderLookup):
    """Knows what requests are judged by from a watch; it and the cluster belong to one thread."""

    def __init__(self, cluster: Cluster, percent: Percent) -> None:
        super().__init__(cluster, percent)
        self._cluster = cluster
        self._watch: Watch | None = None
        self._known: dict[type[KubeObject], dict[str, KubeObject]] = {k: {} for k in FOLLOWED}
        self._topology = QuotaTopology()
        self.is_synced = False

    def follow(self) -> None:
        """Take in what has happened; to be called before each request and now and then.

        Never waits.  The first call opens the watch; ``is_synced`` says when all that existed then
        has been taken in.
        """
        if self._watch is None:
            self._watch = self._cluster.watch(FOLLOWED)
        for event in self._watch.poll():
            obj = event.object
            if event.type is EventType.BOOKMARK:
                self.is_synced = True
                continue
            known = self._known[type(obj)]
            if event.type is EventType.DELETED:
                known.pop(obj.key, None)
            else:
                known[obj.key] = obj
            if isinstance(obj, ElasticQuota):
                if event.type is EventType.DELETED:
                    self._topology.remove(obj.metadata.name)
                else:
                    self._topology.put(obj)

    def profiles(self) -> Iterable[ClusterColocationProfile]:
        return self._all(ClusterColocationProfile)

    def quota_profiles(self) -> Iterable[ElasticQuotaProfile]:
        return self._all(ElasticQuotaProfile)

    def quotas(self) -> QuotaTopology:
        return self._topology

    def _all(self, kind: type[KindT]) -> list[KindT]:
        return [each for each in self._known[kind].values() if isinstance(each, kind)]

    def _found(self, kind: type[KindT], name: str, namespace: str = "") -> KindT | None:
        known = self._known.get(kind)
        if known is None:
            return super()._found(kind, name, namespace)
        found = known.get(f"{namespace}/{name}" if kind.NAMESPACED else name)
        return found if isinstance(found, kind) else None
