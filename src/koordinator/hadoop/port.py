"""Port of a YARN cluster for components.

Calls are synchronous, and an instance belongs to one thread.

Selection of the YARN containers to end when a node must release resources.

All containers have one priority, as NodeManagers report no other.  The newest are ended first,
which loses the least work.  The container of an ApplicationMaster, whose end also ends its
application, is a candidate only without others.  Containers without any of the missing resources
are skipped.
Source: yarn-copilot pkg/copilot-agent/server/server.go, ``filter`` and ``ReverseContainerSorter``;
Hadoop ContainerId.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from koordinator.foundation.errors import KoordinatorError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.hadoop.amounts import NOTHING, BatchAmounts, YarnResource

ContainerT = TypeVar("ContainerT")

_CONTAINER_ID: Final = re.compile(
    r"container_(?:e(?P<epoch>[0-9]{1,19})_)?(?P<cluster>[0-9]{1,19})_(?P<application>[0-9]{1,19})"
    r"_(?P<attempt>[0-9]{1,19})_(?P<number>[0-9]{1,19})"
)
_MASTER: Final = 1  # the number of the first container of an attempt


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


class ContainerAge(NamedTuple):
    """Sort key of containers by age.

    ``epoch`` grows with each restart of the ResourceManager, which resets the other numbers.
    """

    cluster: int
    application: int
    attempt: int
    epoch: int
    number: int


def container_age(container_id: str) -> ContainerAge | None:
    """Return the age in a container's id; None for an invalid id."""
    match = _CONTAINER_ID.fullmatch(container_id)
    if match is None:
        return None
    return ContainerAge(*(int(match[name] or 0) for name in ContainerAge._fields))


def choose_containers(
    containers: Sequence[ContainerT],
    need: BatchAmounts,
    *,
    id_of: Callable[[ContainerT], str],
    amounts_of: Callable[[ContainerT], BatchAmounts],
) -> list[ContainerT]:
    """Return the containers to end, in order; all of them if they release too little.

    Containers without any of the missing resources are skipped.
    """
    known = [(age, each) for each in containers if (age := container_age(id_of(each))) is not None]
    others = [(age, each) for age, each in known if age.number != _MASTER]
    chosen, missing = [], need
    for _, each in sorted(others or known, key=lambda pair: pair[0], reverse=True):
        if missing == NOTHING:
            break
        left = missing.minus(amounts_of(each))
        if left != missing:
            chosen.append(each)
            missing = left
    return chosen
