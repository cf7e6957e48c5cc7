"""Leader election of a process, and the main loop that writes only while the process leads.

The election has a connection of its own, whose requests time out after half the renew deadline.
"""

import gc
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final, Protocol, TypeVar

from prometheus_client import Gauge

from koordinator.api.control_plane import Lease
from koordinator.cli.component.process import ComponentProcess, LeaseTerms
from koordinator.process.health import Check, leader_election_check
from koordinator.process.leadership import Leadership

log = logging.getLogger(__name__)

#: The gauge of client-go.
MASTER_STATUS: Final = "leader_election_master_status"
LEADS: Final = "1 if this process leads, 0 if it is a standby."


class Election:
    """Leader election of a component.

    The main loop owns it; only ``may_act`` may be called from other threads.
    """

    def __init__(self, parts: ComponentProcess, lease: LeaseTerms | None, *, burst: int) -> None:
        """``lease`` is None for a component that acts without one."""
        self._parts, self._lease = parts, lease
        self._leadership: Leadership | None = None
        if lease is not None:
            timeout_s = lease.renew_deadline_s / 2
            self._cluster = parts.connect(burst=burst, timeout_s=timeout_s)
            self._leadership = self._create_candidate(lease)

    def may_act(self) -> bool:
        """Return whether this process leads now; checked before every write."""
        return self._leadership is None or self._leadership.is_leader()

    @property
    def lateness_s(self) -> float | None:
        """Seconds for which a write stays allowed after ``may_act``; then another may lead."""
        if self._lease is None:
            return None
        return self._lease.lease_duration_s - self._lease.renew_deadline_s

    def show_leader(self, metric: str) -> None:
        """Export a gauge of whether this process leads."""
        gauge = Gauge(metric, LEADS, registry=self._parts.registry)
        gauge.set_function(lambda: float(self.may_act()))

    def show_master_status(self) -> None:
        """Export the gauge of client-go for the leader, if there is a lease."""
        if self._lease is not None:
            master = Gauge(MASTER_STATUS, LEADS, ["name"], registry=self._parts.registry)
            master.labels(self._lease.name).set_function(lambda: float(self.may_act()))

    def checks(self) -> list[Check]:
        """Return the checks of the election for /healthz."""
        if self._lease is None:
            return []
        return [leader_election_check(self._lease.key, self._overdue_s)]

    def start(self) -> None:
        """Become a candidate.

        A process that fails does not release the lease: writes that it began may still be under
        way, so the next leader has to wait until the lease expires.
        """
        self._parts.cleanup.callback(self._stop, release=False)
        if self._leadership is not None and self._lease is not None:
            self._leadership.start()
            lease = self._lease
            self._cluster.watch_object(Lease, lease.name, lease.namespace, self._note_change)

    def wait_until_leading(self, timeout_s: float) -> bool:
        """Wait at most that many seconds until this process leads; return whether it does."""
        return self._leadership is None or self._leadership.wait_until_leading(timeout_s)

    @property
    def is_lost(self) -> bool:
        """Whether this process has lost its lease."""
        return self._leadership is not None and self._leadership.lost

    def rejoin_if_lost(self) -> None:
        """Step down and become a candidate again, if this process has lost its lease.

        Only the main loop calls this, between two steps, when no write of the lost term is under
        way or can still be sent; it lists the cluster again before it leads.  The candidate has a
        new identity, so that it too waits until the lost lease expires, which it remembers.
        """
        if self._lease is None or not self.is_lost:
            return
        log.warning("lost the lease; rejoining the election")
        self._stop(release=False)
        lost, self._leadership = self._leadership, self._create_candidate(self._lease)
        if lost is not None:
            self._leadership.inherit(lost)
        self._leadership.start()

    def leave(self) -> None:
        """Release the lease, so that another replica can lead immediately; no write is pending.

        A lost lease is not released: writes of its term may be under way until it expires.
        """
        self._stop(release=not self.is_lost)

    def _create_candidate(self, lease: LeaseTerms) -> Leadership:
        candidate = self._parts.create_candidate(lease, self._cluster)
        candidate.on_lead = self._parts.wake
        return candidate

    def _note_change(self) -> None:
        if self._leadership is not None:
            self._leadership.note_change()

    def _overdue_s(self) -> float:
        return 0.0 if self._leadership is None else self._leadership.overdue_s()

    def _stop(self, *, release: bool) -> None:
        if self._leadership is not None:
            self._leadership.stop(release=release)


class ClusterFollower(Protocol):
    """Component that keeps a mirror of the cluster."""

    @property
    def is_synced(self) -> bool:
        """Whether the mirror contains all objects of the latest list."""
        ...

    def sync(self) -> None:
        """List the whole cluster, also if it was listed before."""
        ...


FollowerT = TypeVar("FollowerT", bound=ClusterFollower)


def run_leader_loop(
    parts: ComponentProcess,
    election: Election,
    component: ClusterFollower,
    turn: Callable[[bool], None],
    *,
    is_over: Callable[[], bool] = lambda: False,
    check_lease: Callable[[], None] = lambda: None,
    warm_up: Callable[[], None] = lambda: None,
) -> None:
    """Call ``turn`` until the process stops or ``is_over``, with whether it leads.

    A turn waits if it has no work.  ``check_lease`` is called before each turn, and handles a lost
    lease.  ``warm_up`` is called once, after the first sync.
    """
    led, is_frozen = election.may_act(), False
    listing = _Listing(component)
    while not (parts.stopping.is_set() or is_over()):
        parts.heartbeat.beat()
        check_lease()
        leads = election.may_act()
        if leads and not led:
            listing = _Listing(component)  # with the last writes of the previous leader
        led = leads
        listing.log_once()
        if component.is_synced and not is_frozen:
            warm_up()
            gc.freeze()  # the mirror lives as long as the process; collections need not scan it
            is_frozen = True
        turn(leads)


class _Listing:
    """One list of the cluster, whose end is logged."""

    def __init__(self, component: ClusterFollower) -> None:
        self._component, self._began_s = component, time.monotonic()
        self._is_logged = False
        component.sync()

    def log_once(self) -> None:
        if self._component.is_synced and not self._is_logged:
            self._is_logged = True
            took_s = time.monotonic() - self._began_s
            log.info("cluster listed", extra={"took_s": round(took_s, 3)})


def run_terms(
    parts: ComponentProcess,
    election: Election,
    begin: Callable[[ExitStack], FollowerT],
    turn: Callable[[bool], None],
    *,
    warm_up: Callable[[FollowerT], None] = lambda _: None,
    finish: Callable[[FollowerT], None] = lambda _: None,
) -> None:
    """Run the leader loop until the process stops, after a lost lease with a new component.

    ``begin`` returns a component whose connections the given stack closes.  A lost lease ends them
    and all that the component had decided, so that nothing of a lost term is written in a later
    one.  The new component follows the cluster while it waits to lead.  ``warm_up`` is called after
    its first sync, ``finish`` at the end of a process that has not lost the lease.
    """
    while not parts.stopping.is_set():
        with ExitStack() as connections:
            component = begin(connections)
            run_leader_loop(
                parts,
                election,
                component,
                turn,
                is_over=lambda: election.is_lost,
                warm_up=partial(warm_up, component),
            )
            if not election.is_lost:
                finish(component)
        if not parts.stopping.is_set():
            election.rejoin_if_lost()
            del component
            gc.unfreeze()
            gc.collect()
