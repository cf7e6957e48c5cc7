"""Which containers of YARN are ended when the node has to release something.

All have one priority: a NodeManager tells of no other.  The newest go first: least of their work is
lost.  A container of an ApplicationMaster, with which its whole application would end, goes only
where there are no others.  Size decides how many go, and spares what has nothing of what is
missing.
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
    """By which containers are in order of age.

    ``epoch`` grows with each restart of the ResourceManager; numbers of an attempt begin anew.
    """

    cluster: int
    application: int
    attempt: int
    epoch: int
    number: int


def container_age(container_id: str) -> ContainerAge | None:
    """Return what a container's id says of its age, None for what is no id of a container."""
    found = _CONTAINER_ID.fullmatch(container_id)
    if found is None:
        return None
    return ContainerAge(*(int(found[name] or 0) for name in ContainerAge._fields))


def choose_containers(
    containers: Sequence[ContainerT],
    need: BatchAmounts,
    *,
    id_of: Callable[[ContainerT], str],
    amounts_of: Callable[[ContainerT], BatchAmounts],
) -> list[ContainerT]:
    """Return the containers that end, in that order; all there are if they release too little.

    A container that has nothing of what is still missing stays.
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
