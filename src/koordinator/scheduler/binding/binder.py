"""Assumption of decided pods in the state and their bind in the cluster, with undo.

A pod counts on its node from the moment it is decided (it is *assumed*).  Many binds are in flight
at a time.  If the API server refuses one, the place is released and the pod requeued.  Watch events
take precedence over the response: a pod that the watch shows on its node is bound, and if its
events came first, there is no place to release.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import repeat

from msgspec import Struct

from koordinator.api.annotations.codec import annotation_path
from koordinator.api.codec import merge_patch, with_all_fields
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import NodeAllocatableResourceClaimStatus, Pod
from koordinator.cluster.port import Binding, Cluster, PendingBinds
from koordinator.domain.audit import AuditEntry
from koordinator.domain.devices.vendors import is_locked, lock_text, locked
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.errors import (
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    InputError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
)
from koordinator.scheduler.binding.life import (
    TRANSITIONS,
    LifeEvent,
    LifeState,
    create_object,
    illegal_move,
    write_change,
)
from koordinator.scheduler.contract import NOTHING, AllocationResult, Profile
from koordinator.scheduler.cycle import NodeChoice, Scorecard
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import ClusterState, ObjectChange, PlacedPod, PodClass
from koordinator.scheduler.transaction import Transaction

NANOS = 10**9
_CONFIRMED = TRANSITIONS[LifeEvent.CONFIRM]

_RESOLVE_AGAIN_S = 10.0  # between reads after an unknown write: a slow server delays every bind
#: Errors with which the API server states that it has not written anything.
_ANSWERS = (NotFoundError, ConflictError, AlreadyExistsError, InvalidError, TooManyRequestsError)


class AttemptRecord(Struct, eq=False):
    """Attempt to decide some pods together, for metrics and the audit."""

    pods: int
    began_s: float  # by the stopwatch
    took_s: float = 0.0
    spent_us: dict[str, int] = {}  # microseconds by extension point, once it has ended
    entry: AuditEntry | None = None  # in the audit trail


class Assumed(Struct, eq=False):  # a struct: one is made per pod
    """A pod that has a place in the state and is not known to be bound."""

    queued: QueuedPod
    node: str
    allocation: AllocationResult
    placed: PlacedPod
    state: LifeState = LifeState.ASSUMED
    profile: Profile | None = None  # of the plugins that apply; None: of a batch, none permits it
    attempt: AttemptRecord | None = None  # in which it was decided
    scorecard: Scorecard | None = None
    transaction: Transaction | None = None  # None: the place is all there is to undo
    created: tuple[tuple[ObjectChange, str], ...] = ()  # undo and uid of each created object
    waits_since_s: float = 0.0  # for its permit or its volumes
    deadline_s: float = 0.0  # of that wait; 0: it doesn't wait
    states_amounts: bool = False  # the pod's status states amounts of claims for its node
    drivers: tuple[str, ...] = ()  # of devices that must report binding conditions, one for each
    sent_s: float = 0.0  # when its bind was sent; 0: not yet

    @property
    def names_other_claim(self) -> bool:
        """Whether the pod's status has to name another claim for extended resources, or none."""
        named = self.queued.pod.status.extended_resource_claim_status
        return named != self.allocation.device_claim

    @property
    def has_other_amounts(self) -> bool:
        """Whether the pod's status has to state other amounts of claims, or none."""
        stated = self.queued.pod.status.node_allocatable_resource_claim_statuses
        return stated != self.allocation.pod_allocation.claimed

    def move(self, event: LifeEvent) -> None:
        """Apply an event.  Raises BugError if the pod's state does not allow it."""
        state = TRANSITIONS[event].get(self.state)
        if state is None:
            waits = f"waits since {self.waits_since_s} until {self.deadline_s}"
            raise illegal_move(
                self.state, event, f"{self.queued.key} on {self.node}, sent {self.sent_s}, {waits}"
            )
        self.state = state


def move_all(batch: Iterable[Assumed], event: LifeEvent) -> None:
    """Apply an event to many pods, without a call for each.  Raises BugError as ``move``."""
    following = TRANSITIONS[event]
    for assumed in batch:
        state = following.get(assumed.state)
        if state is None:
            assumed.move(event)
        else:
            assumed.state = state


