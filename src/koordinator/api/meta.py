"""Object metadata, and the base classes of all API types.

Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go.
"""

import datetime as dt
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from koordinator.api.bounds import Bounds

INT32 = Bounds(-(2**31), 2**31 - 1)
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
JsonObject = dict[str, Any]  # a decoded JSON object whose fields we don't type


class ApiStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """Part of an object.  Unknown JSON fields are ignored: writes travel as differences."""


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """The object that this one belongs to."""

    api_version: str = ""  # API version of the owner
    kind: str = ""  # kind of the owner
    name: str = ""  # name of the owner
    uid: str = ""  # UID of the owner
    controller: bool | None = None  # whether the owner is the controller of the object
    block_owner_deletion: bool | None = None  # whether the object delays the owner's deletion


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """Name, labels, life cycle."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: dt.datetime | None = None
    deletion_timestamp: dt.datetime | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The reference to the owner that controls the object, None without a controller."""
        return next((each for each in self.owner_references if each.controller), None)

    def is_controlled_by(self, uid: str) -> bool:
        """Return whether the owner with this UID controls the object."""
        owner = self.controller
        return owner is not None and owner.uid == uid


class LabelSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """``operator`` is In, NotIn, Exists or DoesNotExist."""

    key: str  # key of the label
    operator: str  # In, NotIn, Exists or DoesNotExist
    values: tuple[str, ...] = ()  # values for In and NotIn


class LabelSelector(ApiStruct, frozen=True, kw_only=True):
    """ANDed; an empty selector matches everything, a missing one nothing."""

    match_labels: dict[str, str] = {}  # labels that an object must have
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()  # requirements on labels


def is_newer_version(version: str, other: str) -> bool:
    """Return whether a resourceVersion is newer than another one of the same kind.

    Versions that are no numbers are not newer.
    Source: kubernetes KEP-5504, Comparable Resource Version.
    """
    return version.isdecimal() and other.isdecimal() and int(version) > int(other)


class Condition(ApiStruct, frozen=True, kw_only=True):
    """A ``metav1.Condition`` or one of its older relatives (node, pod)."""

    type: str  # what the condition is about
    status: str  # True, False or Unknown
    reason: str = ""  # reason as one word
    message: str = ""  # reason for people
    observed_generation: Int64 = 0  # generation of the object that the condition is based on
    last_probe_time: dt.datetime | None = None  # time of the last check
    last_transition_time: dt.datetime | None = None  # time of the last change of the status
    last_heartbeat_time: dt.datetime | None = None  # time of the last update


class KubeObject(ApiStruct, frozen=True, kw_only=True):
    """A top-level kind.  ``apiVersion`` and ``kind`` are of the type, not of the instance."""

    API_VERSION: ClassVar[str]
    KIND: ClassVar[str]
    PLURAL: ClassVar[str]
    NAMESPACED: ClassVar[bool] = True

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """``namespace/name``, or just the name of a cluster-scoped object."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if self.NAMESPACED else meta.name
