"""Messages of the kubelet's PodResources service, as far as devices are told in them.

What they don't declare (CPUs, memory, claims, fields of kubelets to come) is passed on as it came.
Source: k8s.io/kubelet pkg/apis/podresources/v1/api.proto.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from koordinator.foundation.protobuf import FieldNumber, UnknownFields

SERVICES: Final = ("v1.PodResourcesLister", "v1alpha1.PodResourcesLister")
#: Calls whose answer has devices of pods in it; the older service has the first of them, too.
COMPLETED: Final = (
    "v1.PodResourcesLister/List",
    "v1.PodResourcesLister/Get",
    "v1alpha1.PodResourcesLister/List",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices:
    """Devices of one resource, by their ids."""

    resource_name: Annotated[str, FieldNumber(1)] = ""
    device_ids: Annotated[tuple[str, ...], FieldNumber(2)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources:
    """What a container has."""

    name: Annotated[str, FieldNumber(1)] = ""
    devices: Annotated[tuple[ContainerDevices, ...], FieldNumber(2)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """What the containers of a pod have; the service has no UIDs."""

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
    """The answer of List, and that of Get, which has one pod at most in the same field."""

    pods: Annotated[tuple[PodResources, ...], FieldNumber(1)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""
