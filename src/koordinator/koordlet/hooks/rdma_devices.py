"""The device nodes of the RDMA cards, or slices of cards, that a pod was given.

Source: koordinator pkg/koordlet/runtimehooks/hooks/rdma/rdma.go; Linux drivers/infiniband/core/
uverbs_main.c, ucma.c.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from koordinator.api.annotations.devices import ALLOCATED, DeviceAllocation
from koordinator.api.device import DeviceType
from koordinator.foundation.errors import InputError
from koordinator.koordlet.adjustments import ContainerAdjustment, ContainerDevice
from koordinator.koordlet.view.container_creation import ContainerCreation

MOST_FUNCTIONS: Final = 512  # of one pod: two cards with all their virtual functions
_PATH: Final = f"{ALLOCATED.path}.rdma"
_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class VerbsLookup(Protocol):
    """What the machine says of RDMA now: virtual functions come and go."""

    def connection_manager(self) -> ContainerDevice | None:
        """Return ``/dev/infiniband/rdma_cm``; None without its module."""

    def of_function(self, bus_id: str) -> Sequence[ContainerDevice]:
        """Return the ``/dev/infiniband/uverbs…`` of a PCI function; none of one that has none."""


def rdma_adjustment(creation: ContainerCreation, verbs: VerbsLookup) -> ContainerAdjustment:
    """Return the device nodes of a container; every container gets those of its pod.

    Raises InputError for an allocation that can't be read, and for a card that is not here.
    """
    allocated = creation.pod.devices
    functions = list(_functions(allocated.get(DeviceType.RDMA, ())))
    if not functions:
        return ContainerAdjustment()
    if len(functions) > MOST_FUNCTIONS:
        raise InputError(
            f"found {len(functions)} functions; accepted are {MOST_FUNCTIONS}", path=_PATH
        )
    manager = verbs.connection_manager()
    if manager is None:
        raise InputError("found no rdma_cm on this node; accepted is one with its module loaded")
    devices = [manager]
    for path, bus_id in functions:
        found = verbs.of_function(bus_id)
        if not found:
            raise InputError(
                f"found {bus_id}, which has no verbs here; accepted is an RDMA function of this "
                "node",
                path=path,
            )
        devices += found
    return ContainerAdjustment(devices=tuple({each.path: each for each in devices}.values()))


def _functions(cards: Sequence[DeviceAllocation]) -> Iterator[tuple[str, str]]:
    """Yield path in the annotation and PCI address: of slices, else of the card itself."""
    for index, card in enumerate(cards):
        vfs = card.extension.vfs if card.extension is not None else ()
        found = [
            (f"{_PATH}[{index}].extension.vfs[{at}].busID", vf.bus_id) for at, vf in enumerate(vfs)
        ]
        for path, bus_id in found or [(f"{_PATH}[{index}].id", card.id)]:
            if not _BUS_ID.fullmatch(bus_id):
                raise InputError(
                    f"found {bus_id[:80]!r}; accepted is a PCI address such as 0000:01:00.2",
                    path=path,
                )
            yield path, bus_id
