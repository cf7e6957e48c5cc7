"""Controller of Reservation objects: their status is written in place of a binding.

``bind`` and ``unschedulable`` write the outcome of scheduling.  ``step`` updates users and amounts
in the status, expires reservations and removes old ones. The rules are in
``scheduler.rules.reservations.lifecycle``. Source: koordinator pkg/scheduler/plugins/reservation,
``Bind``; controller.
"""

import logging
from heapq import heapify, heappop, heappush
from math import inf

from msgspec.structs import replace

from koordinator.api.annotations.reservation import (
    ALLOCATED,
    RESERVATION_NAME,
    ReservationAllocated,
)
from koordinator.api.codec import merge_patch, subject_of
from koordinator.api.kubescheduler import ReservationArgs
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation, ReservationStatus
from koordinator.cluster.port import Cluster
from koordinator.domain.reserve_pod import OVER, is_active, is_available
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import (
    ClusterError,
    ConflictError,
    InputError,
    InvalidError,
    NotFoundError,
)
from koordinator.scheduler.contract import AllocationResult
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.rules.reservations import lifecycle
from koordinator.scheduler.snapshot import ClusterState

WRITES_PER_STEP = 32  # so that pods don't wait for long
SPARE = 16  # entries of deleted reservations that are not worth a scan
RETRY_S = 5.0  # delay after a failed write

log = logging.getLogger(__name__)


