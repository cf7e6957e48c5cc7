"""The port through which components see a YARN cluster.

Calls are synchronous, and an instance belongs to one thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from koordinator.foundation.errors import KoordinatorError
from koordinator.hadoop.amounts import YarnResource


class YarnError(KoordinatorError):
    """A ResourceManager or NodeManager can't be reached, or what it answered can't be read.

    It is not known whether a write happened.
    """


class YarnRefusedError(YarnError):
    """YARN has answered that it won't: nothing was written."""


class UnknownYarnNodeError(YarnRefusedError):
    """No NodeManager of that id has registered."""


class NotActiveError(YarnRefusedError):
    """Another ResourceManager is the active one."""


class UnsupportedError(YarnRefusedError):
    """Hadoop has no such call in that version."""


@dataclass(frozen=True, slots=True)
class YarnNode:
    """A NodeManager as the ResourceManager knows it; ``node_id`` is ``host:port``."""

    node_id: str
    state: str
    limit: YarnResource
    used: YarnResource
    containers: int = 0


@dataclass(frozen=True, slots=True)
class YarnLimit:
    """What a NodeManager is to have.

    ``overcommit_timeout_ms`` is how long containers beyond that may go on: 0 ends them at once, a
    negative one never, unless an earlier call since the NodeManager registered had another.
    """

    node_id: str
    resource: YarnResource
    overcommit_timeout_ms: int


class ResourceManager(Protocol):
    """A YARN cluster."""

    def nodes(self) -> Sequence[YarnNode]:
        """Return the NodeManagers that containers may run on.  Raises YarnError."""

    def node(self, node_id: str) -> YarnNode | None:
        """Return one NodeManager, None where only all can be read.  Raises YarnError."""

    def set_limit(self, limit: YarnLimit) -> None:
        """Change what a NodeManager has.

        The ResourceManager answers before the change is made everywhere; whether it was is to be
        read back.
        Raises YarnRefusedError if nothing was changed, YarnError if that isn't known.
        """

    def signal_container(self, container_id: str) -> None:
        """End a container by force.  Raises YarnError."""

    def is_active(self) -> bool:
        """Return whether this ResourceManager decides.  Raises YarnError."""

    def close(self) -> None:
        """Drop connections; the next call makes new ones."""


@dataclass(frozen=True, slots=True)
class YarnContainer:
    """A container as its NodeManager tells of it."""

    container_id: str
    application_id: str
    state: str
    resource: YarnResource
    user: str = ""
    node_id: str = ""


ClusterNodes = Mapping[str, YarnNode]
