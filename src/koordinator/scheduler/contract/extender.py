"""What the scheduler asks of an extender: a service outside that has a say about some pods.

Source: kubernetes pkg/scheduler/framework/interface.go ``Extender`` and k8s.io/kube-scheduler
extender/v1/types.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec
from koordinator.scheduler.post_filter import ProposedVictims

#: What stands for all extenders where pods are told who keeps them waiting (kube: ExtenderName).
EXTENDER = "Extender"


@dataclass(frozen=True, slots=True)
class ExtenderVerdict:
    """Which nodes an extender accepts, and why it does not accept the others."""

    accepted: frozenset[str]
    reasons: Mapping[str, str] = field(default_factory=dict)  # of nodes that are not accepted
    unresolvable: frozenset[str] = frozenset()  # of these: removing pods would not help


class SchedulerExtender(Protocol):
    """All methods but ``concerns`` raise ExtenderError."""

    @property
    def name(self) -> str:
        """What messages call it: its URL."""
        ...

    @property
    def is_ignorable(self) -> bool:
        """Whether pods go on without it when it fails."""
        ...

    @property
    def weight(self) -> int:
        """By how much its scores count."""
        ...

    @property
    def verbs(self) -> frozenset[str]:
        """What it is asked: of filter, prioritize, preempt, bind."""
        ...

    def concerns(self, spec: PodSpec) -> bool:
        """Return whether it wants to be asked about such a pod."""
        ...

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderVerdict:
        """Return which of the nodes it accepts."""
        ...

    def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Mapping[str, int]:
        """Return scores by node, 0 for those left out."""
        ...

    def preempt(
        self, pod: Pod, victims: Mapping[str, ProposedVictims]
    ) -> Mapping[str, ProposedVictims]:
        """Return what is left of the nodes and victims that preemption has found."""
        ...

    def bind(self, pod: Pod, node: str) -> None:
        """Bind a pod."""
        ...

    def note(self, error: Exception) -> None:
        """Hear of a failure of its that was passed over, so that somebody is told."""
        ...
