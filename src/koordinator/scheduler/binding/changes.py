"""Changes of objects, written as differences to what is stored.

Each write names the version that it is made from, so that nothing is changed that has not been
looked at.
"""

from contextlib import suppress
from typing import TypeVar

from koordinator.api.codec import merge_patch
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import AlreadyExistsError, ConflictError, NotFoundError
from koordinator.scheduler.snapshot import ObjectChange

ATTEMPTS = 5  # at one write, while others write the object, too

ObjectT = TypeVar("ObjectT", bound=KubeObject)


def write_change(cluster: Cluster, change: ObjectChange, uid: str = "") -> KubeObject:
    """Write a change and return what is stored, or was last.  Raises ClusterError.

    The object itself comes before its status.  Should that fail, the former stands.  ``uid`` guards
    against another object of that name; empty means any.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(ConflictError):
            return _write(cluster, change, uid)
    return _write(cluster, change, uid)


def create_object(cluster: Cluster, change: ObjectChange) -> KubeObject | None:
    """Create what a change is made of; return None where it needs none, or one is there."""
    if change.created is None:
        return None
    with suppress(AlreadyExistsError):
        return cluster.create(change.created)
    return None


def _write(cluster: Cluster, change: ObjectChange, uid: str) -> KubeObject:
    namespace, _, name = change.key.rpartition("/")
    stored = cluster.get(change.kind, name, namespace)
    if uid and stored.metadata.uid != uid:
        raise ConflictError(f"{change.kind.KIND} {stored.key} is another one by now")
    patch = merge_patch(stored, change.amend(stored))
    status = patch.pop("status", None)
    if patch:
        stored = _patch(cluster, stored, patch)
    if status is not None:
        stored = _patch(cluster, stored, {"status": status}, "status")
    if change.deletes:
        with suppress(NotFoundError):
            cluster.delete(change.kind, name, namespace, uid=stored.metadata.uid)
    return stored


def _patch(cluster: Cluster, stored: ObjectT, patch: JsonObject, subresource: str = "") -> ObjectT:
    meta = stored.metadata
    version = {"resourceVersion": meta.resource_version, "uid": meta.uid}
    patch = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
    return cluster.patch(type(stored), meta.name, meta.namespace, patch, subresource)
