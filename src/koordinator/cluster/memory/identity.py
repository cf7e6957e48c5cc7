"""Names and uids that are the same in every run.

The uid of an object follows from the seed, its kind and its name, and from how many objects of
that name there were before: what else happens in the world changes nothing, as long as fewer names
than ``KEPT`` have been given back.  No uid is ever given twice.
"""

import hashlib
import uuid
from itertools import islice

from koordinator.api.meta import KubeObject

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery pkg/util/rand: no vowels, no bad words
_SUFFIX_LENGTH = 5
KEPT = 1 << 16  # names whose number of former objects is kept


class _Counts:
    """How often each name was counted; never less than that, once the oldest are forgotten."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}  # by digest: names may be long
        self._least = 0  # for a name that is not known: none forgotten was counted more often

    def of(self, name: str) -> int:
        if not self._counts:  # nothing has been deleted, as in most new worlds
            return self._least
        return self._counts.get(_digest(name), self._least)

    def add(self, name: str) -> int:
        """Count a name; return how often it had been counted before."""
        key = _digest(name)
        before = self._counts.get(key, self._least)
        self._counts[key] = before + 1
        if len(self._counts) > KEPT:
            for oldest in [*islice(self._counts, KEPT // 2)]:
                self._least = max(self._least, self._counts.pop(oldest))
        return before


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=12).digest()


class IdentityGenerator:
    """Gives uids and names."""

    def __init__(self, seed: int) -> None:
        self._root = uuid.uuid5(uuid.NAMESPACE_URL, f"koordinator/{seed}")
        self._deaths = _Counts()
        self._generated = _Counts()

    def uid(self, obj: KubeObject) -> str:
        """Return the uid of a new object with the name that ``obj`` has."""
        name = f"{obj.KIND}/{obj.key}"
        born_again = self._deaths.of(name)
        return str(uuid.uuid5(self._root, f"{obj.API_VERSION}/{name}/{born_again}"))

    def forget(self, obj: KubeObject) -> None:
        """Record the deletion, so that the next object of this name gets another uid."""
        self._deaths.add(f"{obj.KIND}/{obj.key}")

    def name(self, obj: KubeObject) -> str:
        """Return ``metadata.generateName`` with a suffix that differs from call to call."""
        meta = obj.metadata
        count = self._generated.add(f"{obj.KIND}/{meta.namespace}/{meta.generate_name}")
        text = f"{self._root}/{obj.KIND}/{meta.namespace}/{meta.generate_name}/{count}"
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        suffix = ""
        for _ in range(_SUFFIX_LENGTH):
            number, digit = divmod(number, len(_ALPHABET))
            suffix += _ALPHABET[digit]
        return meta.generate_name + suffix
