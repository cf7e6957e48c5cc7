"""What a scheduler plugin is, and the words it speaks with.

A plugin is any object with some of the methods below; its ``PluginSpec`` says how to build it from
its arguments.

==================  ================================================================================
``reads``           class variable, required with filter or score: what the answer depends on
                    (``Reads``)
``key``             ``(pod) -> Hashable``: the part of the pod class that a node-local plugin reads;
                    default: all
``filters``         ``(snapshot, pod) -> bool``: False passes every node unseen (kube: PreFilter
                    returns Skip)
``scores``          ``(snapshot, pod) -> bool``: False leaves the plugin out (kube: PreScore returns
                    Skip)
``ignores``         ``(pod) -> bool``: True spares the question of such pods, whatever the cluster
                    is like: ``prefilter`` passes them, ``filters``, ``scores`` are False,
                    ``prefer_nodes`` is empty, ``pre_bind`` allows
``version``         ``(snapshot) -> Hashable``: when it changes, everything cached of the plugin is
                    stale
``prefilter``       ``(snapshot, pod) -> Refusal | Shortlist | None``: the pod can't run anywhere,
                    whatever the node, or only on nodes that it names
``run_limit``       ``(snapshot, pod, most) -> int``: how many pods of that ``key`` and of equal
                    requests ``prefilter`` accepts in a row, if fewer than ``most``; asked about
                    one that it accepts.  A plugin that has this needs a ``version``: pods that it
                    refused are asked about again when that has changed
``lack``            ``(snapshot, pods) -> Lack | Refusal | None``: with ``run_limit``: what other
                    pods must free before all these are accepted by ``prefilter``; None: nothing
``filter``          ``(snapshot, pod) -> Rejections``
``compares``        ``(pod) -> (columns, amounts)``: the filter rejects a node exactly where one of
                    these amounts of resources is more than is free
``score``           ``(snapshot, pod) -> (n,)`` integers, in 0..max_score unless ``normalize``
                    follows
``formula``         ``(snapshot, pod) -> Formula | None``: what ``score`` computes, if that is
                    arithmetic on amounts and no more; may look at what ``scores`` may look at
``judge``           ``(snapshot, pod, weight, fits, total)``: ``filter`` and ``score`` at once:
                    makes ``fits``, ``(n,)``, False where the one rejects, and adds ``weight`` times
                    the other to ``total``, ``(n,)``, at least elsewhere
``score_among``     ``(snapshot, pod, feasible rows) -> (k,)``: instead of ``score``, for a
                    ``Reads.CLUSTER`` plugin whose raw score depends on which nodes are feasible
``normalize``       ``(raw (k,)) -> (k,)`` in 0..max_score: raw scores of the feasible nodes to
                    final ones
``spread``          class variable: which raw score ``normalize`` makes the highest (``Spread``), if
                    it does what ``spread_of`` does
``prefer_nodes``    ``(snapshot, pod) -> rows``: candidates to try first, in order
                    (Koordinator: PreferNodes)
``find_one_node``   ``(snapshot, pod) -> row | None``: a place planned beforehand, taken if every
                    filter accepts it (Koordinator: FindOneNodePlugin)
``prefer_devices``  ``(row view, pod) -> (n_minors,) | None``: which GPU this score plugin had in
                    mind; highest wins
``loans``           ``(snapshot, pod) -> Loans | None``: what reservations hold that the pod may
                    use: free while nodes are judged for it.  None for pods that may use nothing
``nominate``        ``(row view, pod) -> Nomination | Refusal``: which of it the pod uses there;
                    asked of the plugin with ``loans`` before the others reserve
``reserve``         ``(row view, pod, preference) -> AllocationResult | Refusal``: what the pod
                    takes besides its requests; not asked where ``filters`` says False
``permit``          ``(pod object, node) -> Permit``: allow, refuse or wait
``permits``         ``(pod) -> bool``: False spares such pods the question
``gangs``           attribute, with ``permit``: the ``GangCache`` that says which pods are decided
                    together; whoever runs the plugin keeps it up to date
``pre_bind``        ``(objects, pod object, node) -> Permit``: whether what was assumed of other
                    objects has come true in the cluster; asked before the bind of a pod that
                    ``reserve`` was asked about
``postfilter``      ``(attempt) -> PostFilterResult``: what could be done about a pod that fits
                    nowhere, or about a gang of which too few members do
``may_preempt``     ``(pod object, placed pod) -> bool``: with ``postfilter``: whether a more
                    important pod could have another one evicted, on whatever node
``post_bind``       ``(pod object, node) -> None``: the pod has been bound
``next_pod``        ``(queue state look-up) -> key | None``: a pod to try before the head of the
                    queue (Koordinator: NextPodPlugin)
``transform``       ``(pod object) -> pod object``: the pod as scheduling shall see it, applied
                    before it is queued (Koordinator: the transformers of informers and
                    BeforePreFilter)
``pre_enqueue``     ``(pod object) -> str``: why the pod must not enter the queue yet; empty: it may
``detail``          ``(row view, pod) -> str``: for people, what exactly the filter has against
                    a node
``repeats``         ``(snapshot, pod) -> (plugin, mask (n,))``: the nodes of which the filter says
                    only what that plugin says of them, too
``node_remedy``     ``(row view, pod) -> str``: for people, what to change about a node so that the
                    filter accepts it; empty: nothing that an operator should
``pod_remedies``    ``(row view, pod, pod object) -> [(str, pod object)]``: for people, how to
                    change the pod so that the filter accepts the node, and that pod
``smaller``         ``(row view, pod) -> [{resource: amount}]``: requests with which the filter
                    might accept the node, the largest first; others stay as they are
``size``            ``(row view, pod) -> str``: for people, what an empty node like it would have to
                    have for the filter to accept it; empty: no size would do
``lacking``         ``(row view, pod) -> {resource: amount} | None``: what the node of a pod with
                    loans has too little of, as the pod may not use all of them together; None:
                    there are no loans on the row
``reaches``         ``(row view, pod) -> bool``: whether what the filter has against a node would
                    hold for a new node like it as well, because of pods on others
``refusal_detail``  ``(snapshot, pod) -> str``: for people, what exactly ``prefilter`` means where
                    it refuses the pod
``remedy``          ``(snapshot, pod) -> (str, bool)``: for people, what would let pass a pod that
                    ``prefilter`` refuses, and whether it would be enough; empty: unknown
``with_gates``      ``(feature gates) -> plugin``: the plugin as the gates that are on change it
``arrived``         ``(snapshot, pod) -> None``: a pod is tried for the first time (for policies
                    that learn the mix)
``meet``            ``(plugins of the profile) -> None``: told once, after all of them are built, so
                    that plugins find those that play a part (``NumaAligner`` …) without knowing
                    each other
``moves_sums_only``  ``(snapshot, pod) -> bool``: placing such a pod changes nothing for the plugin
                    but amounts and pod counts; default: it does not read ``PLACED``
==================  ================================================================================

For ``Reads.NODE``, ``USAGE`` and ``PLACED`` every row stands alone
(``filter(s[rows]) == filter(s)[rows]``) and ``filters``/``scores`` look at the pod, the traits of
the cluster (``Snapshot.traits``) and whether the pod has loans only: this is what makes results
cacheable row by row.
"""

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, Flag, StrEnum, auto
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np

