"""Messages of the kubelet's PodResources service, with the fields that concern devices.

Undeclared fields (CPUs, memory, claims, fields of future kubelets) are passed through unchanged.
Source: k8s.io/kubelet pkg/apis/podresources/v1/api.proto.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from koordinator.foundation.protobuf import FieldNumber, UnknownFields

SERVICES: Final = ("v1.PodResourcesLister", "v1alpha1.PodResourcesLister")
#: Calls whose response contains devices of pods; the older service has only the first.
COMPLETED: Final = (
    "v1.PodResourcesLister/List",
    "v1.PodResourcesLister/Get",
    "v1alpha1.PodResourcesLister/List",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices:
    """Devices of one resource, by id."""

    resource_name: Annotated[str, FieldNumber(1)] = ""
    device_ids: Annotated[tuple[str, ...], FieldNumber(2)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources:
    """Resources of a container."""

    name: Annotated[str, FieldNumber(1)] = ""
    devices: Annotated[tuple[ContainerDevices, ...], FieldNumber(2)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """Resources of a pod's containers; the service has no UIDs."""

    name: Annotated[str, FieldNumber(1)] = ""
    namespace: Annotated[str, FieldNumber(2)] = ""
    containers: Annotated[tuple[ContainerResources, ...], FieldNumber(3)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResourcesList:
    """Response of List and of Get; Get returns at most one pod in the same field."""

    pods: Annotated[tuple[PodResources, ...], FieldNumber(1)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""
