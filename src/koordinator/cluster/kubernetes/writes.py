"""Bodies of write requests, and the parts of an object that each of them may change."""

from typing import Any, TypeVar

from msgspec.structs import replace

from koordinator.api.codec import to_manifest
from koordinator.api.crd import has_status_subresource
from koordinator.api.json_merge import carried_over
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.foundation.errors import ConflictError, NotFoundError

KindT = TypeVar("KindT", bound=KubeObject)

MERGE_PATCH = "application/merge-patch+json"
_PRECONDITIONS = ("uid", "resourceVersion")


def replacement(
    raw: JsonObject, stored: KindT, wanted: KindT, *, status: bool
) -> JsonObject | None:
    """Return the whole object to put in place of the stored one; None if nothing changes.

    ``raw`` is the stored object with all its fields, ``stored`` what our types read of it.
    Raises ConflictError if ``wanted`` was made of another object or of another version of it;
    NotFoundError for the status of a kind that has none.
    """
    given, meta = wanted.metadata, stored.metadata
    subject = f'{stored.PLURAL} "{stored.key}"'
    if given.uid and given.uid != meta.uid:
        raise ConflictError(
            f"{subject}: Precondition failed: UID in precondition: {given.uid}, "
            f"UID in object meta: {meta.uid}"
        )
    if given.resource_version and given.resource_version != meta.resource_version:
        raise ConflictError(
            f"{subject}: the object has been modified; please apply your changes to the latest "
            f"version and try again (given {given.resource_version}, is {meta.resource_version})"
        )
    has_status = has_status_subresource(type(stored))
    changes: dict[str, Any] = {}
    if status:
        if not has_status:
            raise NotFoundError(f"{subject}: the kind has no subresource status")
        changed = replace(stored, status=wanted.status)  # type: ignore[attr-defined]  # has_status
    else:
        if has_status:
            changes["status"] = stored.status  # type: ignore[attr-defined]  # has_status
        changes["metadata"] = replace(
            meta,
            labels=given.labels,
            annotations=given.annotations,
            owner_references=given.owner_references,
            finalizers=given.finalizers,
        )
        changed = replace(wanted, **changes)
    if changed == stored:
        return None
    return carried_over(raw, to_manifest(stored), to_manifest(changed))


def status_part(merge_patch: JsonObject, kind_type: type[KubeObject] = KubeObject) -> JsonObject:
    """Return the part of a patch that the subresource status takes: pods' would take labels too.

    Labels and annotations of nodes pass: they are part of what is reported of a node.
    """
    meta = merge_patch.get("metadata") or {}
    part: JsonObject = {key: merge_patch[key] for key in ("status",) if key in merge_patch}
    passing = (*_PRECONDITIONS, "labels", "annotations") if kind_type is Node else _PRECONDITIONS
    if given := {key: meta[key] for key in passing if meta.get(key)}:
        part["metadata"] = given
    return part


def deletion(uid: str, grace_period_s: int | None) -> JsonObject:
    """Return DeleteOptions."""
    options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    return options


def eviction(namespace: str, name: str, uid: str, grace_period_s: int | None) -> JsonObject:
    """Return an Eviction."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": deletion(uid, grace_period_s),
    }
