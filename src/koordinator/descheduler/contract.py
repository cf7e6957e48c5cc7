"""Contract of descheduler plugins: extension points, and the handle that a plugin is built with.

A plugin is built once per profile from its arguments and a ``Handle``.  It runs at every extension
point whose protocol it implements and at which its profile enables it:

==============  ====================================================================================
``deschedule``  ``DeschedulePlugin``: evicts single pods; runs first in a cycle
``balance``     ``BalancePlugin``: compares nodes; runs after all ``deschedule`` plugins
``evict``       ``EvictPlugin``: performs evictions; a profile has exactly one
``filter``      ``FilterPlugin``: protects pods; all filters of a profile must pass a pod
==============  ====================================================================================

A plugin that also works between cycles implements ``PluginController``.

The view of the cluster does not change during a cycle.  A plugin checks and evicts pods through
``Handle.evictor``, which applies limits and dry run and counts results.  A plugin reads only the
clocks of its handle, and writes only through ``Handle.writer``.
A plugin expresses the purpose of a move as a ``MoveGoal``.  The prover evaluates the goal with the
node that the scheduler chose in a dry run.

Source: koordinator pkg/descheduler/framework/types.go.
"""

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from koordinator.api.annotations.scheduling import ProvenMove
from koordinator.api.event import Event
from koordinator.api.meta import JsonObject, KubeObject, LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.api.reservation import Reservation
from koordinator.descheduler.configuration import POINTS, DeschedulerPluginArgs
from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass

#: Results of evictions: label ``result`` of the metric ``pods_evicted``.
SUCCESS, ERROR = "success", "error"


@dataclass(frozen=True, slots=True)
class Relocation:
    """Pod with its node and the node of its replacement."""

    pod: Pod
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class MoveGain:
    """Gain of a move; with an ``amount`` of 0 or less there is none, and ``text`` is the reason.

    Amounts of one plugin are comparable and additive: percentage points of load above a threshold,
    shares of a node, levels.
    """

    amount: float
    text: str


