"""Permission to act: every component with a lease, or without one, uses the same object."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from koordinator.api.control_plane import Lease
from koordinator.api.core import Namespace
from koordinator.api.meta import ObjectMeta
from koordinator.cli.component.election import Election, run_terms
from koordinator.cli.component.process import LeaseTerms
from koordinator.cluster.leader_election import LeaderElector
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.process.leadership import Heartbeat, Leadership, unique_identity
from koordinator.process.termination import StopEvent

LONG_S = 30.0  # real time, never used up if the code is right
LEASE = LeaseTerms(
    namespace="koordinator-system",
    name="koordinator-manager",
    lease_duration_s=15.0,
    renew_deadline_s=10.0,
    retry_period_s=0.005,
)


class WatchedCluster(MemoryCluster):
    """Cluster in memory that keeps who is informed of changes of the lease."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.on_change: list[Callable[[], None]] = []

    def watch_object(
        self, kind: type[Lease], name: str, namespace: str, on_change: Callable[[], None]
    ) -> None:
        assert (kind, name, namespace) == (Lease, LEASE.name, LEASE.namespace)
        self.on_change.append(on_change)


class Parts:
    """Parts of a ``ComponentProcess`` that an election uses, in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_700_000_000)
        self.cluster = WatchedCluster(self.clock)
        self.cluster.create(Namespace(metadata=ObjectMeta(name=LEASE.namespace)))
        self.registry, self.cleanup = CollectorRegistry(), ExitStack()
        self.stopping, self.heartbeat = StopEvent(), Heartbeat(self.clock, LONG_S)
        self.woken = threading.Event()

    def wake(self) -> None:
        self.woken.set()

    def connect(self, *, burst: int, timeout_s: float) -> WatchedCluster:
        assert (burst, timeout_s) == (50, LEASE.renew_deadline_s / 2)
        return self.cluster

    def create_candidate(self, lease: LeaseTerms, cluster: MemoryCluster) -> Leadership:
        elector = LeaderElector(
            cluster,
            self.clock,
            np.random.default_rng(0),
            identity=unique_identity(),
            namespace=lease.namespace,
            name=lease.name,
            lease_duration_s=lease.lease_duration_s,
            renew_deadline_s=lease.renew_deadline_s,
            retry_period_s=lease.retry_period_s,
        )
        return Leadership(elector, self.clock)

    @property
    def holder(self) -> str | None:
        return self.cluster.get(Lease, LEASE.name, LEASE.namespace).spec.holder_identity

    def shown(self) -> str:
        return generate_latest(self.registry).decode()


@pytest.fixture
def parts() -> Iterator[Parts]:
    """Make the parts of a process, cleaned up at its end."""
    made = Parts()
    with made.cleanup:
        yield made


def election(parts: Parts, lease: LeaseTerms | None = LEASE) -> Election:
    return Election(parts, lease, burst=50)  # type: ignore[arg-type]  # all that it uses


def test_without_a_lease_a_process_always_acts(parts: Parts) -> None:
    """No request is sent, and no health of it is shown."""
    one = election(parts, None)
    one.show_master_status()
    one.show_leader("koordinator_manager_is_leader")
    one.start()
    assert one.wait_until_leading(0.0)
    one.rejoin_if_lost()
    assert one.may_act()
    assert one.checks() == []
    assert "koordinator_manager_is_leader 1.0" in parts.shown()
    assert "leader_election_master_status" not in parts.shown()
    one.leave()


def test_with_a_lease_it_acts_while_it_holds_it(parts: Parts) -> None:
    """A replica that stops releases its lease, so that another one leads immediately."""
    one = election(parts)
    one.show_master_status()
    master = 'leader_election_master_status{name="koordinator-manager"} '
    assert f"{master}0.0" in parts.shown()
    assert not one.may_act()
    one.start()
    assert one.wait_until_leading(LONG_S)
    assert f"{master}1.0" in parts.shown()
    (check,) = one.checks()
    assert not check.problem()
    one.leave()
    assert parts.holder == ""


def test_a_failed_candidate_leaves_the_lease_to_expire(parts: Parts) -> None:
    """Of what it began, something may go on."""
    one = election(parts)
    one.start()
    assert one.wait_until_leading(LONG_S)
    parts.cleanup.close()
    assert parts.holder


def test_a_lost_lease_expires_for_its_own_process_as_for_others(parts: Parts) -> None:
    """The process rejoins under a new name, and leads as soon as the lost lease has expired."""
    one = election(parts)
    one.start()
    assert one.wait_until_leading(LONG_S)
    renewed_s, lost = parts.clock.now_s(), parts.holder
    parts.clock.advance_to(renewed_s + LEASE.renew_deadline_s)
    assert not one.may_act()
    assert one.is_lost

    one.rejoin_if_lost()
    assert not one.is_lost
    assert parts.holder == lost
    parts.clock.advance_to(renewed_s + LEASE.lease_duration_s - 0.5)
    assert not one.wait_until_leading(0.05)
    parts.clock.advance_to(renewed_s + LEASE.lease_duration_s + 0.5)
    assert one.wait_until_leading(LONG_S)
    assert parts.holder not in {"", lost}
    one.leave()
    assert parts.holder == ""


def test_lost_lease_is_not_released_at_the_end(parts: Parts) -> None:
    """Last writes may be in flight until the lease expires."""
    one = election(parts)
    one.start()
    assert one.wait_until_leading(LONG_S)
    lost = parts.holder
    parts.clock.advance_to(parts.clock.now_s() + LEASE.renew_deadline_s)
    assert one.is_lost
    one.leave()
    assert parts.holder == lost


class Component:
    """A component that records what is called of it."""

    is_synced = True

    def __init__(self, number: int, calls: list[str]) -> None:
        self.number, self._calls = number, calls

    def sync(self) -> None:
        self.note("sync")

    def warm_up(self) -> None:
        self.note("warm up")

    def finish(self) -> None:
        self.note("finish")

    def note(self, what: str) -> None:
        self._calls.append(f"{what} {self.number}")


def test_a_lost_lease_replaces_the_component_and_its_connections(parts: Parts) -> None:
    """The old connections are closed before the process rejoins the election."""
    one, calls = election(parts), list[str]()
    numbers = count(1)

    def begin(connections: ExitStack) -> Component:
        component = Component(next(numbers), calls)
        connections.callback(component.note, "close")
        return component

    def turn(leads: bool) -> None:
        if leads and "sync 2" not in calls:
            calls.append("lead")
            parts.clock.advance_to(parts.clock.now_s() + LEASE.renew_deadline_s)
        elif leads:
            parts.stopping.set()
        elif "sync 2" in calls:
            parts.clock.advance_to(parts.clock.now_s() + 1)
            one.wait_until_leading(0.01)

    one.start()
    assert one.wait_until_leading(LONG_S)
    assert parts.woken.wait(LONG_S)
    run_terms(
        parts,  # type: ignore[arg-type]  # all that it uses
        one,
        begin,
        turn,
        warm_up=Component.warm_up,
        finish=Component.finish,
    )
    one.leave()

    assert calls == [
        "sync 1",
        "warm up 1",
        "lead",
        "close 1",
        "sync 2",
        "warm up 2",
        "sync 2",  # the process leads
        "finish 2",
        "close 2",
    ]
