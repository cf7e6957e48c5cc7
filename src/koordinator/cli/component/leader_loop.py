"""The loop of a component that follows a cluster always, and acts only while it leads."""

import gc
from collections.abc import Callable
from typing import Protocol

from koordinator.cli.component.election import Election
from koordinator.cli.component.process import ComponentProcess


class Follows(Protocol):
    """What takes in a cluster."""

    @property
    def is_synced(self) -> bool:
        """Whether everything that existed when last asked has been taken in."""
        ...

    def sync(self) -> None:
        """Take in the whole cluster; again, to miss nothing that happened before."""
        ...


def run_leader_loop(
    parts: ComponentProcess,
    election: Election,
    component: Follows,
    turn: Callable[[bool], None],
    *,
    if_lost: Callable[[], None],
    warm_up: Callable[[], None] = lambda: None,
) -> None:
    """Take turns until the process is to stop; a turn is told whether it may act.

    A turn waits if there is nothing to do.  ``if_lost`` is called before each one and decides what
    becomes of a process that has lost its lease; ``warm_up`` once, with the whole cluster known.
    """
    led, is_frozen = election.may_act(), False
    component.sync()
    while not parts.stopping.is_set():
        parts.heartbeat.beat()
        if_lost()
        leads = election.may_act()
        if leads and not led:
            component.sync()  # what the last leader did just now may be on its way still
        led = leads
        if component.is_synced and not is_frozen:
            warm_up()
            gc.freeze()  # the cluster stays: no use in looking at it for garbage
            is_frozen = True
        turn(leads)
