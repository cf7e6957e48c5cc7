"""What a plugin of the descheduler is, and what it is given.

A plugin is built once per profile from its arguments and a ``Handle``.  It takes part in every
extension point whose protocol it fulfils and at which its profile enables it:

==============  ====================================================================================
``deschedule``  ``DeschedulePlugin``: looks at pods one by one, first in a cycle
``balance``     ``BalancePlugin``: looks at nodes and pods together, after all of the former
``evict``       ``EvictPlugin``: makes a pod go; a profile has exactly one
``filter``      ``FilterPlugin``: which pods may go; all of a profile have to agree
==============  ====================================================================================

A plugin that works between cycles too is a ``PluginController`` besides.

What a plugin sees of the cluster stands still during a cycle.  It asks ``Handle.evictor`` whether a
pod may go and makes it go; limits, dry run and counting are that one's affair.  A plugin reads no
clock but that of its handle, and writes through ``Handle.writer`` alone.
Source: koordinator pkg/descheduler/framework/types.go.
"""

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from koordinator.api.annotations.descheduling import ProvenMove
from koordinator.api.event import Event
from koordinator.api.meta import JsonObject, KubeObject, LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.api.reservation import Reservation
from koordinator.descheduler.configuration import POINTS, DeschedulerPluginArgs
from koordinator.descheduler.moves import MoveGoal
from koordinator.foundation.clock import Clock

KindT = TypeVar("KindT", bound=KubeObject)
ArgsT = TypeVar("ArgsT", bound=DeschedulerPluginArgs)

#: What the API server makes of a write of an evict plugin; ``result`` of ``pods_evicted``.
SUCCESS, ERROR = "success", "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictOptions:
    """Who wants a pod to go, and why.  An empty reason is that of a plugin that gives none."""

    plugin: str
    profile: str
    reason: str = ""
    delete_options: DeleteOptions | None = None
    proven: ProvenMove | None = None
    avoided_nodes: tuple[str, ...] = ()  # where the place that is reserved for the pod must not be


class DeschedulePlugin(Protocol):
    """Makes pods go that should not be where they are."""

    def deschedule(self, nodes: Sequence[Node]) -> None:
        """Look at the pods of these nodes, which are in the order of their names.

        Raises InputError or ClusterError: the cycle ends after this profile's plugins.
        """


class BalancePlugin(Protocol):
    """Makes pods go so that those that stay are spread better."""

    def balance(self, nodes: Sequence[Node]) -> None:
        """Look at these nodes, which are in the order of their names, and at their pods.

        Raises InputError or ClusterError: the cycle ends after this profile's plugins.
        """


class EvictPlugin(Protocol):
    """Makes pods go, or has somebody else see to it."""

    def evict(self, pod: Pod, options: EvictOptions) -> bool:
        """Return whether the pod goes or will go; nothing is checked before but the limits."""
        ...


@runtime_checkable
class ReservingEvictPlugin(Protocol):
    """An evict plugin that may reserve a place before a pod goes."""

    def place_to_reserve(self, pod: Pod, avoided_nodes: tuple[str, ...] = ()) -> Reservation | None:
        """Return the reservation that would be made for a pod; None: it goes without.

        It is not on the nodes that are avoided.
        Raises InputError if none can be made.
        """
        ...


@runtime_checkable
class LastingEvictPlugin(Protocol):
    """An evict plugin that makes pods go later than it was told to."""

    def moves_under_way(self) -> Iterable[tuple[Pod, Reservation | None]]:
        """Yield the pods that are still to go, and whose places nothing keeps yet, in their turn.

        With each comes the reservation that is to keep its place; None: it goes without.
        """
        ...


@runtime_checkable
class GroupEvictPlugin(Protocol):
    """An evict plugin that can make several pods go, or none of them."""

    def evict_together(self, pods: Sequence[tuple[Pod, EvictOptions]]) -> bool:
        """Return whether all go or will go; else none does."""
        ...


class FilterPlugin(Protocol):
    """Says which pods may go."""

    def filter(self, pod: Pod) -> bool:
        """Return whether the pod may go at all."""
        ...

    def pre_eviction_filter(self, pod: Pod) -> bool:
        """Return whether the pod may go right now; may look at more than ``filter``."""
        ...


@runtime_checkable
class PluginController(Protocol):
    """A plugin with work of its own between cycles, such as to see a move through.

    Nothing is asked of it before everything that exists has been delivered, nor while the process
    does not lead.
    """

    def observe(self, obj: KubeObject, *, deleted: bool) -> None:
        """Take note of an object of ``watches``, or a node, pod or namespace, that has changed.

        The view shows the change already.
        """

    def step(self) -> int:
        """Do what is due now; return how many objects were looked at, 0 when nothing is due."""
        ...

    def next_wakeup_s(self) -> float | None:
        """Return when something is due although nothing happens; None if never."""
        ...


