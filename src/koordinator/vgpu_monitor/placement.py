"""Owner of a region, from the name of its folder, which the agent created, and from the pod.

A region could name GPUs and a priority of other containers, so both come from the pod: the GPUs
from its claims or the scheduler's annotation, the priority from the environment in its spec.
Source: HAMi pkg/monitor/nvidia/cudevshr.go; koordinator pkg/koordlet/runtimehooks/hooks/gpu.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from koordinator.api.annotations.devices import ALLOCATED, DeviceAllocation
from koordinator.api.core import ResourceClaimReference
from koordinator.api.device import DeviceType
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.labels import HAMI_CORE, gpu_isolation_provider, parse_int32
from koordinator.api.meta import ApiStruct, KubeObject
from koordinator.api.pod import PodResourceClaim, PodResourceClaimStatus
from koordinator.api.resource_names import GPU_MEMORY
from koordinator.domain.dynamic_resources.allocation import claim_names
from koordinator.domain.dynamic_resources.node_gpus import claimed_gpus
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

PRIORITY: Final = "CUDA_TASK_PRIORITY"
DEFAULT_PRIORITY: Final = 1
CACHE: Final = ".cache"
_LIBRARY: Final = "libvgpu.so"


class EnvironmentVariable(ApiStruct, frozen=True, kw_only=True):
    """Environment variable; ``value`` is None for a value from another source."""

    name: str = ""
    value: str | None = None


class _Resources(ApiStruct, frozen=True, kw_only=True):
    claims: tuple[ResourceClaimReference, ...] = ()


class _Container(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    env: tuple[EnvironmentVariable, ...] = ()
    resources: _Resources = _Resources()


class _Spec(ApiStruct, frozen=True, kw_only=True):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    node_name: str = ""
    resource_claims: tuple[PodResourceClaim, ...] = ()


class _Ended(ApiStruct, frozen=True, kw_only=True):
    exit_code: int = 0


class _State(ApiStruct, frozen=True, kw_only=True):
    terminated: _Ended | None = None


class _ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    state: _State = _State()


class _Status(ApiStruct, frozen=True, kw_only=True):
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class GpuPod(KubeObject, frozen=True, kw_only=True):
    """Pod with the fields for sharing a GPU, including the environment of its containers."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Pod"
    PLURAL: ClassVar[str] = "pods"

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def claims(self) -> Mapping[str, str]:
        """Names of the pod's claims by entry of its spec, if HAMi-core limits the pod."""
        if gpu_isolation_provider(self.metadata.labels) != HAMI_CORE:
            return {}
        names = claim_names(self.spec.resource_claims, self.status.resource_claim_statuses)
        return {entry.name: name for entry, name in names if name is not None}


@dataclass(frozen=True, slots=True)
class RegionOwner:
    """Container with GPUs; ``gpus`` are their ids by minor, empty if unknown.

    ``memory_limit`` is the limit per GPU in bytes, as set by the agent; 0 for none.
    """

    namespace: str
    pod: str
    container: str
    gpus: Mapping[int, str]
    priority: int
    has_ended: bool
    memory_limit: int = 0


def owners_of(pod: GpuPod, claims: Mapping[str, ResourceClaim]) -> dict[str, RegionOwner]:
    """Return the containers of a pod with GPUs, by name.

    ``claims`` are the objects of ``pod.claims``, by entry; as in the agent, GPUs of claims take
    precedence over the annotation.  Raises InputError for an invalid allocation.
    """
    allocated = (ALLOCATED.read(pod.metadata) or {}).get(DeviceType.GPU, ())
    requested = _Gpus({device.minor: device.id for device in allocated}, _memory_limit(allocated))
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ended = {status.name for status in statuses if status.state.terminated is not None}
    return {
        each.name: RegionOwner(
            pod.metadata.namespace,
            pod.metadata.name,
            each.name,
            has.gpus,
            _priority(each.env),
            each.name in ended,
            has.memory_limit,
        )
        for each in (*pod.spec.init_containers, *pod.spec.containers)
        if (has := _claimed(each, claims, pod.spec.node_name) or requested).gpus
    }


@dataclass(frozen=True, slots=True)
class _Gpus:
    gpus: Mapping[int, str]
    memory_limit: int


def _claimed(container: _Container, claims: Mapping[str, ResourceClaim], node: str) -> _Gpus | None:
    """Return the GPUs of a container's claims; the first one determines the limit."""
    gpus = [
        gpu
        for used in container.resources.claims
        if used.name in claims
        for gpu in claimed_gpus(claims[used.name], used.request).get(node, ())
    ]
    if not gpus:
        return None
    return _Gpus(dict.fromkeys((gpu.minor for gpu in gpus), ""), gpus[0].memory_bytes)


def _memory_limit(allocated: Sequence[DeviceAllocation]) -> int:
    """Return the memory of the first GPU, which the agent applies as the limit of all GPUs."""
    memory = allocated[0].resources.get(GPU_MEMORY) if allocated else None
    return memory.value() if memory is not None else 0


def folder_parts(name: str) -> tuple[str, str] | None:
    """Return the pod's UID and the container's name; None for the folder of no container."""
    uid, _, container = name.partition("_")
    return (uid, container) if uid and container else None


def region_file(folder: str, files: Sequence[str]) -> str:
    """Return the name of the region in a container's folder; empty if there is none yet.

    The agent names it like the folder; HAMi's own device plugin uses a random UUID.
    Raises InputError for several regions, or one with the name of another container.
    """
    own = f"{folder}{CACHE}"
    if own in files:
        return own
    regions = [name for name in files if name.endswith(CACHE) and _LIBRARY not in name]
    if not regions:
        return ""
    if len(regions) > 1:
        raise InputError(f"must have one region, got {len(regions)}", source=folder)
    if "_" in regions[0]:
        raise InputError(
            f"must have the region {own!r}, got {regions[0][:80]!r} of another container",
            source=folder,
        )
    return regions[0]


def _priority(env: Sequence[EnvironmentVariable]) -> int:
    """Return the value of the last such variable, or the default of HAMi-core."""
    stated = [each.value for each in env if each.name == PRIORITY]
    number = parse_int32((stated[-1] or "").strip()) if stated else None
    return DEFAULT_PRIORITY if number is None else number
