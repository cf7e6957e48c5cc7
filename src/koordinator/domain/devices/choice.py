"""Choice of a node's devices for a request, from sets of devices alone.

Everything that changes with pods comes in as ``DeviceStanding``: bit masks, and scores where it
matters which of several possible devices is taken.  So the answer whether a request has room is a
function of a few integers (see ``plan``).

Source: koordinator pkg/scheduler/plugins/deviceshare: device_allocator.go ``Allocate``,
``tryJointAllocate``; allocator_gpu.go; koordinator pkg/scheduler/plugins/deviceshare:
device_allocator.go ``defaultAllocateDevices``; device_resources.go
``sortDeviceResourcesByPreferredPCIe``.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import (
    NO_DEVICE,
    NO_GPU,
    NO_SCOPE,
    NO_TEMPLATE,
    NO_TOPOLOGY,
    NOT_JOINT,
    SEVERAL_SHARES,
    DeviceShortage,
)
from koordinator.domain.devices.model import DeviceGroup, NodeModel, model_key
from koordinator.domain.devices.partitions import Partition, PartitionRequest, choose_partition
from koordinator.domain.devices.pod_request import DevicePart, PodDeviceRequest
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import bits_of


def best_first(minors: Sequence[int], scores: Sequence[int]) -> list[int]:
    """Sort devices by descending score; the sort is stable."""
    ranked = sorted(zip(scores, minors, strict=True), key=lambda each: -each[0])
    return [minor for _, minor in ranked]


def round_robin(group: DeviceGroup, minors: Sequence[int], roots: Collection[str]) -> list[int]:
    """Sort devices on the PCIe ``roots`` before others.

    The roots alternate: the first device of every root, then the second of every root, and so on.
    Within each round, and among the other devices, the order is kept.
    """
    attempts: list[list[int]] = []
    others: list[int] = []
    seen: dict[str, int] = {}
    for minor in minors:
        root = group.by_minor[minor].pcie
        if root is None or root not in roots:
            others.append(minor)
            continue
        attempt = seen[root] = seen.get(root, -1) + 1
        if attempt == len(attempts):
            attempts.append([])
        attempts[attempt].append(minor)
    return [minor for attempt in attempts for minor in attempt] + others


NO_PARTITION_REQUEST: Final = PartitionRequest()


class DeviceStanding(NamedTuple):
    """State of the devices of one part."""

    offered: int  # devices that may be taken
    fit: int  # subset of offered with enough left and a free virtual function if needed
    used: int  # devices in use, offered or not
    preferred: int = 0  # devices to take first; partitions ignore it


class Ranking(Protocol):
    """Scoring of devices."""

    def __call__(
        self, part: DevicePart, minors: Sequence[int], *, in_scopes: bool
    ) -> Sequence[int]:
        """Return the score of each of these devices; higher is better.

        ``in_scopes``: compare locations for a share in the tree of scopes, not in a list.
        """


class DeviceChoice(NamedTuple):
    """The chosen devices of each type, in the order of their choice."""

    minors: Mapping[DeviceType, tuple[int, ...]]
    template: str = ""  # the virtual template of the GPU, if it needs one


@dataclass(slots=True)
class Chooser:
    """Choice of devices for a request on one node."""

    model: NodeModel
    pod_request: PodDeviceRequest
    parts: Sequence[DevicePart]
    standings: Mapping[DeviceType, DeviceStanding]
    ranking: Ranking | None = None  # None: the lowest minors are taken

    def choose(self) -> DeviceChoice | DeviceShortage:
        """Return the devices, or the reason why there are not enough."""
        taken = self._jointly() if len(self.parts) > 1 and self.pod_request.joint else {}
        if isinstance(taken, DeviceShortage):
            return taken
        for part in self.parts:
            if part.kind not in taken:
                minors = self._devices(part, part.count, part.count)
                if isinstance(minors, DeviceShortage):
                    return minors
                taken[part.kind] = minors
        return DeviceChoice(taken, self._template)

    def _jointly(self) -> dict[DeviceType, tuple[int, ...]] | DeviceShortage:
        """Take devices of the leading type, and devices of the other types near them."""
        by_kind = {part.kind: part for part in self.parts}
        first, *others = (by_kind[kind] for kind in self.pod_request.joint)
        minors = self._devices(first, first.count, first.count)
        if isinstance(minors, DeviceShortage):
            return minors
        taken, roots = {first.kind: minors}, _roots(first, minors)
        for part in others:
            most = max(part.count, len(roots))
            count = most if self.pod_request.same_pcie else part.count
            minors = self._devices(part, count, most, roots)
            if isinstance(minors, DeviceShortage):
                return minors
            taken[part.kind] = minors
        if self.pod_request.same_pcie and any(_roots(p, taken[p.kind]) != roots for p in others):
            return NOT_JOINT
        return taken

    def _devices(
        self, part: DevicePart, count: int, most: int, roots: frozenset[str] = frozenset()
    ) -> tuple[int, ...] | DeviceShortage:
        if part.kind is DeviceType.GPU:  # preferred PCIe roots don't apply to GPUs
            return self._gpus(part, count, most)
        return self._listed(part, count, most, roots)

    # -- GPUs --------------------------------------------------------------------------------

    def _gpus(self, part: DevicePart, count: int, most: int) -> tuple[int, ...] | DeviceShortage:
        if self.pod_request.templates is not None and not self._templates:
            return NO_TEMPLATE
        if not part.is_share:
            standing, partition_request = self.standings[part.kind], self.pod_request.partition
            partition = choose_partition(
                self.model.partitions,
                partition_request or NO_PARTITION_REQUEST,
                part.count,
                standing.fit,
                standing.used,
            )
            if isinstance(partition, Partition):
                return partition.minors
            if partition_request is not None or self.model.honors_partitions:
                return partition
        problem = self._no_tree(part)
        if problem is None:
            return self._in_scopes(part)
        return problem if self.pod_request.scope else self._listed(part, count, most)

    def _no_tree(self, part: DevicePart) -> DeviceShortage | None:
        """Return the reason why the tree of scopes is not applicable."""
        if self.model.scopes is None:
            return NO_TOPOLOGY
        return SEVERAL_SHARES if part.is_share and part.count > 1 else None

    def _in_scopes(self, part: DevicePart) -> tuple[int, ...] | DeviceShortage:
        scopes, standing = self.model.scopes, self.standings[part.kind]
        level, kept = max(self.pod_request.scope, 1), standing.preferred & standing.fit
        if scopes is not None and part.is_share:
            minors = scopes.for_share(level, kept or standing.fit, standing.used)
            if len(minors) > 1 and self.ranking is not None:
                scores = self.ranking(part, minors, in_scopes=True)
                return (minors[scores.index(max(scores))],)
            if minors:
                return (minors[0],)
        elif scopes is not None:
            chosen = scopes.choose_with(kept, part.count, level, standing.fit) if kept else None
            if chosen is None:
                chosen = scopes.choose(part.count, level, standing.fit, standing.used)
            if chosen is not None:
                return tuple(bits_of(chosen))
        return NO_SCOPE if self.pod_request.scope else NO_GPU

    @property
    def _templates(self) -> tuple[str, ...]:
        """The virtual templates of this model that match the request."""
        key = model_key(self.model.vendor, self.model.gpu_model)
        return (self.pod_request.templates or {}).get(key, ())

    @property
    def _template(self) -> str:
        """The virtual template; empty if several match, as in the original."""
        if self.pod_request.templates is None:
            return ""
        return self._templates[0] if len(self._templates) == 1 else ""

    # -- lists -------------------------------------------------------------------------------

    def _listed(
        self, part: DevicePart, count: int, most: int, roots: frozenset[str] = frozenset()
    ) -> tuple[int, ...] | DeviceShortage:
        """Take up to ``most`` devices of the list, but no fewer than ``count``."""
        standing = self.standings[part.kind]
        minors = list(bits_of(standing.offered))
        if self.ranking is not None:
            minors = best_first(minors, self.ranking(part, minors, in_scopes=False))
        if standing.preferred:
            minors.sort(key=lambda minor: not standing.preferred >> minor & 1)
        elif roots:
            minors = round_robin(part.group, minors, roots)
        taken = tuple([minor for minor in minors if standing.fit >> minor & 1][:most])
        return taken if len(taken) >= count else NO_DEVICE[part.kind]


def _roots(part: DevicePart, minors: Sequence[int]) -> frozenset[str]:
    """Return the PCIe roots of some devices."""
    places = (part.group.by_minor[minor].pcie for minor in minors)
    return frozenset(root for root in places if root is not None)
