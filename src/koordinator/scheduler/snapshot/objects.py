"""Objects besides nodes and pods that plugins read.

Claims, volumes, classes, services, budgets …  Kept as they come, by kind and key.  ``version``
grows with each change of a kind, so a plugin's derived facts can say which state of the world they
were derived from.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TypeVar

from koordinator.api.meta import KubeObject

Kind = TypeVar("Kind", bound=KubeObject)


class ObjectTable:
    """The latest version of every object of the kinds that the scheduler watches."""

    def __init__(self, note: Callable[[KubeObject], None] = lambda _: None) -> None:
        """``note`` hears of every object that is put or dropped."""
        self._note = note
        self._by_kind: dict[type[KubeObject], dict[str, KubeObject]] = defaultdict(dict)
        self._versions: dict[type[KubeObject], int] = defaultdict(int)

    def put(self, item: KubeObject) -> None:
        self._by_kind[type(item)][item.key] = item
        self._versions[type(item)] += 1
        self._note(item)

    def drop(self, item: KubeObject) -> None:
        self._by_kind[type(item)].pop(item.key, None)
        self._versions[type(item)] += 1
        self._note(item)

    def get(self, kind: type[Kind], key: str) -> Kind | None:
        """Return the object with that ``namespace/name`` (or name, if cluster-scoped)."""
        return self._by_kind[kind].get(key)  # type: ignore[return-value]  # (keyed by its type)

    def all(self, kind: type[Kind]) -> Iterator[Kind]:
        """Iterate over all objects of a kind, in the order in which they became known."""
        return iter(self._by_kind[kind].values())  # type: ignore[arg-type]  # (keyed by its type)

    @property
    def total_version(self) -> int:
        """Grows with every change of any object."""
        return sum(self._versions.values())

    def version(self, *kinds: type[KubeObject]) -> int:
        """Return a number that grows whenever an object of one of these kinds changes."""
        if len(kinds) == 1:
            return self._versions[kinds[0]]
        return sum(self._versions[kind] for kind in kinds)
