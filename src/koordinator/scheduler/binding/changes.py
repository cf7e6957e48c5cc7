"""Changes of objects, written as differences to what is stored.

Each write names the version that it is made from, so that nothing is changed that has not been
looked at.
"""

from contextlib import suppress
from typing import TypeVar

from koordinator.api.codec import merge_patch
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import ConflictError
from koordinator.scheduler.snapshot import ObjectChange

ATTEMPTS = 5  # at one write, while others write the object, too

ObjectT = TypeVar("ObjectT", bound=KubeObject)


def write_change(cluster: Cluster, change: ObjectChange) -> KubeObject:
    """Write a change and return what is stored.  Raises ClusterError.

    The object itself comes before its status.  Should that fail, the former stands.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(ConflictError):
            return _write(cluster, change)
    return _write(cluster, change)


def _write(cluster: Cluster, change: ObjectChange) -> KubeObject:
    namespace, _, name = change.key.rpartition("/")
    stored = cluster.get(change.kind, name, namespace)
    patch = merge_patch(stored, change.amend(stored))
    status = patch.pop("status", None)
    if patch:
        stored = _patch(cluster, stored, patch)
    if status is not None:
        stored = _patch(cluster, stored, {"status": status}, "status")
    return stored


def _patch(cluster: Cluster, stored: ObjectT, patch: JsonObject, subresource: str = "") -> ObjectT:
    meta = stored.metadata
    version = {"resourceVersion": meta.resource_version, "uid": meta.uid}
    patch = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
    return cluster.patch(type(stored), meta.name, meta.namespace, patch, subresource)
