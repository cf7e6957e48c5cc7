"""What a plugin may be asked, concern by concern, in the order in which it is asked.

A plugin has the methods of one concern or of several.  ``SchedulingPlugin`` is all of them
together: what the scheduler may ask of a plugin of which ``ActivePlugin.has`` says that it has it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol, Self

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangCache
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract.hints import PluginHints
from koordinator.scheduler.contract.results import (
    AllocationResult,
    Nomination,
    Permit,
    Reads,
    Refusal,
    Rejections,
    Shortlist,
)
from koordinator.scheduler.post_filter import Attempt, PostFilterResult, Shortfall
from koordinator.scheduler.snapshot import PlacedPod, PodClass, RestorableHolds, Snapshot
from koordinator.scheduler.snapshot.objects import ObjectChange, ObjectTable


class ConfiguredPlugin(Protocol):
    """What is told once, when the profile is built."""

    def with_gates(self, gates: FeatureGates) -> Self:
        """Return the plugin as the feature gates that are on change it."""
        ...

    def setup(self, plugins: Sequence[object]) -> None:
        """Look for those plugins of the profile that play a part here (``NumaAligner`` …)."""
        ...


class SelectivePlugin(Protocol):
    """A plugin that has nothing to say about most pods."""

    def applies(self, pod: PodClass) -> bool:
        """Return whether it may have anything to say about such pods, whatever the cluster is like.

        Of others nobody asks it.  Default: it does.
        """
        ...


class QueuePlugin(Protocol):
    """Before a pod is tried."""

    def transform(self, pod: Pod) -> Pod:
        """Return the pod as scheduling shall see it.

        Koordinator's transformers of informers, and BeforePreFilter.
        """
        ...

    def pre_enqueue(self, pod: Pod, objects: ObjectTable) -> Refusal | None:
        """Return why the pod must not enter the queue yet; None: it may."""
        ...

    def next_pod(self, waiting: Callable[[str], object | None]) -> str | None:
        """Return the key of a pod to try before the head of the queue (Koordinator: NextPodPlugin).

        ``waiting`` returns what the queue has under a key.
        """
        ...


class PreFilterPlugin(Protocol):
    """Whatever the node."""

    def prefilter(self, snapshot: Snapshot, pod: PodClass) -> Refusal | Shortlist | None:
        """Refuse the pod, or name the only nodes that it may run on."""
        ...

    def prefer_nodes(self, snapshot: Snapshot, pod: PodClass) -> Iterable[int]:
        """Return rows to try first, in order (Koordinator: PreferNodes)."""
        ...

    def find_one_node(self, snapshot: Snapshot, pod: PodClass) -> int | None:
        """Return the row of a place planned beforehand, taken if every filter accepts it."""
        ...


class CountingPlugin(PreFilterPlugin, Protocol):
    """A plugin whose ``prefilter`` accepts so many pods only, as a quota.

    Its ``hints`` has a ``version``.
    """

    def run_limit(self, snapshot: Snapshot, pod: PodClass, most: int) -> int:
        """Return how many pods of that ``key`` and of equal requests are accepted in a row.

        At most ``most``; asked about a pod that is accepted.
        """
        ...

    def shortfall(self, snapshot: Snapshot, pods: Sequence[PodClass]) -> Shortfall | Refusal | None:
        """Return what others must free before all these are accepted; None: nothing."""
        ...


class PodRecordsPlugin(Protocol):
    """A plugin that keeps records of single pods, which a ``PodClass`` does not show.

    The records change what a pod adds to its node, not the verdict or the score of a node for it.
    """

    def distinguishes(self, snapshot: Snapshot, keys: Collection[str]) -> bool:
        """Return whether one of these pods may count otherwise than its class, once it is placed.

        Pods with such a one among them are decided one by one.  Default: they all count alike.
        """
        ...


class ReservationPlugin(Protocol):
    """A plugin that holds room which some pods may use."""

    def restorable(self, snapshot: Snapshot, pod: PodClass) -> RestorableHolds | None:
        """Return what is held that the pod may use: free while nodes are judged for it."""
        ...

    def nominate(self, node: Snapshot, pod: PodClass) -> Nomination | Refusal:
        """Return which of it the pod uses on a node; asked before others reserve."""
        ...


class NodeFilterPlugin(Protocol):
    """Which nodes don't do."""

    reads: ClassVar[Reads]  # what the answer depends on

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Return which nodes are rejected and why."""
        ...


class NodeScorePlugin(Protocol):
    """Which nodes are better."""

    reads: ClassVar[Reads]

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``, in 0..max_score unless ``normalize`` follows."""
        ...


class RelativeScorePlugin(Protocol):
    """A plugin whose scores are made comparable over the nodes that fit."""

    def score_among(self, snapshot: Snapshot, pod: PodClass, feasible: IntArray) -> IntArray:
        """Return raw scores ``(k,)`` of the feasible rows, in place of ``score``.

        For a plugin with ``Reads.CLUSTER`` whose raw scores depend on which nodes are feasible.
        """
        ...

    def normalize(self, raw: IntArray) -> IntArray:
        """Return final scores ``(k,)`` in 0..max_score of the raw ones of feasible nodes."""
        ...


