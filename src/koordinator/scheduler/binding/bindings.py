"""Binding cycles of pods: permits, preparation, the bind, and the way back after a failure.

A pod whose binding cycle fails loses its place and is requeued.  ``validate_waiting`` compares
queue, state and bindings; tests and the fuzzer call it, the scheduler does not.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from koordinator.api.codec import subject_of
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import (
    BugError,
    ClusterError,
    ConflictError,
    Fault,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
)
from koordinator.scheduler.binding.binder import Assumed, Binder, move_all
from koordinator.scheduler.binding.life import LifeEvent, LifeState
from koordinator.scheduler.contract import Action, AllocationResult, ClusterEvent, Profile
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.isolation import PluginIsolation
from koordinator.scheduler.queue import Nominator, QueuedPod, QueueState, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState, PlacedPod

#: Errors after which a bind has certainly not happened; after others its outcome is unknown.
_NOT_BOUND = (NotFoundError, ConflictError, InvalidError, TooManyRequestsError)


class BindingObserver(Protocol):
    """Observer of the binding cycles.

    Rule R3: ``loop``, which implements it, is above ``binding``.
    """

    def on_permit_wait_ended(self, result: str, since_s: float) -> None:
        """Record the end of a wait for a permit."""

    def on_preparation_ended(self, assumed: Assumed, result: str) -> None:
        """Record the end of a wait for devices: success, failure or timeout."""

    def on_permit_refused(self, assumed: Assumed, plugin: str, refusal: str) -> None:
        """Record that a permit plugin refused a pod; its place has been given back."""

    def on_bind_failed(self, queued: QueuedPod, message: str) -> None:
        """Record that a bind failed; the place has been given back."""

    def on_released(self, assumed: Assumed) -> None:
        """Record that a pod lost its place; called before the pod is requeued."""

    def on_bound(self, bound: Sequence[Assumed]) -> None:
        """Record pods that the API server has bound."""

    @property
    def has_own_binds(self) -> bool:
        """Whether ``bind_by_feature`` may return True for some pod."""
        ...

    def bind_by_feature(self, assumed: Assumed) -> bool:
        """Bind the pod by a feature; return whether one has its own bind for it."""


class Bindings:
    """Owner of every pod that has a place and is not bound yet.

    Source: kubernetes pkg/scheduler/schedule_one.go ``bindingCycle``.
    """

    def __init__(
        self,
        clock: Clock,
        state: ClusterState,
        binder: Binder,
        *,
        queue: SchedulingQueue,
        cycles: Mapping[str, SchedulingCycle],
        isolation: PluginIsolation,
        observer: BindingObserver,
    ) -> None:
        self._clock, self._state, self._binder, self._queue = clock, state, binder, queue
        self._cycles, self._isolation, self._observer = cycles, isolation, observer
        #: pods with all permits whose bind has not begun, in order; a withdrawn one is UNDONE
        self.permitted: list[Assumed] = []
        self.waiting: dict[str, Assumed] = {}  # pods that wait for a permit, by key
        self.preparing: dict[str, Assumed] = {}  # pods without ready volumes or devices, by key
        self._beginning: dict[
            str, Assumed
        ] = {}  # pods of the batch that ``start_binds`` sends, by key
        self._has_post_bind = any(cycle.profile.post_bind for cycle in cycles.values())
        #: whether the outcome of a bind is unknown, so that the cluster must be listed again
        self.has_unknown_outcome = False

    @property
    def assumed(self) -> int:
        """The number of pods that have a place and are not bound."""
        waiting = len(self.waiting) + len(self.preparing) + len(self.permitted)
        return self._binder.in_flight + waiting

    def deadlines(self) -> list[float]:
        """Return the times at which waits for permits and preparation time out."""
        return [a.deadline_s for a in (*self.waiting.values(), *self.preparing.values())]

    # -- permits -----------------------------------------------------------------------------

    def permit(self, assumed: Assumed) -> None:
        """Run the Permit plugins: the pod is bound, waits, or is refused."""
        wait_s = 0.0
        profile = assumed.profile or self._applicable(assumed)
        for active in profile.permit:
            permit = active.plugin.permit(assumed.queued.pod, assumed.node)
            if permit.annotations:
                more = AllocationResult(annotations=permit.annotations)
                assumed.allocation = assumed.allocation.joined(more)
            if permit.refusal is not None:
                self._refuse(assumed, active.name, permit.refusal.reason)
                return
            wait_s = max(wait_s, permit.wait_s)
        if wait_s > 0:
            assumed.move(LifeEvent.WAIT)
            self._begin_wait(assumed, wait_s)
            self.waiting[assumed.queued.key] = assumed
        else:
            if assumed.deadline_s:
                self._end_wait(assumed, "allowed")
            assumed.move(LifeEvent.ALLOW)
            self.permitted.append(assumed)

    def permit_all(self, placed: Sequence[Assumed]) -> None:
        """Bind pods that have all permits."""
        move_all(placed, LifeEvent.ALLOW)
        self.permitted += placed

    def decide_waiting(self) -> None:
        """Run the Permit plugins for waiting pods again; fail those whose wait has timed out."""
        if not self.waiting:
            return
        now_s = self._clock.now_s()
        for assumed in _taken(self.waiting):
            if now_s >= assumed.deadline_s:
                self._binder.forget(assumed)
                self._end_wait(assumed, "timeout")
                self._fail(assumed, "timed out waiting for its permit")
            else:
                self._try_step(assumed, self._permitted_now)

    def _permitted_now(self, assumed: Assumed) -> bool:
        self.permit(assumed)
        return True

    def _try_step(self, assumed: Assumed, step: Callable[[Assumed], bool]) -> bool:
        """Run one step of a binding cycle; if it raises, this pod alone loses its place."""
        try:
            return step(assumed)
        except Exception as error:  # noqa: BLE001 -- reported
            self._undo_after_error(assumed, error)
            return False

    def _undo_after_error(self, assumed: Assumed, error: Exception) -> None:
        """Release the place of a pod whose step raised, unless it is bound or undone already."""
        if isinstance(error, ClusterError):
            self.has_unknown_outcome |= not isinstance(error, _NOT_BOUND)
            self._undo(assumed, str(error))
            return
        fault: Fault | None = None
        try:
            fault = self._isolation.fault("bind", error, subject_of(assumed.queued.pod))
        finally:
            self._undo(assumed, fault.problem if fault is not None else str(error))
        self._isolation.report(fault)

    def _undo(self, assumed: Assumed, problem: str) -> None:
        if assumed.state in (LifeState.BOUND, LifeState.UNDONE):
            return
        self._take_out(assumed.queued.key)
        self.has_unknown_outcome |= assumed.state is LifeState.BINDING
        self._binder.forget(assumed)
        self._fail(assumed, f"binding failed: {problem}")

    def _refuse(self, assumed: Assumed, plugin: str, refusal: str) -> None:
        has_waited = bool(assumed.deadline_s)
        self._binder.forget(assumed)
        self._observer.on_released(assumed)
        self._end_wait(assumed, "rejected")
        self._observer.on_permit_refused(assumed, plugin, refusal)
        if has_waited:  # otherwise no pod was rejected for the place
            self._requeue_others(assumed)

    def _begin_wait(self, assumed: Assumed, wait_s: float) -> None:
        if not assumed.deadline_s:
            assumed.waits_since_s = self._clock.now_s()
            assumed.deadline_s = assumed.waits_since_s + wait_s

    def _end_wait(self, assumed: Assumed, result: str) -> None:
        if assumed.deadline_s:
            self._observer.on_permit_wait_ended(result, assumed.waits_since_s)
        assumed.deadline_s = 0.0

    # -- binding -----------------------------------------------------------------------------

    def exchange(self) -> None:
        """Send the binds of decided pods, and process those that have ended."""
        self.start_binds()
        self.finish_binds()

    def resume(self) -> None:
        """Retry the pods that wait for permits, or for volumes and devices."""
        self.decide_waiting()
        self.check_preparing()

    def start_binds(self) -> None:
        """Send the binds of decided pods, except those whose volumes or devices are not ready."""
        if not self.permitted:
            return
        batch, self.permitted = self.permitted, []
        unprepared = [
            assumed  # a pod of a batch has no transaction: no plugin prepares anything
            for assumed in batch
            if assumed.transaction is not None and self._needs_preparation(assumed)
        ]
        if unprepared:  # one that fails may take other members of its gang from the batch
            self._beginning = {assumed.queued.key: assumed for assumed in batch}
            for assumed in unprepared:
                if assumed.queued.key in self._beginning:
                    self._try_step(assumed, self._is_prepared)
            self._beginning = {}
        self._bind([assumed for assumed in batch if assumed.state is LifeState.PERMITTED])

    def check_preparing(self) -> None:
        """Bind pods whose volumes and devices are ready; fail those whose wait has timed out."""
        if not self.preparing:
            return
        now_s = self._clock.now_s()
        for assumed in _taken(self.preparing):
            if now_s >= assumed.deadline_s:
                self._observer.on_preparation_ended(assumed, "timeout")
                self._binder.forget(assumed)
                self._fail(assumed, "binding failed: timed out waiting for its volumes or devices")
            elif self._try_step(assumed, self._is_ready):
                self._bind([assumed])

    def finish_binds(self, *, wait: bool = False) -> None:
        """Process the binds that have ended; ``wait`` for all that are in flight.

        After a bind with an unknown outcome (``has_unknown_outcome``) nothing may be decided until
        the watch shows it.
        """
        bound = []
        for assumed, error in self._binder.ended(wait=wait):
            if error is None:
                bound.append(assumed)
                continue
            if not isinstance(error, ClusterError):
                self._isolation.note("bind", error, subject_of(assumed.queued.pod))
            if assumed.state is LifeState.BOUND:
                bound.append(assumed)
            else:
                self._fail(assumed, f"binding failed: {error}")
                self.has_unknown_outcome |= not isinstance(error, _NOT_BOUND)
        if not bound:
            return
        self._leave_queue([assumed.queued for assumed in bound])
        self._observer.on_bound(bound)
        for assumed in bound if self._has_post_bind else ():
            for active in self._cycle_of(assumed).profile.post_bind:
                with self._isolation.barrier("post_bind", assumed.queued.pod):
                    active.plugin.post_bind(assumed.queued.pod, assumed.node)
        try:
            for assumed in bound if self._queue.has_listeners else ():
                self._publish(ClusterEvent("AssignedPod", Action.ADD, None, assumed.queued.pod))
        except Exception as error:  # noqa: BLE001 -- reported
            self._isolation.note("bind", error)

    def _leave_queue(self, pods: Sequence[QueuedPod]) -> None:
        try:
            self._queue.done_all(pods)
        except Exception as error:  # noqa: BLE001 -- reported
            self._isolation.note("bind", error)
            for queued in pods:
                self._queue.remove(queued.key)

    def _bind(self, ready: Sequence[Assumed]) -> None:
        """Begin to bind pods, by features with a bind of their own or by the cluster."""
        pods = ready
        if self._observer.has_own_binds:
            pods = [assumed for assumed in ready if self._try_step(assumed, self._is_for_cluster)]
        if pods:
            self._send(pods)

    def _is_for_cluster(self, assumed: Assumed) -> bool:
        return not self._observer.bind_by_feature(assumed)

    def _send(self, pods: Sequence[Assumed]) -> None:
        try:
            self._binder.begin(pods)
        except Exception as error:  # noqa: BLE001 -- reported
            unsent = [assumed for assumed in pods if assumed.state is not LifeState.BINDING]
            if len(pods) == 1 or len(unsent) < len(pods):
                for assumed in pods:
                    self._undo_after_error(assumed, error)
            else:  # one pod of the batch raises: send each alone, so that only that one fails
                for assumed in unsent:
                    self._send([assumed])

    def _needs_preparation(self, assumed: Assumed) -> bool:
        allocation = assumed.allocation
        if allocation.objects or allocation.changes or allocation.node_lock:
            return True
        if assumed.names_other_claim:
            return True
        return bool(self._applicable(assumed).pre_bind)

    def _is_prepared(self, assumed: Assumed) -> bool:
        error = self._binder.prepare(assumed)
        if error is not None:
            self._fail(assumed, f"binding failed: {error}")
            self.has_unknown_outcome |= not isinstance(error, _NOT_BOUND)
            return False
        return self._is_ready(assumed)

    def _is_ready(self, assumed: Assumed) -> bool:
        """Run the PreBind plugins; a pod that must wait is retried with every step of the loop."""
        wait_s = 0.0
        for active in self._applicable(assumed).pre_bind:
            answer = active.plugin.pre_bind(self._state.objects, assumed.queued.pod, assumed.node)
            assumed.drivers = answer.drivers or assumed.drivers
            if answer.refusal is not None:
                self._observer.on_preparation_ended(assumed, "failure")
                self._binder.forget(assumed)
                self._fail(assumed, f"binding failed: {answer.refusal.reason}")
                return False
            wait_s = max(wait_s, answer.wait_s)
        if not wait_s:
            self._observer.on_preparation_ended(assumed, "success")
        if wait_s > 0:
            assumed.move(LifeEvent.PREPARE)
            self._begin_wait(assumed, wait_s)
            self.preparing[assumed.queued.key] = assumed
        return wait_s == 0

    # -- the way back ------------------------------------------------------------------------

    def is_assumed(self, key: str) -> bool:
        """Return whether a pod has its place and is not bound yet."""
        return self.is_before_bind(key) or self._binder.is_binding(key)

    def is_before_bind(self, key: str) -> bool:
        """Return whether a pod has its place and its binding has not begun."""
        if key in self.waiting or key in self.preparing or key in self._beginning:
            return True
        return bool(self.permitted) and any(one.queued.key == key for one in self.permitted)

    def is_waiting(self, key: str) -> bool:
        """Return whether a pod has its place and waits for its permit."""
        return key in self.waiting

    def withdraw(self, key: str) -> Assumed | None:
        """Release the place of a pod whose binding has not begun; None if there is no such pod."""
        assumed = self._take_out(key)
        if assumed is not None:
            self._binder.forget(assumed)
        return assumed

    def _take_out(self, key: str) -> Assumed | None:
        for attempts in (self.waiting, self.preparing, self._beginning):
            if key in attempts:
                return attempts.pop(key)
        permitted = next((a for a in self.permitted if a.queued.key == key), None)
        if permitted is not None:
            self.permitted.remove(permitted)
        return permitted

    def forget(self, key: str, *, ended: bool) -> bool:
        """Release the place of a pod that ended or was bound elsewhere; return whether it had one.

        A pod that still exists was bound by another scheduler and may use objects created here.
        """
        assumed = self._take_out(key)
        if assumed is not None:
            self._binder.forget(assumed, keeps_created=not ended)
        if assumed is not None and ended:
            self._observer.on_released(assumed)
        return assumed is not None

    def fail(self, withdrawn: Assumed, message: str) -> None:
        """Requeue a withdrawn pod, and the pods that may fit into its place."""
        self._observer.on_bind_failed(withdrawn.queued, message)
        self._requeue_others(withdrawn)

    def preempt(self, key: str) -> bool:
        """Preempt a waiting pod before it is bound; return whether it was waiting."""
        waiting = self.waiting.pop(key, None) or self.preparing.pop(key, None)
        if waiting is None:
            return False
        self._binder.forget(waiting)
        self._fail(waiting, "preempted before it was bound")
        return True

    def abandon(self) -> list[QueuedPod]:
        """Release the places given in an attempt that raised, unless the binding has begun.

        Returns their pods.
        """
        lost = []
        for assumed in reversed(self._binder.assumed):
            if assumed.state in (LifeState.BINDING, LifeState.BOUND):
                continue
            lost.append(assumed.queued)
            with self._isolation.barrier("schedule", assumed.queued.pod):
                self._take_out(assumed.queued.key)
                self._binder.forget(assumed)
        return lost

    def wait_for_binds(self, victims: Iterable[PlacedPod]) -> None:
        """Wait for the binds of victims that are in flight."""
        self.start_binds()
        if any(self._binder.is_binding(victim.key) for victim in victims):
            self.finish_binds(wait=True)

    def validate(self) -> None:
        """Raise BugError if a pod is filed under another state than its own."""
        places = {
            LifeState.WAITING: self.waiting.values(),
            LifeState.PREPARING: self.preparing.values(),
            LifeState.PERMITTED: self.permitted,
            LifeState.BINDING: self._binder.in_progress(),
        }
        for state, pods in places.items():
            for assumed in pods:
                if assumed.state is not state:
                    raise BugError(f"{assumed.queued.key} is {assumed.state} among the {state}")
        if self._beginning:
            raise BugError(f"bindings are beginning between two steps: {[*self._beginning]}")

    def _fail(self, assumed: Assumed, message: str) -> None:
        """Requeue a pod whose place has been released."""
        self._observer.on_released(assumed)
        self.fail(assumed, message)

    def _requeue_others(self, assumed: Assumed) -> None:
        """Requeue the pods that may fit into a released place.

        Source: kubernetes pkg/scheduler/schedule_one.go ``handleBindingCycleError``.
        """
        self._publish(ClusterEvent("AssignedPod", Action.DELETE, assumed.queued.pod, None))

    def _publish(self, event: ClusterEvent) -> None:
        self._queue.on_event(event, self._clock.now_s())

    def _applicable(self, assumed: Assumed) -> Profile:
        if assumed.profile is None:
            assumed.profile = self._cycle_of(assumed).applicable_plugins(assumed.placed.pod_class)
        return assumed.profile

    def _cycle_of(self, assumed: Assumed) -> SchedulingCycle:
        return self._cycles[assumed.queued.pod.spec.scheduler_name]


def _taken(waiting: dict[str, Assumed]) -> Iterator[Assumed]:
    """Pop the pods that wait now, one by one; pods that are added meanwhile stay."""
    for key, assumed in list(waiting.items()):
        if waiting.get(key) is assumed:  # else it lost its place with another member of its gang
            del waiting[key]
            yield assumed


def validate_waiting(
    state: ClusterState,
    queue: SchedulingQueue,
    nominator: Nominator,
    schedulers: Container[str],
    bindings: Bindings,
) -> None:
    """Check that each pod is either queued, in its binding cycle, or bound.

    To be called between two steps of the loop.  Raises BugError.
    """
    for queued in queue.pods(*QueueState):
        is_assumed = bindings.is_assumed(queued.key)
        if state.has_place(queued.key) != is_assumed:
            expectation = "has a place" if not is_assumed else "has none"
            raise BugError(f"{queued.key} is {queued.state} and {expectation}")
        if is_assumed != (queued.state is QueueState.IN_FLIGHT):
            raise BugError(f"{queued.key} is {queued.state}, its binding under way: {is_assumed}")
        if queued.key not in state.unbound:
            raise BugError(f"{queued.key} is {queued.state} and not known as waiting")
    for key, (pod, _) in state.unbound.items():
        is_ours = pod.spec.scheduler_name in schedulers and not pod.metadata.deletion_timestamp
        if is_ours and queue.get(key) is None and not state.has_place(key):
            raise BugError(f"{key} has no node and is not in the queue")
    for node in nominator.nodes():
        for pod in nominator.on_node(node):
            if queue.get(pod.key) is None or state.has_place(pod.key):
                raise BugError(f"{pod.key} is nominated to {node} and does not wait")
