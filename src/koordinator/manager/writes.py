"""Writes of controllers as data; the manager's loop sends them.

Writes are idempotent, and reconciliation repeats a lost write.
"""

from dataclasses import dataclass
from typing import Any

from koordinator.api.meta import JsonObject, KubeObject


@dataclass(frozen=True, slots=True)
class Create:
    """Creation of an object."""

    obj: KubeObject


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch; ``subresource`` is empty or ``status``."""

    kind: type[KubeObject]
    name: str
    body: JsonObject
    namespace: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of the object with that uid."""

    kind: type[KubeObject]
    name: str
    uid: str
    namespace: str = ""


Write = Create | Patch | Delete


def difference(before: Any, after: Any) -> JsonObject:
    """Return the merge patch between two dictionaries; empty if they are equal."""
    patch: JsonObject = {key: None for key in before if key not in after}
    for key, new in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if inner := difference(old, new):
                patch[key] = inner
        elif old != new:
            patch[key] = new
    return patch
