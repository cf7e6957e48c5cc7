"""Base of custom resources, and the types that they share.

``koordinator.api.schema`` makes the CRD of a kind from all this.
Source: k8s.io/apiextensions-apiserver pkg/apis/apiextensions/v1/types.go;
k8s.io/apimachinery pkg/apis/meta/v1/types.go, ``Condition``.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from koordinator.api.bounds import ANY, NOT_NEGATIVE, PERCENT, Bounds, bounded
from koordinator.api.meta import ApiStruct, KubeObject
from koordinator.api.pod import PodTemplateSpec
from koordinator.foundation.lazy_dataclass import dataclass

_UNTYPED: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}

Percent = Annotated[int, bounded(PERCENT)]
ConfiguredPercent = Annotated[int, bounded(PERCENT, decoded=ANY)]
NotNegative = Annotated[int, bounded(NOT_NEGATIVE)]
Positive = Annotated[int, bounded(Bounds(1))]
IntOrString = int | str
UntypedObject = Annotated[dict[str, Any], Meta(extra_json_schema=_UNTYPED)]
UntypedPodTemplate = Annotated[PodTemplateSpec, Meta(extra_json_schema=_UNTYPED)]


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of ``kubectl get``; ``type`` is string, integer, number, boolean or date."""

    name: str
    json_path: str
    type: str = "string"


class CustomResource(KubeObject, frozen=True, kw_only=True):
    """A top-level kind that the API server knows by a CRD."""

    SHORT_NAMES: ClassVar[tuple[str, ...]] = ()
    SUBRESOURCE_STATUS: ClassVar[bool] = False
    PRINTER_COLUMNS: ClassVar[Sequence[PrinterColumn]] = ()
    API_APPROVED: ClassVar[str] = ""  # a group below k8s.io needs the URL of its approval
    STORED_AS: ClassVar[type[KubeObject] | None] = None  # the version stored, if not this one


def has_status_subresource(kind_type: type[KubeObject]) -> bool:
    """Return whether the status is written apart from the rest.

    Some custom resources have a status that is written like any other field.
    """
    return "status" in kind_type.__struct_fields__ and (
        not issubclass(kind_type, CustomResource) or kind_type.SUBRESOURCE_STATUS
    )


class StandardCondition(ApiStruct, frozen=True, kw_only=True):
    """A ``metav1.Condition``, as strict as the API server is."""

    type: Annotated[str, Meta(max_length=316)]  # name of the condition
    status: Literal["True", "False", "Unknown"]  # whether the condition holds
    #: reason of the last change, in CamelCase
    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="A word for programs, such as OutOfMemory.",
        ),
    ]
    message: Annotated[str, Meta(max_length=32768)]  # details for people
    last_transition_time: dt.datetime  # time of the last change of the status
    observed_generation: NotNegative = 0  # generation of the object that the condition is about
