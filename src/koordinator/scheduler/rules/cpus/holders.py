"""How many pods hold each CPU, as masks.

One layer per count: a CPU that n pods hold is in the first n layers.  Adding and removing are
exact inverses, in any order.
"""

from collections.abc import Iterable


class HolderCounts:
    """Counts per CPU; usually there is one layer or none."""

    __slots__ = ("_layers",)

    def __init__(self, layers: Iterable[int] = ()) -> None:
        self._layers = [layer for layer in layers if layer]

    @property
    def held(self) -> int:
        """The CPUs that anybody holds."""
        return self._layers[0] if self._layers else 0

    def at_least(self, count: int) -> int:
        """Return the CPUs that ``count`` (1 or more) pods or more hold."""
        return self._layers[count - 1] if count <= len(self._layers) else 0

    def add(self, cpus: int) -> None:
        """Count one holder more of each."""
        for index, layer in enumerate(self._layers):
            self._layers[index] = layer | cpus
            cpus &= layer
        if cpus:
            self._layers.append(cpus)

    def remove(self, cpus: int) -> None:
        """Count one holder less of each; CPUs that nobody holds stay free."""
        for index in reversed(range(len(self._layers))):
            layer = self._layers[index]
            self._layers[index] = layer & ~cpus
            cpus &= ~layer
        while self._layers and not self._layers[-1]:
            self._layers.pop()

    def copy(self) -> "HolderCounts":
        """Return counts that change on their own."""
        return HolderCounts(self._layers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HolderCounts) and self._layers == other._layers

    __hash__ = None  # type: ignore[assignment]  # mutable
