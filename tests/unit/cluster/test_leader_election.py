"""One elector with its lease, its clock and failures."""

import datetime as dt
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from koordinator.api.control_plane import Lease, LeaseSpec
from koordinator.api.core import MicroTime, Namespace
from koordinator.api.event import Event
from koordinator.api.meta import ObjectMeta
from koordinator.cluster.leader_election import LeaderElector
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import KindT
from koordinator.foundation.clock import UTC, VirtualClock
from koordinator.foundation.errors import BugError, ClusterError, InvalidError

START_S = 1_700_000_000.25


class Bed(MemoryCluster):
    """A cluster with its clock, and hooks that run before and after each write of a lease."""

    def __init__(self, *, strict_namespaces: bool = False) -> None:
        self.clock = VirtualClock(START_S)
        super().__init__(self.clock, strict_namespaces=strict_namespaces)
        self.before_write: Callable[[], object] = lambda: None
        self.after_write: Callable[[], object] = lambda: None

    def create(self, obj: KindT) -> KindT:
        return self._hooked(super().create, obj)

    def update(self, obj: KindT) -> KindT:
        return self._hooked(super().update, obj)

    def _hooked(self, write: Callable[[KindT], KindT], obj: KindT) -> KindT:
        if not isinstance(obj, Lease):
            return write(obj)
        self.before_write()
        stored = write(obj)
        self.after_write()
        return stored

    def candidate(self, identity: str, **times: float) -> LeaderElector:
        """Return an elector with the stock times (15 s, 10 s, 2 s) unless others are given."""
        times = {"lease_duration_s": 15, "renew_deadline_s": 10, "retry_period_s": 2} | times
        return LeaderElector(
            self,
            self.clock,
            np.random.default_rng(0),
            identity=identity,
            namespace="kube-system",
            name="koord-scheduler",
            **times,
        )

    @property
    def lease(self) -> Lease:
        return self.get(Lease, "koord-scheduler", "kube-system")

    def after(self, seconds: float) -> None:
        """Advance the clock."""
        self.clock.advance_to(self.clock.now_s() + seconds)

    def events(self) -> list[str]:
        return [event.note for event in self.list(Event).items if event.reason == "LeaderElection"]


@pytest.fixture
def bed() -> Bed:
    return Bed()


def fail() -> None:
    raise ClusterError("connection reset")


def at(offset_s: float) -> MicroTime:
    return MicroTime.fromtimestamp(START_S + offset_s, UTC)


def test_the_first_candidate_creates_the_lease_and_leads(bed: Bed) -> None:
    """All fields are filled in as client-go does, times to the microsecond."""
    elector = bed.candidate("a")
    assert not elector.is_leader()

    assert elector.attempt()

    assert elector.is_leader()
    assert elector.leader == "a"
    assert bed.lease.spec == LeaseSpec(
        holder_identity="a",
        lease_duration_seconds=15,
        acquire_time=at(0),
        renew_time=at(0),
        lease_transitions=0,
    )


def test_a_renewal_moves_only_the_renew_time(bed: Bed) -> None:
    """Since when it leads, and how often the leader has changed, stays as it was."""
    elector = bed.candidate("a")
    elector.attempt()
    first = bed.lease.spec
    bed.after(2.5)

    assert elector.attempt()

    assert bed.lease.spec == replace(first, renew_time=at(2.5))


def test_lease_expires_by_the_clock_of_the_observer(bed: Bed) -> None:
    """Taken over once it has not changed for its duration, whatever times it has in it."""
    bed.candidate("a").attempt()
    renewed = bed.lease.spec.renew_time
    assert renewed is not None
    future = replace(bed.lease.spec, renew_time=renewed + dt.timedelta(days=1))
    bed.update(replace(bed.lease, spec=future))
    elector = bed.candidate("b")

    assert not elector.attempt()
    assert elector.leader == "a"
    bed.after(14.99)
    assert not elector.attempt()
    bed.after(0.01)
    assert elector.attempt()

    assert elector.leader == "b"
    assert bed.lease.spec == LeaseSpec(
        holder_identity="b",
        lease_duration_seconds=15,
        acquire_time=at(15),
        renew_time=at(15),
        lease_transitions=1,
    )


