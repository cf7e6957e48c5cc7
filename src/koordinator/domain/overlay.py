"""One strategy over another.

Source: koordinator pkg/util/utils.go, ``MergeCfg``: JSON of the one decoded into the other.
"""

from typing import TypeVar

import msgspec

StrategyT = TypeVar("StrategyT", bound=msgspec.Struct)


def overlaid(base: StrategyT, over: msgspec.Struct) -> StrategyT:
    """Return ``base`` with what ``over`` says in its place.

    What ``over`` leaves at its default says nothing.  Parts are overlaid in turn, dictionaries key
    by key; lists are replaced.  The two may have fields of their own, such as a selector.
    """
    changes = {}
    for name in base.__struct_fields__:
        new, old = getattr(over, name, None), getattr(base, name)
        if new is None or new in ("", {}, ()):
            continue
        if isinstance(new, msgspec.Struct) and isinstance(old, msgspec.Struct):
            new = overlaid(old, new)
        elif isinstance(new, dict):
            new = {**old, **new}
        changes[name] = new
    return msgspec.structs.replace(base, **changes) if changes else base