#: A pod whose binding has ended, and why it failed; one that is bound may have an error, too,
#: which is no ClusterError.
Ended = tuple[Assumed, Exception | None]


class Binder:
    """Assumes and binds."""

    def __init__(self, cluster: Cluster, state: ClusterState, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._state = state
        self._under_way: list[tuple[PendingBinds, dict[int, Assumed]]] = []
        self.in_flight = 0  # number of bindings under way
        self._answered: list[tuple[Assumed, ClusterError | None]] = []  # not settled yet
        self.ended_early: list[Ended] = []  # to be returned by ``ended``, beside those in flight
        self._attempt: AttemptRecord | None = None
        self._unknown_writes: list[ObjectChange] = []  # writes with an unknown outcome
        self._resolved_s = 0.0  # when they were last read
        self.creations: Counter[str] = Counter()  # of ResourceClaims, by result
        self.assumed: list[Assumed] = []  # in the attempt that began last

    def is_binding(self, key: str) -> bool:
        """Return whether a pod of that name is being bound."""
        return any(a.queued.key == key for _, batch in self._under_way for a in batch.values())

    def in_progress(self) -> list[Assumed]:
        """Return the pods that are being bound."""
        return [assumed for _, batch in self._under_way for assumed in batch.values()]

    def begin_attempt(self, attempt: AttemptRecord | None) -> None:
        """Set the attempt to which pods assumed from now on belong."""
        self._attempt = attempt
        self.assumed.clear()
        if self._unknown_writes and self._clock.now_s() >= self._resolved_s + _RESOLVE_AGAIN_S:
            self._resolve_unknown_binds()

    def assume(self, queued: QueuedPod, pod_class: PodClass, choice: NodeChoice) -> Assumed:
        """Put one pod on its node, with everything it holds there."""
        allocation = choice.allocation
        if (
            (allocation is NOTHING or allocation.is_on_node)
            and not choice.profile.pre_bind
            and queued.pod.status.extended_resource_claim_status is None
            and not queued.pod.status.node_allocatable_resource_claim_statuses
        ):  # as a pod of a batch: it needs no preparation, and its place is all there is to undo
            placed = self._state.place(
                queued.key, queued.pod, pod_class, choice.row, allocation.pod_allocation
            )
            assumed = Assumed(
                queued,
                choice.node,
                allocation,
                placed,
                profile=choice.profile,
                attempt=self._attempt,
            )
            self.assumed.append(assumed)
            return assumed
        transaction = Transaction(self._state)
        placed = transaction.assume(
            queued.key, queued.pod, pod_class, choice.row, choice.allocation
        )
        assumed = Assumed(
            queued,
            choice.node,
            choice.allocation,
            placed,
            profile=choice.profile,
            transaction=transaction,
        )
        self.assumed.append(assumed)
        assumed.attempt = self._attempt
        return assumed

    def assume_run(
        self,
        run: Sequence[QueuedPod],
        classes: Sequence[PodClass],
        rows: IntArray,
        results: Sequence[AllocationResult] = (),
    ) -> list[Assumed]:
        """Put a run of pods on the rows decided for them; ``results``: what each gets, if any."""
        names = self._state.nodes.names
        allocations = [result.pod_allocation for result in results]
        pods = [(one.key, one.pod) for one in run]
        placed = self._state.place_all(pods, classes, rows, allocations)
        attempt = self._attempt
        assumed = [
            Assumed(q, names[p.row], result, p, attempt=attempt)
            for q, p, result in zip(run, placed, results or repeat(NOTHING), strict=False)
        ]
        self.assumed += assumed
        return assumed

    def forget(self, assumed: Assumed, *, keeps_created: bool = False) -> None:
        """Undo everything that assuming and preparing the pod changed.

        With ``keeps_created``, objects that were created for the pod stay, since it may be using
        them.  The next attempt reuses an object that could not be deleted.
        """
        assumed.move(LifeEvent.UNDO)
        for undo, uid in () if keeps_created else assumed.created:
            with suppress(ClusterError):
                write_change(self._cluster, undo, uid)
        if assumed.states_amounts and not keeps_created:
            with suppress(ClusterError):
                self._state_amounts(assumed, ())
        if assumed.transaction is not None:
            assumed.transaction.rollback()
        else:
            self._state.give_back(assumed.placed)

    def prepare(self, assumed: Assumed) -> ClusterError | None:
        """Lock the node if that is due, and write the assumed versions of other objects.

        They are written as patches against the stored objects.  The responses count from then on,
        even if the pod fails later; a change without a response stays assumed until the object has
        been read again.
        """
        writing: ObjectChange | None = None
        try:
            if assumed.allocation.node_lock:
                self._lock(assumed.allocation.node_lock, assumed)
            for item in assumed.allocation.objects:
                self._state.objects.put(self._write(item))
            for change in assumed.allocation.changes:
                writing = change
                created = self._create(change)
                if created is not None and change.undo is not None:
                    assumed.created += ((change.undo, created.metadata.uid),)
                self._state.objects.put(write_change(self._cluster, change))
                self._state.objects.withdraw(change)  # stored now, even if the pod fails
            writing = None
            if assumed.names_other_claim:
                self._name_claim(assumed)
            if assumed.has_other_amounts:
                claimed = assumed.allocation.pod_allocation.claimed
                assumed.states_amounts = bool(claimed)
                self._state_amounts(assumed, claimed)
        except ClusterError as error:
            self.forget(assumed)
            if writing is not None and not isinstance(error, _ANSWERS):
                self._state.objects.assume(writing)
                self._unknown_writes.append(writing)
                self._resolve_unknown_binds()
            return error
        return None

    def _create(self, change: ObjectChange) -> KubeObject | None:
        """Create the object of a change, if any, and count the result."""
        try:
            created = create_object(self._cluster, change)
        except ClusterError:
            self.creations["failure"] += 1
            raise
        self.creations["success"] += created is not None
        return created

    def _name_claim(self, assumed: Assumed) -> None:
        """Write the claim of its extended resources into the pod's status, or remove it."""
        meta, claim = assumed.queued.pod.metadata, assumed.allocation.device_claim
        named = {"extendedResourceClaimStatus": None if claim is None else with_all_fields(claim)}
        patch = {"metadata": {"uid": meta.uid}, "status": named}
        self._cluster.patch(Pod, meta.name, meta.namespace, patch, "status")

    def _state_amounts(
        self, assumed: Assumed, claimed: Sequence[NodeAllocatableResourceClaimStatus]
    ) -> None:
        """Write the resources of the node that the pod has by its claims into its status."""
        meta = assumed.queued.pod.metadata
        stated = {"nodeAllocatableResourceClaimStatuses": [with_all_fields(one) for one in claimed]}
        patch = {"metadata": {"uid": meta.uid}, "status": stated}
        self._cluster.patch(Pod, meta.name, meta.namespace, patch, "status")

    def _resolve_unknown_binds(self) -> None:
        """Read the objects of writes with an unknown outcome; unreadable ones stay unknown."""
        self._resolved_s = self._clock.now_s()
        objects = self._state.objects
        for change in self._unknown_writes.copy():
            namespace, _, name = change.key.rpartition("/")
            known = objects.get(change.kind, change.key)
            try:
                stored = self._cluster.get(change.kind, name, namespace)
                if known is not None and known.metadata.uid in (stored.metadata.uid, ""):
                    objects.put(stored)
            except NotFoundError:
                pass  # an event reports it too
            except ClusterError:
                continue
            objects.withdraw(change)
            self._unknown_writes.remove(change)

    def begin(self, batch: Sequence[Assumed]) -> None:
        """Send binds; ``ended`` returns the outcomes."""
        now_s = self._clock.now_s()
        now_ns = int(now_s * NANOS)
        for assumed in batch:
            assumed.sent_s = now_s
            if assumed.allocation.stamps:
                assumed.allocation = _stamped(assumed.allocation, now_ns)
        bindings = [
            Binding(
                (meta := assumed.queued.pod.metadata).namespace,
                meta.name,
                assumed.node,
                meta.uid,
                assumed.allocation.annotations,
                assumed.allocation.labels,
            )
            for assumed in batch
        ]
        move_all(batch, LifeEvent.SEND)
        binds = self._cluster.bind(bindings)
        self._under_way.append((binds, dict(enumerate(batch))))
        self.in_flight += len(batch)

    def ended(self, *, wait: bool = False) -> list[Ended]:
        """Return the binds that have ended since the last call; failed ones have been undone.

        ``wait`` for all that are in flight.
        """
        if not (self._under_way or self.ended_early):
            return []
        for binds, batch in self._under_way:
            if wait:
                binds.results()
            finished = [(batch.pop(index), error) for index, error in binds.finished()]
            self._answered += finished
            self.in_flight -= len(finished)
        self._under_way = [(binds, batch) for binds, batch in self._under_way if batch]
        answered, self._answered = self._answered, []
        ended, self.ended_early = self.ended_early, []
        for assumed, error in answered:
            confirmed = _CONFIRMED.get(assumed.state)
            if error is None and assumed.transaction is None and confirmed is not None:
                assumed.state = confirmed  # of a batch: only its place was assumed
                ended.append((assumed, None))
                continue
            try:
                ended.append(self._end(assumed, error))
            except Exception as broken:  # noqa: BLE001 -- reported by the caller
                if assumed.state is LifeState.BINDING:
                    self._give_back(assumed)
                ended.append((assumed, broken))
        return ended

    def _give_back(self, assumed: Assumed) -> None:
        """Release the place, where undoing the rest has raised."""
        assumed.move(LifeEvent.UNDO)
        if self._state.pods.by_key.get(assumed.queued.key) is assumed.placed:
            self._state.displace(assumed.queued.key)

    def end_without_bind(self, assumed: Assumed, error: ClusterError | None) -> None:
        """End a pod that needs no bind: confirmed, or forgotten after an error."""
        assumed.move(LifeEvent.SEND)
        self.ended_early.append(self._end(assumed, error))

    def _end(self, assumed: Assumed, error: ClusterError | None) -> Ended:
        if error is not None and not self._is_seen_bound(assumed):
            self.forget(assumed, keeps_created=not isinstance(error, _ANSWERS))
            return assumed, error
        state = _CONFIRMED.get(assumed.state)
        if state is None:
            assumed.move(LifeEvent.CONFIRM)
        else:
            assumed.state = state
        if assumed.transaction is not None:
            assumed.transaction.commit()
        return assumed, None

    def _is_seen_bound(self, assumed: Assumed) -> bool:
        placed = self._state.pods.by_key.get(assumed.queued.key)
        if placed is None or placed.pod.spec.node_name != assumed.node:
            return False
        return placed.pod.metadata.uid == assumed.queued.pod.metadata.uid

    def _lock(self, key: str, assumed: Assumed) -> None:
        """Lock the node for the pod.  Raises ConflictError if it is locked for another one."""
        node, meta = self._cluster.get(Node, assumed.node), assumed.queued.pod.metadata
        now, text = to_datetime(self._clock.now_s()), node.metadata.annotations.get(key, "")
        try:
            if text and is_locked(text, now, partial(self._keeps_out, assumed)):
                raise ConflictError(locked(assumed.node))
        except InputError as error:
            raise ConflictError(str(error.within(path=annotation_path(key)))) from None
        change = {
            "resourceVersion": node.metadata.resource_version,
            "annotations": {key: lock_text(now, meta.namespace, meta.name)},
        }
        self._cluster.patch(Node, assumed.node, "", {"metadata": change})

    def _keeps_out(self, assumed: Assumed, namespace: str, name: str) -> bool:
        """Return whether a pod that a node waits for exists, and is not the one to be bound."""
        meta = assumed.queued.pod.metadata
        if (namespace, name) == (meta.namespace, meta.name):
            return False
        try:
            self._cluster.get(Pod, name, namespace)
        except NotFoundError:
            return False
        return True

    def _write(self, item: KubeObject) -> KubeObject:
        meta = item.metadata
        stored = self._cluster.get(type(item), meta.name, meta.namespace)
        patch = merge_patch(stored, item)
        return self._cluster.patch(type(item), meta.name, meta.namespace, patch)


def _stamped(allocation: AllocationResult, now_ns: int) -> AllocationResult:
    """Return the allocation with the annotations that state when the bind was sent."""
    annotations = dict(allocation.annotations)
    for stamp in allocation.stamps:
        annotations |= stamp(now_ns)
    return replace(allocation, annotations=annotations, stamps=())
