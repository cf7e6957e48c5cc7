"""Parts of a node that a pod holds besides its requests."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.annotations.numa import RESOURCE_STATUS
from koordinator.api.annotations.reservation import ALLOCATED as RESERVATION_ALLOCATED
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import NodeAllocatableResourceClaimStatus
from koordinator.domain.devices.allocation import Allocation, from_annotation, impossible_minors
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.rules.numa.ledger import NumaAllocation, read_allocation
from koordinator.scheduler.rules.reservations.offer import ReservationOffer

KEYS: Final = (ALLOCATED.key, RESOURCE_STATUS.key, RESERVATION_ALLOCATED.key)  # of the annotations


@dataclass(slots=True, unsafe_hash=True)  # making a frozen one takes three times as long
class PodAllocation:
    """Devices with their virtual functions, CPUs of its own, amounts of NUMA nodes.

    Not to be written to.
    """

    devices: Allocation = field(default_factory=dict)
    numa: NumaAllocation | None = None
    uses: str = ""  # the uid of the reservation that the pod uses
    offer: ReservationOffer | None = None  # what the pod holds is for others, on these terms
    #: uids of pods that use the reservation of this reserve pod, known or not
    takes_over: frozenset[str] = frozenset()
    #: resources of the node that the pod has by its claims, as in its status once it is bound
    claimed: tuple[NodeAllocatableResourceClaimStatus, ...] = field(default=(), compare=False)
    #: the known annotations of these allocations
    annotations: Mapping[str, str] = field(default_factory=dict, compare=False)

    def joined(self, other: "PodAllocation") -> "PodAllocation":
        """Return both together; no type of device is in both."""
        if self is NO_ALLOCATION or other is NO_ALLOCATION:
            return self if other is NO_ALLOCATION else other
        return PodAllocation(
            {**self.devices, **other.devices},
            other.numa or self.numa,
            other.uses or self.uses,
            other.offer or self.offer,
            self.takes_over | other.takes_over,
            self.claimed + other.claimed,
            {**self.annotations, **other.annotations},
        )


NO_ALLOCATION = PodAllocation()


def read_pod_allocation(meta: ObjectMeta, problems: list[InputError]) -> PodAllocation:
    """Return the allocation in the annotations of a bound pod.

    An invalid annotation counts as none, and is added to the ``problems``.
    """
    if not meta.annotations:
        return NO_ALLOCATION
    devices: Allocation = {}
    uses = ""
    try:
        allocated = ALLOCATED.read(meta)
        if allocated:
            devices = from_annotation(allocated)
            problems += impossible_minors(allocated)
    except InputError as error:
        problems.append(error)
    numa = read_allocation(meta, problems)
    try:
        used = RESERVATION_ALLOCATED.read(meta)
        uses = used.uid if used else ""
    except InputError as error:
        problems.append(error)
    if not devices and numa is None and not uses:
        return NO_ALLOCATION
    annotations = {key: meta.annotations[key] for key in KEYS if key in meta.annotations}
    return PodAllocation(devices, numa, uses, annotations=annotations)
