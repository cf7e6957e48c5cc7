"""Ledgers: sums that a plugin keeps over pods and objects, in step with the state.

A ledger is derived from the state alone, and so is right after a restart and after the undo of a
transaction.  The state notes which pods and objects changed; a ledger catches up when it is read,
so changes that were undone in between cost nothing.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import field
from typing import Any, Generic, Protocol, TypeVar

from koordinator.api.meta import KubeObject
from koordinator.foundation.lazy_dataclass import dataclass

Owner = TypeVar("Owner")
Source_contra = TypeVar("Source_contra", contravariant=True)
LedgerT = TypeVar("LedgerT")

ObjectKinds = tuple[type[KubeObject], ...]


@dataclass(slots=True)
class LedgerChanges:
    """Pods and objects that a ledger has to read again; each may be new, changed or deleted."""

    pods: set[str] = field(default_factory=set)  # keys
    objects: set[tuple[type[KubeObject], str]] = field(default_factory=set)  # kinds and keys


class Ledger(Protocol[Source_contra]):
    """Facts derived from the state that are too costly to derive for each read."""

    @property
    def kinds(self) -> ObjectKinds:
        """The objects that it reads besides nodes and pods."""
        ...

    def catch_up(self, state: Source_contra, changed: LedgerChanges) -> None:
        """Bring it in line with the state: nothing else has changed since the last time."""
        ...


class Ledgers(Generic[Owner]):
    """The ledgers of one state; ``everything`` lists all pods and objects, for a new one."""

    def __init__(self, owner: Owner, everything: Callable[[ObjectKinds], LedgerChanges]) -> None:
        self._owner = owner
        self._everything = everything
        self.kept: dict[
            Hashable, tuple[Any, LedgerChanges]
        ] = {}  # ledgers, what they have not seen

    def note_pod(self, key: str) -> None:
        """Note that a pod may have changed in any way."""
        for _, changed in self.kept.values():
            changed.pods.add(key)

    def note_pods(self, keys: Iterable[str]) -> None:
        """Note that pods may have changed in any way."""
        if self.kept:
            keys = list(keys)
        for _, changed in self.kept.values():
            changed.pods.update(keys)

    def note_object(self, item: KubeObject) -> None:
        """Note that an object may have changed in any way."""
        for ledger, changed in self.kept.values():
            if type(item) in ledger.kinds:
                changed.objects.add((type(item), item.key))

    def read(self, key: Hashable, build: Callable[[], LedgerT]) -> LedgerT:
        """Return the ledger of that key, up to date; it is built on first use."""
        known = self.kept.get(key)
        if known is None:
            new: Any = build()
            known = self.kept[key] = (new, self._everything(new.kinds))
        ledger, changed = known
        ledger.catch_up(self._owner, changed)
        changed.pods.clear()
        changed.objects.clear()
        typed: LedgerT = ledger
        return typed
