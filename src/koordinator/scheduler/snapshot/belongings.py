"""What a pod holds inside its node, besides the amounts that it requests of the whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.annotations.numa import RESOURCE_STATUS
from koordinator.api.annotations.reservation import ALLOCATED as RESERVATION_ALLOCATED
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.allocation import Allocation, from_annotation, impossible_minors
from koordinator.domain.numa.ledger import NumaHolding, read_holding
from koordinator.domain.reservations.offer import Offer
from koordinator.foundation.errors import InputError


@dataclass(slots=True, unsafe_hash=True)  # making a frozen one takes three times as long
class Belongings:
    """Devices with their virtual functions, CPUs of its own, amounts of NUMA nodes.

    Not to be written to.
    """

    devices: Allocation = field(default_factory=dict)
    numa: NumaHolding | None = None
    uses: str = ""  # the uid of the reservation that the pod uses
    offer: Offer | None = None  # what the pod holds is for others, on these terms
    #: uids of pods that use the reservation for which the pod stands, be it known of them or not
    takes_over: frozenset[str] = frozenset()
    #: the annotations that say so, as far as they are known
    annotations: Mapping[str, str] = field(default_factory=dict, compare=False)

    def joined(self, other: "Belongings") -> "Belongings":
        """Return both together; no type of device is in both."""
        if self is NO_BELONGINGS or other is NO_BELONGINGS:
            return self if other is NO_BELONGINGS else other
        return Belongings(
            {**self.devices, **other.devices},
            other.numa or self.numa,
            other.uses or self.uses,
            other.offer or self.offer,
            self.takes_over | other.takes_over,
            {**self.annotations, **other.annotations},
        )


NO_BELONGINGS = Belongings()
KEYS: Final = (ALLOCATED.key, RESOURCE_STATUS.key, RESERVATION_ALLOCATED.key)  # of the annotations


def read_belongings(meta: ObjectMeta, problems: list[InputError]) -> Belongings:
    """Return what a bound pod's annotations say that it holds.

    What can't be read is nothing, and told among the ``problems``.
    """
    if not meta.annotations:
        return NO_BELONGINGS
    devices: Allocation = {}
    uses = ""
    try:
        allocated = ALLOCATED.read(meta)
        if allocated:
            devices = from_annotation(allocated)
            problems += impossible_minors(allocated)
    except InputError as error:
        problems.append(error)
    numa = read_holding(meta, problems)
    try:
        used = RESERVATION_ALLOCATED.read(meta)
        uses = used.uid if used else ""
    except InputError as error:
        problems.append(error)
    if not devices and numa is None and not uses:
        return NO_BELONGINGS
    said = {key: meta.annotations[key] for key in KEYS if key in meta.annotations}
    return Belongings(devices, numa, uses, annotations=said)
