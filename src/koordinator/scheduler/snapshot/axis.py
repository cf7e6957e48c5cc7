"""The resource axis: one column per resource name, the same in every array."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from koordinator.domain.pod_requests import bounded
from koordinator.foundation.quantity import Quantity

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = range(4)


class ResourceAxis:
    """Names to columns.  Append-only, so a column number stays true for good.

    Amounts are int64 in canonical units: milli-CPU for ``cpu``, whole units of everything else.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: list[str] = []
        self._columns: dict[str, int] = {}
        for name in ("cpu", "memory", "ephemeral-storage", "pods", *names):
            self.index(name)

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return the column of ``name``; a new name gets the next one."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = len(self.names)
            self.names.append(name)
        return column

    def column(self, amounts: Mapping[str, int]) -> IntArray:
        """Return ``amounts`` as an array ``(n_resources,)``, zero where nothing is said."""
        for name in amounts:
            self.index(name)
        out = np.zeros(len(self), np.int64)
        for name, amount in amounts.items():
            out[self._columns[name]] = amount
        return out

    def amounts(self, resources: Mapping[str, Quantity]) -> dict[int, int]:
        """Return ``{column: amount}`` in canonical units."""
        return {self.index(name): bounded(name, q) for name, q in resources.items()}
