"""What plugins answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, PodExtendedResourceClaimStatus
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.snapshot import (
    NO_ALLOCATION,
    Hold,
    ObjectChange,
    PodAllocation,
    Snapshot,
)

MAX_SCORE = 100


class Reads(Enum):
    """What a plugin's answer for a node depends on, besides the pod."""

    NODE = "facts of that node alone: labels, taints, images"
    USAGE = "also that node's requested amounts and pod count, in the way of sums"
    PLACED = "also what else its pods hold: ports, devices"
    CLUSTER = "other nodes, other pods' labels, other objects"


@dataclass(frozen=True, slots=True)
class Rejections:
    """Filter's answer.

    Bit i of ``codes[n]`` says that ``reasons[i]`` holds on node n; 0 accepts.
    """

    codes: IntArray  # (n,)
    reasons: tuple[str, ...] = ()
    #: ``unresolvable``, or how to find it out: only a diagnosis wants to know
    verdict: BoolArray | bool | Callable[[], BoolArray] = False
    #: the reasons of a rejected row where ``reasons`` can't list all that there may be
    explain: Callable[[int], Sequence[str]] | None = None
    may_end: bool = False  # even so: what is in the way may go by itself

    @property
    def unresolvable(self) -> BoolArray | bool:
        """Whether removing pods from the node would not help, ``(n,)`` or one for all.

        Kubernetes calls it UnschedulableAndUnresolvable.
        """
        return self.verdict() if callable(self.verdict) else self.verdict

    @classmethod
    def where(cls, rejected: BoolArray, reason: str, *, unresolvable: bool = False) -> "Rejections":
        """Reject some nodes for one reason."""
        return cls(rejected.astype(np.int64), (reason,), unresolvable)

    @classmethod
    def by_column(
        cls,
        rejected: Sequence[BoolArray],
        reasons: tuple[str, ...],
        unresolvable: BoolArray | bool = False,
    ) -> "Rejections":
        """Reject for several reasons: ``rejected[i]`` is the mask ``(n,)`` of ``reasons[i]``."""
        codes = np.zeros(len(rejected[0]), np.int64)
        for bit, mask in enumerate(rejected):
            codes |= mask.astype(np.int64) << bit
        return cls(codes, reasons, unresolvable)

    @classmethod
    def none(cls, snapshot: Snapshot) -> "Rejections":
        """Accept every node."""
        return cls(np.zeros(len(snapshot), np.int64))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The pod is refused as a whole, or (from ``reserve``) on the chosen node."""

    reason: str
    resolvable: bool = False  # whether preempting pods could help
    same_as: str = ""  # what another plugin says, of the pod or of nodes, for the same fact


@dataclass(slots=True, unsafe_hash=True)  # making a frozen one takes three times as long
class AllocationResult:
    """What a pod takes on its node besides amounts, and what is written about it with the bind.

    Not to be written to.
    """

    pod_allocation: PodAllocation = NO_ALLOCATION
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    #: new versions of other objects (volumes, claims), assumed now and written before the bind
    objects: tuple[KubeObject, ...] = ()
    #: changes of other objects that are likewise assumed and written, each by itself; they stand
    #: whatever becomes of these objects until then
    changes: tuple[ObjectChange, ...] = ()
    #: the claim among them that serves extended resources, for the pod's status before the bind
    device_claim: PodExtendedResourceClaimStatus | None = None
    #: annotations that say when the bind was sent, from nanoseconds since the epoch
    stamps: tuple[Callable[[int], Mapping[str, str]], ...] = ()
    #: annotation by which the node is locked before the bind, until its device plugin has served
    #: the pod; empty: none
    node_lock: str = ""
    #: placed pods that use the reservation from now on for which the pod stands
    takes_over: tuple[Pod, ...] = ()

    def joined(self, other: "AllocationResult") -> "AllocationResult":
        """Return both together."""
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        return AllocationResult(
            self.pod_allocation.joined(other.pod_allocation),
            {**self.annotations, **other.annotations},
            {**self.labels, **other.labels},
            self.objects + other.objects,
            self.changes + other.changes,
            self.device_claim or other.device_claim,
            self.stamps + other.stamps,
            self.node_lock or other.node_lock,
            self.takes_over + other.takes_over,
        )


NOTHING = AllocationResult()


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The pod names its nodes: all others are rejected for that, whatever else is against them.

    The plugin's own filter must reject them, too.  One plugin of a profile may have such answers.
    """

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Nomination:
    """Which of the holds on its node a pod uses (None: it takes what is not reserved).

    The pod may take devices and CPUs from those in ``restored``, and takes them from those in
    ``first`` before any others.
    """

    uses: Hold | None = None
    restored: tuple[Hold, ...] = ()
    first: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether a pod that has its node may be bound now."""

    wait_s: float = 0.0  # > 0: keep the place and ask again, at most this long
    refusal: Refusal | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)  # written with the bind


@dataclass(frozen=True, slots=True)
class QueueGate:
    """The plugin that keeps a pod out of the queue, and why."""

    plugin: str
    message: str


def spread_of(scores: IntArray, max_score: int = MAX_SCORE, *, reverse: bool = False) -> IntArray:
    """Scale so that the highest raw score becomes ``max_score``; reversed, the lowest.

    Source: kubernetes pkg/scheduler/framework/plugins/helper/normalize_score.go.
    """
    top = int(scores.max(initial=0))
    if top == 0:
        return np.full_like(scores, max_score) if reverse else scores
    scaled = scores * max_score // top
    return max_score - scaled if reverse else scaled
