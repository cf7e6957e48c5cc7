"""Device nodes of the RDMA cards, or virtual functions, that are allocated to a pod.

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
    """Current RDMA devices of the machine; virtual functions appear and disappear."""

    def connection_manager(self) -> ContainerDevice | None:
        """Return ``/dev/infiniband/rdma_cm``; None if its module is not loaded."""

    def of_function(self, bus_id: str) -> Sequence[ContainerDevice]:
        """Return the ``/dev/infiniband/uverbs…`` of a PCI function; empty if it has none."""


def rdma_adjustment(creation: ContainerCreation, verbs: VerbsLookup) -> ContainerAdjustment:
    """Return the device nodes of a container; each container gets all of its pod's.

    Raises InputError for an invalid allocation, and for a card that this node does not have.
    """
    allocated = creation.pod.devices
    functions = list(_functions(allocated.get(DeviceType.RDMA, ())))
    if not functions:
        return ContainerAdjustment()
    if len(functions) > MOST_FUNCTIONS:
        raise InputError(
            f"must have at most {MOST_FUNCTIONS} functions, got {len(functions)}", path=_PATH
        )
    manager = verbs.connection_manager()
    if manager is None:
        raise InputError("this node has no /dev/infiniband/rdma_cm; load the module rdma_ucm")
    devices = [manager]
    for path, bus_id in functions:
        verbs_devices = verbs.of_function(bus_id)
        if not verbs_devices:
            raise InputError(f"PCI function {bus_id} has no RDMA device on this node", path=path)
        devices += verbs_devices
    return ContainerAdjustment(devices=tuple({each.path: each for each in devices}.values()))


def _functions(cards: Sequence[DeviceAllocation]) -> Iterator[tuple[str, str]]:
    """Yield the path in the annotation and the PCI address of virtual functions or the card."""
    for index, card in enumerate(cards):
        vfs = card.extension.vfs if card.extension is not None else ()
        addresses = [
            (f"{_PATH}[{index}].extension.vfs[{at}].busID", vf.bus_id) for at, vf in enumerate(vfs)
        ]
        for path, bus_id in addresses or [(f"{_PATH}[{index}].id", card.id)]:
            if not _BUS_ID.fullmatch(bus_id):
                raise InputError(
                    f"must be a PCI address such as 0000:01:00.2, got {bus_id[:80]!r}",
                    path=path,
                )
            yield path, bus_id
