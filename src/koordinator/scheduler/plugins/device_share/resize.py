"""What a reservation holds of devices, written among its amounts if the gate ``ResizePod`` is on.

Its template may ask for ``nvidia.com/gpu: 2``; what it gets is so much of each GPU's cores and
memory.  Source: koordinator pkg/scheduler/plugins/deviceshare/plugin.go, ``PreBindReservation``.
"""

from collections.abc import Mapping

from koordinator.api.annotations.devices import DeviceAllocations
from koordinator.api.annotations.reservation import RESIZE_ALLOCATABLE, ResizeAllocatable
from koordinator.api.meta import ObjectMeta
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.snapshot import PodClass


def resized(pod: PodClass, allocations: DeviceAllocations) -> Mapping[str, str] | Refusal:
    """Return the annotation: what it said before, and the amounts of all devices together."""
    try:
        said = RESIZE_ALLOCATABLE.read(ObjectMeta(annotations=dict(pod.annotations)))
    except InputError as error:
        return Refusal(str(error))
    held: dict[str, Quantity] = {}
    for devices in allocations.values():
        for device in devices:
            for name, amount in device.resources.items():
                held[name] = held[name] + amount if name in held else amount
    resources = {**(said.resources if said else {}), **held}
    return RESIZE_ALLOCATABLE.entry(ResizeAllocatable(resources=resources))
