"""Disruption budgets: what their status is, and whether a pod may be evicted.

Stands in for the disruption controller.  Two things are gentler than there, because an embedded
cluster may have neither kubelets nor all workloads: a running pod without the condition Ready
counts as ready, and a controller that isn't stored has as many replicas as it has pods.
Source: k8s.io/kubernetes v1.35 pkg/controller/disruption/disruption.go ``getExpectedPodCount``,
``updatePdbStatus``; pkg/registry/core/pod/storage/eviction.go ``EvictionREST.Create``.
"""

import datetime as dt
from collections.abc import Sequence

from msgspec.structs import replace

from koordinator.api.meta import KubeObject, OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from koordinator.api.registry import BY_NAME
from koordinator.api.selectors import matches
from koordinator.api.workload import ReplicaSet
from koordinator.cluster.memory.rules import condition_status
from koordinator.cluster.memory.store import Store
from koordinator.foundation.errors import ClusterError, TooManyRequestsError

MOST_STALE = 64  # namespaces, before those are looked for that have budgets
_NEEDS_NO_BUDGET = ("Pending", "Succeeded", "Failed")


class DisruptionBudgets:
    """Disruption controller: computes the status of budgets that were created without one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stale: set[str] = set()  # namespaces
        self._given: set[str] = set()  # uids of budgets whose status a client has written

    def touch(self, namespace: str) -> None:
        """Note that pods, workloads or budgets of a namespace changed."""
        self._stale.add(namespace)
        if len(self._stale) > MOST_STALE:
            self._stale = {one for one in self._stale if self._store.has(PodDisruptionBudget, one)}
            if len(self._stale) > MOST_STALE // 2:
                self.refresh()

    def forget(self, budget: PodDisruptionBudget) -> None:
        """Forget a deleted budget."""
        self._given.discard(budget.metadata.uid)

    def respect_status(self, budget: PodDisruptionBudget) -> None:
        """Never compute the status of this budget again."""
        self._given.add(budget.metadata.uid)

    def refresh(self) -> None:
        """Write every status that is no longer true."""
        stale, self._stale = self._stale, set()
        for namespace in sorted(stale):
            for budget in list(self._store.scan(PodDisruptionBudget, namespace)):
                if budget.metadata.uid in self._given:
                    continue
                status = _computed_status(self._store, budget)
                if status != budget.status:
                    self._store.put(replace(budget, status=status), budget)

    def charge(self, pod: Pod, now: dt.datetime) -> None:
        """Take one disruption from the budget that covers the pod, if there is one.

        Raises TooManyRequestsError if none is left, ClusterError if several budgets cover the pod.
        """
        self.refresh()
        budgets = [
            budget
            for budget in self._store.scan(PodDisruptionBudget, pod.metadata.namespace)
            if matches(budget.spec.selector, pod.metadata.labels)
        ]
        if len(budgets) > 1:
            names = ", ".join(budget.metadata.name for budget in budgets)
            raise ClusterError(
                f"pod {pod.key}: This pod has more than one PodDisruptionBudget, which the "
                f"eviction subresource does not support: {names}"
            )
        for budget in budgets:
            if is_ready(pod) or not _unhealthy_may_go(budget):
                self._charge_one(budget, pod, now)

    def _charge_one(self, budget: PodDisruptionBudget, pod: Pod, now: dt.datetime) -> None:
        status = budget.status
        if status.disruptions_allowed <= 0:
            raise TooManyRequestsError(
                f"pod {pod.key}: Cannot evict pod as it would violate the pod's disruption budget. "
                f"The disruption budget {budget.metadata.name} needs {status.desired_healthy} "
                f"healthy pods and has {status.current_healthy} currently"
            )
        if budget.metadata.uid in self._given:  # a computed status follows from the deletion
            charged = replace(
                status,
                disruptions_allowed=status.disruptions_allowed - 1,
                disrupted_pods={**status.disrupted_pods, pod.metadata.name: now},
            )
            self._store.put(replace(budget, status=charged), budget)


def needs_no_budget(pod: Pod) -> bool:
    """Return whether the eviction of the pod disrupts nothing (more)."""
    return pod.status.phase in _NEEDS_NO_BUDGET or pod.metadata.deletion_timestamp is not None


def is_ready(pod: Pod) -> bool:
    """Return whether the pod serves."""
    ready = condition_status(pod.status, "Ready")
    return ready == "True" or (not ready and pod.status.phase == "Running")


def _unhealthy_may_go(budget: PodDisruptionBudget) -> bool:
    status = budget.status
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return status.current_healthy >= status.desired_healthy > 0


def _computed_status(store: Store, budget: PodDisruptionBudget) -> PodDisruptionBudgetStatus:
    meta, spec = budget.metadata, budget.spec
    pods = [
        pod
        for pod in store.scan(Pod, meta.namespace)
        if matches(spec.selector, pod.metadata.labels)
    ]
    healthy = sum(1 for p in pods if p.metadata.deletion_timestamp is None and is_ready(p))
    expected = len(pods)
    desired = 0
    if spec.max_unavailable is not None:
        expected = _expected_scale(store, pods)
        desired = max(0, expected - _scaled(spec.max_unavailable, expected))
    elif isinstance(spec.min_available, str):
        expected = _expected_scale(store, pods)
        desired = _scaled(spec.min_available, expected)
    elif spec.min_available is not None:
        desired = spec.min_available
    return PodDisruptionBudgetStatus(
        disruptions_allowed=max(0, healthy - desired) if expected else 0,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        observed_generation=meta.generation,
    )


def _scaled(amount: int | str, total: int) -> int:
    """Return a number as it is, a percentage of ``total`` rounded up."""
    if isinstance(amount, int):
        return amount
    return -(-int(amount.removesuffix("%")) * total // 100)


def _expected_scale(store: Store, pods: Sequence[Pod]) -> int:
    """Return how many pods the controllers of these pods want; bare pods don't count."""
    wanted: dict[str, int] = {}
    unknown = 0
    for pod in pods:
        owner = _controller_of(pod)
        if owner is None:
            continue
        workload = _find_workload(store, pod.metadata.namespace, owner)
        replicas = getattr(getattr(workload, "spec", None), "replicas", None)
        if workload is None or replicas is None:
            unknown += 1
        else:
            wanted[workload.metadata.uid] = replicas
    return unknown + sum(wanted.values())


def _find_workload(store: Store, namespace: str, owner: OwnerReference) -> KubeObject | None:
    """Return the controller; of the ReplicaSet of a Deployment, the Deployment."""
    kind_type = BY_NAME.get((owner.api_version, owner.kind))
    workload = store.find(kind_type, namespace, owner.name) if kind_type else None
    above = _controller_of(workload) if isinstance(workload, ReplicaSet) else None
    return workload if above is None else _find_workload(store, namespace, above)


def _controller_of(obj: KubeObject) -> OwnerReference | None:
    return next((owner for owner in obj.metadata.owner_references if owner.controller), None)
