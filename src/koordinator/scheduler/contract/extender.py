"""Extenders: services outside the scheduler that filter, score, preempt for or bind some pods.

Source: kubernetes pkg/scheduler/framework/interface.go ``Extender`` and k8s.io/kube-scheduler
extender/v1/types.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec
from koordinator.scheduler.post_filter import ProposedVictims

#: Name of all extenders among the plugins that reject a pod (kube: ExtenderName).
EXTENDER = "Extender"


@dataclass(frozen=True, slots=True)
class ExtenderVerdict:
    """The nodes that an extender accepts, and its reasons against the others."""

    accepted: frozenset[str]
    reasons: Mapping[str, str] = field(default_factory=dict)  # by rejected node
    unresolvable: frozenset[str] = frozenset()  # rejected nodes where removing pods would not help


class SchedulerExtender(Protocol):
    """An extender; all methods except ``is_interested`` raise ExtenderError."""

    @property
    def name(self) -> str:
        """The URL, by which messages name it."""
        ...

    @property
    def is_ignorable(self) -> bool:
        """Whether the scheduler skips it when it fails."""
        ...

    @property
    def weight(self) -> int:
        """The weight of its scores."""
        ...

    @property
    def verbs(self) -> frozenset[str]:
        """Its verbs, from filter, prioritize, preempt and bind."""
        ...

    def is_interested(self, spec: PodSpec) -> bool:
        """Return whether the scheduler calls it for such a pod."""
        ...

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderVerdict:
        """Filter the nodes."""
        ...

    def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Mapping[str, int]:
        """Return scores by node; a node without one has 0."""
        ...

    def preempt(
        self, pod: Pod, victims: Mapping[str, ProposedVictims]
    ) -> Mapping[str, ProposedVictims]:
        """Return the candidate nodes, with their victims, that it accepts."""
        ...

    def bind(self, pod: Pod, node: str) -> None:
        """Bind a pod."""
        ...

    def record_failure(self, error: Exception) -> None:
        """Record a failure of an ignorable extender for reporting."""
        ...