class ReservePlugin(Protocol):
    """What a pod takes on its node besides its requests."""

    def prefer_devices(self, node: Snapshot, pod: PodClass) -> IntArray | None:
        """Return ``(n_minors,)``: which GPU a score plugin had in mind; the highest wins."""
        ...

    def reserve(
        self, node: Snapshot, pod: PodClass, preference: IntArray | None
    ) -> AllocationResult | Refusal:
        """Return what the pod takes on a node; not asked where ``hints.filters`` says False."""
        ...


class PermitPlugin(Protocol):
    """Whether a pod that has its node may be bound now."""

    def permit(self, pod: Pod, node: str) -> Permit:
        """Allow, refuse, or wait."""
        ...


class GangPlugin(PermitPlugin, Protocol):
    """A plugin that has pods decided together."""

    gangs: GangCache  # kept up to date by whoever runs the plugin
    notifies_all_members: bool  # members that are not to blame are told why their gang has no place

    def job_refusal(self, attempt: Attempt, ours: str) -> str:
        """Return why no room can be made for a job, given what was found out about it."""
        ...


class BindPlugin(Protocol):
    """Around the bind."""

    def pre_bind(self, objects: ObjectTable, pod: Pod, node: str) -> Permit:
        """Say whether what was assumed of other objects has come true in the cluster.

        Asked before the bind of a pod that ``reserve`` was asked about.
        """
        ...

    def post_bind(self, pod: Pod, node: str) -> None:
        """Hear that the pod has been bound."""
        ...


class PostFilterPlugin(Protocol):
    """What could be done about a pod that fits nowhere."""

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Return what could be done about a pod, or about a gang of which too few members fit."""
        ...

    def cleanup_before_retry(self, snapshot: Snapshot, pod: PodClass) -> ObjectChange | None:
        """Return how to take away what an earlier attempt has left, and a new one can't go on with.

        Asked about members of a gang before they are tried; of others ``postfilter`` takes it away.
        """
        ...

    def may_preempt(self, pod: Pod, victim: PlacedPod) -> bool:
        """Return whether a more important pod could have another one evicted, on whatever node."""
        ...


class LearningPlugin(Protocol):
    """A policy that learns the mix."""

    def on_arrival(self, snapshot: Snapshot, pod: PodClass) -> None:
        """Hear that a pod is tried for the first time."""
        ...


class FastPlugin(Protocol):
    """A plugin that says what makes it quicker to ask."""

    @property
    def hints(self) -> PluginHints:
        """Return what exists for throughput alone."""
        ...


class ExplainMethods(Protocol):
    """What people are told: all optional."""

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return what exactly the filter has against the node of a row view."""
        ...

    def duplicate_of(self, snapshot: Snapshot, pod: PodClass) -> tuple[str, BoolArray]:
        """Return a plugin and ``(n,)`` where the filter says only what that one says, too."""
        ...

    def node_remedy(self, view: Snapshot, pod: PodClass) -> str:
        """Return what to change about a node so that the filter accepts it.

        Empty: nothing that an operator should.
        """
        ...

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return how to change the pod so that the filter accepts the node, and that pod."""
        ...

    def reduced_requests(self, view: Snapshot, pod: PodClass) -> list[dict[str, int]]:
        """Return requests with which the filter might accept the node, the largest first.

        Resources that are not named stay as they are.
        """
        ...

    def required_size(self, view: Snapshot, pod: PodClass) -> str:
        """Return what an empty node like it would have to have; empty: no size would do."""
        ...

    def node_shortfall(self, view: Snapshot, pod: PodClass) -> Mapping[str, int] | None:
        """Return what the node of a pod with restorable holds has too little of.

        The pod may not use all of them together.  None: there are no restorable holds on the row.
        """
        ...

    def is_blocked_cluster_wide(self, view: Snapshot, pod: PodClass) -> bool:
        """Return whether a new node like it would be rejected as well, because of other pods."""
        ...

    def refusal_detail(self, snapshot: Snapshot, pod: PodClass) -> str:
        """Return what exactly ``prefilter`` means where it refuses the pod."""
        ...

    def remedy(self, snapshot: Snapshot, pod: PodClass) -> tuple[str, bool]:
        """Return what would let pass a pod that ``prefilter`` refuses, and whether it is enough.

        Empty: unknown.
        """
        ...

    def relaxed_limits(self, snapshot: Snapshot, pod: PodClass) -> AbstractContextManager[str]:
        """Raise the limits that refuse the pod, within the context, to try what else it lacks.

        The context gives the text of that remedy, empty if there is none.
        """
        ...


class SchedulingPlugin(
    ConfiguredPlugin,
    SelectivePlugin,
    QueuePlugin,
    CountingPlugin,
    PodRecordsPlugin,
    ReservationPlugin,
    NodeFilterPlugin,
    NodeScorePlugin,
    RelativeScorePlugin,
    ReservePlugin,
    GangPlugin,
    BindPlugin,
    PostFilterPlugin,
    LearningPlugin,
    FastPlugin,
    ExplainMethods,
    Protocol,
):
    """Every concern; no plugin has them all."""


#: What a plugin may have.
METHODS: frozenset[str] = frozenset(
    name
    for concern in SchedulingPlugin.__mro__
    for name in (*vars(concern), *getattr(concern, "__annotations__", {}))
    if concern.__module__ == __name__ and not name.startswith("_")
)
