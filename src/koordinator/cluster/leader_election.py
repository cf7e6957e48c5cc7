"""Leader election: of several processes that could act, at most one may at any moment.

They agree on one Lease.  A candidate that finds it free or expired writes its identity into it, on
condition that it is unchanged since it was read, so that of two only one succeeds.  The leader
renews it.

Two never act at once: the leader acts only until ``renew_deadline_s`` after it *began* its last
successful renewal.  Another one takes the lease only when, by its own clock, a whole lease duration
has passed since it *had read* that renewal, and nothing has changed.  So clocks need not agree on
the time, and the times in the lease are for people only.  Assumptions:

- The fastest clock runs less than lease duration / renew deadline times as fast as the slowest
  (15 s / 10 s = 1.5), and clocks run on while their process or machine is stopped.
- A write that the leader begins just before its time is over is done by the server within lease
  duration - renew deadline (5 s), or never.  ``cluster.kubernetes.transport`` sees to that
  (``lateness_s``): connections are reset when the time is over; the kernel retransmits for less
  than half of it, for a process that is stopped, and the server works on a binding for less than
  half of it.
  This fails when the process is stopped for longer just between ``holds`` and sending, within
  milliseconds, or the whole machine while a write is in the kernel's buffers: then one write comes
  late, and only its own preconditions guard against it.
- No two processes have one identity, and the lease is neither deleted nor edited by hand.

Source: client-go tools/leaderelection/leaderelection.go, healthzadaptor.go and
resourcelock/leaselock.go.  Unlike there, the leader compares the clock before each write and needs
no loop to notice that its time is over.  A candidate watches the lease, reads it four times as
often, and again when it expires.  A deleted lease still counts for candidates that have seen it.
A duration that is no whole number of seconds is rounded up.
"""

import math
from typing import Final

import numpy as np
from msgspec.structs import replace

from koordinator.api.control_plane import Lease
from koordinator.api.core import MicroTime, ObjectReference
from koordinator.api.event import Event
from koordinator.api.kubescheduler.config import RETRY_JITTER
from koordinator.api.meta import ObjectMeta
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import UTC, Clock
from koordinator.foundation.errors import (
    AlreadyExistsError,
    BugError,
    ClusterError,
    ConflictError,
    InvalidError,
    NotFoundError,
)

LEADER_ELECTION = "LeaderElection"  # Lease: its holder has changed

#: Of the retry period, between two reads of a lease that another one holds.  The lease lasts from
#: the read of its last renewal on, so that a candidate that reads seldom takes it late.
_FOLLOWERS_SHARE: Final = 0.25