class MoveGoal(Protocol):
    """Purpose of moves; the gain of a move counts the moves ``made`` before."""

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the gain of the moves together."""
        ...

    def made(self, moves: Sequence[Relocation]) -> None:
        """Record moves that are made."""


class SkipReason(StrEnum):
    """Reason why a wanted move is not made; ``result`` of the metric ``pods_evicted``."""

    FOREIGN = "not moved: its scheduler cannot be simulated"
    UNKNOWN = "not moved: the state of the pod is outdated"
    NO_PLACE = "not moved: no other node has room"
    COMES_BACK = "not moved: its replacement would return to the same node"
    CIRCLE = "not moved: its workload recently left the target node"
    NO_GAIN = "not moved: the move has no gain"
    GANG = "not moved: its gang cannot move as a whole"
    REFUSED = "not moved: the dry run failed"


@dataclass(frozen=True, slots=True)
class SkippedMove:
    """Move that is not made, with its reason and details."""

    why: SkipReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.why}: {self.detail}" if self.detail else str(self.why)


@dataclass(frozen=True, slots=True)
class MoveProof:
    """Moves that belong together, with the result of their dry run."""

    moves: tuple[Relocation, ...]
    gain: MoveGain
    after: tuple[str, ...] = ()  # keys of pods that must move first to free the room
    is_gang: bool = False  # all moves are made or none
    is_reserved: bool = False  # a place is reserved before the eviction


KindT = TypeVar("KindT", bound=KubeObject)
ArgsT = TypeVar("ArgsT", bound=DeschedulerPluginArgs)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictOptions:
    """Origin and options of an eviction; ``reason`` may be empty."""

    plugin: str
    profile: str
    reason: str = ""
    delete_options: DeleteOptions | None = None
    proven: ProvenMove | None = None
    avoided_nodes: tuple[str, ...] = ()  # nodes that the reservation for the pod excludes


class DeschedulePlugin(Protocol):
    """Plugin that evicts pods that should not run where they are."""

    def deschedule(self, nodes: Sequence[Node]) -> None:
        """Evict pods of the nodes, which are sorted by name.

        Raises InputError or ClusterError; the cycle then ends after the plugins of the profile.
        """


class BalancePlugin(Protocol):
    """Plugin that evicts pods to distribute the load of the nodes."""

    def balance(self, nodes: Sequence[Node]) -> None:
        """Evict pods of the nodes, which are sorted by name.

        Raises InputError or ClusterError; the cycle then ends after the plugins of the profile.
        """


class EvictPlugin(Protocol):
    """Plugin that evicts pods, or delegates their eviction."""

    def evict(self, pod: Pod, options: EvictOptions) -> bool:
        """Evict the pod, now or later; return whether it is accepted.

        The caller has checked only the limits of the cycle.
        """
        ...


@runtime_checkable
class DeferringEvictPlugin(EvictPlugin, Protocol):
    """Evict plugin that evicts pods later than the call, and may reserve their places first."""

    def place_to_reserve(self, pod: Pod, avoided_nodes: tuple[str, ...] = ()) -> Reservation | None:
        """Return the reservation for a pod that excludes the nodes; None if the pod needs none.

        Raises InputError if it can't be created.
        """
        ...

    def moves_under_way(self) -> Iterable[tuple[Pod, Reservation | None]]:
        """Yield the pods to evict that have no reserved place yet, in the order of the evictions.

        Each comes with its future reservation, None if it needs none.
        """
        ...

    def evict_together(self, pods: Sequence[tuple[Pod, EvictOptions]]) -> bool:
        """Evict all pods, now or later, or none of them; return whether they are accepted."""
        ...


class FilterPlugin(Protocol):
    """Plugin that decides which pods may be evicted."""

    def filter(self, pod: Pod) -> bool:
        """Return whether the pod may be evicted at all."""
        ...

    def pre_eviction_filter(self, pod: Pod) -> bool:
        """Return whether the pod may be evicted now; it may check more than ``filter``."""
        ...


@runtime_checkable
class PluginController(Protocol):
    """Plugin with work between cycles, such as the steps of a move.

    ``step`` is called only after the initial listing, and only while the process is the leader.
    """

    def observe(self, obj: KubeObject, *, deleted: bool) -> None:
        """Process a change of an object of ``watches``, a node, a pod or a namespace.

        The view already contains the change.
        """

    def step(self) -> int:
        """Process due objects; return their number, 0 if none is due."""
        ...

    def next_wakeup_s(self) -> float | None:
        """Return when a step is due without events; None if never."""
        ...


class ClusterView(Protocol):
    """Nodes, pods, namespaces, and objects of the kinds in ``DeschedulerPluginSpec.watches``.

    Rule R9: ``mirror``, which implements it, is above the contract.
    """

    def objects(self, kind: type[KindT]) -> Mapping[str, KindT]:
        """Return all objects of a kind by key; it is empty for a kind that is not watched."""
        ...

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the pods of a node in all phases, sorted by namespace and name."""
        ...

    def active_pods_on(self, node: str) -> Sequence[Pod]:
        """Return the pods of a node that have not finished, sorted by namespace and name."""
        ...

    def requested_on(self, node: str) -> Mapping[str, int]:
        """Return the allocation of the active pods of a node by resource, and ``pods``."""
        ...

    def allocation_of(self, pod: Pod) -> dict[str, int]:
        """Return the allocation of a pod; it differs from its requests during a resize."""
        ...

    def pods_owned_by(self, uid: str) -> Sequence[Pod]:
        """Return the pods with an owner of the uid, sorted by namespace and name."""
        ...


class ClusterWriter(Protocol):
    """Writing verbs of ``cluster.port``; each raises ClusterError."""

    def get(self, kind_type: type[KindT], name: str, namespace: str = "") -> KindT:
        """Read an object from the API server, for decisions that must not use stale events."""
        ...

    def create(self, obj: KindT) -> KindT: ...

    def patch(
        self,
        kind_type: type[KindT],
        name: str,
        namespace: str,
        merge_patch: JsonObject,
        subresource: str = "",
    ) -> KindT: ...

    def delete(
        self,
        kind_type: type[KubeObject],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_s: int | None = None,
    ) -> None: ...

    def evict(
        self, namespace: str, name: str, *, uid: str = "", grace_period_s: int | None = None
    ) -> None: ...

    def report(self, reports: Sequence[Event]) -> None: ...


