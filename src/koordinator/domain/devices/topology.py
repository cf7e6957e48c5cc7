"""GPU topology of a node: scopes of node, NUMA nodes and PCIe roots, and the best scope.

Source: koordinator pkg/scheduler/plugins/deviceshare: allocator_gpu.go ``allocateFromScope``;
allocator_gpu_helper.go ``GetGPUTopologyScope``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.api.annotations.devices import DeviceTopologyScope
from koordinator.domain.masks import lowest, minors_of

#: Levels from the largest scope to the smallest; level 4 has no scopes and can't be satisfied.
LEVELS = {
    DeviceTopologyScope.NODE: 1,
    DeviceTopologyScope.NUMA_NODE: 2,
    DeviceTopologyScope.PCIE: 3,
    DeviceTopologyScope.DEVICE: 4,
}


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the machine with its GPUs."""

    mask: int
    around: tuple[int, ...]  # masks of its enclosing scopes, then its own

    def used_around(self, used: int) -> int:
        """Return the number of enclosing scopes, itself included, with a used GPU."""
        number = len(self.around)
        for mask in reversed(self.around):
            if mask & used:  # all enclosing scopes have one too
                break
            number -= 1
        return number


class Scopes:
    """All scopes of a node by level, in order of preference."""

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
        """Return the maximum number of these GPUs in one node, one NUMA node and one PCIe root.

        Results are cached by ``fit``.
        """
        known = self._most.get(fit)
        if known is None:
            known = self._most[fit] = tuple(
                max((scope.mask & fit).bit_count() for scope in level) for level in self.levels
            )
        return known

    def choose(self, count: int, level: int, fit: int, used: int) -> int | None:
        """Return ``count`` GPUs of ``fit`` in the smallest scope that has them; None if none has.

        Scopes larger than level ``level`` are excluded. Among scopes of one level, the one with the
        most ``used`` enclosing scopes wins, the first among equals; of its GPUs the lowest are
        taken.
        """
        able = self._able(count, level, fit)
        if not able:
            return None
        return lowest(max(able, key=lambda scope: scope.used_around(used)).mask & fit, count)

    def choose_with(self, kept: int, count: int, level: int, fit: int) -> int | None:
        """Return ``count`` GPUs of ``fit``, with as many ``kept`` ones as possible.

        They are in the smallest scope that has enough GPUs and all kept ones; None if there is
        none.
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
        """Return the minors of equally good GPUs for a share; the first is the default.

        They are the GPUs of ``fit`` in the scopes that ``choose`` would rank equal.
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
        """Return the scopes with enough GPUs at the deepest level that has any."""
        for depth in range(len(self.levels), level - 1, -1):
            if self.most(fit)[depth - 1] >= count:
                scopes = self.levels[depth - 1]
                return [scope for scope in scopes if (scope.mask & fit).bit_count() >= count]
        return []