class LeaderElector:
    """One candidate of an election: waits for the lease, leads, and is done when that ends.

    ``attempt`` and ``release`` belong to the thread of the cluster; any thread may call the rest.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        rng: np.random.Generator,
        *,
        identity: str,
        namespace: str,
        name: str,
        lease_duration_s: float,
        renew_deadline_s: float,
        retry_period_s: float,
    ) -> None:
        if not lease_duration_s > renew_deadline_s > retry_period_s * RETRY_JITTER > 0:
            raise BugError(
                f"lease duration {lease_duration_s} s, renew deadline {renew_deadline_s} s and "
                f"{RETRY_JITTER} x retry period {retry_period_s} s must decrease, all above 0"
            )
        self._cluster = cluster
        self._clock = clock
        self.wall_clock: Clock = clock  # for the times in the lease, which only people read
        self._rng = rng
        self._identity = identity
        self._namespace, self._name = namespace, name
        # Rounded up: a fraction cut off could expire the lease before the fence.
        self._lease_duration_s = math.ceil(lease_duration_s)
        self._renew_deadline_s = renew_deadline_s
        self._retry_period_s = retry_period_s
        self._next_attempt_s = clock.now_s()
        self._seen: Lease | None = None  # as last read or written
        self._seen_since_s = 0.0  # since when its content is known and the same
        self._fence_s: float | None = None  # leading ends here; None before it has begun
        self._lost = False
        self._released = False
        self._problem = ""

    def inherit(self, predecessor: "LeaderElector") -> None:
        """Adopt the lease as seen by a candidate of this process that lost it.

        So the lost lease ends here when it ends for other candidates, and not a lease duration
        after it was read again.  ``predecessor`` must have ended, and the connections over which
        it allowed writes must be closed.
        """
        self._seen, self._seen_since_s = predecessor._seen, predecessor._seen_since_s  # noqa: SLF001 -- of this class

    @property
    def lease(self) -> str:
        """Namespace and name of the lease."""
        return f"{self._namespace}/{self._name}"

    @property
    def leader(self) -> str:
        """Identity of the leader when the lease was last read; empty if there is none."""
        return _holder(self._seen)

    @property
    def problem(self) -> str:
        """Error of the last request, with its remedy; empty if it succeeded."""
        return self._problem

    @property
    def next_attempt_s(self) -> float:
        """When ``attempt`` should be called next, by the clock."""
        return self._next_attempt_s

    @property
    def lost(self) -> bool:
        """Whether it led and, unasked, does no longer.  It never leads again."""
        self.is_leader()
        return self._lost

    def is_leader(self) -> bool:
        """Return whether this process may act now; to be called before every write."""
        now_s = self._clock.now_s()  # before the fence is read, which only moves forward
        if self._fence_s is None or self._lost or self._released:
            return False
        if now_s >= self._fence_s:
            self._lost = True  # for good, even if a renewal in flight succeeds
        return not self._lost

    def overdue_s(self) -> float:
        """Return the seconds since its own lease expired; at most 0 if it does not lead.

        A process that led and still lives long after this is above 0 is stuck.
        """
        if self._fence_s is None or self._released:
            return 0.0
        expires_s = self._fence_s - self._renew_deadline_s + self._lease_duration_s
        return self._clock.now_s() - expires_s

    def attempt(self) -> bool:
        """Try once to get the lease or to renew it; return whether this process may act now.

        Failures are not raised: see ``problem``.
        """
        started_s = self._clock.now_s()
        pause_s = self._retry_period_s
        if self._fence_s is None:
            pause_s *= _FOLLOWERS_SHARE * (1 + (RETRY_JITTER - 1) * self._rng.random())
        self._next_attempt_s = started_s + pause_s
        if self._released or self.lost:
            return False
        problem = ""
        try:
            return self._try_write(started_s) and self._lead(started_s)
        except (AlreadyExistsError, ConflictError):
            return False  # another one was faster, or this one, in a request whose answer was lost
        except ClusterError as error:
            problem = self._explain(error)
            return False
        finally:
            self._problem = problem

    def release(self) -> None:
        """Release the lease or the candidacy, so that others need not wait for its expiry.

        Whatever was done as a leader must have ended before.  Failures are not raised.
        """
        if self._released:
            return
        self.is_leader()  # a lease that is lost already is not released
        self._released = True
        try:
            lease = self._cluster.get(Lease, self._name, self._namespace)
            if _holder(lease) == self._identity:
                now = self._date()
                spec = replace(
                    lease.spec,
                    holder_identity="",
                    lease_duration_seconds=1,
                    acquire_time=now,
                    renew_time=now,
                )
                self._seen = self._cluster.update(replace(lease, spec=spec))
        except ClusterError as error:
            self._problem = self._explain(error)
        if self._fence_s is not None:
            self._report("stopped leading")

    def _try_write(self, started_s: float) -> bool:
        """Write this identity into the lease unless another one's has not run out."""
        if self._fence_s is not None and self._seen is not None:
            try:
                self._see(self._cluster.update(self._renewed(self._seen)))
            except (ConflictError, NotFoundError):
                pass  # an earlier renewal got through though its answer was lost; or worse: look
            else:
                return True
        try:
            current = self._cluster.get(Lease, self._name, self._namespace)
            self._see(current)
        except NotFoundError:
            current = None
        if self._has_other_leader(started_s):
            return False
        if current is not None:
            self._see(self._cluster.update(self._renewed(current)))
        else:
            meta = ObjectMeta(name=self._name, namespace=self._namespace)
            new = Lease(metadata=meta, spec=(self._seen or Lease()).spec)
            self._see(self._cluster.create(self._renewed(new)))
        return True

    def _has_other_leader(self, started_s: float) -> bool:
        if self.leader in ("", self._identity) or self._seen is None:
            return False
        if self._fence_s is not None:
            self._lost = True  # it ran out, or was taken by hand
            return True
        expires_s = self._seen_since_s + (self._seen.spec.lease_duration_seconds or 0)
        if started_s >= expires_s:
            return False
        self._next_attempt_s = min(self._next_attempt_s, expires_s)
        return True

    def _see(self, lease: Lease) -> None:
        # Compare the content, not the version: a changed annotation is no renewal.
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_since_s = self._clock.now_s()
        self._seen = lease

    def _renewed(self, lease: Lease) -> Lease:
        spec, now = lease.spec, self._date()
        kept = _holder(lease) == self._identity
        first = spec.holder_identity is None
        renewed = replace(
            spec,
            holder_identity=self._identity,
            lease_duration_seconds=self._lease_duration_s,
            acquire_time=spec.acquire_time if kept else now,
            renew_time=now,
            lease_transitions=(spec.lease_transitions or 0) + (not kept and not first),
        )
        return replace(lease, spec=renewed)

    def _lead(self, started_s: float) -> bool:
        """Move the fence, if it has not fallen while the answer was on its way."""
        fence_s = started_s + self._renew_deadline_s
        if self.lost or self._clock.now_s() >= fence_s:
            return False
        begins = self._fence_s is None
        self._fence_s = fence_s
        if begins:
            self._next_attempt_s = started_s + self._retry_period_s
            self._report("became leader")
        return self.is_leader()

    def _explain(self, error: ClusterError) -> str:
        if not isinstance(error, NotFoundError | InvalidError):
            return str(error)
        return (
            f"{error}; needed are the namespace {self._namespace!r} and permission to get, create "
            "and update leases.coordination.k8s.io in it"
        )

    def _report(self, change: str) -> None:
        """Write an event about the lease in the background."""
        now_s = self.wall_clock.now_s()
        meta = self._seen.metadata if self._seen is not None else ObjectMeta()
        event = Event(
            metadata=ObjectMeta(
                name=f"{self._name}.{int(now_s * 1e6):x}", namespace=self._namespace
            ),
            event_time=MicroTime.fromtimestamp(now_s, UTC),
            reporting_controller=self._name,
            reporting_instance=self._identity,
            action="LeaderElection",
            reason=LEADER_ELECTION,
            regarding=ObjectReference(
                api_version=Lease.API_VERSION,
                kind=Lease.KIND,
                namespace=self._namespace,
                name=self._name,
                uid=meta.uid,
                resource_version=meta.resource_version,
            ),
            note=f"{self._identity} {change}",
            type="Normal",
        )
        self._cluster.report([event])

    def _date(self) -> MicroTime:
        return MicroTime.fromtimestamp(self.wall_clock.now_s(), UTC)


def _holder(lease: Lease | None) -> str:
    return (lease.spec.holder_identity if lease is not None else None) or ""
