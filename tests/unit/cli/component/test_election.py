"""Who may act: every component with a lease, or without one, asks the same object."""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from koordinator.api.control_plane import Lease
from koordinator.api.core import Namespace
from koordinator.api.meta import ObjectMeta
from koordinator.cli.component.election import Election
from koordinator.cli.component.process import LeaseTerms
from koordinator.cluster.leader_election import LeaderElector
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.process.leadership import Leadership, unique_identity

LONG_S = 30.0  # real time, never used up if the code is right
LEASE = LeaseTerms(
    namespace="koordinator-system",
    name="koordinator-manager",
    lease_duration_s=15.0,
    renew_deadline_s=10.0,
    retry_period_s=0.005,
)


class Parts:
    """What ``ComponentProcess`` gives an election, in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_700_000_000)
        self.cluster = MemoryCluster(self.clock)
        self.cluster.create(Namespace(metadata=ObjectMeta(name=LEASE.namespace)))
        self.registry, self.cleanup = CollectorRegistry(), ExitStack()

    def connect(self, *, burst: int, timeout_s: float) -> MemoryCluster:
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
    return Election(parts, lease, burst=50)  # type: ignore[arg-type]  # all of it that is asked for


def test_without_a_lease_a_process_always_acts(parts: Parts) -> None:
    """Nothing is asked of anybody, and nothing about it is shown as healthy or not."""
    one = election(parts, None)
    one.show_master_status()
    one.show_leader("koordinator_manager_is_leader")
    one.start()
    assert one.wait_until_leading(0.0)
    one.check_not_lost()
    one.rejoin_if_lost()
    assert one.may_act()
    assert one.checks() == []
    assert "koordinator_manager_is_leader 1.0" in parts.shown()
    assert "leader_election_master_status" not in parts.shown()
    one.leave()


def test_with_a_lease_it_acts_while_it_holds_it(parts: Parts) -> None:
    """And gives it back when it leaves, so that another leads at once."""
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


def test_who_fails_lets_the_lease_run_out(parts: Parts) -> None:
    """Of what it began, something may go on."""
    one = election(parts)
    one.start()
    assert one.wait_until_leading(LONG_S)
    parts.cleanup.close()
    assert parts.holder


def test_who_has_lost_ends_or_stands_again_under_a_new_name(parts: Parts) -> None:
    """The scheduler ends, the manager goes on: what it lost has to run out for it, too."""
    one = election(parts)
    one.start()
    assert one.wait_until_leading(LONG_S)
    lost = parts.holder
    parts.clock.advance_to(parts.clock.now_s() + LEASE.renew_deadline_s)
    assert not one.may_act()
    assert one.is_lost
    with pytest.raises(ClusterError, match="leadership lost"):
        one.check_not_lost()

    one.rejoin_if_lost()
    assert not one.is_lost
    assert parts.holder == lost
    assert not one.wait_until_leading(0.05)
    parts.clock.advance_to(parts.clock.now_s() + LEASE.lease_duration_s + 1)
    assert one.wait_until_leading(LONG_S)
    assert parts.holder not in {"", lost}
    one.leave()