from koordinator.api.kubescheduler import PluginArgs
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.domain.numa.hints import ResourceHints
from koordinator.domain.numa.rows_align import OtherHints
from koordinator.domain.usage_kernels import Judgements
from koordinator.scheduler.post_filter import (
    Allows,
    Attempt,
    Lack,
    Member,
    PostFilterResult,
    WhatIf,
)
from koordinator.scheduler.snapshot import (
    NO_ALLOCATION,
    BoolArray,
    Hold,
    IntArray,
    PodAllocation,
    PodClass,
    ResourceAxis,
    Snapshot,
)

MAX_SCORE = 100


class Reads(Enum):
    """What a plugin's answer for a node depends on, besides the pod."""

    NODE = "facts of that node alone: labels, taints, images"
    USAGE = "also that node's requested amounts and pod count, in the way of sums"
    PLACED = "also what else its pods hold: ports, devices"
    CLUSTER = "other nodes, other pods' labels, other objects"


class Action(Flag):
    """What happened to an object.  Updates are split by what changed, so that hints stay cheap.

    Source: kubernetes pkg/scheduler/framework/types.go, ActionType (k8s.io/kube-scheduler).
    """

    ADD = auto()
    DELETE = auto()
    UPDATE_ALLOCATABLE = auto()
    UPDATE_LABELS = auto()
    UPDATE_TAINTS = auto()
    UPDATE_CONDITION = auto()
    UPDATE_ANNOTATIONS = auto()
    UPDATE_SCALE_DOWN = auto()
    UPDATE_TOLERATIONS = auto()
    UPDATE_GATES_ELIMINATED = auto()
    UPDATE_OTHER = auto()
    UPDATE = (
        UPDATE_ALLOCATABLE
        | UPDATE_LABELS
        | UPDATE_TAINTS
        | UPDATE_CONDITION
        | UPDATE_ANNOTATIONS
        | UPDATE_SCALE_DOWN
        | UPDATE_TOLERATIONS
        | UPDATE_GATES_ELIMINATED
        | UPDATE_OTHER
    )
    ALL = ADD | DELETE | UPDATE


