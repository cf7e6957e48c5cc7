"""Counts what long-lived objects keep: entries of every container that can be reached from them.

No list of tables: whatever hangs on the roots is found, so a table that is added tomorrow is
counted too.  A place is named after the object of ours that owns it: ``PodTable._terms``, or
``PodTable._terms[]`` for what lies in the containers there.
"""

import functools
import gc
import types
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

_CONTAINERS = (dict, list, set, frozenset, tuple, deque)
_CACHES = type(functools.lru_cache(lambda: None))
_ATOMS = (str, bytes, int, float, complex, bool, type(None), range, type, types.ModuleType)
_OURS = "koordinator."
_LITTLE = 256  # bytes of an array: one entry


def census(*roots: object, but: Iterable[object] = ()) -> Counter[str]:
    """Return how many entries there are by place, and how many objects by class.

    ``but`` are things that belong to others: what can be reached through them alone isn't counted.
    """
    gc.collect()
    counts: Counter[str] = Counter()
    seen = {id(one) for one in but}
    todo: list[tuple[str, object]] = [(type(root).__qualname__, root) for root in roots]
    kept_alive: list[object] = [todo]  # ids are compared: nothing may die meanwhile
    while todo:
        place, item = todo.pop()
        if isinstance(item, _ATOMS) or id(item) in seen:
            continue
        seen.add(id(item))
        kept_alive.append(item)
        if isinstance(item, _CACHES):
            _count_cache(counts, item)
            continue
        if isinstance(item, deque) and item.maxlen is not None:
            continue  # it has a bound
        counted, entries = _entries(place, item)
        if entries:
            counts[counted] += entries
        todo += _inside(place, item)
    return counts


def _entries(place: str, item: Any) -> tuple[str, int]:
    """Return where an object counts, and as how many entries."""
    if isinstance(item, np.ndarray):
        return place, 1 + item.nbytes // _LITTLE
    if isinstance(item, _CONTAINERS):
        return place, 0 if isinstance(item, tuple) else len(item)
    is_ours = type(item).__module__.startswith(_OURS)
    return type(item).__qualname__, int(is_ours)


def _inside(place: str, item: Any) -> list[tuple[str, object]]:
    """Return what an object refers to, and the places of that."""
    if isinstance(item, np.ndarray):
        return [(place, item.base)]
    if isinstance(item, _CONTAINERS):
        inside = place if place.endswith("[]") else f"{place}[]"
        return [(inside, child) for child in _children_of(item)]
    name = type(item).__qualname__
    if type(item).__module__.startswith(_OURS):
        return [(f"{name}.{attribute}", at) for attribute, at in attributes(item)]
    if isinstance(item, types.FunctionType):
        cells = zip(item.__code__.co_freevars, item.__closure__ or (), strict=True)
        return [(f"{item.__qualname__}.{variable}", cell) for variable, cell in cells]
    return [(place, child) for child in gc.get_referents(item)]


def growth(before: Mapping[str, int], after: Mapping[str, int], by: int) -> dict[str, int]:
    """Return the places that have at least so many more entries."""
    more = {place: count - before.get(place, 0) for place, count in after.items()}
    return {place: count for place, count in sorted(more.items()) if count >= by}


def _count_cache(counts: Counter[str], cache: Any) -> None:
    """Count an ``lru_cache``, unless it has a bound of its own."""
    if cache.cache_info().maxsize is None:
        counts[f"{cache.__wrapped__.__qualname__}()"] += cache.cache_info().currsize


def _children_of(item: Any) -> Iterator[object]:
    if isinstance(item, dict):
        yield from list(item.keys())
        yield from list(item.values())
    else:
        yield from list(item)


def attributes(item: object) -> Iterable[tuple[str, object]]:
    """Yield the attributes of an object by name: of its dictionary, slots or fields."""
    names = dict.fromkeys(getattr(item, "__dict__", ()))
    for base in type(item).__mro__:
        slots = base.__dict__.get("__slots__", ())
        names |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
    if isinstance(item, msgspec.Struct):
        names |= dict.fromkeys(item.__struct_fields__)
    if isinstance(item, _CONTAINERS):
        yield "[]", list(_children_of(item))
    for name in names:
        if name in {"__dict__", "__weakref__"}:
            continue
        mangled = name
        if name.startswith("__") and not name.endswith("__"):
            mangled = f"_{type(item).__name__.lstrip('_')}{name}"
        try:
            yield name, object.__getattribute__(item, mangled)
        except AttributeError:  # a slot that has not been filled
            continue
