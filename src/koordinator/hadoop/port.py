"""Port of a YARN cluster for components.

Calls are synchronous, and an instance belongs to one thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from koordinator.foundation.errors import KoordinatorError
from koordinator.hadoop.amounts import YarnResource


class YarnError(KoordinatorError):
    """A ResourceManager or NodeManager is unreachable, or its response is invalid.

    The outcome of a write is unknown.
    """


class YarnRefusedError(YarnError):
    """YARN refused the request and wrote nothing."""


class UnknownYarnNodeError(YarnRefusedError):
    """No NodeManager with the id has registered."""


class NotActiveError(YarnRefusedError):
    """Another ResourceManager is the active one."""


class UnsupportedError(YarnRefusedError):
    """The version of Hadoop does not have the call."""


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
    """Limit of a NodeManager.

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
        """Change the limit of a NodeManager.

        The ResourceManager answers before the change is made everywhere; whether it was is to be
        read back.
        Raises YarnRefusedError if nothing was changed, YarnError if that isn't known.
        """

    def signal_container(self, container_id: str) -> None:
        """End a container by force.  Raises YarnError."""

    def is_active(self) -> bool:
        """Return whether this ResourceManager is active.  Raises YarnError."""

    def close(self) -> None:
        """Close connections; the next call opens new ones."""


@dataclass(frozen=True, slots=True)
class YarnContainer:
    """Container as reported by its NodeManager."""

    container_id: str
    application_id: str
    state: str
    resource: YarnResource
    user: str = ""
    node_id: str = ""


ClusterNodes = Mapping[str, YarnNode]
