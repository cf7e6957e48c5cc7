"""Leadership thread of a process.

The clock stands still unless a test moves it, and the thread does nothing while it stands still.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from koordinator.api.control_plane import Lease
from koordinator.api.core import Namespace
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.cluster.leader_election import LeaderElector
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import KindT
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.process.leadership import Leadership, unique_identity

LONG_S = 30.0  # real time, never used up if the code is right
SHORT_S = 0.001
SHORT_OF_RETRY_S = 1.9  # a follower's attempts are a quarter of the retry period apart


class Server(MemoryCluster):
    """Counts what was tried and what was written."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_700_000_000)
        self.refused, self.renewed = threading.Event(), threading.Event()
        self.read = threading.Event()
        super().__init__(self.clock, strict_namespaces=True)

    def get(self, kind_type: type[KindT], name: str, namespace: str = "") -> KindT:
        stored = super().get(kind_type, name, namespace)
        self.read.set()
        return stored

    def create(self, obj: KindT) -> KindT:
        try:
            return super().create(obj)
        except Exception:
            self.refused.set()
            raise

    def update(self, obj: KindT) -> KindT:
        stored = super().update(obj)
        self.renewed.set()
        return stored

    def wait_until_renewed(self) -> None:
        """Wait for a renewal at the time that the clock shows."""
        now = to_datetime(self.clock.now_s())
        while self.get(Lease, "koord-scheduler", "kube-system").spec.renew_time != now:
            assert self.renewed.wait(LONG_S)
            self.renewed.clear()

    def make_namespace(self) -> None:
        self.create(Namespace(metadata=ObjectMeta(name="kube-system")))

    @property
    def holder(self) -> str | None:
        return self.get(Lease, "koord-scheduler", "kube-system").spec.holder_identity


@pytest.fixture
def server() -> Server:
    server = Server()
    server.make_namespace()
    return server


@contextmanager
def leadership(
    server: Server, identity: str = "a", retry_period_s: float = 0.005
) -> Iterator[Leadership]:
    """Start a leadership whose thread looks at the clock every few milliseconds."""
    elector = LeaderElector(
        server,
        server.clock,
        np.random.default_rng(0),
        identity=identity,
        namespace="kube-system",
        name="koord-scheduler",
        lease_duration_s=15,
        renew_deadline_s=10,
        retry_period_s=retry_period_s,
    )
    leading = Leadership(elector, server.clock)
    leading.start()
    try:
        yield leading
    finally:
        leading.stop()


def test_a_process_waits_until_it_leads_and_gives_up_when_stopped(server: Server) -> None:
    """After ``stop`` the lease is free; that is no loss."""
    with leadership(server) as leading:
        assert leading.wait_until_leading(LONG_S)
        assert leading.is_leader()
        assert server.holder == "a"

    assert server.holder == ""
    assert not leading.is_leader()
    assert not leading.lost


def test_a_process_may_leave_its_lease_to_run_out(server: Server) -> None:
    """As one must that can't be sure that everything it began has ended."""
    with leadership(server) as leading:
        leading.wait_until_leading(LONG_S)
        leading.stop(release=False)

    assert server.holder == "a"


def test_the_lease_is_renewed(server: Server) -> None:
    """Each renewal is followed by another one."""
    with leadership(server) as leading:
        leading.wait_until_leading(LONG_S)
        for _ in range(5):
            server.clock.advance_to(server.clock.now_s() + 4)
            assert leading.is_leader()
            server.wait_until_renewed()


def test_waiting_to_lead_times_out(server: Server) -> None:
    """The time given is waited, not longer."""
    with leadership(server) as leading:
        assert leading.wait_until_leading(LONG_S)
        with leadership(server, "b") as other:
            assert not other.wait_until_leading(SHORT_S)
            assert not other.lost


def test_a_follower_reads_a_changed_lease_at_once(server: Server) -> None:
    """A released lease is taken without the wait for the next attempt, which is far away."""
    read = threading.Event()
    with leadership(server) as leader:
        assert leader.wait_until_leading(LONG_S)
        with leadership(server, "b", retry_period_s=8) as follower:
            server.read = read
            follower.note_change()
            assert read.wait(LONG_S)
            leader.stop()
            follower.note_change()
            assert follower.wait_until_leading(SHORT_OF_RETRY_S)


def test_a_new_leader_does_not_react_to_its_own_write(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event of the write arrives before the process knows that it leads."""
    create, leaders, is_there = server.create, list[Leadership](), threading.Event()

    def create_and_signal(lease: Lease) -> Lease:
        stored = create(lease)
        assert is_there.wait(LONG_S)
        leaders[0].note_change()
        return stored

    monkeypatch.setattr(server, "create", create_and_signal)
    with leadership(server, retry_period_s=8) as leader:
        leaders.append(leader)
        is_there.set()
        assert leader.wait_until_leading(LONG_S)
        assert not server.renewed.wait(0.3)


def test_a_process_that_was_stopped_too_long_has_lost(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The fence needs no thread to notice; the loss is final and logged."""
    with leadership(server) as leading:
        leading.wait_until_leading(LONG_S)
        server.clock.advance_to(server.clock.now_s() + 10)
        assert not leading.is_leader()
        assert leading.lost
        assert not leading.wait_until_leading(SHORT_S)

    assert leading.lost
    assert "leadership lost" in caplog.messages
    assert server.holder == ""


def test_problem_of_a_candidate_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log names what is missing; once it exists, the process leads."""
    server = Server()
    with caplog.at_level(logging.INFO), leadership(server) as leading:
        for _ in range(3):
            assert server.refused.wait(LONG_S)
            server.refused.clear()
            server.clock.advance_to(server.clock.now_s() + 1)
        server.make_namespace()
        server.clock.advance_to(server.clock.now_s() + 1)
        assert leading.wait_until_leading(LONG_S)

    (failure,) = [r for r in caplog.records if r.message == "lease request failed"]
    assert "needed are the namespace 'kube-system'" in failure.error  # type: ignore[attr-defined]
    assert caplog.messages[0] == "waiting to lead"
    assert "leading" in caplog.messages


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_process_whose_thread_died_has_lost(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug must not leave a candidate waiting for ever."""
    ended = threading.Event()

    def break_down(*_: object) -> KubeObject:
        ended.set()
        raise ZeroDivisionError

    monkeypatch.setattr(server, "get", break_down)
    with leadership(server) as leading:
        assert ended.wait(LONG_S)
        leading._thread.join()
        assert leading.lost
        assert not leading.is_leader()


def test_leadership_can_be_stopped_before_its_start(server: Server) -> None:
    """A process may end before it becomes a candidate."""
    elector = LeaderElector(
        server,
        server.clock,
        np.random.default_rng(0),
        identity="a",
        namespace="kube-system",
        name="koord-scheduler",
        lease_duration_s=15,
        renew_deadline_s=10,
        retry_period_s=2,
    )
    leading = Leadership(elector, server.clock)
    leading.stop()

    assert not leading.lost


def test_no_two_processes_have_one_identity() -> None:
    """Processes on the same host have different identities."""
    assert unique_identity() != unique_identity()
