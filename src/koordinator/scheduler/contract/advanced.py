"""Contract of scheduler plugins, second page: what few plugins need.

``PluginHints`` make a plugin faster without changing its results.  ``SchedulingPlugin`` adds to
``plugin.BasicPlugin`` the methods of reservations, devices, gangs, preemption and claims, in the
order in which the scheduler calls them, and the page ``explanations``.  ``ActivePlugin.has`` names
the methods that a plugin has.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from enum import Enum, auto
from typing import Final, Protocol, Self

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, PodExtendedResourceClaimStatus
from koordinator.api.pod_groups import SchedulingPodGroup
from koordinator.domain.gangs import GangCache
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract.explanations import PluginExplanations
from koordinator.scheduler.contract.plugin import BasicPlugin, Refusal
from koordinator.scheduler.post_filter import Attempt, PostFilterResult, Shortfall, WhatIf
from koordinator.scheduler.rules.usage_kernels import Formula, PluginColumns
from koordinator.scheduler.snapshot import (
    NO_ALLOCATION,
    Hold,
    ObjectChange,
    ObjectTable,
    PlacedPod,
    PodAllocation,
    PodClass,
    RestorableHolds,
    Snapshot,
)

# -- hints ---------------------------------------------------------------------------------------


class Spread(Enum):
    """The raw score that ``normalize`` makes the highest one."""

    HIGHEST = auto()
    LOWEST = auto()  # 0, the lowest raw score that the plugin can return


def _whole_class(pod: PodClass) -> Hashable:
    return pod.id


def _always(_snapshot: Snapshot, _pod: PodClass) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class PluginHints:
    """Facts about a plugin that allow to cache its results, or to compute them in bulk.

    Results are the same without them.  For ``Reads.NODE``, ``USAGE`` and ``PLACED`` each row is
    independent of the others (``filter(s[rows]) == filter(s)[rows]``).  ``prefilters``, ``filters``
    and ``scores`` depend only on the pod, on the traits of the cluster (``Snapshot.traits``) and on
    whether the pod has restorable holds.  With both rules, results are cacheable row by row.
    ``concerns`` depends on the same, for a plugin with ``Reads.CLUSTER``, too.
    """

    #: the part of the pod class that a node-local plugin reads; default: the whole class
    key: Callable[[PodClass], Hashable] = _whole_class
    #: a value that changes when cached results of the plugin become stale on every row
    version: Callable[[Snapshot], Hashable] | None = None
    #: False skips ``filter`` and ``score``: until ``Snapshot.traits`` change, all nodes are
    #: accepted and have equal scores, whatever pods are placed
    concerns: Callable[[Snapshot, PodClass], bool] = _always
    #: False skips ``prefilter``, which would not refuse the pod
    prefilters: Callable[[Snapshot, PodClass], bool] = _always
    #: False skips ``filter``, which would accept every node (kube: PreFilter returns Skip)
    filters: Callable[[Snapshot, PodClass], bool] = _always
    #: False skips ``score`` (kube: PreScore returns Skip)
    scores: Callable[[Snapshot, PodClass], bool] = _always
    #: columns and amounts; ``filter`` rejects the rows where one amount exceeds what is free
    compares: Callable[[PodClass], tuple[IntArray, IntArray]] | None = None
    #: whether ``filter`` rejects such pods for other reasons, too; default: it does not
    rejects_otherwise: Callable[[PodClass], bool] | None = None
    #: ``score`` as a formula of amounts; None: the score of that pod is no formula
    formula: Callable[[Snapshot, PodClass], Formula | None] | None = None
    #: filter and score in one pass: sets ``fits``, ``(n,)``, to False where the filter rejects, and
    #: adds the weight times the score to ``total``, ``(n,)``, at least on the other rows
    judge: Callable[[Snapshot, PodClass, int, BoolArray, IntArray], None] | None = None
    #: filter and raw score in one pass: sets ``fits``, ``(n,)``, to False where the filter rejects,
    #: and returns the raw scores, ``(n,)``
    rate: Callable[[Snapshot, PodClass, BoolArray], IntArray] | None = None
    #: ``judge`` as arithmetic on columns of its own, for these classes on the rows of the snapshot,
    #: so that batches may have such pods
    columns: Callable[[Snapshot, Sequence[PodClass]], PluginColumns] | None = None
    #: filter, raw score and allocation as states of nodes, so that batches may have such pods;
    #: requires ``rate``, and that ``normalize`` computes ``spread_of``
    states: "Callable[[Snapshot], NodeStates] | None" = None
    #: whether ``run_limit`` and ``shortfall`` depend on the sum of the requests of pods alone
    limits_sums: bool = False
    #: whether placing such a pod changes only amounts and pod counts for the plugin; default: it
    #: does not read ``PLACED`` and reserves nothing for the pod
    changes_amounts_only: Callable[[Snapshot, PodClass], bool] | None = None
    #: set if ``normalize`` computes ``spread_of``
    spread: Spread | None = None

    def overrides(self) -> dict[str, object]:
        """Return the hints that differ from their defaults, by name."""
        hints = {name: getattr(self, name) for name in _DEFAULT_HINTS}
        return {name: hint for name, hint in hints.items() if hint is not _DEFAULT_HINTS[name]}


_DEFAULT_HINTS: Mapping[str, object] = {field.name: field.default for field in fields(PluginHints)}


# -- results -------------------------------------------------------------------------------------


@dataclass(slots=True, unsafe_hash=True)  # making a frozen one takes three times as long
class AllocationResult:
    """The devices and objects that a pod takes on its node, and the metadata that the bind writes.

    Read only.
    """

    pod_allocation: PodAllocation = NO_ALLOCATION
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    #: new versions of other objects (volumes, claims), assumed now and written before the bind
    objects: tuple[KubeObject, ...] = ()
    #: changes of other objects, assumed now and written before the bind; each is applied to the
    #: version of its object at that time
    changes: tuple[ObjectChange, ...] = ()
    #: the claim among them that serves extended resources, for the pod's status before the bind
    device_claim: PodExtendedResourceClaimStatus | None = None
    #: annotations with the time of the bind, from nanoseconds since the epoch
    stamps: tuple[Callable[[int], Mapping[str, str]], ...] = ()
    #: annotation that locks the node before the bind until its device plugin has served the pod;
    #: empty: none
    node_lock: str = ""
    #: placed pods that use the reservation of this reserve pod from now on
    takes_over: tuple[Pod, ...] = ()

    @property
    def is_on_node(self) -> bool:
        """Whether it consists of devices and CPUs of the node, so that its place is all to undo."""
        allocation = self.pod_allocation
        return allocation.offer is None and not (
            allocation.uses
            or self.objects
            or self.changes
            or self.node_lock
            or self.takes_over
            or self.device_claim
        )

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
class Nomination:
    """The hold on its node that a pod uses; None: it uses none.

    The pod may take devices and CPUs from the holds in ``restored``, and takes them from those in
    ``first`` before any others.
    """

    uses: Hold | None = None
    restored: tuple[Hold, ...] = ()
    first: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Permit:
    """The decision about the bind of a pod that has its node; the default allows it."""

    wait_s: float = 0.0  # > 0: keep the node and call again, for at most this long
    refusal: Refusal | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)  # written with the bind
    drivers: tuple[str, ...] = ()  # of devices with binding conditions, one for each device


@dataclass(frozen=True, slots=True)
class QueueGate:
    """The plugin that keeps a pod out of the queue, and its message."""

    plugin: str
    message: str


UNKNOWN: Final = -1  # in ``NodeStates.following``: not worked out yet
REFUSED: Final = -2  # in ``NodeStates.following``: such a pod has to be decided on its own
UNRATED: Final = -(1 << 62)  # in ``NodeStates.ratings``: not worked out yet


class NodeStates(Protocol):
    """States of all nodes for a plugin, and what becomes of them with each kind of pod.

    A state is all that the plugin reads of a node, as a number: the row of ``ratings`` and
    ``following``.  Their columns are kinds of pods that the plugin does not distinguish.  They may
    be replaced by larger arrays when something is worked out.  Rule R4: plugins meet only through
    the contract, and the cycle knows none of them.
    """

    ratings: IntArray  # (n_states, n_columns): raw score r; -1 - r where the plugin rejects
    following: IntArray  # (n_states, n_columns): the state with one more pod

    def refresh(self, snapshot: Snapshot) -> IntArray:
        """Return ``(n,)``: the state of each row as of now.  Columns may have changed."""
        ...

    def column(self, snapshot: Snapshot, pod: PodClass) -> int | None:
        """Return the column of such pods; None if more than states decides about them."""
        ...

    def rate(self, column: int) -> None:
        """Work out the ratings of a column that are not known."""
        ...

    def follow(self, state: int, column: int) -> None:
        """Work out what follows a state with one more pod, where that is ``UNKNOWN``."""
        ...

    def results(
        self, rows: IntArray, states: IntArray, columns: IntArray
    ) -> Sequence[AllocationResult]:
        """Return what pods ``(p,)`` get on rows in these states; column -1 gets nothing."""
        ...

    def settle(self, states: IntArray, position: int) -> None:
        """Note the states of all rows, ``(n,)``, as of ``Snapshot.position``."""
        ...


# -- methods -------------------------------------------------------------------------------------


class SchedulingPlugin(BasicPlugin, PluginExplanations, Protocol):
    """Every method of the contract; each is optional, and no plugin has them all."""

    # Setup: once, when the profile is built; ``setup`` follows when all its plugins are there.

    def with_gates(self, gates: FeatureGates) -> Self:
        """Return the plugin as the enabled feature gates change it."""
        ...

    @property
    def hints(self) -> PluginHints:
        """The hints; default: none."""
        ...

    def setup(self, plugins: Sequence[object]) -> None:
        """Find the plugins of the profile that this one works with (see ``peers``)."""
        ...

    # Queue: when a pod arrives or changes, before each pod is popped, at the first attempt.

    def transform(self, pod: Pod) -> Pod:
        """Return the pod to schedule (Koordinator: informer transformers, BeforePreFilter)."""
        ...

    def next_pod(self, waiting: Callable[[str], object | None]) -> str | None:
        """Return the key of a pod to try before the head of the queue (Koordinator: NextPodPlugin).

        ``waiting`` returns the queue's entry for a key.
        """
        ...

    def on_arrival(self, snapshot: Snapshot, pod: PodClass) -> None:
        """Learn from a pod that is tried for the first time."""
        ...

    # PreFilter: with each attempt, before the nodes are looked at; ``run_limit`` and ``shortfall``
    # for runs of equal pods and for gangs.

    def restorable(self, snapshot: Snapshot, pod: PodClass) -> RestorableHolds | None:
        """Return the holds that the pod may use; their room is free while nodes are evaluated.

        Not called for a pod without annotations while no reservation holds anything.
        """
        ...

    def prefer_nodes(self, snapshot: Snapshot, pod: PodClass) -> Iterable[int]:
        """Return rows to try first, in order (Koordinator: PreferNodes)."""
        ...

    def find_one_node(self, snapshot: Snapshot, pod: PodClass) -> int | None:
        """Return a row planned for the pod; it is taken if every filter accepts it."""
        ...

    def run_limit(self, snapshot: Snapshot, pod: PodClass, most: int) -> int:
        """Return how many pods in a row ``prefilter`` accepts, such as the rest of a quota.

        Counts pods of the pod's ``hints.key`` and requests, at most ``most``; called for a pod that
        ``prefilter`` accepts.  Requires ``hints.version``.
        """
        ...

    def shortfall(self, snapshot: Snapshot, pods: Sequence[PodClass]) -> Shortfall | Refusal | None:
        """Return what other pods must free before ``prefilter`` accepts all these; None: nothing.

        Requires ``run_limit``.
        """
        ...

    # Filter and Score: with each attempt, ``distinguishes`` before pods are decided in a batch.

    def distinguishes(self, snapshot: Snapshot, keys: Collection[str]) -> bool:
        """Return whether one of these pods may change its node otherwise than its class does.

        The plugin keeps records of such a pod, which is not decided in a run.  Default: False.
        """
        ...

    def score_among(self, snapshot: Snapshot, pod: PodClass, feasible: IntArray) -> IntArray:
        """Return raw scores ``(k,)`` of the feasible rows, in place of ``score``.

        For a plugin with ``Reads.CLUSTER`` whose raw scores depend on which nodes are feasible.
        """
        ...

    # Reserve: on the best node, and on the next best one where a plugin refuses.

    def nominate(self, node: Snapshot, pod: PodClass) -> Nomination | Refusal:
        """Return which restorable hold on a node the pod uses; called before ``reserve``."""
        ...

    def prefer_devices(self, node: Snapshot, pod: PodClass) -> IntArray | None:
        """Return ``(n_minors,)`` ranks of the GPUs of a node; the highest is taken first."""
        ...

    def reserve(
        self, node: Snapshot, pod: PodClass, preference: IntArray | None
    ) -> AllocationResult | Refusal:
        """Allocate for the pod on a node; not called where ``hints.filters`` returns False."""
        ...

    # Permit and gangs: once the pod has its place; for a gang that is decided together, before.

    def permit(self, pod: Pod, node: str) -> Permit:
        """Allow or refuse the bind, or wait."""
        ...

    gangs: GangCache  # decides pods together; the scheduler keeps it current

    def job_refusal(self, attempt: Attempt, ours: str) -> str:
        """Return the message for a gang for which no room can be made."""
        ...

    def placements(self, snapshot: Snapshot, key: str) -> Mapping[str, IntArray]:
        """Return the rows that may take a pod group together, by value of a node label.

        ``key`` is the label of the group's topology constraint (kube: PlacementGenerate).
        """
        ...

    def score_placement(self, snapshot: Snapshot, rows: IntArray, members: int) -> int:
        """Return the raw score of a placement that holds the group (kube: PlacementScore).

        ``members`` of the group have nodes, placed earlier or in this placement.
        """
        ...

    def normalize_placements(self, raw: Sequence[int]) -> list[int]:
        """Return the scores, 0..100, for the raw scores of all placements; default: the same."""
        ...

    # Bind: once all permits are there, and again with each step of the loop while it waits.

    def pre_bind(self, objects: ObjectTable, pod: Pod, node: str) -> Permit:
        """Return whether the cluster has what ``reserve`` assumed of other objects.

        Called before the bind of a pod for which ``reserve`` was called.
        """
        ...

    # PostFilter: when no node is left.

    def postfilter(self, attempt: Attempt) -> PostFilterResult:
        """Make room for a pod that fits nowhere, or for a gang without enough nodes."""
        ...

    def cleanup_before_retry(self, snapshot: Snapshot, pod: PodClass) -> ObjectChange | None:
        """Return the change that removes leftovers of an earlier attempt.

        Called for members of a gang before they are tried; ``postfilter`` does it for other pods.
        """
        ...

    def free_group_claim(
        self, what_if: WhatIf, members: Sequence[PodClass], group: SchedulingPodGroup
    ) -> ObjectChange | None:
        """Return the change of a claim that may help a PodGroup without placed members."""
        ...

    def may_preempt(self, pod: Pod, victim: PlacedPod) -> bool:
        """Return whether the pod could have another one evicted, on any node."""
        ...


#: Names of the methods and attributes of the contract.
METHODS: frozenset[str] = frozenset(
    name
    for part in (BasicPlugin, PluginExplanations, SchedulingPlugin)
    for name in (*vars(part), *part.__annotations__)
    if not name.startswith("_")
)
