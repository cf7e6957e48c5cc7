"""Messages of NRI, with the fields that a plugin reads and writes.

Source: github.com/containerd/nri pkg/api/api.proto.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Annotated, Final

from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.protobuf import FieldNumber

PACKAGE: Final = "nri.pkg.api.v1alpha1"


class NriEvent(IntEnum):
    """Events that a plugin can subscribe to."""

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11

    @property
    def bit(self) -> int:
        """Bit of the event in the mask of subscriptions."""
        return 1 << (self - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NriMemory:
    """Memory limit in bytes."""

    limit: Annotated[int | None, FieldNumber(1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NriCpu:
    """CPU shares; quota and period in microseconds; sets of CPUs and memory nodes."""

    shares: Annotated[int | None, FieldNumber(1)] = None
    quota: Annotated[int | None, FieldNumber(2)] = None
    period: Annotated[int | None, FieldNumber(3)] = None
    cpus: Annotated[str, FieldNumber(6)] = ""
    mems: Annotated[str, FieldNumber(7)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NriDeviceRule:
    """Access rule for a device."""

    allow: Annotated[bool, FieldNumber(1)] = False
    type: Annotated[str, FieldNumber(2)] = ""
    major: Annotated[int | None, FieldNumber(3)] = None
    minor: Annotated[int | None, FieldNumber(4)] = None
    access: Annotated[str, FieldNumber(5)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NriResources:
    """Limits of a container."""

    memory: Annotated[NriMemory | None, FieldNumber(1)] = None
    cpu: Annotated[NriCpu | None, FieldNumber(2)] = None
    rdt_class: Annotated[str | None, FieldNumber(5)] = None
    devices: Annotated[tuple[NriDeviceRule, ...], FieldNumber(7)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NriPodLinux:
    """Parent cgroup of the pod: a path, or with systemd the name of a slice."""

    cgroup_parent: Annotated[str, FieldNumber(3)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NriPod:
    """Pod sandbox."""

    id: Annotated[str, FieldNumber(1)] = ""
    name: Annotated[str, FieldNumber(2)] = ""
    uid: Annotated[str, FieldNumber(3)] = ""
    namespace: Annotated[str, FieldNumber(4)] = ""
    labels: Annotated[Mapping[str, str], FieldNumber(5)] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], FieldNumber(6)] = field(default_factory=dict)
    runtime_handler: Annotated[str, FieldNumber(7)] = ""
    linux: Annotated[NriPodLinux | None, FieldNumber(8)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NriContainerLinux:
    """Limits that the kubelet requested."""

    resources: Annotated[NriResources | None, FieldNumber(3)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NriContainer:
    """Container; ``env`` has NAME=value, and ``state`` is 3 while it runs."""

    id: Annotated[str, FieldNumber(1)] = ""
    pod_sandbox_id: Annotated[str, FieldNumber(2)] = ""
    name: Annotated[str, FieldNumber(3)] = ""
    state: Annotated[int, FieldNumber(4)] = 0
    env: Annotated[tuple[str, ...], FieldNumber(8)] = ()
    linux: Annotated[NriContainerLinux | None, FieldNumber(11)] = None


# -- adjustments -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NriMount:
    """Mount in addition to the spec's."""

    destination: Annotated[str, FieldNumber(1)] = ""
    type: Annotated[str, FieldNumber(2)] = ""
    source: Annotated[str, FieldNumber(3)] = ""
    options: Annotated[tuple[str, ...], FieldNumber(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NriVariable:
    """Environment variable."""

    key: Annotated[str, FieldNumber(1)] = ""
    value: Annotated[str, FieldNumber(2)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NriDevice:
    """Device node."""

    path: Annotated[str, FieldNumber(1)] = ""
    type: Annotated[str, FieldNumber(2)] = ""
    major: Annotated[int, FieldNumber(3)] = 0
    minor: Annotated[int, FieldNumber(4)] = 0
    file_mode: Annotated[int | None, FieldNumber(5)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NriAdjustmentLinux:
    """Devices and limits of an adjustment."""

    devices: Annotated[tuple[NriDevice, ...], FieldNumber(1)] = ()
    resources: Annotated[NriResources | None, FieldNumber(2)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NriAdjustment:
    """Changes to a container at its creation."""

    annotations: Annotated[Mapping[str, str], FieldNumber(2)] = field(default_factory=dict)
    mounts: Annotated[tuple[NriMount, ...], FieldNumber(3)] = ()
    env: Annotated[tuple[NriVariable, ...], FieldNumber(4)] = ()
    linux: Annotated[NriAdjustmentLinux | None, FieldNumber(6)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NriUpdateLinux:
    """Limits of an update."""

    resources: Annotated[NriResources | None, FieldNumber(1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NriUpdate:
    """Update of an existing container's limits."""

    container_id: Annotated[str, FieldNumber(1)] = ""
    linux: Annotated[NriUpdateLinux | None, FieldNumber(2)] = None
    ignore_failure: Annotated[bool, FieldNumber(3)] = False


# -- requests and responses ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NriEmpty:
    """Message without fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterPluginRequest:
    """Registration of a plugin; ``plugin_idx`` has two digits, which order the plugins."""

    plugin_name: Annotated[str, FieldNumber(1)] = ""
    plugin_idx: Annotated[str, FieldNumber(2)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureRequest:
    """Configuration of a plugin; timeouts are milliseconds."""

    config: Annotated[str, FieldNumber(1)] = ""
    runtime_name: Annotated[str, FieldNumber(2)] = ""
    runtime_version: Annotated[str, FieldNumber(3)] = ""
    registration_timeout: Annotated[int, FieldNumber(4)] = 0
    request_timeout: Annotated[int, FieldNumber(5)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureResponse:
    """Subscribed events, as a mask."""

    events: Annotated[int, FieldNumber(2)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronizeRequest:
    """Existing pods and containers; if ``more``, another request follows."""

    pods: Annotated[tuple[NriPod, ...], FieldNumber(1)] = ()
    containers: Annotated[tuple[NriContainer, ...], FieldNumber(2)] = ()
    more: Annotated[bool, FieldNumber(3)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronizeResponse:
    """Response to a synchronization; ``more`` echoes the request."""

    update: Annotated[tuple[NriUpdate, ...], FieldNumber(1)] = ()
    more: Annotated[bool, FieldNumber(2)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateContainerRequest:
    """Request about a container that is about to be created."""

    pod: Annotated[NriPod | None, FieldNumber(1)] = None
    container: Annotated[NriContainer | None, FieldNumber(2)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateContainerResponse:
    """Adjustment of the container, and updates of others."""

    adjust: Annotated[NriAdjustment | None, FieldNumber(1)] = None
    update: Annotated[tuple[NriUpdate, ...], FieldNumber(2)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateContainerRequest:
    """Request about an update of limits by the kubelet."""

    pod: Annotated[NriPod | None, FieldNumber(1)] = None
    container: Annotated[NriContainer | None, FieldNumber(2)] = None
    linux_resources: Annotated[NriResources | None, FieldNumber(3)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateContainerResponse:
    """Updates of this and other containers."""

    update: Annotated[tuple[NriUpdate, ...], FieldNumber(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChangeEvent:
    """Any other event of a pod or container."""

    event: Annotated[int, FieldNumber(1)] = 0
    pod: Annotated[NriPod | None, FieldNumber(2)] = None
    container: Annotated[NriContainer | None, FieldNumber(3)] = None
