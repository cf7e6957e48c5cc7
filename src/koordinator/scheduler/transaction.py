"""Changes to the state that can be taken back: assuming pods, trying worlds without some.

Everything done through a transaction is undone, last first, unless it is committed.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.scheduler.contract import AllocationResult
from koordinator.scheduler.snapshot import (
    NO_ALLOCATION,
    ClusterState,
    ObjectChange,
    PlacedPod,
    PodAllocation,
    PodClass,
)


class Transaction:
    """``with Transaction(state) as t: …`` leaves no trace unless ``t.commit()`` is called."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._undo: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.rollback()

    def place(
        self,
        key: str,
        pod: Pod,
        pod_class: PodClass,
        row: int,
        pod_allocation: PodAllocation = NO_ALLOCATION,
    ) -> PlacedPod:
        """Put a pod on a row."""
        placed = self._state.place(key, pod, pod_class, row, pod_allocation)
        self._undo.append(lambda: self._state.give_back(placed))
        return placed

    def assume(
        self, key: str, pod: Pod, pod_class: PodClass, row: int, allocation: AllocationResult
    ) -> PlacedPod:
        """Put a pod on a row with all that it takes there, claims and volumes included."""
        placed = self.place(key, pod, pod_class, row, allocation.pod_allocation)
        for item in allocation.objects:
            self.put_object(item)
        for change in allocation.changes:
            self.change_object(change)
        return placed

    def displace(self, placed: PlacedPod) -> None:
        """Take a pod off its row."""
        self._state.displace(placed.key)
        self._undo.append(lambda: self._state.put_back(placed))

    def put_object(self, item: KubeObject) -> None:
        """Assume a new version of an object; undone only if no other version came since."""
        objects = self._state.objects
        before = objects.get(type(item), item.key)
        objects.put(item)

        def undo() -> None:
            if objects.get(type(item), item.key) is not item:
                return
            if before is not None:
                objects.put(before)
            else:
                objects.drop(item)

        self._undo.append(undo)

    def change_object(self, change: ObjectChange) -> None:
        """Assume a change of an object; it is undone even if a newer version has come since."""
        self._state.objects.assume(change)
        self._undo.append(lambda: self._state.objects.withdraw(change))

    def commit(self) -> None:
        """Keep the changes."""
        self._undo.clear()

    def note(self, undo: Callable[[], object]) -> None:
        """Have something undone that was done beside the state."""
        self._undo.append(undo)

    def mark(self) -> int:
        """Return where a part begins that ``rollback`` may undo alone."""
        return len(self._undo)

    def rollback(self, mark: int = 0) -> None:
        """Undo the changes since a mark, the last first."""
        while len(self._undo) > mark:
            self._undo.pop()()
