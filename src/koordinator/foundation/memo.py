"""Derived values that are cached with their object."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Memo(Generic[T]):
    """Cache of one derived value per object, computed once or once per version of its inputs.

    It lives as long as the object, whose ``memory`` belongs to memos alone.  Every memo is a key of
    its own, so what one keeps no other one finds.
    """

    __slots__ = ()

    def of(self, about: "MemoOwner", work_out: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return ``work_out(*args)``, worked out once for the object.

        What ``work_out`` raises is raised, and nothing is kept.
        """
        known = about.memory.get(self)
        if known is None:
            known = about.memory[self] = (None, work_out(*args))
        value: T = known[1]
        return value

    def as_of(
        self, about: "MemoOwner", version: Hashable, work_out: Callable[[*Ts], T], *args: *Ts
    ) -> T:
        """Return ``work_out(*args)``, worked out again when the version is another one."""
        known = about.memory.get(self)
        if known is None or known[0] != version:
            known = about.memory[self] = (version, work_out(*args))
        value: T = known[1]
        return value

    def forget(self, about: "MemoOwner") -> None:
        """Drop the cached value of an object."""
        about.memory.pop(self, None)

    def peek(self, about: "MemoOwner") -> T | None:
        """Return the cached value of an object, of any version; None if there is none."""
        known = about.memory.get(self)
        return None if known is None else known[1]


Memory = dict[Memo[Any], tuple[Hashable, Any]]


class MemoOwner(Protocol):
    """An object that memos keep things with."""

    @property
    def memory(self) -> Memory:
        """Value that each memo keeps, with its version."""
        ...
