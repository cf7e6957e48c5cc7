"""Life of a binding, and the changes of a pod that it writes.

::

    ASSUMED ──allow──► PERMITTED ──send──► BINDING ──confirm──► BOUND
       │ wait              │ prepare          │
       ▼                   ▼                  │ undo
    WAITING ──allow──►  PREPARING ──send──►   ▼
       └──────────────────┴── undo ──────► UNDONE

A place counts in the state from ASSUMED on, and is released with UNDONE.

Each write names the version that it is made from, so that nothing is changed that has not been
looked at.
"""

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar

from koordinator.api.codec import merge_patch
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import AlreadyExistsError, BugError, ConflictError, NotFoundError
from koordinator.scheduler.snapshot import ObjectChange

ATTEMPTS = 5  # at one write, while others write the object, too


class LifeState(StrEnum):
    """State of a pod that has a place."""

    ASSUMED = "assumed"  # placed in the state; no permit plugin has been called yet
    WAITING = "waiting"  # for a permit
    PERMITTED = "permitted"  # has all permits; its turn to be bound comes
    PREPARING = "preparing"  # its volumes or devices are being prepared
    BINDING = "binding"  # the cluster has been asked
    BOUND = "bound"
    UNDONE = "undone"  # its place was released


class LifeEvent(StrEnum):
    """Event in the life of a pod that has a place."""

    WAIT = "wait"  # a Permit plugin must be called again
    ALLOW = "allow"  # all permits are there
    PREPARE = "prepare"  # a PreBind plugin must be called again
    SEND = "send"  # the bind is sent
    CONFIRM = "confirm"  # the cluster has it
    UNDO = "undo"  # refused, timed out, failed, withdrawn, preempted or deleted


_S, _E = LifeState, LifeEvent

#: What follows from an event, by the state in which it finds the pod.
TRANSITIONS: Mapping[LifeEvent, Mapping[LifeState, LifeState]] = {
    _E.WAIT: {_S.ASSUMED: _S.WAITING, _S.WAITING: _S.WAITING},
    _E.ALLOW: {_S.ASSUMED: _S.PERMITTED, _S.WAITING: _S.PERMITTED},
    _E.PREPARE: {_S.PERMITTED: _S.PREPARING, _S.PREPARING: _S.PREPARING},
    _E.SEND: {_S.PERMITTED: _S.BINDING, _S.PREPARING: _S.BINDING},
    _E.CONFIRM: {_S.BINDING: _S.BOUND},
    _E.UNDO: {
        _S.ASSUMED: _S.UNDONE,
        _S.WAITING: _S.UNDONE,
        _S.PERMITTED: _S.UNDONE,
        _S.PREPARING: _S.UNDONE,
        _S.BINDING: _S.UNDONE,
        _S.UNDONE: _S.UNDONE,  # an attempt that broke off is taken back as a whole
    },
}


def illegal_move(state: LifeState, event: LifeEvent, story: str) -> BugError:
    """Return the error of an event that the state does not allow; ``story`` names the pod."""
    legal = ", ".join(e for e, moves in TRANSITIONS.items() if state in moves) or "nothing"
    return BugError(f"{event} of a pod that is {state} ({story}); must be {legal}")


ObjectT = TypeVar("ObjectT", bound=KubeObject)


def write_change(cluster: Cluster, change: ObjectChange, uid: str = "") -> KubeObject:
    """Write a change and return the stored object, or its last version.  Raises ClusterError.

    The object itself comes before its status.  Should that fail, the former stands.  ``uid`` guards
    against another object of that name; empty means any.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(ConflictError):
            return _write(cluster, change, uid)
    return _write(cluster, change, uid)


def create_object(cluster: Cluster, change: ObjectChange) -> KubeObject | None:
    """Create the object of a change; return None if it needs none, or there is one."""
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
