"""Input and results of PostFilter plugins."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.snapshot import ObjectChange, PlacedPod, PodClass, Snapshot

ClassedPod = tuple[Pod, PodClass]
Allows = Callable[[PlacedPod], bool]


@dataclass(frozen=True, slots=True)
class ProposedVictims:
    """The pods of one node that preemption would evict, the most important first."""

    pods: tuple[Pod, ...]
    violations: int  # of disruption budgets


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Amounts that pods must free before others are accepted, and which pods may."""

    missing: Mapping[str, int]  # > 0
    allows: Allows
    frees: Callable[[PlacedPod], Mapping[str, int]]


class WhatIf(Protocol):
    """Dry runs of the state without some pods.  They change nothing.

    Pods nominated to the node with at least the pod's priority are included.

    Rule R3: ``cycle``, which implements it, is above ``post_filter``.
    """

    @property
    def snapshot(self) -> Snapshot:
        """The world that is."""
        ...

    def why_not(self, pod: PodClass, row: int, without: Sequence[PlacedPod]) -> tuple[str, ...]:
        """Return why the node would not take the pod even without those pods; empty: it would."""
        ...

    def fit_without(self, pod: PodClass, rows: IntArray, below: int) -> BoolArray:
        """Return ``(n,)``: the row takes the pod without all pods of priority < ``below``."""
        ...

    def breaks_gang(self, victims: Sequence[PlacedPod]) -> bool:
        """Return whether a gang would be left with too few members without those, but with some."""
        ...

    def free_headroom(
        self,
        members: Sequence[ClassedPod],
        rows: IntArray | None = None,
        allows: Allows | None = None,
    ) -> "PostFilterResult":
        """Return places for all members of a job, on some rows, and the victims.

        ``allows`` restricts the victims.  Without places the message gives the reasons.
        """
        ...

    def job_reasons(
        self, members: Sequence[ClassedPod], rows: IntArray | None = None
    ) -> Mapping[str, int]:
        """Return what keeps a member of a job away without pods of lower priority: node counts."""
        ...


class VictimApproval(Protocol):
    """Extenders that approve victims.

    Rule R3: ``cycle``, which implements it, is above ``post_filter``.
    """

    def approved(
        self, pod: Pod, victims: Mapping[str, ProposedVictims]
    ) -> Mapping[str, ProposedVictims]:
        """Return the approved nodes and victims.  Raises ExtenderError."""
        ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed attempt, as PostFilter sees it."""

    key: str
    pod: Pod
    pod_class: PodClass
    what_if: WhatIf
    rejected: IntArray  # rows of nodes that exist and don't take the pod
    resolvable: BoolArray  # per rejected row: preemption might help
    refused_by: str = ""  # the plugin that refused the pod as a whole, if one did
    members: tuple[ClassedPod, ...] = ()  # of a gang: all of them need a place
    rows: IntArray | None = None  # of a gang: where the places may be; None: anywhere
    nominated_node: str = ""  # where the pod's victims are ending, if it has had any
    approval: VictimApproval | None = None  # called before a victim is chosen


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """``message`` joins the pod's own; with ``node`` and ``victims`` the pod is nominated there.

    Without a node an earlier nomination ends, unless one of the plugins ``keeps_nomination``.
    """

    message: str = ""
    node: str = ""
    victims: tuple[PlacedPod, ...] = ()
    keeps_nomination: bool = False
    places: Mapping[str, str] = field(default_factory=dict)  # of a gang: nodes by pod key
    changes: tuple[ObjectChange, ...] = ()  # of other objects, to be written at once
    violations: int = 0  # victims whose disruption budget is used up
