"""From a place to a binding: permits, what a pod needs on its node, the bind, and the way back."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from koordinator.api.codec import subject_of
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.domain.gangs import GangBook
from koordinator.domain.reservations.reserve_pod import is_reserve_pod, reservation_name
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
)
from koordinator.foundation.faults import Fault
from koordinator.scheduler.app.binding import Assumed, Binder
from koordinator.scheduler.app.isolation import Isolation
from koordinator.scheduler.app.journal import Journal
from koordinator.scheduler.app.reporter import Reporter
from koordinator.scheduler.app.reservations import ReservationKeeper
from koordinator.scheduler.contract import Action, ClusterEvent, Holding, Profile
from koordinator.scheduler.cycle import Cycle
from koordinator.scheduler.queue import QueuedPod, SchedulingQueue
from koordinator.scheduler.snapshot import ClusterState, PlacedPod

#: After these it is sure that a binding did not happen.
_NOT_BOUND = (NotFoundError, ConflictError, InvalidError, TooManyRequestsError)


@dataclass(frozen=True, slots=True)
class BindingDoings:
    """What the shell does when the way of a pod ends before its node."""

    refuse: Callable[[Assumed, str, str], None]  # it, the plugin, and why no permit came
    fail: Callable[[QueuedPod, str], None]
    reserved: Callable[[Pod, Reservation], None]  # the pod stood for what is available now
    ask_for_everything: Callable[[], None]  # nobody knows whether a binding happened


class BindingCycle:
    """Has every pod that holds a place and is not bound yet.

    Source: kubernetes pkg/scheduler/schedule_one.go ``bindingCycle``.
    """

    def __init__(
        self,
        clock: Clock,
        state: ClusterState,
        binder: Binder,
        reporter: Reporter,
        journal: Journal,
        *,
        queue: SchedulingQueue,
        cycles: Mapping[str, Cycle],
        keeper: ReservationKeeper | None,
        doings: BindingDoings,
        isolation: Isolation,
    ) -> None:
        self._isolation = isolation
        self._clock, self._state, self._binder = clock, state, binder
        self._reporter, self._journal = reporter, journal
        self._queue, self._cycles, self._keeper, self._doings = queue, cycles, keeper, doings
        self._to_bind: list[Assumed] = []
        self._waiting: dict[str, Assumed] = {}  # for their permit
        self._preparing: dict[str, Assumed] = {}  # what they need is being made ready
        self._beginning: dict[str, Assumed] = {}  # among those whose binding is just to begin

    @property
    def decided(self) -> int:
        """How many pods have all permits, their bindings not begun."""
        return len(self._to_bind)

    @property
    def assumed(self) -> int:
        """How many pods have a place and are not bound."""
        waiting = len(self._waiting) + len(self._preparing) + len(self._to_bind)
        return self._binder.in_flight + waiting

    def deadlines(self) -> list[float]:
        """Return when the patience with pods that wait ends."""
        return [a.deadline_s for a in (*self._waiting.values(), *self._preparing.values())]

    # -- permits -----------------------------------------------------------------------------

    def permit(self, assumed: Assumed) -> None:
        """Ask whether a pod may be bound: now, later or never."""
        wait_s = 0.0
        for active in self._concerned(assumed).permit:
            permit = active.plugin.permit(assumed.queued.pod, assumed.node)
            if permit.annotations:
                more = Holding(annotations=permit.annotations)
                assumed.holding = assumed.holding.joined(more)
            if permit.refusal:
                self._refuse(assumed, active.name, permit.refusal)
                return
            wait_s = max(wait_s, permit.wait_s)
        if wait_s > 0:
            self._begin_wait(assumed, wait_s)
            self._waiting[assumed.queued.key] = assumed
        else:
            self._end_wait(assumed, "allowed")
            self._to_bind.append(assumed)

    def let_go(self, placed: Sequence[Assumed]) -> None:
        """Bind pods that have all permits."""
        self._to_bind += placed

    def settle_waiting(self) -> None:
        """Ask again for those that wait for a permit, and give up those who waited too long."""
        now_s = self._clock.now_s()
        for assumed in _taken(self._waiting):
            if now_s >= assumed.deadline_s:
                self._binder.forget(assumed)
                self._end_wait(assumed, "timeout")
                self._fail(assumed, "timed out waiting for its permit")
            else:
                self._go_on(assumed, self._permitted)

    def _permitted(self, assumed: Assumed) -> bool:
        self.permit(assumed)
        return True

    def _go_on(self, assumed: Assumed, step: Callable[[Assumed], bool]) -> bool:
        """Make a step on the way of a pod; where that breaks, the pod alone loses its place."""
        try:
            return step(assumed)
        except Exception as error:  # noqa: BLE001 -- told
            self._break_off(assumed, error)
            return False

    def _break_off(self, assumed: Assumed, error: Exception) -> None:
        fault: Fault | None = None
        try:
            fault = self._isolation.fault("bind", error, subject_of(assumed.queued.pod))
        finally:
            self.withdraw(assumed.queued.key)
            self._binder.forget(assumed)
            problem = fault.problem if fault is not None else str(error)
            self._fail(assumed, f"binding failed: {problem}")
        self._isolation.tell(fault)

    def _refuse(self, assumed: Assumed, plugin: str, refusal: str) -> None:
        has_waited = bool(assumed.deadline_s)
        self._binder.forget(assumed)
        self._released(assumed)
        self._end_wait(assumed, "rejected")
        self._doings.refuse(assumed, plugin, refusal)
        if has_waited:  # else nobody has missed the place
            self._tell_given_back(assumed)

    def _begin_wait(self, assumed: Assumed, wait_s: float) -> None:
        if not assumed.deadline_s:
            assumed.waits_since_s = self._clock.now_s()
            assumed.deadline_s = assumed.waits_since_s + wait_s

    def _end_wait(self, assumed: Assumed, result: str) -> None:
        if assumed.deadline_s:
            self._journal.permitted(result, assumed.waits_since_s)
        assumed.deadline_s = 0.0

    # -- binding -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to bind what has been decided, but for pods whose volumes are not ready yet."""
        batch, self._to_bind = self._to_bind, []
        self._beginning = {assumed.queued.key: assumed for assumed in batch}
        ready = [a for a in batch if a.transaction is None or self._may_begin(a)]
        ready = [assumed for assumed in ready if assumed.queued.key in self._beginning]
        self._beginning = {}
        self._bind(ready)

    def settle_preparing(self) -> None:
        """Bind those that have what they need by now."""
        now_s = self._clock.now_s()
        for assumed in _taken(self._preparing):
            if now_s >= assumed.deadline_s:
                self._binder.forget(assumed)
                self._fail(assumed, "binding failed: timed out waiting for its volumes")
            elif self._go_on(assumed, self._is_ready):
                self._bind([assumed])

    def end(self, *, wait: bool = False) -> None:
        """Take note of bindings that have ended; ``wait`` for all that are under way.

        Nothing is decided after one of which nobody knows whether it happened, until it shows.
        """
        bound, is_unsure = [], False
        for assumed, error in self._binder.ended(wait=wait):
            if error is not None:
                self._fail(assumed, f"binding failed: {error}")
                is_unsure |= not isinstance(error, _NOT_BOUND)
            else:
                bound.append(assumed)
                self._queue.done(assumed.queued)
        if is_unsure:
            self._doings.ask_for_everything()
        self._journal.bound(bound)
        for assumed in bound:
            for active in self._cycle_of(assumed).profile.post_bind:
                with self._isolation.barrier("post_bind", assumed.queued.pod):
                    active.plugin.post_bind(assumed.queued.pod, assumed.node)
        self._announce(bound)

    def _bind(self, ready: Sequence[Assumed]) -> None:
        """Bind pods; write the status of what stands for a reservation."""
        pods = []
        for assumed in ready:
            pod = assumed.queued.pod
            if self._keeper is None or not is_reserve_pod(pod.metadata):
                pods.append(assumed)
                continue
            error = self._keeper.bind(pod, assumed.node, assumed.holding)
            self._binder.settle(assumed, error)
            name = reservation_name(pod.metadata)
            available = self._state.objects.get(Reservation, name)
            if error is None and available is not None:  # to be used at once, before news of it
                self._doings.reserved(pod, available)
        if pods:
            self._binder.begin(pods)

    def _may_begin(self, assumed: Assumed) -> bool:
        if assumed.queued.key not in self._beginning:
            return False
        try:
            return self._is_prepared(assumed)
        except Exception as error:  # noqa: BLE001 -- told
            self._break_off(assumed, error)
            return False

    def _is_prepared(self, assumed: Assumed) -> bool:
        if assumed.transaction is None:  # of a run: nobody has anything to prepare
            return True
        holding = assumed.holding
        if not (self._concerned(assumed).pre_bind or holding.objects or holding.node_lock):
            return True
        error = self._binder.prepare(assumed)
        if error is not None:
            self._fail(assumed, f"binding failed: {error}")
            return False
        return self._is_ready(assumed)

    def _is_ready(self, assumed: Assumed) -> bool:
        """Ask whether a pod may be bound now; one that must wait is asked again with every step."""
        wait_s = 0.0
        for active in self._concerned(assumed).pre_bind:
            answer = active.plugin.pre_bind(self._state.objects, assumed.queued.pod, assumed.node)
            if answer.refusal:
                self._binder.forget(assumed)
                self._fail(assumed, f"binding failed: {answer.refusal}")
                return False
            wait_s = max(wait_s, answer.wait_s)
        if wait_s > 0:
            self._begin_wait(assumed, wait_s)
            self._preparing[assumed.queued.key] = assumed
        return wait_s == 0

    def _announce(self, bound: Sequence[Assumed]) -> None:
        self._reporter.bound([(assumed.queued.pod, assumed.node) for assumed in bound])
        if self._queue.anyone_listens:
            for assumed in bound:
                self._tell_queue(ClusterEvent("AssignedPod", Action.ADD, None, assumed.queued.pod))

    # -- the way back ------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Return whether a pod has its place and is not bound yet."""
        return self.holds(key) or self._binder.is_binding(key)

    def holds(self, key: str) -> bool:
        """Return whether a pod has its place and its binding has not begun."""
        if key in self._waiting or key in self._preparing or key in self._beginning:
            return True
        return any(assumed.queued.key == key for assumed in self._to_bind)

    def withdraw(self, key: str) -> Assumed | None:
        """Stop a pod that has its place and whose binding has not begun, if it is one."""
        for waiting in (self._waiting, self._preparing, self._beginning):
            if key in waiting:
                return waiting.pop(key)
        found = next((a for a in self._to_bind if a.queued.key == key), None)
        if found is not None:
            self._to_bind.remove(found)
        return found

    def abandon(self, placed: Sequence[Assumed]) -> list[QueuedPod]:
        """Take back the places given in an attempt that broke off, unless their binding has begun.

        Returns whose they were.
        """
        lost = []
        for assumed in reversed(placed):
            pod = assumed.queued.pod
            if self._binder.is_binding(pod.key):
                continue
            self.withdraw(pod.key)
            self._binder.forget(assumed)
            for active in self._cycle_of(assumed).profile.gangs:
                active.plugin.gangs.release(pod)
            lost.append(assumed.queued)
        return lost

    def forget(self, key: str, *, gone: bool) -> bool:
        """Give back the place of a pod that waits; return whether there was one."""
        assumed = self.withdraw(key)
        if assumed is not None:
            self._binder.forget(assumed)
            if gone:
                self._released(assumed)
        return assumed is not None

    def give_up(self, key: str) -> bool:
        """Take the place of a pod for another one, if its binding has not begun."""
        waiting = self._waiting.pop(key, None) or self._preparing.pop(key, None)
        if waiting is None:
            return False
        self._binder.forget(waiting)
        self._fail(waiting, "preempted before it was bound")
        return True

    def settle(self, victims: Iterable[PlacedPod]) -> None:
        """Let bindings of victims end first that are under way."""
        self.begin()
        if any(self._binder.is_binding(victim.key) for victim in victims):
            self.end(wait=True)

    def _released(self, assumed: Assumed) -> None:
        """Note that a pod has lost its place; who of its gang needs it loses the own one."""
        pod = assumed.queued.pod
        for active in self._cycle_of(assumed).profile.gangs:
            gangs: GangBook = active.plugin.gangs
            companions = gangs.companions(pod)
            gangs.release(pod)
            for key in companions:
                other = self.withdraw(key)
                if other is not None:
                    self._binder.forget(other)
                    gangs.release(other.queued.pod)
                    gang = gangs.gang_of(pod)
                    name = gang.id if gang is not None else ""
                    message = f'Gang "{name}" gets rejected due to Pod "{pod.key}" in Unreserve'
                    self._doings.fail(other.queued, message)
                    self._tell_given_back(other)

    def _fail(self, assumed: Assumed, message: str) -> None:
        """Let the pod try again; its place has been given back."""
        self._released(assumed)
        self._doings.fail(assumed.queued, message)
        self._tell_given_back(assumed)

    def _tell_given_back(self, assumed: Assumed) -> None:
        """Let others try for the place.

        Source: kubernetes pkg/scheduler/schedule_one.go ``handleBindingCycleError``.
        """
        self._tell_queue(ClusterEvent("AssignedPod", Action.DELETE, assumed.queued.pod, None))

    def _tell_queue(self, event: ClusterEvent) -> None:
        self._queue.on_event(event, self._clock.now_s())

    def _concerned(self, assumed: Assumed) -> Profile:
        return self._cycle_of(assumed).concerning(assumed.placed.pod_class)

    def _cycle_of(self, assumed: Assumed) -> Cycle:
        return self._cycles[assumed.queued.pod.spec.scheduler_name]


def _taken(waiting: dict[str, Assumed]) -> Iterator[Assumed]:
    """Take out one after the other of those who wait now; who comes back meanwhile stays."""
    for key, assumed in list(waiting.items()):
        if waiting.get(key) is assumed:  # else it lost its place with another member of its gang
            del waiting[key]
            yield assumed
