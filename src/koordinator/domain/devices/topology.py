"""Where a node's GPUs sit: the node, its NUMA nodes, their PCIe roots; and the best place for some.

Source: koordinator pkg/scheduler/plugins/deviceshare: allocator_gpu.go ``allocateFromScope``;
allocator_gpu_helper.go ``GetGPUTopologyScope``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.api.annotations.devices import DeviceTopologyScope
from koordinator.domain.masks import lowest, minors_of

#: From the whole to the part; no scope is as small as a device, so that it can't be had.
LEVELS = {
    DeviceTopologyScope.NODE: 1,
    DeviceTopologyScope.NUMA_NODE: 2,
    DeviceTopologyScope.PCIE: 3,
    DeviceTopologyScope.DEVICE: 4,
}


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the machine with the GPUs in it."""

    mask: int
    around: tuple[int, ...]  # the GPUs of the scopes that contain it, and its own

    def used_around(self, used: int) -> int:
        """Return how many of these scopes have a used GPU."""
        number = len(self.around)
        for mask in reversed(self.around):
            if mask & used:  # then so have those around it
                break
            number -= 1
        return number


class Scopes:
    """All scopes of a node by level, in the order in which they are preferred."""

    def __init__(self, places: Sequence[tuple[int, int, str]]) -> None:
        """``places`` are (minor, NUMA node, PCIe root) of every GPU, at least one."""
        node = 0
        numa: dict[int, int] = {}
        pcie: dict[tuple[int, str], int] = {}
        for minor, numa_node, root in places:
            bit = 1 << minor
            node |= bit
            numa[numa_node] = numa.get(numa_node, 0) | bit
            pcie[numa_node, root] = pcie.get((numa_node, root), 0) | bit
        self.levels: tuple[tuple[Scope, ...], ...] = (
            (Scope(node, (node,)),),
            tuple(Scope(mask, (node, mask)) for _, mask in sorted(numa.items())),
            tuple(
                Scope(mask, (node, numa[numa_node], mask))
                for (numa_node, _), mask in sorted(pcie.items())
            ),
        )
        self._most: dict[int, tuple[int, ...]] = {}

    def most(self, fit: int) -> tuple[int, ...]:
        """Return how many of these GPUs one node, one NUMA node and one PCIe root have at most.

        A table that fills itself: looking twice costs one look into a dictionary.
        """
        known = self._most.get(fit)
        if known is None:
            known = self._most[fit] = tuple(
                max((scope.mask & fit).bit_count() for scope in level) for level in self.levels
            )
        return known

    def choose(self, count: int, level: int, fit: int, used: int) -> int | None:
        """Return ``count`` GPUs of ``fit`` in the smallest scope that has them; None if none has.

        Scopes larger than those of ``level`` don't count.  Among scopes of one level that with the
        most ``used`` scopes around it, the first among equals; of its GPUs the lowest.
        """
        able = self._able(count, level, fit)
        if not able:
            return None
        return lowest(max(able, key=lambda scope: scope.used_around(used)).mask & fit, count)

    def choose_with(self, kept: int, count: int, level: int, fit: int) -> int | None:
        """Return ``count`` GPUs of ``fit``, as many as possible of them ``kept`` for the pod.

        They are in the smallest scope that has enough and all that are kept; None if none has.
        """
        kept &= fit
        if kept.bit_count() >= count:
            return self.choose(count, level, kept, 0)
        for scopes in reversed(self.levels[level - 1 :]):
            for scope in scopes:
                if not kept & ~scope.mask and (scope.mask & fit).bit_count() >= count:
                    return kept | lowest(scope.mask & fit & ~kept, count - kept.bit_count())
        return None

    def for_share(self, level: int, fit: int, used: int) -> list[int]:
        """Return the minors of GPUs of which one may be shared; the first of the best is taken.

        They are those of ``fit`` in the scopes that ``choose`` would find equal.
        """
        most = -1
        minors: list[int] = []
        for scope in self._able(1, level, fit):
            number = scope.used_around(used)
            if number > most:
                most, minors = number, []
            if number == most:
                minors += minors_of(scope.mask & fit)
        return minors

    def _able(self, count: int, level: int, fit: int) -> list[Scope]:
        """Return the scopes that have enough, of the deepest level where there are any."""
        for depth in range(len(self.levels), level - 1, -1):
            if self.most(fit)[depth - 1] >= count:
                scopes = self.levels[depth - 1]
                return [scope for scope in scopes if (scope.mask & fit).bit_count() >= count]
        return []
