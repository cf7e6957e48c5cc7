"""Field selectors: which fields each kind offers, and whether an object has the wanted values.

Source: k8s.io/apimachinery pkg/fields/selector.go ``ParseSelector``; k8s.io/kubernetes
pkg/apis/core/v1/conversion.go (fields per kind).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter

from msgspec.structs import fields

from koordinator.api.dynamic_resources import ResourceSlice
from koordinator.api.event import CoreEvent
from koordinator.api.meta import KubeObject
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.workload import ReplicationController
from koordinator.foundation.errors import InvalidError

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
_BY_NAME = {(kind.API_VERSION, kind.KIND): found for kind, found in _OF_KIND.items()}


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """``path`` has ``value``, or has not if ``negated``."""

    path: str
    value: str
    negated: bool
    read: Callable[[KubeObject], object]

    def holds(self, obj: KubeObject) -> bool:
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
