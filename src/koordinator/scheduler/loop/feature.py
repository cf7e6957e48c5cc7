"""The contract of a feature, on one page.

A feature is a package under ``scheduler.features`` with its state, its writes, its pages and its
gauges.  It overrides the hooks that it needs; ``hooks.Hooks`` resolves once which features have
which hook.  The loop has a list of features and refers to none by name.  Features do not import
each other; ``scheduler.assembly`` passes to a feature the parts of others that it needs.

The features that keep pods out of the queue, decide pods together, hold room for other pods or bind
pods themselves have further methods: see ``feature_kinds``.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import ClassVar

from koordinator.api.pod import Pod
from koordinator.cluster.port import WatchEvent
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import QueueGate
from koordinator.scheduler.loop.outcomes import Fact
from koordinator.scheduler.queue import QueuedPod

#: Runs a function on the thread of the scheduler, between two steps, and returns its result.
CallInLoop = Callable[[Callable[[], object]], object]
#: Returns an object for JSON, given the parts of the path and the query.
StatePage = Callable[[Mapping[str, str]], object]


@dataclass(slots=True, eq=False)
class Step:
    """Work of a feature after each step of the loop; a fault in one does not stop the others."""

    stage: str  # name of the work in fault reports
    #: does the work at a time; returns when it is due again, None: after the next step of the loop
    run: Callable[[float], float | None]
    #: time before which the loop does not call ``run``
    due_s: float = -inf


class Feature:
    """A feature; every hook is optional.  The loop calls the hooks in the order listed here."""

    #: Whether the feature has nothing to keep track of, such as gangs.  The loop skips the hooks of
    #: gates, decisions, binds and steps of an idle feature (see ``Hooks.refresh``), so that a plain
    #: pod does not pay for it.  The hooks of events are called, and end the idleness.
    is_idle: bool = False

    # -- events of the cluster -----------------------------------------------------------------

    def needs_own_bind_event(self, pod: Pod) -> bool:
        """Return whether the feature must see the event of a bind of this scheduler.

        Otherwise ``on_pod_event`` is not called for that event.
        """
        raise NotImplementedError

    def on_pod_event(self, pod: Pod, previous: Pod | None, *, deleted: bool) -> Sequence[str]:
        """Apply a pod event before the queue does; return the keys of pods to requeue."""
        raise NotImplementedError

    def on_left_queue(self, pod: Pod, *, deleted: bool) -> None:
        """Forget a pod that left the queue: it has a node, has ended or was deleted."""
        raise NotImplementedError

    def on_object_event(self, event: WatchEvent) -> None:
        """Apply an event of an object other than a pod, after the state and the queue."""
        raise NotImplementedError

    def after_events(self) -> None:
        """React once to all events of a batch."""
        raise NotImplementedError

    # -- into the queue ----------------------------------------------------------------------

    def on_gate_result(self, pod: Pod, gate: QueueGate | None) -> None:
        """Record the gate of a pod that enters the queue; None: no plugin keeps it out."""
        raise NotImplementedError

    def wake(self) -> None:
        """Requeue pods for which capacity may have become free since the last call."""
        raise NotImplementedError

    # -- a decision --------------------------------------------------------------------------

    def on_placed(self, pods: Sequence[QueuedPod]) -> None:
        """Record pods that have places in the state, before their permits."""
        raise NotImplementedError

    # -- outcomes, and what is done beside deciding ------------------------------------------

    #: The facts that ``observe`` receives.
    observed: ClassVar[tuple[type[Fact], ...]] = ()

    def observe(self, fact: Fact) -> None:
        """Record an outcome of a pod, or another fact."""
        raise NotImplementedError

    def work(self, now_s: float) -> bool:
        """Do work that later decisions depend on; return whether anything was written."""
        raise NotImplementedError

    def steps(self) -> Sequence["Step"]:
        """Return the steps that the leader runs after each step of the loop; called once."""
        raise NotImplementedError

    def follow(self) -> None:
        """Do the work of a standby replica in place of ``steps``; it writes nothing."""
        raise NotImplementedError

    def finish(self) -> None:
        """Flush delayed writes."""
        raise NotImplementedError

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when the feature has work even without events; None if only events cause work.

        ``synced``: everything that exists has been taken in.
        """
        raise NotImplementedError

    # -- to be looked at ---------------------------------------------------------------------

    def pages(self, in_loop: CallInLoop) -> Mapping[str, StatePage]:
        """Return pages by path under ``/apis/v1``."""
        raise NotImplementedError

    def validate(self) -> None:
        """Raise BugError if redundant state is inconsistent."""
        raise NotImplementedError
