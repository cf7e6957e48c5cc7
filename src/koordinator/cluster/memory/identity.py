"""Names and uids that are the same in every run.

The uid of an object follows from the seed, its kind and its name, and from how many objects of
that name there were before: what else happens in the world changes nothing.
"""

import hashlib
import uuid

from koordinator.api.meta import KubeObject

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery pkg/util/rand: no vowels, no bad words
_SUFFIX_LENGTH = 5


class Identities:
    """Gives uids and names."""

    def __init__(self, seed: int) -> None:
        self._root = uuid.uuid5(uuid.NAMESPACE_URL, f"koordinator/{seed}")
        self._deaths: dict[tuple[type[KubeObject], str], int] = {}
        self._generated: dict[tuple[type[KubeObject], str, str], int] = {}

    def uid(self, obj: KubeObject) -> str:
        """Return the uid of a new object with the name that ``obj`` has."""
        born_again = self._deaths.get((type(obj), obj.key), 0)
        return str(uuid.uuid5(self._root, f"{obj.API_VERSION}/{obj.KIND}/{obj.key}/{born_again}"))

    def forget(self, obj: KubeObject) -> None:
        """Note that the object is gone, so that the next of its name is another one."""
        key = (type(obj), obj.key)
        self._deaths[key] = self._deaths.get(key, 0) + 1

    def name(self, obj: KubeObject) -> str:
        """Return ``metadata.generateName`` with a suffix that differs from call to call."""
        meta = obj.metadata
        key = (type(obj), meta.namespace, meta.generate_name)
        count = self._generated.get(key, 0)
        self._generated[key] = count + 1
        text = f"{self._root}/{obj.KIND}/{meta.namespace}/{meta.generate_name}/{count}"
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        suffix = ""
        for _ in range(_SUFFIX_LENGTH):
            number, digit = divmod(number, len(_ALPHABET))
            suffix += _ALPHABET[digit]
        return meta.generate_name + suffix