def test_a_lease_that_is_renewed_does_not_run_out(bed: Bed) -> None:
    """Every change of its content restarts the lease duration."""
    leader, follower = bed.candidate("a"), bed.candidate("b")
    for _ in range(20):
        assert leader.attempt()
        assert not follower.attempt()
        bed.after(2)

    assert leader.is_leader()


def test_new_candidate_waits_for_an_old_lease(bed: Bed) -> None:
    """A new candidate can't know whether the leader's clock is right, so it takes its time."""
    bed.candidate("a").attempt()
    bed.after(3600)
    elector = bed.candidate("b")

    assert not elector.attempt()
    bed.after(15)
    assert elector.attempt()


def test_duration_in_the_lease_decides(bed: Bed) -> None:
    """The leader may have been configured otherwise than those who wait."""
    bed.candidate("a", lease_duration_s=60, renew_deadline_s=50).attempt()
    elector = bed.candidate("b")
    elector.attempt()
    bed.after(59.9)
    assert not elector.attempt()
    bed.after(0.1)
    assert elector.attempt()


def test_a_fraction_of_a_second_is_rounded_up(bed: Bed) -> None:
    """Cut off, 15.5 s would run out before a leader with a deadline of 15.2 s stops."""
    bed.candidate("a", lease_duration_s=15.5, renew_deadline_s=15.2).attempt()

    assert bed.lease.spec.lease_duration_seconds == 16


def test_annotating_the_lease_does_not_renew_it(bed: Bed) -> None:
    """Only the spec counts; otherwise an annotator could keep a dead leader in office."""
    bed.candidate("a").attempt()
    elector = bed.candidate("b")
    elector.attempt()
    bed.after(15)
    meta = replace(bed.lease.metadata, annotations={"note": "x"})
    bed.update(replace(bed.lease, metadata=meta))

    assert elector.attempt()
    assert bed.lease.metadata.annotations == {"note": "x"}


def test_leading_is_counted_from_the_start_of_the_renewal(bed: Bed) -> None:
    """The server may have counted from any moment of a slow request: the first one is safe."""
    elector = bed.candidate("a")
    bed.after_write = lambda: bed.after(4)
    assert elector.attempt()

    bed.after(5.99)
    assert elector.is_leader()
    bed.after(0.01)
    assert not elector.is_leader()


def test_a_lost_leader_never_leads_again(bed: Bed) -> None:
    """Others may have acted in the meantime: the process must start afresh."""
    elector = bed.candidate("a")
    elector.attempt()
    assert not elector.lost
    bed.after(10)

    assert elector.lost
    assert not elector.attempt()
    assert elector.lost
    assert bed.lease.spec.renew_time == at(0)


def test_late_answer_does_not_renew_the_lease(bed: Bed) -> None:
    """Between the end of its time and the answer it was no leader, and that is final."""
    elector = bed.candidate("a")
    elector.attempt()
    bed.after(9)
    bed.after_write = lambda: bed.after(2)

    assert not elector.attempt()
    assert elector.lost


def test_late_first_answer_starts_no_term(bed: Bed) -> None:
    """A candidate that never led has lost nothing: the next attempt renews."""
    elector = bed.candidate("a")
    bed.after_write = lambda: bed.after(10)
    assert not elector.attempt()
    bed.after_write = lambda: None

    assert not elector.lost
    assert elector.attempt()
    assert bed.lease.spec.acquire_time == at(0)


@pytest.mark.parametrize("after", [False, True], ids=["request lost", "answer lost"])
def test_one_lost_renewal_changes_nothing(bed: Bed, after: bool) -> None:
    """If the server carried it out, the lease is read again and renewed."""
    elector = bed.candidate("a")
    elector.attempt()
    bed.after(2)
    setattr(bed, "after_write" if after else "before_write", fail)
    assert not elector.attempt()
    assert elector.is_leader()
    assert elector.problem == "connection reset"
    bed.before_write = bed.after_write = lambda: None
    bed.after(2)

    assert elector.attempt()
    assert elector.problem == ""
    assert bed.lease.spec.renew_time == at(4)
    bed.after(9)
    assert elector.is_leader()


