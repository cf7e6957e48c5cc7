"""One strategy over another.

Source: koordinator pkg/util/utils.go, ``MergeCfg``: JSON of the one decoded into the other.
"""

from typing import TypeVar

import msgspec
from msgspec.structs import fields

StrategyT = TypeVar("StrategyT", bound=msgspec.Struct)


def overlaid(base: StrategyT, over: msgspec.Struct) -> StrategyT:
    """Return ``base`` with what ``over`` says in its place.

    What ``over`` leaves at its default says nothing.  Parts are overlaid in turn, dictionaries key
    by key; lists are replaced.  The two may have fields of their own, such as a selector.
    """
    changes = {}
    for field in fields(base):
        new, old = getattr(over, field.name, None), getattr(base, field.name)
        if new is None or new in ("", {}, ()):
            continue
        if isinstance(new, msgspec.Struct) and isinstance(old, msgspec.Struct):
            new = overlaid(old, new)
        elif isinstance(new, dict):
            new = {**old, **new}
        changes[field.name] = new
    return msgspec.structs.replace(base, **changes) if changes else base
