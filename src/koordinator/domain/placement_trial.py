"""Moves tried in thought, by whoever places pods: the port between the descheduler and a scheduler.

A ``PlacementTrial`` follows the cluster as a scheduler does that decides nothing.  Its ``world`` is
that state, forked: whatever is done in it is undone when it is left.  The answers are those of the
scheduler's own core with its own configuration: every filter, score, quota, reservation and device.
Implemented by ``scheduler.trial``; asked by what wants to know before it evicts.

To try a move::

    with trial.world() as world:
        with world.attempt() as attempt:       # all of it is undone ...
            world.remove("default/web-1")
            landing = world.land(replacement)
            if landing.node:
                attempt.keep()                 # ... unless it is kept, for the next attempts
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

#: Annotations that say what a pod holds of its node: meaningless on any other.
OF_ITS_NODE: Final = (DEVICES_ALLOCATED.key, RESOURCE_STATUS.key, RESERVATION_ALLOCATED.key)


class Landing(Struct, frozen=True):
    """What became of a pod, or of a reservation, that was to get a node."""

    pod: str  # its key
    node: str = ""  # empty: none takes it
    plugin: str = ""  # the one that keeps it away, or most of the nodes
    why: str = ""  # what the scheduler would tell it


class TrialAttempt(Protocol):
    """Part of what is done in a world."""

    def keep(self) -> None:
        """Let what was done stand until the world, or the attempt, around it ends."""


class TrialWorld(Protocol):
    """A state that can be changed without consequences."""

    def attempt(self) -> AbstractContextManager[TrialAttempt]:
        """Undo what is done meanwhile, last first, unless it is kept; attempts may be nested."""
        ...

    def schedules(self, pod: Pod) -> bool:
        """Return whether some profile is for such pods; ``land`` needs that."""
        ...

    def node_of(self, key: str) -> str:
        """Return the node of a pod; empty if it has none."""
        ...

    def gang_of(self, pod: Pod) -> Sequence[str]:
        """Return the keys of all that have nodes and start with the pod, itself among them.

        None of a pod that is in no gang.
        """
        ...

    def cordon(self, node: str) -> None:
        """Let a node take no more pods."""

    def remove(self, key: str) -> bool:
        """Take a pod off its node; return whether there was one of that key."""
        ...

    def put_back(self, key: str) -> None:
        """Put a pod that was removed where it was, since it is still there."""

    def land(self, pod: Pod) -> Landing:
        """Place a new pod, and all that it takes, where the scheduler would."""
        ...

    def land_together(self, pods: Sequence[Pod]) -> Sequence[Landing]:
        """Place the members of a gang as it would be decided at once: all of them, or none."""
        ...

    def reserve(self, reservation: Reservation) -> Landing:
        """Place a reservation; its owners, landing later, may use it."""
        ...


class PlacementTrial(Protocol):
    """A scheduler that is asked, and decides nothing."""

    @property
    def is_ready(self) -> bool:
        """Whether everything that exists has been taken in."""
        ...

    def follow(self) -> None:
        """Take in what has happened in the cluster.  Raises ClusterError if it can't be read."""

    def refresh(self) -> None:
        """Make sure that nothing is missed that happened until now; ``is_ready`` tells when."""

    def world(self) -> AbstractContextManager[TrialWorld]:
        """Return a world like the cluster; there is one at a time, and none while following."""
        ...

    @property
    def scheduler_names(self) -> Collection[str]:
        """Whose pods can be tried."""
        ...


def replacement_of(pod: Pod, name: str) -> Pod:
    """Return the pod that its workload makes when this one is gone; it has no node yet."""
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
