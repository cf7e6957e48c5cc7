"""Parts of objects that are decoded at the first access."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import msgspec

ItemT = TypeVar("ItemT")


class LazySequence(Sequence[ItemT]):
    """A tuple as JSON text until then: equal to it, and written as it was read.

    ``read`` decodes it.  Invalid content is reported at that time.
    """

    __slots__ = ("_items", "_read", "text")

    def __init__(self, text: msgspec.Raw, read: Callable[[], tuple[ItemT, ...]]) -> None:
        self.text = text
        self._read = read
        self._items: tuple[ItemT, ...] | None = None

    @property
    def items(self) -> tuple[ItemT, ...]:
        """The tuple.  Raises InputError if it can't be read."""
        if self._items is None:
            self._items = self._read()
        return self._items

    @overload
    def __getitem__(self, index: int) -> ItemT: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ItemT, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazySequence):
            return self.text == other.text or self.items == other.items
        return self.items == other

    def __hash__(self) -> int:
        return hash(self.items)

    def __repr__(self) -> str:
        return repr(self.items)
