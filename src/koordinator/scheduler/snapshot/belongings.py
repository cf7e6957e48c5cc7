"""What a pod holds inside its node, besides the amounts that it requests of the whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.annotations.numa import RESOURCE_STATUS
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.allocation import Allocation, from_annotation
from koordinator.domain.numa.ledger import NumaHolding, read_holding
from koordinator.foundation.errors import InputError


@dataclass(frozen=True, slots=True)
class Belongings:
    """Devices with their virtual functions, CPUs of its own, amounts of NUMA nodes."""

    devices: Allocation = field(default_factory=dict)
    numa: NumaHolding | None = None
    #: the annotations that say so, as far as they are known
    annotations: Mapping[str, str] = field(default_factory=dict, compare=False)

    def joined(self, other: "Belongings") -> "Belongings":
        """Return both together; no type of device is in both."""
        if self is NO_BELONGINGS or other is NO_BELONGINGS:
            return self if other is NO_BELONGINGS else other
        return Belongings(
            {**self.devices, **other.devices},
            other.numa or self.numa,
            {**self.annotations, **other.annotations},
        )


NO_BELONGINGS = Belongings()
KEYS: Final = (ALLOCATED.key, RESOURCE_STATUS.key)  # of the annotations


def read_belongings(meta: ObjectMeta, problems: list[InputError]) -> Belongings:
    """Return what a bound pod's annotations say that it holds.

    What can't be read is nothing, and told among the ``problems``.
    """
    if not meta.annotations:
        return NO_BELONGINGS
    devices: Allocation = {}
    numa: NumaHolding | None = None
    try:
        allocated = ALLOCATED.read(meta)
        devices = from_annotation(allocated) if allocated else {}
    except InputError as error:
        problems.append(error)
    try:
        numa = read_holding(meta)
    except InputError as error:
        problems.append(error)
    if not devices and numa is None:
        return NO_BELONGINGS
    said = {key: meta.annotations[key] for key in KEYS if key in meta.annotations}
    return Belongings(devices, numa, said)