def test_a_candidate_whose_answer_was_lost_finds_itself_in_the_lease(bed: Bed) -> None:
    """A candidate whose write took effect need not wait for that lease to expire."""
    elector = bed.candidate("a")
    bed.after_write = fail
    assert not elector.attempt()
    assert not elector.is_leader()
    bed.after_write = lambda: None

    assert elector.attempt()
    assert bed.lease.spec.lease_transitions == 0


@pytest.mark.parametrize("exists", [False, True])
def test_of_two_candidates_the_faster_one_leads(bed: Bed, exists: bool) -> None:
    """The other one's write is refused, which is no problem but how an election goes."""
    slow, fast = bed.candidate("slow"), bed.candidate("fast")
    if exists:
        bed.candidate("old").attempt()
        slow.attempt()
        fast.attempt()
        bed.after(15)

    def overtake() -> None:
        bed.before_write = lambda: None
        assert fast.attempt()

    bed.before_write = overtake
    assert not slow.attempt()
    assert slow.problem == ""
    assert fast.is_leader()
    assert not slow.attempt()
    assert slow.leader == "fast"


def test_released_lease_is_acquired_immediately(bed: Bed) -> None:
    """The lease has no holder, and the elector that released it did not lose it."""
    leader, follower = bed.candidate("a"), bed.candidate("b")
    leader.attempt()
    follower.attempt()
    bed.after(1)
    leader.release()

    assert bed.lease.spec == LeaseSpec(
        holder_identity="",
        lease_duration_seconds=1,
        acquire_time=at(1),
        renew_time=at(1),
        lease_transitions=0,
    )
    assert not leader.is_leader()
    assert not leader.lost
    assert not leader.attempt()
    assert follower.attempt()
    assert bed.lease.spec.lease_transitions == 1


def test_release_is_over_before_the_lease_is_given_up(bed: Bed) -> None:
    """No process may act while the request is in flight, nor after it failed."""
    elector = bed.candidate("a")
    elector.attempt()
    led: list[bool] = []
    bed.before_write = lambda: led.append(elector.is_leader())
    bed.after_write = fail
    elector.release()

    assert led == [False]
    assert elector.problem == "connection reset"
    assert not elector.is_leader()


def test_follower_does_not_release_the_lease(bed: Bed) -> None:
    """Only the holder may end a lease early."""
    bed.candidate("a").attempt()
    elector = bed.candidate("b")
    elector.attempt()
    elector.release()

    assert bed.lease.spec.holder_identity == "a"


def test_release_does_not_revoke_a_loss(bed: Bed) -> None:
    """The process exits with a failure; giving up what is left helps the next leader."""
    elector = bed.candidate("a")
    elector.attempt()
    bed.after(11)
    elector.release()

    assert elector.lost
    assert bed.lease.spec.holder_identity == ""


def test_lease_taken_by_hand_is_lost_immediately(bed: Bed) -> None:
    """The holder named in the lease takes itself for the leader."""
    elector = bed.candidate("a")
    elector.attempt()
    bed.update(replace(bed.lease, spec=replace(bed.lease.spec, holder_identity="b")))

    assert not elector.attempt()
    assert elector.lost
    assert elector.leader == "b"


def test_a_deleted_lease_is_made_again_by_its_leader(bed: Bed) -> None:
    """Candidates that have read the lease wait as if it still existed."""
    leader, follower = bed.candidate("a"), bed.candidate("b")
    leader.attempt()
    follower.attempt()
    bed.delete(Lease, "koord-scheduler", "kube-system")

    assert not follower.attempt()
    assert leader.attempt()
    assert bed.lease.spec.holder_identity == "a"
    assert bed.lease.spec.lease_transitions == 0


def test_missing_namespace_is_named_and_retried() -> None:
    """The text names the namespace; once it exists, the next attempt succeeds."""
    bed = Bed(strict_namespaces=True)
    elector = bed.candidate("a")

    assert not elector.attempt()
    assert elector.problem == (
        "namespaces \"kube-system\" not found; needed are the namespace 'kube-system' and "
        "permission to get, create and update leases.coordination.k8s.io in it"
    )
    bed.create(Namespace(metadata=ObjectMeta(name="kube-system")))
    assert elector.attempt()
    assert elector.problem == ""


