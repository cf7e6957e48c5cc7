"""Rules of the in-memory API server: bindings, conditions of writes, changes that are refused.

Pure functions of the stored object and the one in the request.

Source: k8s.io/apiserver pkg/registry/rest/{create,update,delete}.go; k8s.io/kubernetes v1.35
pkg/registry/core/pod/strategy.go; k8s.io/kubernetes pkg/api/v1/pod/util.go
``UpdatePodCondition``; k8s.io/kubernetes v1.35 pkg/registry/core/pod/storage/storage.go
``BindingREST.setPodNodeAndMetadata``.
"""

import datetime as dt
from typing import Any, TypeVar

from msgspec.structs import replace

from koordinator.api.crd import has_status_subresource
from koordinator.api.defaults import DEFAULT_GRACE_PERIOD_S, DEFAULT_NAMESPACE
from koordinator.api.meta import Condition, JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodStatus, is_terminal
from koordinator.cluster.port import Binding
from koordinator.foundation.errors import ConflictError, InvalidError, NotFoundError

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


def condition_status(status: PodStatus, condition_type: str) -> str:
    """Return True, False or Unknown, or nothing if there is no condition of the type."""
    for condition in status.conditions:
        if condition.type == condition_type:
            return condition.status
    return ""


_SCHEDULED = Condition(type="PodScheduled", status="True")


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
