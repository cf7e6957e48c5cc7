"""Leader election of a process, and the loop that acts only while the process leads.

The election has a connection of its own, whose requests time out after half the renew deadline.
"""

import gc
import logging
from collections.abc import Callable
from typing import Final, Protocol

from prometheus_client import Gauge

from koordinator.cli.component.process import ComponentProcess, LeaseTerms
from koordinator.foundation.errors import ClusterError
from koordinator.process.health import Check, leader_election_check

log = logging.getLogger(__name__)

#: The gauge of client-go.
MASTER_STATUS: Final = "leader_election_master_status"
_HELP: Final = "Whether this process leads: 1, or waits to: 0."


class Election:
    """Belongs to the loop of a component; anybody may ask ``may_act``."""

    def __init__(self, parts: ComponentProcess, lease: LeaseTerms | None, *, burst: int) -> None:
        """``lease`` is None for a component that acts without one."""
        self._parts, self._lease = parts, lease
        self._leadership = None
        if lease is not None:
            timeout_s = lease.renew_deadline_s / 2
            self._cluster = parts.connect(burst=burst, timeout_s=timeout_s)
            self._leadership = parts.stand_for(lease, self._cluster)

    def may_act(self) -> bool:
        """Return whether this process may act now; to be asked before every write."""
        return self._leadership is None or self._leadership.holds()

    @property
    def lateness_s(self) -> float | None:
        """How late a write that ``may_act`` allowed may be done: another can lead after that."""
        if self._lease is None:
            return None
        return self._lease.lease_duration_s - self._lease.renew_deadline_s

    def show_leader(self, metric: str) -> None:
        """Show in a gauge whether this process may act."""
        gauge = Gauge(metric, _HELP, registry=self._parts.registry)
        gauge.set_function(lambda: float(self.may_act()))

    def show_master_status(self) -> None:
        """Show who leads as client-go does, if there is a lease."""
        if self._lease is not None:
            master = Gauge(MASTER_STATUS, _HELP, ["name"], registry=self._parts.registry)
            master.labels(self._lease.name).set_function(lambda: float(self.may_act()))

    def checks(self) -> list[Check]:
        """Return what /healthz says of the election."""
        if self._lease is None:
            return []
        return [leader_election_check(self._lease.key, self._overdue_s)]

    def start(self) -> None:
        """Become a candidate.

        Whoever fails has to let the lease run out: of what it began, something may go on.
        """
        self._parts.cleanup.callback(self._stop, release=False)
        if self._leadership is not None:
            self._leadership.start()

    def wait_until_leading(self, timeout_s: float) -> bool:
        """Wait at most so many seconds until this process may act; return whether it may."""
        return self._leadership is None or self._leadership.wait_until_leading(timeout_s)

    @property
    def is_lost(self) -> bool:
        """Whether this process led and does no longer."""
        return self._leadership is not None and self._leadership.lost

    def must_not_be_lost(self) -> None:
        """Raise ClusterError if this process led and does no longer."""
        if self.is_lost:
            raise ClusterError("leadership lost")

    def stand_again_if_lost(self) -> None:
        """Step down and become a candidate again, which waits until the lease has run out.

        Only the loop does this, between two steps: what it may still have begun as a leader is
        over, and before it leads again it takes in the cluster anew.  The candidate has a new name:
        the lost lease has to run out for it, too.
        """
        if self._lease is None or not self.is_lost:
            return
        log.warning("stepped down: standing for election again")
        self._stop(release=False)
        self._leadership = self._parts.stand_for(self._lease, self._cluster)
        self._leadership.start()

    def leave(self) -> None:
        """Let another take over at once: whatever was done as a leader has ended."""
        self._stop(release=True)

    def _overdue_s(self) -> float:
        return 0.0 if self._leadership is None else self._leadership.overdue_s()

    def _stop(self, *, release: bool) -> None:
        if self._leadership is not None:
            self._leadership.stop(release=release)


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
