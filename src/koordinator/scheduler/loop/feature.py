"""Hooks of features.

A feature is a package under ``scheduler.features`` with its state, its writes, its pages and its
gauges.  It overrides the hooks that it needs; ``Hooks`` resolves once which features have which
hook.  The loop knows a list of features and none by name.  Features do not know each other;
``scheduler.assembly`` passes to a feature what it needs of another one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Concatenate, ParamSpec, Protocol, TypeVar, get_args

from koordinator.api.pod import Pod
from koordinator.cluster.port import EventType, WatchEvent
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.contract import (
    EventHint,
    QueueGate,
    Refusal,
)
from koordinator.scheduler.cycle import ReserveRefusal, SchedulingCycle
from koordinator.scheduler.loop.outcomes import Fact
from koordinator.scheduler.queue import QueuedPod

#: Has a question answered by the scheduler's own thread, between two steps.
Ask = Callable[[Callable[[], object]], object]
#: Answers with an object for JSON; gets the parts of the path and the query.
Page = Callable[[Mapping[str, str]], object]


class Unit(Protocol):
    """What is decided at once: a pod, a run of equal pods, all members of a gang group."""

    def decide(self) -> int:
        """Decide, and hand to the bindings what has a place; return how many pods were tried."""
        ...


@dataclass(frozen=True, slots=True)
class GateReport:
    """Place of a pod in front of a feature's gate."""

    reason: str
    detail: str  # position, the first in line and what that one waits for
    position: int = 0  # 1: the next one; 0: there is no order
    ahead: tuple[str, ...] = ()
    #: Remedy that would admit the pod, if it finds a node then: its kind and its text.
    remedies: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, eq=False)
class Step:
    """Work of a feature after each step of the loop; a fault in one does not stop the others."""

    stage: str  # name of the work in fault reports
    #: does the work at a time; returns when it is due again, None: after the next step of the loop
    run: Callable[[float], float | None]
    #: time before which the loop does not call ``run``
    due_s: float = -inf


