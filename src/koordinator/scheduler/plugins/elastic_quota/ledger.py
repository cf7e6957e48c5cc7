"""All quotas with what their pods request and use, kept in step with the state.

Requested is what all pods ask for that exist, whoever schedules them; used is what those ask for
that have a node, assumed or not.
"""

from collections import defaultdict
from dataclasses import replace

from koordinator.api.annotations.reservation import RESERVE_POD
from koordinator.api.codec import subject_of
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.labels import QUOTA_NAME, is_quota_preemptible
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.quota import QuotaPod, QuotaRules, QuotaSpec, QuotaTrees
from koordinator.domain.quota.amounts import Amounts
from koordinator.foundation.errors import InputError
from koordinator.scheduler.snapshot import Changed, ClusterState, PodClass

_FACT = "quota"  # in ``PodClass.facts``


class QuotaLedger:
    """The trees, and what of them has changed.

    A name is a quota's identity: of several objects of one name the first by namespace counts.
    """

    kinds = (ElasticQuota,)

    def __init__(self, rules: QuotaRules) -> None:
        self.trees = QuotaTrees(rules)
        self.guarantees_usage = rules.guarantees_usage
        self.version = 0  # grows when a quota may have got room for a pod
        self.changes = 0  # grows with every change of any figure
        self.spec_changes = 0  # grows with every change of what an object says
        self.objects: dict[str, ElasticQuota] = {}  # that count, by name
        self.complaints: dict[str, str] = {}  # what can't be, by key of the object
        self._by_name: defaultdict[str, dict[str, ElasticQuota]] = defaultdict(dict)
        self._names: dict[str, str] = {}  # of objects by key
        self._pods: dict[str, tuple[PodClass, bool]] = {}  # whether it has a node
        self._nodes: tuple[int, int] | None = None
        self._touched: set[str] = set()

    def catch_up(self, state: ClusterState, changed: Changed) -> None:
        """Take in what has changed."""
        nodes = (state.layout, state.node_log.position)
        if nodes != self._nodes:
            self._nodes = nodes
            self._set_total(_total(state))
        if changed.objects:
            for _, key in sorted(changed.objects, key=lambda item: item[1]):
                self._take_in_quota(key, state.objects.get(ElasticQuota, key))
        for key in changed.pods:
            self._take_in_pod(key, state.find_pod(key))

    def take_touched(self) -> set[str]:
        """Return the quotas of which pods or the object changed since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def _set_total(self, total: Amounts) -> None:
        self.trees.set_total(total)
        self.version += 1
        self.changes += 1

    def _take_in_quota(self, key: str, quota: ElasticQuota | None) -> None:
        name = self._names.pop(key, None) if quota is None else quota.metadata.name
        if name is None:
            return
        same_name = self._by_name[name]
        if quota is None:
            del same_name[key]
            self.complaints.pop(key, None)
        else:
            self._names[key] = name
            same_name[key] = quota
        before, now = self.objects.get(name), same_name[min(same_name)] if same_name else None
        if now is before:
            self._complain_of_others(same_name)
            return
        if before is not None and now is not None and QuotaSpec.of(before) == QuotaSpec.of(now):
            self.objects[name] = now  # such as our own report of what it uses
            self._touched.add(name)
            return
        if before is not None and (now is None or now.key != before.key):
            self.trees.remove(before)
            del self.objects[name]
        if now is not None:
            self.objects[name] = now
            self.complaints.pop(now.key, None)
            try:
                self.trees.put(now)
            except InputError as error:
                self.complaints[now.key] = str(error)
        self._complain_of_others(same_name)
        self._touched.add(name)
        self.spec_changes += 1
        self.version += 1
        self.changes += 1

    def _complain_of_others(self, same_name: dict[str, ElasticQuota]) -> None:
        first = min(same_name, default="")
        for key, quota in same_name.items():
            if key != first:
                self.complaints[key] = (
                    f"{subject_of(quota)}: metadata.name: found a name that {first} has too; "
                    "accepted is a name of its own, whatever the namespace: it does not count"
                )

    def _take_in_pod(self, key: str, found: tuple[PodClass, bool] | None) -> None:
        if found is not None and RESERVE_POD in found[0].annotations:
            found = None  # a reservation is no pod of the quota; the pods that use it are
        known = self._pods.get(key)
        if found == known:
            return
        self.changes += 1
        trees = self.trees
        self._touch(trees.quota_of(key))
        if found is None:
            del self._pods[key]
            trees.remove_pod(key)
            self.version += 1
            return
        self._pods[key] = found
        pod_class, has_node = found
        had_node = known is not None and known[1]
        if known is None or known[0] is not pod_class:
            trees.put_pod(as_quota_pod(pod_class, key))
            self._touch(trees.quota_of(key))
            self.version += 1
        if has_node and not had_node:
            trees.assign(key)
            self.version += self.guarantees_usage
        elif had_node and not has_node:
            trees.unassign(key)
            self.version += 1

    def _touch(self, name: str | None) -> None:
        if name is not None:
            self._touched.add(name)


def as_quota_pod(pod_class: PodClass, key: str = "") -> QuotaPod:
    """Return a pod of a class as quotas see it; when it started is not known."""
    known: QuotaPod | None = pod_class.facts.get(_FACT)
    if known is None:
        labels = pod_class.labels
        known = pod_class.facts[_FACT] = QuotaPod(
            key="",
            namespace=pod_class.namespace,
            requests=pod_requests(pod_class.spec),
            quota_label=labels.get(QUOTA_NAME, ""),
            is_preemptible=is_quota_preemptible(labels),
            priority=pod_class.spec.priority or 0,
        )
    return replace(known, key=key) if key else known


def _total(state: ClusterState) -> Amounts:
    """Return what the nodes of the cluster have together."""
    nodes = state.nodes
    amounts = nodes.allocatable[:, nodes.alive].sum(axis=1).tolist()
    return {name: amount for name, amount in zip(state.axis.names, amounts, strict=False) if amount}