class ReservationController:
    """Status writer of all reservations."""

    def __init__(
        self,
        cluster: Cluster,
        state: ClusterState,
        clock: Clock,
        args: ReservationArgs,
        *,
        cleans_users: bool = False,
        isolation: PluginIsolation,
    ) -> None:
        self._isolation = isolation
        self._cleans_users = cleans_users
        self._deleted: dict[str, None] = {}  # uids of deleted reservations whose users need cleanup
        self._cluster, self._state, self._clock, self._args = cluster, state, clock, args
        self._dirty: dict[str, None] = {}  # names in order of change
        self._due: list[tuple[float, str]] = []  # heap of (seconds since the epoch, name)
        self._due_s: dict[str, float] = {}  # by name; heap entries with another time are void
        self._next_collection_s: float | None = None

    # -- events --------------------------------------------------------------------------------

    def touch(self, name: str) -> None:
        """Mark a reservation whose object or users changed."""
        self._dirty[name] = None

    def forget(self, uid: str) -> None:
        """Handle a deleted reservation."""
        if self._cleans_users:
            self._deleted[uid] = None

    def follow(self) -> None:
        """Drop deleted reservations while another replica leads."""
        self._deleted.clear()
        if len(self._dirty) > SPARE:
            known = self._state.objects
            self._dirty = {n: None for n in self._dirty if known.get(Reservation, n) is not None}

    def touch_user(self, uid: str) -> None:
        """Mark the reservation that a pod uses or used."""
        hold = self._state.holds.by_uid.get(uid)
        if hold is not None and not hold.offer.is_pod:
            self.touch(hold.offer.name)

    def touch_node(self, node: str) -> None:
        """Mark the reservations on a deleted node."""
        for reservation in self._state.objects.all(Reservation):
            if reservation.status.node_name == node:
                self.touch(reservation.metadata.name)

    # -- outcomes ----------------------------------------------------------------------------

    def bind(self, pod: Pod, node: str, allocation: AllocationResult) -> ClusterError | None:
        """Write the node and the allocations of a reservation."""
        name = pod.metadata.annotations[RESERVATION_NAME]
        reservation = self._state.objects.get(Reservation, name)
        if reservation is None or reservation.metadata.uid != pod.metadata.uid:
            return NotFoundError(f"reservation {name} not found")
        if not is_active(reservation):
            return ConflictError("reservation is not active")
        try:
            if allocation.annotations or allocation.labels:
                reservation = self._annotate(reservation, allocation)
            for user in allocation.takes_over:
                self._hand_over(reservation, user)
            now = to_datetime(self._clock.now_s())
            self._write(reservation, lifecycle.available(reservation, node, now))
        except InputError as error:
            return InvalidError(str(error))
        except ClusterError as error:
            return error
        return None

    def unschedulable(self, pod: Pod, message: str) -> None:
        """Write why a reservation is pending; its next attempt retries a failed write."""
        reservation = self._state.objects.get(
            Reservation, pod.metadata.annotations[RESERVATION_NAME]
        )
        if reservation is None or reservation.metadata.uid != pod.metadata.uid:
            return
        now = to_datetime(self._clock.now_s())
        status = lifecycle.unschedulable(reservation, message, now)
        if status is not None:
            self._try_to_write(reservation, status)

    # -- periodic work -----------------------------------------------------------------------

    def step(self, now_s: float) -> bool:
        """Do the due work; return whether anything was written."""
        while (first := self._first_due()) is not None and first[0] <= now_s:
            del self._due_s[first[1]]
            self.touch(first[1])
        written = self._clean_users()
        for name in list(self._dirty)[:WRITES_PER_STEP]:
            del self._dirty[name]
            reservation = self._state.objects.get(Reservation, name)
            if reservation is not None:
                with self._isolation.barrier("reservation", subject_of(reservation)):
                    written |= self._reconcile(reservation, now_s)
            else:
                self._due_s.pop(name, None)
        return self._collect(now_s) or written

    def next_wakeup_s(self) -> float | None:
        """Return when work is due; None until the next event."""
        if self._dirty or self._deleted:
            return self._clock.now_s()
        first = self._first_due()
        times = [] if first is None else [first[0]]
        if self._next_collection_s is not None:
            times.append(self._next_collection_s)
        return min(times, default=None)

    def _reconcile(self, reservation: Reservation, now_s: float) -> bool:
        if reservation.status.phase in OVER:
            self._expect_collection(reservation, now_s)
            return False
        if not is_available(reservation):
            return False
        now, expires_s = to_datetime(now_s), lifecycle.expires_s(reservation)
        has_node = reservation.status.node_name in self._state.nodes.rows
        if not has_node or (expires_s is not None and now_s >= expires_s):
            return self._try_to_write(reservation, lifecycle.expired(reservation, now))
        if expires_s is not None:
            self._remind(expires_s, reservation.metadata.name)
        users, rules = self._users_of(reservation), self._state.classes.resize
        status = lifecycle.used(reservation, users, now, rules)
        return status is not None and self._try_to_write(reservation, status)

    def _users_of(self, reservation: Reservation) -> list[Pod]:
        """Return the users that are bound; assumed ones may still fail."""
        node, holds = reservation.status.node_name, self._state.holds
        hold = holds.by_uid.get(reservation.metadata.uid)
        return [
            user.pod
            for user in holds.users_of(reservation.metadata.uid)
            if user.pod.spec.node_name == node and (hold is None or holds.serves(user, hold.offer))
        ]

    def _remind(self, when_s: float, name: str) -> None:
        """Schedule a check of a reservation; the earliest time counts."""
        if self._due_s.get(name, inf) <= when_s:
            return
        self._due_s[name] = when_s
        if len(self._due) >= 2 * len(self._due_s) + SPARE:
            self._due = [(at_s, one) for one, at_s in self._due_s.items()]
            heapify(self._due)
        else:
            heappush(self._due, (when_s, name))

    def _first_due(self) -> tuple[float, str] | None:
        while self._due and self._due_s.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0] if self._due else None

    def _clean_users(self) -> bool:
        """Remove the annotation from users of deleted reservations."""
        deleted, self._deleted = self._deleted, {}
        users = [user for uid in deleted for user in self._state.holds.users_of(uid)]
        for user in users:
            meta = user.pod.metadata
            patch = {"metadata": {"uid": meta.uid, "annotations": {ALLOCATED.key: None}}}
            try:
                self._cluster.patch(Pod, meta.name, meta.namespace, patch)
            except ClusterError as error:
                log.warning("annotation not removed", extra={"pod": user.key, "error": error})
        return bool(users)

    # -- removal -----------------------------------------------------------------------------

    def _expect_collection(self, reservation: Reservation, now_s: float) -> None:
        if self._args.disable_garbage_collection or not lifecycle.is_collectable(reservation):
            return
        if self._next_collection_s is None:
            self._next_collection_s = now_s + self._args.gc_interval_seconds

    def _collect(self, now_s: float) -> bool:
        """Delete reservations that ended long enough ago, in the configured interval."""
        if self._next_collection_s is None or now_s < self._next_collection_s:
            return False
        self._next_collection_s = None
        deleted = False
        for reservation in list(self._state.objects.all(Reservation)):
            if not lifecycle.is_collectable(reservation):
                continue
            ended_s, node = lifecycle.ended_s(reservation), reservation.status.node_name
            is_old = ended_s is not None and now_s > ended_s + self._args.gc_duration_seconds
            if is_old or (node and node not in self._state.nodes.rows):
                deleted |= self._delete(reservation)
            else:
                self._next_collection_s = now_s + self._args.gc_interval_seconds
        return deleted

    def _delete(self, reservation: Reservation) -> bool:
        meta = reservation.metadata
        try:
            self._cluster.delete(Reservation, meta.name, uid=meta.uid)
        except (NotFoundError, ConflictError):
            return False  # already deleted, or replaced by another of that name
        except ClusterError as error:
            log.warning("reservation not deleted", extra={"reservation": meta.name, "error": error})
            self._next_collection_s = self._clock.now_s() + self._args.gc_interval_seconds
            return False
        return True

    def _hand_over(self, reservation: Reservation, user: Pod) -> None:
        """Annotate a running pod as user of the reservation."""
        used = ReservationAllocated(name=reservation.metadata.name, uid=reservation.metadata.uid)
        meta = user.metadata
        patch = {"metadata": {"uid": meta.uid, "annotations": ALLOCATED.entry(used)}}
        self._cluster.patch(Pod, meta.name, meta.namespace, patch)

    # -- writing -----------------------------------------------------------------------------

    def _annotate(self, reservation: Reservation, allocation: AllocationResult) -> Reservation:
        meta = reservation.metadata
        patch = {
            "metadata": {
                "uid": meta.uid,
                "annotations": dict(allocation.annotations),
                "labels": dict(allocation.labels),
            }
        }
        written = self._cluster.patch(Reservation, meta.name, "", patch)
        self._state.objects.put(written)
        return written

    def _write(self, reservation: Reservation, status: ReservationStatus) -> None:
        meta = reservation.metadata
        change = merge_patch(reservation, replace(reservation, status=status)).get("status", {})
        patch = {"metadata": {"uid": meta.uid}, "status": change}
        self._state.objects.put(self._cluster.patch(Reservation, meta.name, "", patch, "status"))

    def _try_to_write(self, reservation: Reservation, status: ReservationStatus) -> bool:
        """Write a status; retry failures later, unless the reservation was deleted."""
        name = reservation.metadata.name
        try:
            self._write(reservation, status)
        except (NotFoundError, ConflictError):
            return False
        except ClusterError as error:
            log.warning("reservation not written", extra={"reservation": name, "error": error})
            self._remind(self._clock.now_s() + RETRY_S, name)
            return False
        return True
