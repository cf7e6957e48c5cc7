"""The resource axis: one column per resource name, the same in every array."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from koordinator.domain.amounts import bounded
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.quantity import Quantity

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = range(4)
#: Resources that one pod may request; each new one costs memory on every node.
MOST_OF_A_POD = 64
#: Requested in place of all unknown resources by a pod that requests more.
UNKNOWN_OF_TOO_MANY = f"resources-of-a-pod-beyond-{MOST_OF_A_POD}"


class ResourceAxis:
    """Resource names to columns.

    A column from ``index`` is permanent.  A column that only nodes or pods use
    (``transient_index``) is freed once none of them does (``keep_only``), and reused for another
    name.  Amounts are int64 in canonical units: milli-CPU for ``cpu``, whole units of everything
    else.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: list[str] = []  # empty where a column is free
        self.generation = 0  # grows when columns are taken back: they mean something else then
        self._columns: dict[str, int] = {}
        self._transient: dict[str, int] = {}  # of these, those that may be taken back
        self._free: list[int] = []
        for name in ("cpu", "memory", "ephemeral-storage", "pods", *names):
            self.index(name)

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return the column of ``name``, which is never taken back; a new name gets a new one."""
        self._transient.pop(name, None)
        column = self._columns.get(name)
        return self._add(name) if column is None else column

    def transient_index(self, name: str) -> int:
        """Return the column of ``name``, which ``keep_only`` may free when it is unused."""
        column = self._columns.get(name)
        if column is None:
            column = self._transient[name] = self._add(name)
        return column

    def columns_of_pod(self, requests: Mapping[str, int]) -> dict[int, int]:
        """Return ``{column: amount}`` of a pod's requests above zero.

        Of a pod that requests too many resources, those without a column become one: no node has
        them, and so none has room for the pod.
        """
        positive = {name: amount for name, amount in requests.items() if amount > 0}
        if len(positive) > MOST_OF_A_POD:
            known = {name: amount for name, amount in positive.items() if name in self._columns}
            positive = known if len(known) == len(positive) else {**known, UNKNOWN_OF_TOO_MANY: 1}
        return {self.transient_index(name): amount for name, amount in positive.items()}

    def _add(self, name: str) -> int:
        if self._free:
            column = self._free.pop()
            self.names[column] = name
        else:
            column = len(self.names)
            self.names.append(name)
        self._columns[name] = column
        return column

    @property
    def has_transient(self) -> bool:
        """Whether ``keep_only`` might take any column back."""
        return bool(self._transient)

    def keep_only(self, used: Collection[int]) -> None:
        """Take back the lent columns that are not among the used ones."""
        idle = [name for name, column in self._transient.items() if column not in used]
        for name in idle:
            column = self._columns.pop(name)
            del self._transient[name]
            self.names[column] = ""
            self._free.append(column)
        self.generation += bool(idle)

    def column(self, amounts: Mapping[str, int]) -> IntArray:
        """Return ``amounts`` as an array ``(n_resources,)``, zero for other resources."""
        for name in amounts:
            self.index(name)
        out = np.zeros(len(self), np.int64)
        for name, amount in amounts.items():
            out[self._columns[name]] = amount
        return out

    def amounts(self, resources: Mapping[str, Quantity]) -> dict[int, int]:
        """Return ``{column: amount}`` in canonical units."""
        known = self._columns
        return {
            known[name] if name in known else self.transient_index(name): bounded(name, quantity)
            for name, quantity in resources.items()
        }
