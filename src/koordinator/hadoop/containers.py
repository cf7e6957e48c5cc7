"""Selection of the YARN containers to end when a node must release resources.

All containers have one priority, as NodeManagers report no other.  The newest are ended first,
which loses the least work.  The container of an ApplicationMaster, whose end also ends its
application, is a candidate only without others.  Containers without any of the missing resources
are skipped.
Source: yarn-copilot pkg/copilot-agent/server/server.go, ``filter`` and ``ReverseContainerSorter``;
Hadoop ContainerId.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from koordinator.hadoop.amounts import NOTHING, BatchAmounts

ContainerT = TypeVar("ContainerT")

_CONTAINER_ID: Final = re.compile(
    r"container_(?:e(?P<epoch>[0-9]{1,19})_)?(?P<cluster>[0-9]{1,19})_(?P<application>[0-9]{1,19})"
    r"_(?P<attempt>[0-9]{1,19})_(?P<number>[0-9]{1,19})"
)
_MASTER: Final = 1  # the number of the first container of an attempt


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
