"""The life of a pod that has been given a place: its states, what may happen, and what follows.

::

    ASSUMED ──allow──► PERMITTED ──send──► BINDING ──confirm──► BOUND
       │ wait              │ prepare          │
       ▼                   ▼                  │ undo
    WAITING ──allow──►  PREPARING ──send──►   ▼
       └──────────────────┴── undo ──────► UNDONE

A place counts in the state from ASSUMED on, and is given back with UNDONE.
"""

from collections.abc import Mapping
from enum import StrEnum

from koordinator.foundation.errors import BugError


class LifeState(StrEnum):
    """Where a pod is on its way to its node."""

    ASSUMED = "assumed"  # placed in the state; no permit plugin has been called yet
    WAITING = "waiting"  # for a permit
    PERMITTED = "permitted"  # has all permits; its turn to be bound comes
    PREPARING = "preparing"  # what it needs on the node is being made ready
    BINDING = "binding"  # the cluster has been asked
    BOUND = "bound"
    UNDONE = "undone"  # its place was given back


class LifeEvent(StrEnum):
    """What happens to a pod that has a place."""

    WAIT = "wait"  # a permit plugin wants to be asked again
    ALLOW = "allow"  # all permits are there
    PREPARE = "prepare"  # a PreBind plugin wants to be asked again
    SEND = "send"  # the bind goes to the cluster
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