class QueueingHint(StrEnum):
    """A plugin's answer to "could this event make the pod schedulable?"."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


class ClusterEvent(msgspec.Struct, frozen=True, gc=False):  # a struct: one is made per event
    """Something changed in the cluster.

    ``resource`` is a kind: Node, AssignedPod, Pod, Device …
    ``AssignedPod`` is a pod that has a node; ``Pod`` the unscheduled pod itself; ``*`` wakes
    everyone.  ``old`` is None on ADD, ``new`` is None on DELETE.
    """

    resource: str
    action: Action
    old: KubeObject | None = None
    new: KubeObject | None = None

    @property
    def label(self) -> str:
        """What metrics call it, such as NodeAdd."""
        what = "Update" if self.action & Action.UPDATE else (self.action.name or "").title()
        return f"{self.resource}{what}"


HintFunction = Callable[[KubeObject, ClusterEvent], QueueingHint]


@dataclass(frozen=True, slots=True)
class EventHint:
    """A plugin that rejected a pod wants to hear of these events.

    Without ``hint`` each one queues the pod.
    """

    resource: str
    action: Action
    hint: HintFunction | None = None


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

    ``lent`` are those from which it may take devices and CPUs, ``first`` those from which it does
    before it takes others.
    """

    uses: Hold | None = None
    lent: tuple[Hold, ...] = ()
    first: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Permit:
    """Whether a pod that has its node may be bound now."""

    wait_s: float = 0.0  # > 0: keep the place and ask again, at most this long
    refusal: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)  # written with the bind


@runtime_checkable
class NumaHintProvider(Protocol):
    """A plugin that gives out something which sits on NUMA nodes."""

    def numa_hints(
        self, snapshot: Snapshot, pod: PodClass, sets: Sequence[int]
    ) -> OtherHints | None:
        """Return what suits the plugin, by row and set of NUMA nodes; None: anything does."""
        ...

    def numa_hints_at(self, node: Snapshot, pod: PodClass) -> ResourceHints | str:
        """Return the same for one row with all sets that there are; a text: why nothing does."""
        ...


