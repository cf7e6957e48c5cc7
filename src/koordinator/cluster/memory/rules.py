"""Rules of the in-memory API server: bindings, conditions of writes, changes that are refused.

Pure functions of the stored object and the one in the request.

Statuses of disruption budgets, and permission of evictions, stand in for the disruption controller.
Two things are gentler than there, because an embedded
cluster may have neither kubelets nor all workloads: a running pod without the condition Ready
counts as ready, and a controller that isn't stored has as many replicas as it has pods.

Source: k8s.io/apiserver pkg/registry/rest/{create,update,delete}.go; k8s.io/kubernetes v1.35
pkg/registry/core/pod/strategy.go; k8s.io/kubernetes pkg/api/v1/pod/util.go
``UpdatePodCondition``; k8s.io/kubernetes v1.35 pkg/registry/core/pod/storage/storage.go
``BindingREST.setPodNodeAndMetadata``, eviction.go ``EvictionREST.Create``;
pkg/controller/disruption/disruption.go ``getExpectedPodCount``, ``updatePdbStatus``.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from koordinator.api.conditions import find_condition
from koordinator.api.crd import has_status_subresource
from koordinator.api.defaults import DEFAULT_GRACE_PERIOD_S, DEFAULT_NAMESPACE
from koordinator.api.meta import Condition, JsonObject, KubeObject, OwnerReference
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodStatus, is_terminal
from koordinator.api.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from koordinator.api.registry import BY_NAME
from koordinator.api.selectors import matches
from koordinator.api.workload import ReplicaSet
from koordinator.cluster.memory.store import Store
from koordinator.cluster.port import Binding
from koordinator.foundation.errors import (
    ClusterError,
    ConflictError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
)

MOST_STALE = 64  # namespaces, before those are looked for that have budgets
_NEEDS_NO_BUDGET = ("Pending", "Succeeded", "Failed")
KindT = TypeVar("KindT", bound=KubeObject)

_SERVER_METADATA = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
REPORTED_METADATA = ("labels", "annotations")  # of nodes

_SCHEDULED = Condition(type="PodScheduled", status="True")


def in_namespace(obj: KindT) -> KindT:
    """Return the object in a namespace, ``default`` if it names none, or in none if it has none."""
    meta = obj.metadata
    if obj.NAMESPACED is bool(meta.namespace):
        return obj
    namespace = DEFAULT_NAMESPACE if obj.NAMESPACED else ""
    return replace(obj, metadata=replace(meta, namespace=namespace))


def without_status(obj: KindT) -> KindT:
    """Return the object as if no status had been given; a node may be created with one."""
    if isinstance(obj, Node) or not has_status_subresource(type(obj)):
        return obj
    status: Any = obj.status  # type: ignore[attr-defined]  # it has one
    blank = PodStatus(phase="Pending") if isinstance(obj, Pod) else type(status)()
    return replace(obj, status=blank)


def check_preconditions(obj: KubeObject, uid: str = "", resource_version: str = "") -> None:
    """Raise ConflictError if a version is given and differs from the stored object."""
    meta = obj.metadata
    if uid and uid != meta.uid:
        raise ConflictError(
            f"{obj.KIND} {obj.key}: Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {meta.uid}"
        )
    if resource_version and resource_version != meta.resource_version:
        raise ConflictError(
            f"{obj.KIND} {obj.key}: the object has been modified; please apply your changes to the "
            f"latest version and try again (given {resource_version}, is {meta.resource_version})"
        )


def replacement(old: KindT, new: KindT) -> KindT:
    """Return ``new`` with what only the server may set as it was in ``old``, and the old status.

    Raises InvalidError for a change that an update may not make.
    """
    meta = replace(
        old.metadata,
        labels=new.metadata.labels,
        annotations=new.metadata.annotations,
        owner_references=new.metadata.owner_references,
        finalizers=new.metadata.finalizers,
    )
    changes: dict[str, Any] = {"metadata": meta}
    if has_status_subresource(type(old)):
        changes["status"] = old.status  # type: ignore[attr-defined]  # it has one
    added = set(meta.finalizers) - set(old.metadata.finalizers)
    if added and meta.deletion_timestamp is not None:
        raise InvalidError(
            f"{old.KIND} {old.key}: metadata.finalizers: no new finalizers can be added if the "
            f"object is being deleted, found new finalizers {sorted(added)}"
        )
    if isinstance(old, Pod) and isinstance(new, Pod) and old.spec.node_name != new.spec.node_name:
        raise InvalidError(
            f"Pod {old.key}: spec.nodeName: must be {old.spec.node_name!r}, got "
            f"{new.spec.node_name!r}: only a binding sets it"
        )
    return replace(new, **changes)


def with_report_of(old: KindT, new: KindT) -> KindT:
    """Return ``old`` with the status of ``new``; of a node with its labels and annotations, too."""
    changed = with_status_of(old, new)
    if not isinstance(old, Node):
        return changed
    labels, annotations = new.metadata.labels, new.metadata.annotations
    return replace(changed, metadata=replace(old.metadata, labels=labels, annotations=annotations))


def with_status_of(old: KindT, new: KindT) -> KindT:
    """Return ``old`` with the status of ``new``.  Raises NotFoundError for a kind without one."""
    if not has_status_subresource(type(old)):
        raise NotFoundError(f"{old.KIND} {old.key}: the kind has no subresource status")
    status: Any = new.status  # type: ignore[attr-defined]  # it has one
    if isinstance(old, Pod) and not status.qos_class:
        status = replace(status, qos_class=old.status.qos_class)
    return replace(old, status=status)


def next_generation(old: KubeObject, new: KubeObject) -> int:
    """Return the generation of ``new``: one more if anything but metadata and status differs."""
    apart = ("metadata", "status") if has_status_subresource(type(new)) else ("metadata",)
    wanted = [name for name in new.__struct_fields__ if name not in apart]
    changed = any(getattr(old, name) != getattr(new, name) for name in wanted)
    return old.metadata.generation + changed


def restricted_patch(
    patch: JsonObject, kind_type: type[KubeObject], subresource: str
) -> JsonObject:
    """Return the part of a patch that the main resource or its subresource status takes."""
    if subresource == "status":
        reported = {"status": patch["status"]} if "status" in patch else {}
        if kind_type is Node and "metadata" in patch:
            metadata = patch["metadata"] or {}
            reported["metadata"] = {k: v for k, v in metadata.items() if k in REPORTED_METADATA}
        return reported
    taken = {k: v for k, v in patch.items() if k not in ("apiVersion", "kind")}
    if has_status_subresource(kind_type):
        taken.pop("status", None)
    if "metadata" in taken:
        metadata = taken["metadata"] or {}
        taken["metadata"] = {k: v for k, v in metadata.items() if k not in _SERVER_METADATA}
    return taken


def grace_period_of(obj: KubeObject, wanted_s: int | None) -> int:
    """Return how many seconds an object may take to end; only a pod on a node may take any."""
    if not isinstance(obj, Pod) or not obj.spec.node_name or is_terminal(obj):
        return 0
    own_s = obj.spec.termination_grace_period_seconds
    period_s = wanted_s if wanted_s is not None else own_s
    if period_s is None:
        return DEFAULT_GRACE_PERIOD_S
    return period_s if period_s >= 0 else 1


def is_ready_to_go(obj: KubeObject) -> bool:
    """Return whether nothing keeps an object that is being deleted."""
    meta = obj.metadata
    return (
        meta.deletion_timestamp is not None
        and not meta.finalizers
        and not meta.deletion_grace_period_seconds
    )


def with_condition(status: PodStatus, condition: Condition, now: dt.datetime) -> PodStatus:
    """Return the status with this condition in place of that of its type, or as the last.

    The time of the transition is ``now`` unless the condition is what it was.
    """
    conditions = status.conditions
    for index, old in enumerate(conditions):
        if old.type == condition.type:
            since = old.last_transition_time if old.status == condition.status else now
            fresh = replace(condition, last_transition_time=since)
            return replace(
                status, conditions=(*conditions[:index], fresh, *conditions[index + 1 :])
            )
    fresh = replace(condition, last_transition_time=now)
    return replace(status, conditions=(*conditions, fresh))


def scheduled_at(now: dt.datetime) -> Condition:
    """Return the condition of pods that are bound at a time."""
    return replace(_SCHEDULED, last_transition_time=now)


def bound(pod: Pod, binding: Binding, now: dt.datetime, scheduled: Condition, version: str) -> Pod:
    """Return the pod on its node, with a resourceVersion.  Raises ConflictError, InvalidError.

    ``scheduled`` is ``scheduled_at(now)``, one object for all pods of a request.
    """
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if not binding.node:
        raise InvalidError(f"binding of pod {pod.key}: target.name: is required")
    if binding.uid and binding.uid != meta.uid:
        raise ConflictError(
            f"pod {pod.key}: Precondition failed: UID in precondition: {binding.uid}, "
            f"UID in object meta: {meta.uid}"
        )
    if meta.deletion_timestamp is not None:
        raise ConflictError(f"pod {pod.key} is being deleted, cannot be assigned to a host")
    if spec.node_name:
        raise ConflictError(f'pod {pod.key} is already assigned to node "{spec.node_name}"')
    if spec.scheduling_gates:
        raise ConflictError(f"pod {pod.key} has non-empty .spec.schedulingGates")
    if status.nominated_node_name:
        status = replace(status, nominated_node_name="")
    if binding.annotations or binding.labels:
        meta = replace(meta, **_merged_metadata(pod, binding))
    if status.conditions:
        status = with_condition(status, _SCHEDULED, now)
    else:
        status = replace(status, conditions=(scheduled,))
    return replace(
        pod,
        metadata=replace(meta, resource_version=version),
        spec=replace(spec, node_name=binding.node),
        status=status,
    )


def _merged_metadata(pod: Pod, binding: Binding) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if binding.annotations:
        changes["annotations"] = {**pod.metadata.annotations, **binding.annotations}
    if binding.labels:
        changes["labels"] = {**pod.metadata.labels, **binding.labels}
    return changes


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

    def keep_status(self, budget: PodDisruptionBudget) -> None:
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
    ready = find_condition(pod.status.conditions, "Ready")
    return pod.status.phase == "Running" if ready is None else ready.status == "True"


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
        owner = pod.metadata.controller
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
    above = workload.metadata.controller if isinstance(workload, ReplicaSet) else None
    return workload if above is None else _find_workload(store, namespace, above)
