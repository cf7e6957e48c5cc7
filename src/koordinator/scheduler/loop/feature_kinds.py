"""The features that take part in deciding: the second page of the contract of features.

A feature of one of these kinds implements all methods of its class, and hooks of ``Feature`` as it
needs them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, Protocol

from koordinator.api.pod import Pod
from koordinator.cluster.port import EventType
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Assumed
from koordinator.scheduler.contract import EventHint, Refusal
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.loop.feature import Feature
from koordinator.scheduler.queue import QueuedPod


@dataclass(frozen=True, slots=True)
class GateReport:
    """Place of a pod in front of a feature's gate."""

    reason: str
    detail: str  # position, the first in line and what that one waits for
    position: int = 0  # 1: the next one; 0: there is no order
    ahead: tuple[str, ...] = ()
    #: Remedy that would admit the pod, if it finds a node then: its kind and its text.
    remedies: tuple[tuple[str, str], ...] = ()


class GateFeature(Feature):
    """A feature that keeps pods out of the queue until it is their turn."""

    gate: ClassVar[str] = ""  # the name of the gate in reports
    gate_events: ClassVar[tuple[EventHint, ...]] = ()  # the events that open it

    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        """Return why a pod that no plugin keeps out must not enter the queue; None: it may."""
        raise NotImplementedError

    def gate_report(self, pod: Pod) -> GateReport | None:
        """Return what exactly a pod that ``pre_enqueue`` keeps out waits for; None: nothing.

        Called to explain it; changes nothing.
        """
        raise NotImplementedError

    def take_ungated(self) -> Iterable[str]:
        """Return the pods whose gates are to be asked again, before the next one is picked."""
        raise NotImplementedError

    def send_behind_gates(self, pods: Sequence[QueuedPod]) -> Sequence[QueuedPod]:
        """Return those popped pods that have passed their gates and must go back behind them."""
        raise NotImplementedError


class Unit(Protocol):
    """What is decided at once: a pod, a run of equal pods, all members of a gang group."""

    def decide(self) -> int:
        """Decide, and hand to the bindings what has a place; return how many pods were tried."""
        ...


@dataclass(frozen=True, slots=True)
class GroupDryRun:
    """What pods get that are decided together by rules of their own."""

    plugin: str
    reason: str = ""  # why they have no places; empty if they have
    remedies: tuple[tuple[str, str], ...] = ()  # kind and text; each suffices
    nodes: Mapping[str, str] = field(default_factory=dict)  # by key of the pod


class GroupFeature(Feature):
    """A feature that decides pods together, such as the members of a gang."""

    def unit(self, cycle: SchedulingCycle, head: QueuedPod) -> Unit | None:
        """Return what is decided together with a pod that no run takes; None: it goes alone."""
        raise NotImplementedError

    def try_group(self, queued: QueuedPod) -> GroupDryRun | None:
        """Return what pods get that are decided with a waiting one; None without rules for them.

        Asked to explain it; everything is afterwards as before.
        """
        raise NotImplementedError

    def pods_sharing_nomination(self, pod: Pod) -> Sequence[str]:
        """Return the pods that give up their nominations with this one."""
        raise NotImplementedError

    def broken(self, head: Pod, lost: Sequence[Pod]) -> Sequence[str]:
        """Return the pods that fail with one whose attempt broke off; some ``lost`` places."""
        raise NotImplementedError

    def released(self, assumed: Assumed) -> None:
        """Record that a pod lost its place before it was bound."""
        raise NotImplementedError


class HolderFeature(Feature):
    """A feature whose pods hold room for others, such as a reservation."""

    holder_label: ClassVar[str] = ""  # the label of these pods

    def consume_pod_event(self, kind: EventType, pod: Pod, previous: Pod | None) -> None:
        """Handle the event of a pod with the label; the loop ignores these pods."""
        raise NotImplementedError

    def on_reservation_use(self, uid: str) -> None:
        """Record that a placed pod begins or ends to use the hold with a uid."""
        raise NotImplementedError


class BindingFeature(Feature):
    """A feature that binds some pods itself."""

    def has_own_bind(self, pod: Pod) -> bool:
        """Return whether ``bind`` is for such a pod; it is then bound before the next decision."""
        raise NotImplementedError

    def bind(self, assumed: Assumed) -> None:
        """Bind in another way than by the cluster's own, and settle it with the bindings."""
        raise NotImplementedError