@runtime_checkable
class NumaAligner(Protocol):
    """The plugin that decides from which NUMA nodes a pod gets what it takes."""

    def aligns(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether it may decide anything for such pods; like ``scores`` by traits only."""
        ...

    def numa_nodes(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)`` masks of NUMA nodes as known before a node is chosen; 0: any of them."""
        ...

    def numa_nodes_at(self, node: Snapshot, pod: PodClass) -> int:
        """Return the mask for the chosen row; 0: any of them."""
        ...


@dataclass(frozen=True, slots=True)
class QueueGate:
    """The plugin that keeps a pod out of the queue, and why."""

    plugin: str
    message: str


#: Extension point -> the method that implements it.
POINTS: Mapping[str, tuple[str, ...]] = {
    "preEnqueue": ("pre_enqueue",),
    "queueSort": ("queue_sort",),
    "preFilter": (
        "prefilter",
        "run_limit",
        "filters",
        "prefer_nodes",
        "find_one_node",
        "next_pod",
        "transform",
        "loans",
    ),
    "filter": ("filter",),
    "postFilter": ("postfilter",),
    "preScore": ("score", "score_among"),
    "score": ("score", "score_among"),
    "reserve": ("reserve",),
    "permit": ("permit",),
    "preBind": ("reserve", "pre_bind"),
    "bind": ("bind",),
    "postBind": ("post_bind",),
}

ArgsType = TypeVar("ArgsType", bound=PluginArgs)


class NoArgs(PluginArgs, frozen=True, kw_only=True):
    """For plugins without arguments."""


@dataclass(frozen=True)
class PluginSpec(Generic[ArgsType]):
    """A plugin as the profile knows it.

    ``build`` must say what it returns: the extension points are read off it.
    """

    name: str
    args: type[ArgsType]
    build: Callable[[ArgsType, ResourceAxis], Any]
    events: tuple[EventHint, ...] = ()  # what could make a pod that it rejected schedulable
    max_score: int = MAX_SCORE

    @cached_property
    def plugin_type(self) -> type:
        """The class of the plugin."""
        returned: type = typing.get_type_hints(self.build)["return"]
        return returned

    @cached_property
    def points(self) -> frozenset[str]:
        """The extension points that the plugin implements."""
        has = self.plugin_type
        return frozenset(
            point for point, names in POINTS.items() if any(hasattr(has, name) for name in names)
        )


@dataclass(frozen=True, slots=True)
class ActivePlugin:
    """A plugin that is switched on at some extension point of a profile."""

    name: str
    plugin: Any
    weight: int = 1
    max_score: int = MAX_SCORE


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """All that some filters and scores do, to be done at once."""

    asked: Judgements
    filters: tuple[str, ...]  # names of the plugins
    scores: tuple[str, ...]

    def judge(self, view: Snapshot, fits: BoolArray, total: IntArray) -> None:
        """Take away from ``fits`` where a filter rejects; add weighted scores where none does."""
        view.judge(self.asked, fits, total)


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins of one scheduler name, in the order in which they run at each point."""

    scheduler_name: str
    pre_enqueue: tuple[ActivePlugin, ...] = ()
    pre_filter: tuple[ActivePlugin, ...] = ()
    prefer_nodes: tuple[ActivePlugin, ...] = ()
    find_one_node: tuple[ActivePlugin, ...] = ()
    next_pod: tuple[ActivePlugin, ...] = ()
    transform: tuple[ActivePlugin, ...] = ()
    lenders: tuple[ActivePlugin, ...] = ()
    filter: tuple[ActivePlugin, ...] = ()
    post_filter: tuple[ActivePlugin, ...] = ()
    score: tuple[ActivePlugin, ...] = ()
    reserve: tuple[ActivePlugin, ...] = ()
    permit: tuple[ActivePlugin, ...] = ()
    gangs: tuple[ActivePlugin, ...] = ()
    pre_bind: tuple[ActivePlugin, ...] = ()
    post_bind: tuple[ActivePlugin, ...] = ()
    judge: Callable[[Arithmetic, Snapshot, BoolArray, IntArray], None] = Arithmetic.judge
    events: Mapping[str, tuple[EventHint, ...]] = field(default_factory=dict)

    def concerning(self, pod: PodClass) -> "Profile":
        """Return the profile without the plugins that have nothing to say about such a pod."""

        def left(actives: tuple[ActivePlugin, ...]) -> tuple[ActivePlugin, ...]:
            return tuple([a for a in actives if not _ignores(a, pod)])

        return replace(
            self,
            pre_filter=left(self.pre_filter),
            prefer_nodes=left(self.prefer_nodes),
            filter=left(self.filter),
            score=left(self.score),
            reserve=left(self.reserve),
            permit=tuple([active for active in self.permit if _permits(active, pod)]),
            pre_bind=left(self.pre_bind),
        )


def _ignores(active: ActivePlugin, pod: PodClass) -> bool:
    ask = getattr(active.plugin, "ignores", None)
    return ask is not None and ask(pod)


def _permits(active: ActivePlugin, pod: PodClass) -> bool:
    ask = getattr(active.plugin, "permits", None)
    return ask is None or ask(pod)


class Spread(Enum):
    """Which raw score becomes the highest one."""

    HIGHEST = auto()
    LOWEST = auto()  # 0, which must be the lowest that there can be


def spread_of(scores: IntArray, max_score: int = MAX_SCORE, *, reverse: bool = False) -> IntArray:
    """Scale so that the highest raw score becomes ``max_score``; reversed, the lowest.

    Source: kubernetes pkg/scheduler/framework/plugins/helper/normalize_score.go.
    """
    top = int(scores.max(initial=0))
    if top == 0:
        return np.full_like(scores, max_score) if reverse else scores
    scaled = scores * max_score // top
    return max_score - scaled if reverse else scaled


__all__ = [
    "MAX_SCORE",
    "NOTHING",
    "POINTS",
    "Action",
    "ActivePlugin",
    "AllocationResult",
    "Allows",
    "Arithmetic",
    "Attempt",
    "ClusterEvent",
    "EventHint",
    "HintFunction",
    "Lack",
    "Member",
    "NoArgs",
    "Nomination",
    "NumaAligner",
    "NumaHintProvider",
    "Permit",
    "PluginSpec",
    "PostFilterResult",
    "Profile",
    "QueueGate",
    "QueueingHint",
    "Reads",
    "Refusal",
    "Rejections",
    "Shortlist",
    "Spread",
    "WhatIf",
    "spread_of",
]