def test_a_missing_permission_is_named(bed: Bed) -> None:
    """The text has the API server's message and the permissions that are required."""

    def forbid() -> None:
        raise InvalidError('leases "koord-scheduler" is forbidden: User "koord" cannot create')

    bed.before_write = forbid
    elector = bed.candidate("a")

    assert not elector.attempt()
    assert 'User "koord" cannot create; needed are the namespace' in elector.problem


def test_a_leader_renews_every_retry_period(bed: Bed) -> None:
    """Counted from the start of the attempt, also of one that fails."""
    elector = bed.candidate("a")
    elector.attempt()
    assert elector.next_attempt_s == START_S + 2
    bed.before_write = fail
    bed.after(2)
    elector.attempt()
    assert elector.next_attempt_s == START_S + 4


def test_followers_read_the_lease_four_times_per_retry_period(bed: Bed) -> None:
    """With a jitter of up to 1.2, so that they don't all come together."""
    bed.candidate("a").attempt()
    elector = bed.candidate("b")
    delays = set()
    for _ in range(50):
        elector.attempt()
        delays.add(elector.next_attempt_s - bed.clock.now_s())

    assert len(delays) > 40
    assert all(0.5 <= delay <= 0.6 for delay in delays)


def test_the_end_of_a_lease_is_not_slept_through(bed: Bed) -> None:
    """A waiting replica wakes up at the time at which the lease expires."""
    bed.candidate("a").attempt()
    elector = bed.candidate("b")
    elector.attempt()
    bed.after(14.7)
    elector.attempt()

    assert elector.next_attempt_s == START_S + 15


def test_a_successor_in_the_same_process_waits_only_until_the_lost_lease_expires(bed: Bed) -> None:
    """The successor knows when the lost lease was renewed last, so it skips a full duration."""
    lost, successor = bed.candidate("a"), bed.candidate("b")
    lost.attempt()
    bed.after(10)
    assert lost.lost
    successor.inherit(lost)

    bed.after(4.9)
    assert not successor.attempt()
    bed.after(0.1)
    assert successor.attempt()


def test_a_successor_waits_for_a_lease_that_was_renewed_meanwhile(bed: Bed) -> None:
    """The answer to the last renewal was lost, or another process leads."""
    lost, successor = bed.candidate("a"), bed.candidate("b")
    lost.attempt()
    bed.after(2)
    bed.after_write = fail
    lost.attempt()
    bed.after_write = lambda: None
    bed.after(13)
    assert lost.lost
    successor.inherit(lost)

    assert not successor.attempt()
    bed.after(14.9)
    assert not successor.attempt()
    bed.after(0.1)
    assert successor.attempt()


def test_a_leader_that_cannot_renew_becomes_overdue(bed: Bed) -> None:
    """Counted from the end of its lease; others are never overdue."""
    leader, follower = bed.candidate("a"), bed.candidate("b")
    leader.attempt()
    follower.attempt()
    bed.after(40)

    assert leader.overdue_s() == 25
    assert follower.overdue_s() == 0
    leader.release()
    assert leader.overdue_s() == 0


def test_events_record_the_begin_and_end_of_a_term(bed: Bed) -> None:
    """The events are about the lease; a renewal has none."""
    elector = bed.candidate("a")
    for _ in range(3):
        elector.attempt()
        bed.after(1)
    (event,) = bed.list(Event).items

    assert (event.type, event.reason, event.note) == ("Normal", "LeaderElection", "a became leader")
    assert event.metadata.namespace == "kube-system"
    assert event.regarding.kind == "Lease"
    assert event.regarding.uid == bed.lease.metadata.uid
    elector.release()
    elector.release()
    assert bed.events() == ["a became leader", "a stopped leading"]


@pytest.mark.parametrize(
    "times", [{"lease_duration_s": 10}, {"retry_period_s": 8.4}, {"retry_period_s": 0}]
)
def test_times_that_could_make_two_leaders_are_refused(bed: Bed, times: dict[str, float]) -> None:
    """A configuration is checked before, so this is a mistake of ours."""
    with pytest.raises(BugError, match="must decrease"):
        bed.candidate("a", **times)