class Feature:
    """A feature; every hook is optional.  They stand in the order in which the loop calls them."""

    #: Whether the feature has nothing to keep track of, such as gangs.  The loop skips the hooks of
    #: gates, decisions, binds and steps of an idle feature (see ``Hooks.refresh``), so that a plain
    #: pod does not pay for it.  The hooks of events are called, and end the idleness.
    is_idle: bool = False
    #: Of a feature with ``pre_enqueue``: what its gate is called, and which events open it.
    gate: ClassVar[str] = ""
    gate_events: ClassVar[tuple[EventHint, ...]] = ()

    # -- events of the cluster -----------------------------------------------------------------

    def needs_own_bind_event(self, pod: Pod) -> bool:
        """Return whether it matters here that one of our own binds has come true.

        Otherwise ``consume_pod_event`` and ``on_pod_event`` are not called for that event.
        """
        raise NotImplementedError

    def consume_pod_event(self, kind: EventType, pod: Pod, previous: Pod | None) -> bool:
        """Take in the events of a pod in place of the loop; return whether that was done."""
        raise NotImplementedError

    def on_pod_event(self, pod: Pod, previous: Pod | None, *, deleted: bool) -> Sequence[str]:
        """Apply a pod event before the queue does; return the keys of pods to requeue."""
        raise NotImplementedError

    def on_reservation_use(self, uid: str) -> None:
        """Record that a placed pod begins or ends to use the hold with a uid."""
        raise NotImplementedError

    def on_left_queue(self, pod: Pod, *, deleted: bool) -> None:
        """Forget a pod that left the queue: it has a node, has ended or was deleted."""
        raise NotImplementedError

    def on_object_event(self, event: WatchEvent) -> None:
        """Apply an event of an object other than a pod, after the state and the queue."""
        raise NotImplementedError

    def after_events(self) -> None:
        """Do what all events together are a reason for."""
        raise NotImplementedError

    def observe_event_duration(self, event: WatchEvent, took_s: float) -> None:
        """Record how long the loop took to apply an event."""
        raise NotImplementedError

    # -- into the queue ----------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        """Return why a pod that no plugin keeps out must not enter the queue; None: it may."""
        raise NotImplementedError

    def gate_report(self, pod: Pod) -> GateReport | None:
        """Return what exactly a pod that ``pre_enqueue`` keeps out waits for; None: nothing.

        Called to explain it; changes nothing.
        """
        raise NotImplementedError

    def on_gate_result(self, pod: Pod, gate: QueueGate | None) -> None:
        """Record the gate of a pod that enters the queue; None: no plugin keeps it out."""
        raise NotImplementedError

    def take_ungated(self) -> Iterable[str]:
        """Return the pods whose gates are to be asked again, before the next one is picked."""
        raise NotImplementedError

    def wake(self) -> None:
        """Put back into the queue what may find room since the last time."""
        raise NotImplementedError

    # -- a decision --------------------------------------------------------------------------

    def send_behind_gates(self, pods: Sequence[QueuedPod]) -> Sequence[QueuedPod]:
        """Return those popped pods that have passed their gates and must go back behind them."""
        raise NotImplementedError

    def unit(self, cycle: SchedulingCycle, head: QueuedPod) -> Unit | None:
        """Return what is decided together with a pod that no run takes; None: it goes alone."""
        raise NotImplementedError

    def explain_refusal(self, queued: QueuedPod) -> ReserveRefusal | None:
        """Return why what is decided with a waiting pod has no place, for a reason of its own.

        Asked to explain it; everything is afterwards as before.
        """
        raise NotImplementedError

    def placed(self, pods: Sequence[QueuedPod]) -> None:
        """Record pods that have places in the state, before their permits."""
        raise NotImplementedError

    def pods_sharing_nomination(self, pod: Pod) -> Sequence[str]:
        """Return the pods that give up their nominations with this one."""
        raise NotImplementedError

    def broken(self, head: Pod, lost: Sequence[Pod]) -> Sequence[str]:
        """Return the pods that fail with one whose attempt broke off; some ``lost`` places."""
        raise NotImplementedError

    # -- binding -----------------------------------------------------------------------------

    def has_own_bind(self, pod: Pod) -> bool:
        """Return whether ``bind`` is for such a pod; it is then bound before the next decision."""
        raise NotImplementedError

    def bind(self, assumed: Assumed) -> None:
        """Bind in another way than by the cluster's own, and settle it with the bindings."""
        raise NotImplementedError

    def released(self, assumed: Assumed) -> None:
        """Record that a pod lost its place before it was bound."""
        raise NotImplementedError

    # -- outcomes, and what is done beside deciding ------------------------------------------

    #: Facts that ``observe`` receives; empty: all.
    observed: ClassVar[tuple[type[Fact], ...]] = ()

    def observe(self, fact: Fact) -> None:
        """Record an outcome of a pod."""
        raise NotImplementedError

    def work(self, now_s: float) -> bool:
        """Do the work that later decisions depend on; return whether anything was written."""
        raise NotImplementedError

    def steps(self) -> Sequence["Step"]:
        """Return the work of the process that leads after each step of the loop; called once."""
        raise NotImplementedError

    def follow(self) -> None:
        """Do what replaces ``steps`` in a process that does not lead: it writes nothing."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write at once what would be written in the next seconds."""
        raise NotImplementedError

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when there is something to do even without events; None: only events can help.

        ``synced``: everything that exists has been taken in.
        """
        raise NotImplementedError

    # -- to be looked at ---------------------------------------------------------------------

    def pages(self, ask: Ask) -> Mapping[str, Page]:
        """Return pages by path under ``/apis/v1``."""
        raise NotImplementedError

    def validate(self) -> None:
        """Raise BugError if redundant state is inconsistent."""
        raise NotImplementedError


P = ParamSpec("P")
R = TypeVar("R")


class Hooks:
    """Hooks of all features, resolved to tuples of bound methods; empty before ``install``."""

    def __init__(self) -> None:
        self.install(())

    def install(self, features: Iterable[Feature]) -> None:
        """Ask these features from now on, in this order."""
        self.features = tuple(features)
        self.consume_pod_event = self._having(Feature.consume_pod_event)
        self.on_pod_event = self._having(Feature.on_pod_event)
        self.on_reservation_use = self._having(Feature.on_reservation_use)
        self.on_left_queue = self._having(Feature.on_left_queue)
        self.on_object_event = self._having(Feature.on_object_event)
        self.observe_event_duration = self._having(Feature.observe_event_duration)
        gated = self._gated = [
            f for f in self.features if type(f).pre_enqueue is not Feature.pre_enqueue
        ]
        reporting = [f for f in gated if type(f).gate_report is not Feature.gate_report]
        self.gate_report = tuple((f.gate, f.gate_report) for f in reporting)
        self.unit = self._having(Feature.unit)
        self.explain_refusal = self._having(Feature.explain_refusal)
        self.pods_sharing_nomination = self._having(Feature.pods_sharing_nomination)
        self.broken = self._having(Feature.broken)
        self.released = self._having(Feature.released)
        observing = [f for f in self.features if type(f).observe is not Feature.observe]
        self.observe: Mapping[type[Fact], tuple[Callable[[Fact], None], ...]] = {
            kind: tuple(f.observe for f in observing if not f.observed or kind in f.observed)
            for kind in get_args(Fact)
        }
        self._steps = {
            feature: tuple(feature.steps())
            for feature in self.features
            if type(feature).steps is not Feature.steps
        }
        self.follow = self._having(Feature.follow)
        self.finish = self._having(Feature.finish)
        self.next_wakeup_s = self._having(Feature.next_wakeup_s)
        self.pages = self._having(Feature.pages)
        self.validate = self._having(Feature.validate)

        self.refresh()

    def refresh(self) -> None:
        """Resolve the hooks that skip idle features; called when ``is_idle`` of one changes."""
        self.needs_own_bind_event = self._having(Feature.needs_own_bind_event, idle=False)
        self.after_events = self._having(Feature.after_events, idle=False)
        self.pre_enqueue = tuple((f.gate, f.pre_enqueue) for f in self._gated if not f.is_idle)
        self.on_gate_result = self._having(Feature.on_gate_result, idle=False)
        self.take_ungated = self._having(Feature.take_ungated, idle=False)
        self.wake = self._having(Feature.wake, idle=False)
        self.send_behind_gates = self._having(Feature.send_behind_gates, idle=False)
        self.placed = self._having(Feature.placed, idle=False)
        binding = [f for f in self.features if type(f).bind is not Feature.bind]
        self.bind = tuple((f.has_own_bind, f.bind) for f in binding if not f.is_idle)
        self.work = self._having(Feature.work, idle=False)
        self.steps = tuple(
            step for feature, steps in self._steps.items() if not feature.is_idle for step in steps
        )

    def _having(
        self, method: Callable[Concatenate[Feature, P], R], *, idle: bool = True
    ) -> tuple[Callable[P, R], ...]:
        """Return the method of each feature that overrides it; without ``idle``, of busy ones."""
        name = method.__name__
        return tuple(
            getattr(feature, name)
            for feature in self.features
            if getattr(type(feature), name) is not method and (idle or not feature.is_idle)
        )