class Evictor(Protocol):
    """Checks and evictions for a plugin, within the limits of the cycle.

    Rule R9: ``evictor``, which implements it, is above the plugins.
    """

    def filter(self, pod: Pod) -> bool:
        """Return whether all filter plugins of the profile pass the pod."""
        ...

    def pre_eviction_filter(self, pod: Pod) -> bool:
        """Return whether all filter plugins of the profile pass the pod for eviction now."""
        ...

    def evict(
        self,
        pod: Pod,
        reason: str = "",
        delete_options: DeleteOptions | None = None,
        *,
        goal: MoveGoal | None = None,
    ) -> bool:
        """Evict the pod within the limits of the cycle; return whether it is evicted.

        If moves are proven, the pod is evicted only if its replacement is placed on another node
        and the goal gains; without a goal, another node is enough.  A member of a gang is evicted
        with all others.  A dry run counts and reports the eviction without performing it.
        """
        ...

    def prove(
        self,
        pods: Sequence[Pod],
        goal: MoveGoal,
        *,
        cordoning: str = "",
        avoiding: Sequence[str] = (),
        then: Sequence[Pod] = (),
    ) -> bool:
        """Return whether all pods can be moved, where a move is useless without the others.

        The following ``evict`` of each pod uses the proof.  The result is true if moves are not
        proven.  ``cordoning`` is a node that takes no new pods.  ``avoiding`` are nodes that the
        reservations of the next ``evict`` exclude, also if moves are not proven.  ``then`` are
        pending pods, a gang or a single one, that must be placed after all moves; with them the
        limits of the cycle must allow all pods.
        """
        ...

    def is_node_limit_reached(self, node: str) -> bool:
        """Return whether the cycle may evict no further pod of a node."""
        ...

    def evicted_total(self) -> int:
        """Return the number of pods evicted in this cycle by all plugins."""
        ...


#: Counts an eviction: plugin, pod, result.
EvictionCounter = Callable[[str, Pod, str], None]


class WriteAnnouncer(Protocol):
    """Passes an object that a plugin has written to the controllers of all profiles.

    They would count it only when its event arrives, and could exceed a common limit before.
    """

    def __call__(self, obj: KubeObject, *, deleted: bool = False) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """Services that a plugin is built with."""

    profile: str
    plugin: str
    profiles: tuple[str, ...] = ()  # profiles with this plugin, in their order
    view: ClusterView
    evictor: Evictor
    writer: ClusterWriter
    clock: Clock
    wall_clock: Clock | None = None  # comparable with times of API objects; None: ``clock``
    count: EvictionCounter
    announce: WriteAnnouncer
    gates: frozenset[str] = frozenset()  # enabled feature gates
    is_dry_run: bool = False
    interval_s: float = 0.0  # between two cycles; 0: a single cycle
    node_selector: LabelSelector | None = None  # of the profile

    def date_s(self) -> float:
        """Return the current time, comparable with times of API objects."""
        return (self.wall_clock or self.clock).now_s()


@dataclass(frozen=True)
class DeschedulerPluginSpec(Generic[ArgsT]):
    """Declaration of a plugin.

    ``build`` must have a return annotation, from which the extension points are derived.
    ``watches`` are the kinds that the plugin reads besides nodes, pods and namespaces.
    """

    name: str
    args: type[ArgsT]
    build: Callable[[ArgsT, Handle], Any]
    watches: tuple[type[KubeObject], ...] = ()
    proves_moves: bool = False  # default; the configuration may override it

    @cached_property
    def points(self) -> frozenset[str]:
        """Extension points that the plugin implements; each has the name of its method."""
        returned: type = typing.get_type_hints(self.build)["return"]
        return frozenset(point for point in POINTS if hasattr(returned, point))
