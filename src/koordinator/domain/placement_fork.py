"""Port between the descheduler and a scheduler: moves tried on a fork of its state.

A ``PlacementFork`` follows the cluster like a scheduler that binds nothing. Its ``world`` is a
fork of that state: all changes are undone on exit. Results come from the scheduler's own core and
configuration: every filter, score, quota, reservation and device. ``scheduler.fork`` implements
it; components that evict pods use it.

To try a move::

    with fork.world() as world:
        with world.attempt() as attempt:       # all changes are undone ...
            world.remove("default/web-1")
            landing = world.land(replacement)
            if landing.node:
                attempt.keep()                 # ... unless they are kept for the next attempts
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from koordinator.api.annotations.devices import ALLOCATED as DEVICES_ALLOCATED
from koordinator.api.annotations.numa import RESOURCE_STATUS
from koordinator.api.annotations.reservation import ALLOCATED as RESERVATION_ALLOCATED
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation

#: Annotations with a pod's allocations on its node, meaningless on any other node.
OF_ITS_NODE: Final = (DEVICES_ALLOCATED.key, RESOURCE_STATUS.key, RESERVATION_ALLOCATED.key)


class Landing(Struct, frozen=True):
    """Result of placing a pod or a reservation."""

    pod: str  # its key
    node: str = ""  # empty: unschedulable
    plugin: str = ""  # plugin that rejected it, or most nodes
    why: str = ""  # the scheduler's message


class ForkedAttempt(Protocol):
    """A revertible group of changes in a world.

    Rule R1: the scheduler, which implements it, is above ``domain``.
    """

    def keep(self) -> None:
        """Keep the changes until the enclosing attempt or world ends."""


class ForkedWorld(Protocol):
    """A forked state whose changes have no effect on the cluster.

    Rule R1: the scheduler, which implements it, is above ``domain``.
    """

    def attempt(self) -> AbstractContextManager[ForkedAttempt]:
        """Revert the changes made within the context, in reverse order, unless they are kept.

        Attempts may be nested.
        """
        ...

    def schedules(self, pod: Pod) -> bool:
        """Return whether a profile handles such pods; ``land`` requires it."""
        ...

    def node_of(self, key: str) -> str:
        """Return the node of a pod; empty if it has none."""
        ...

    def gang_of(self, pod: Pod) -> Sequence[str]:
        """Return the keys of all placed members of the pod's gang group, including the pod.

        Empty for a pod without a gang.
        """
        ...

    def cordon(self, node: str) -> None:
        """Make a node unschedulable."""

    def remove(self, key: str) -> bool:
        """Remove a pod from its node; return whether the pod existed."""
        ...

    def put_back(self, key: str) -> None:
        """Restore a removed pod on its node."""

    def land(self, pod: Pod) -> Landing:
        """Place a new pod, with all its allocations, where the scheduler would."""
        ...

    def land_together(self, pods: Sequence[Pod]) -> Sequence[Landing]:
        """Place the members of a gang as one decision: all of them, or none."""
        ...

    def reserve(self, reservation: Reservation) -> Landing:
        """Place a reservation; its owners may use it when they land later."""
        ...


class PlacementFork(Protocol):
    """A scheduler for dry runs.

    Rule R1: the scheduler, which implements it, is above ``domain``.
    """

    @property
    def is_ready(self) -> bool:
        """Whether the state contains all existing objects."""
        ...

    def follow(self) -> None:
        """Process pending events of the cluster.  Raises ClusterError if it can't be read."""

    def refresh(self) -> None:
        """Request a resync up to now; ``is_ready`` reports its completion."""

    def world(self) -> AbstractContextManager[ForkedWorld]:
        """Return a fork of the current state; only one at a time, and not during ``follow``."""
        ...

    @property
    def scheduler_names(self) -> Collection[str]:
        """Names of the schedulers whose pods can be placed."""
        ...


def replacement_of(pod: Pod, name: str) -> Pod:
    """Return the pod that the workload would create after this pod's eviction."""
    meta = pod.metadata
    annotations = {key: text for key, text in meta.annotations.items() if key not in OF_ITS_NODE}
    fresh = ObjectMeta(
        name=name,
        namespace=meta.namespace,
        labels=meta.labels,
        annotations=annotations,
        owner_references=meta.owner_references,
    )
    return Pod(metadata=fresh, spec=replace(pod.spec, node_name=""))
