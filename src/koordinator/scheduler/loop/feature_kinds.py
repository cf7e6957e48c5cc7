"""Features that take part in scheduling decisions: the second page of the feature contract.

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
    """Position of a pod at a feature's gate."""

    reason: str
    detail: str  # position, the first in line and what that one waits for
    position: int = 0  # 1: the next one; 0: there is no order
    ahead: tuple[str, ...] = ()
    #: Remedy that would admit the pod, if it finds a node then: its kind and its text.
    remedies: tuple[tuple[str, str], ...] = ()


class GateFeature(Feature):
    """A feature that gates pods, such as a queue of jobs."""

    gate: ClassVar[str] = ""  # the name of the gate in reports
    gate_events: ClassVar[tuple[EventHint, ...]] = ()  # the events that open it

    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        """Return why a pod that passed PreEnqueue must not enter the queue; None if it may."""
        raise NotImplementedError

    def gate_report(self, pod: Pod) -> GateReport | None:
        """Return the position of a pod that ``pre_enqueue`` gates; None if it is not gated.

        Called to explain it; changes nothing.
        """
        raise NotImplementedError

    def take_ungated(self) -> Iterable[str]:
        """Return the pods whose gates must be checked again before the next pod is popped."""
        raise NotImplementedError

    def send_behind_gates(self, pods: Sequence[QueuedPod]) -> Sequence[QueuedPod]:
        """Return the popped pods that must go back behind their gates."""
        raise NotImplementedError


class Unit(Protocol):
    """Unit of one decision: a pod, a run of equal pods, or all members of a gang group."""

    def decide(self) -> int:
        """Schedule the pods and start their bindings; return the number of attempted pods."""
        ...


@dataclass(frozen=True, slots=True)
class GroupDryRun:
    """Result for pods that a feature decides together."""

    plugin: str
    reason: str = ""  # why they have no places; empty if they have
    remedies: tuple[tuple[str, str], ...] = ()  # kind and text; each suffices
    nodes: Mapping[str, str] = field(default_factory=dict)  # by key of the pod


class GroupFeature(Feature):
    """A feature that decides pods together, such as the members of a gang."""

    def unit(self, cycle: SchedulingCycle, head: QueuedPod) -> Unit | None:
        """Return the unit of a pod outside a run; None if it is decided alone."""
        raise NotImplementedError

    def try_group(self, queued: QueuedPod) -> GroupDryRun | None:
        """Return the result for the group of a waiting pod; None without rules for its group.

        Called to explain it; the state is unchanged afterwards.
        """
        raise NotImplementedError

    def pods_sharing_nomination(self, pod: Pod) -> Sequence[str]:
        """Return the pods whose nominations end with that of this pod."""
        raise NotImplementedError

    def on_aborted_attempt(self, head: Pod, lost: Sequence[Pod]) -> Sequence[str]:
        """Return the pods that fail with a pod whose attempt was aborted; some ``lost`` places."""
        raise NotImplementedError

    def on_released(self, assumed: Assumed) -> None:
        """Record that a pod lost its place before it was bound."""
        raise NotImplementedError


class HolderFeature(Feature):
    """A feature whose pods hold room for others, such as a reservation."""

    holder_label: ClassVar[str] = ""  # the label of these pods

    def consume_pod_event(self, kind: EventType, pod: Pod, previous: Pod | None) -> None:
        """Handle the event of a pod with the label; the loop ignores these pods."""
        raise NotImplementedError

    def on_reservation_use(self, uid: str) -> None:
        """Record that a placed pod starts or stops using the hold with a uid."""
        raise NotImplementedError


class BindingFeature(Feature):
    """A feature that binds some pods itself."""

    def has_own_bind(self, pod: Pod) -> bool:
        """Return whether ``bind`` is for such a pod; it is then bound before the next decision."""
        raise NotImplementedError

    def bind(self, assumed: Assumed) -> None:
        """Bind in another way than by the cluster's own, and settle it with the bindings."""
        raise NotImplementedError
