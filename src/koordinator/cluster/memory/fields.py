"""Fields that the in-memory API server sets, selects and reads.

The uid of an object follows from the seed, its kind and its name, and from how many objects of
that name there were before: what else happens in the world changes nothing, as long as fewer names
than ``KEPT`` have been given back.  No uid is ever given twice.

A manifest is kept unchanged, with the object that was decoded from it.  Writes don't change it: the
changes are applied only when the whole object is read.

Source: k8s.io/apimachinery pkg/fields/selector.go ``ParseSelector``; k8s.io/kubernetes
pkg/apis/core/v1/conversion.go (fields per kind).
"""

import hashlib
import uuid
from collections.abc import Callable
from functools import cache
from itertools import islice
from operator import attrgetter

import msgspec
from msgspec.structs import fields

from koordinator.api.codec import to_manifest
from koordinator.api.core import Namespace
from koordinator.api.dynamic_resources import ResourceSlice
from koordinator.api.event import CoreEvent
from koordinator.api.json_merge import carried_over
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.workload import ReplicationController
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InvalidError
from koordinator.foundation.lazy_dataclass import dataclass

_OF_ALL = ("metadata.name", "metadata.namespace")
_OF_KIND: dict[type[KubeObject], tuple[str, ...]] = {
    Pod: (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.nominatedNodeName",
    ),
    Node: ("spec.unschedulable",),
    Namespace: ("status.phase",),
    ReplicationController: ("status.replicas",),
    CoreEvent: (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ),
    ResourceSlice: ("spec.nodeName", "spec.driver"),
}
#: A component that reads other fields of a kind declares its own type with the same name.
_BY_NAME = {(kind.API_VERSION, kind.KIND): fields for kind, fields in _OF_KIND.items()}

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery pkg/util/rand: no vowels, no bad words
_SUFFIX_LENGTH = 5
KEPT = 1 << 16  # names whose number of former objects is kept


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """``path`` has ``value``, or has not if ``negated``."""

    path: str
    value: str
    negated: bool
    read: Callable[[KubeObject], object]

    def matches(self, obj: KubeObject) -> bool:
        return (_text(self.read(obj)) == self.value) is not self.negated


def parse_field_selector(
    selector: str, kind_type: type[KubeObject]
) -> tuple[FieldRequirement, ...]:
    """Return the requirements of ``a=b,c==d,e!=f``.

    Raises InvalidError for anything else and for fields that the kind doesn't offer.
    """
    requirements = []
    for part in filter(None, selector.split(",")):
        path, equals, value = part.partition("=")
        if not equals:
            raise InvalidError(f"field selector: must be field=value or field!=value, got {part!r}")
        negated = path.endswith("!")
        path = path.removesuffix("!")
        requirements.append(
            FieldRequirement(path, value.removeprefix("="), negated, _reader(kind_type, path))
        )
    return tuple(requirements)


@cache
def _reader(kind_type: type[KubeObject], path: str) -> Callable[[KubeObject], object]:
    accepted = _OF_ALL + _BY_NAME.get((kind_type.API_VERSION, kind_type.KIND), ())
    if path not in accepted:
        raise InvalidError(
            f"field label not supported: {path}; must be one of {', '.join(accepted)}"
        )
    attributes = []
    owner: type = kind_type
    for step in path.split("."):
        info = next(info for info in fields(owner) if info.encode_name == step)
        attributes.append(info.name)
        owner = info.type
    return attrgetter(".".join(attributes))


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Counts:
    """Counter of names; once the oldest are forgotten, it never counts less than before."""

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


def name_uuid(namespace: uuid.UUID, name: str) -> str:
    """Return ``str(uuid.uuid5(namespace, name))``, in half of the time."""
    digest = hashlib.sha1(namespace.bytes + name.encode(), usedforsecurity=False).hexdigest()
    variant = f"{int(digest[16], 16) & 3 | 8:x}"
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


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
        return name_uuid(self._root, f"{obj.API_VERSION}/{name}/{born_again}")

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


Manifest = JsonObject | bytes | msgspec.Raw


class Manifests:
    """Manifests by kind and key."""

    def __init__(self) -> None:
        self._kept: dict[tuple[type[KubeObject], str], tuple[Manifest, KubeObject]] = {}

    def keep(self, stored: KubeObject, manifest: Manifest, decoded: KubeObject) -> None:
        """Keep the manifest of a stored object; ``decoded`` is what our types read of it.

        The caller may not change the manifest any more.
        """
        self._kept[type(stored), stored.key] = (manifest, decoded)

    def has(self, obj: KubeObject) -> bool:
        return (type(obj), obj.key) in self._kept

    def forget(self, obj: KubeObject) -> None:
        self._kept.pop((type(obj), obj.key), None)

    def whole(self, stored: KubeObject) -> JsonObject:
        """Return the JSON of an object with all its fields, known to us or not."""
        kept = self._kept.get((type(stored), stored.key))
        now = to_manifest(stored)
        if kept is None:
            return now
        manifest, decoded = kept
        tree = manifest if isinstance(manifest, dict) else decode_json(manifest)
        return carried_over(tree, to_manifest(decoded), now)