class ClusterView(Protocol):
    """What exists: nodes, pods, namespaces, and kinds of ``DeschedulerPluginSpec.watches``."""

    def objects(self, kind: type[KindT]) -> Mapping[str, KindT]:
        """Return all objects of a watched kind by key; none of a kind that is not watched."""
        ...

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Return the pods of a node in whatever phase, in the order of namespace and name."""
        ...

    def active_pods_on(self, node: str) -> Sequence[Pod]:
        """Return the pods of a node that have not finished, in the order of namespace and name."""
        ...

    def requested_on(self, node: str) -> Mapping[str, int]:
        """Return what the active pods of a node hold; ``pods`` is how many there are."""
        ...

    def held_by(self, pod: Pod) -> dict[str, int]:
        """Return what a pod holds on its node, which differs from its requests in a resize."""
        ...

    def pods_owned_by(self, uid: str) -> Sequence[Pod]:
        """Return the pods that name an owner of that uid, in the order of namespace and name."""
        ...


class ClusterWriter(Protocol):
    """The verbs that change something, as in ``cluster.port``; each raises ClusterError."""

    def get(self, kind_type: type[KindT], name: str, namespace: str = "") -> KindT:
        """Return one object as it is now, for who must not act on old events."""
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
    """What a plugin asks and tells about pods that it wants to go."""

    def filter(self, pod: Pod) -> bool:
        """Return whether all filter plugins of the profile let the pod go."""
        ...

    def pre_eviction_filter(self, pod: Pod) -> bool:
        """Return whether they all let it go right now."""
        ...

    def evict(
        self,
        pod: Pod,
        reason: str = "",
        delete_options: DeleteOptions | None = None,
        *,
        goal: MoveGoal | None = None,
    ) -> bool:
        """Make the pod go if the limits of the cycle allow; return whether it goes.

        Where moves are proven, it goes only if its replacement lands on another node and the goal
        comes true; without a goal, to be elsewhere is enough.  A member of a gang goes with all
        others.  In a dry run it is counted and told, and stays.
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
        """Return whether all these pods can go, which are useless moves one without the other.

        ``avoiding`` are nodes on which no place is reserved for them: the next ``evict`` of each
        sees to that, proven or not.  ``then`` are pods that wait, a gang or one alone, and have to
        find their places when all have gone; with them, either all pods are within the limits of
        the cycle, or none goes.

        Then ``evict`` finds them proven.  True, too, where moves are not proven.  ``cordoning`` is
        a node that is to take no new pods.
        """
        ...

    def is_node_limit_reached(self, node: str) -> bool:
        """Return whether no further pod of a node may go in this cycle."""
        ...

    def evicted_total(self) -> int:
        """Return how many pods went in this cycle, whoever wanted it."""
        ...


#: Counts an eviction: plugin that wanted it, pod, and what became of it.
EvictionCounter = Callable[[str, Pod, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """What a plugin is given when it is built."""

    profile: str
    plugin: str
    profiles: tuple[str, ...] = ()  # all of them, in their order
    view: ClusterView
    evictor: Evictor
    writer: ClusterWriter
    clock: Clock
    wall_clock: Clock | None = None  # that times of API objects are compared with; None: ``clock``
    count: EvictionCounter
    gates: frozenset[str] = frozenset()  # feature gates that are on
    is_dry_run: bool = False
    interval_s: float = 0.0  # between two cycles; 0: there is one
    node_selector: LabelSelector | None = None  # of the profile

    def date_s(self) -> float:
        """Return the time that times of API objects are compared with."""
        return (self.wall_clock or self.clock).now_s()


@dataclass(frozen=True)
class DeschedulerPluginSpec(Generic[ArgsT]):
    """A plugin as the profile knows it.

    ``build`` must say what it returns: the extension points are read off it.  ``watches`` are kinds
    that the plugin reads besides nodes, pods and namespaces.
    """

    name: str
    args: type[ArgsT]
    build: Callable[[ArgsT, Handle], Any]
    watches: tuple[type[KubeObject], ...] = ()
    proves_moves: bool = False  # unless the configuration says otherwise

    @cached_property
    def points(self) -> frozenset[str]:
        """The extension points that the plugin implements: each is called like its method."""
        returned: type = typing.get_type_hints(self.build)["return"]
        return frozenset(point for point in POINTS if hasattr(returned, point))
