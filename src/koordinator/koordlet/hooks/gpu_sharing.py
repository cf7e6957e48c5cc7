"""Visible GPUs of a container, and its limits in HAMi-core.

HAMi-core is a preloaded library.  It limits cooperative programs, and is no security boundary
against programs that circumvent it.
Source: koordinator pkg/koordlet/runtimehooks/hooks/gpu/gpu.go; HAMi-core docs, environment.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from koordinator.api.annotations.devices import ALLOCATED, DeviceAllocation
from koordinator.api.device import DeviceType
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE_DEVICE
from koordinator.foundation.errors import InputError
from koordinator.foundation.path_component import PathComponent, path_component
from koordinator.koordlet.adjustments import ContainerAdjustment, ContainerMount
from koordinator.koordlet.view.container_creation import ContainerCreation

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"
CORE_LIMIT: Final = "CUDA_DEVICE_SM_LIMIT"
REGION: Final = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
PRELOAD: Final = "LD_PRELOAD"
DEFAULT_LIBRARY: Final = "/usr/local/vgpu/libvgpu.so"
LOCK_FOLDER: Final = "/tmp/vgpulock"  # noqa: S108 -- where HAMi-core has it
MOST_DEVICES: Final = 128  # of one pod; no machine has more
_MOST: Final = 2**63 - 1  # the library ignores larger limits
_READ_ONLY: Final = ("rbind", "ro")
_OF_ONE_GPU = re.compile(rf"(?P<limit>{MEMORY_LIMIT}|{CORE_LIMIT})_[0-9]+")


@dataclass(frozen=True, slots=True)
class HamiCoreSettings:
    """Path of the library, the same in the container and on the node.

    ``keeps_regions`` mounts a folder per container for its shared region, which the vGPU monitor
    reads.  Raises InputError for a path that is not absolute or contains ``..``.
    """

    library: str = DEFAULT_LIBRARY
    keeps_regions: bool = False

    def __post_init__(self) -> None:
        """Check the path like the path of a mount."""
        try:
            ContainerMount(self.library, self.library)
        except InputError as error:
            raise InputError(error.problem, path="hami-core-library-directory-path") from None
        if self.folder == "/":
            raise InputError(
                f"must be a library in its own folder, got {self.library!r}",
                path="hami-core-library-directory-path",
            )

    @property
    def folder(self) -> str:
        """Folder of the library."""
        return str(PurePosixPath(self.library).parent)

    @property
    def regions(self) -> str:
        """Folder on the node with one folder per container."""
        return f"{self.folder}/containers"


def gpu_adjustment(creation: ContainerCreation, settings: HamiCoreSettings) -> ContainerAdjustment:
    """Return the visible GPUs of a container, and its limits if it shares them.

    Each container of a pod gets all GPUs of the pod, and the limits of the first one.  A container
    with resource claims has its GPUs from the runtime already and gets the limits only.
    Raises InputError for an invalid allocation, or one without amounts to enforce.
    """
    gpus = _gpus(creation)
    if not gpus:
        return ContainerAdjustment()
    env = {}
    if not creation.claimed_gpus:
        env[VISIBLE_DEVICES] = ",".join(str(gpu.minor) for gpu in gpus)
    if not _is_shared(creation, gpus):
        return ContainerAdjustment(env=env)
    limits = _limits(gpus[0])
    limits |= {  # limits of single GPUs override the common ones, so they must not remain
        name: limits[found["limit"]]
        for name in creation.env
        if (found := _OF_ONE_GPU.fullmatch(name)) and found["limit"] in limits
    }
    own = creation.env.get(PRELOAD, "")
    env |= limits | {PRELOAD: f"{settings.library}:{own}" if own else settings.library}
    mounts = []
    if settings.keeps_regions:
        name = region_name(creation)
        env[REGION] = f"{settings.folder}/{name}.cache"
        # Before the library, which is in this folder.
        mounts.append(ContainerMount(settings.folder, f"{settings.regions}/{name}"))
    mounts += [
        ContainerMount(settings.library, settings.library, _READ_ONLY),
        ContainerMount(LOCK_FOLDER, LOCK_FOLDER),
    ]
    return ContainerAdjustment(env=env, mounts=tuple(mounts))


def region_folder(creation: ContainerCreation, settings: HamiCoreSettings) -> PathComponent | None:
    """Return the folder below ``settings.regions`` to recreate; None if there is none.

    The first process that finds no limits in the region writes them, once.  A restarted container
    must therefore not see the region of its predecessor.  Raises as ``gpu_adjustment``.
    """
    gpus = _gpus(creation)
    if not settings.keeps_regions or not gpus or not _is_shared(creation, gpus):
        return None
    return region_name(creation)


def region_name(creation: ContainerCreation) -> PathComponent:
    """Return the name of a container's folder.  Raises InputError for an invalid name."""
    uid = creation.pod.uid
    if "_" in uid:
        raise InputError(f"must be a UID without '_', got {uid!r}", path="metadata.uid")
    return path_component(f"{uid}_{creation.container.name}", path="spec.containers[].name")


def _gpus(creation: ContainerCreation) -> Sequence[DeviceAllocation]:
    if creation.claimed_gpus:  # clients can patch the annotation, but not the claim's allocation
        return creation.claimed_gpus
    gpus = creation.pod.devices.get(DeviceType.GPU, ())
    if len(gpus) > MOST_DEVICES:
        raise InputError(
            f"must have at most {MOST_DEVICES} GPUs, got {len(gpus)}", path=f"{ALLOCATED.path}.gpu"
        )
    for index, gpu in enumerate(gpus):
        if gpu.minor < 0:
            raise InputError(
                f"must be the minor number of a GPU, got {gpu.minor}",
                path=f"{ALLOCATED.path}.gpu[{index}].minor",
            )
    return gpus


def _is_shared(creation: ContainerCreation, gpus: Sequence[DeviceAllocation]) -> bool:
    if not creation.pod.wants_gpu_limits:
        return False
    is_part = not creation.claimed_gpus and creation.pod.requests_gpu_share
    return is_part or _amount(gpus[0], GPU_MEMORY_RATIO) < WHOLE_DEVICE


def _limits(gpu: DeviceAllocation) -> dict[str, str]:
    """Return the variables of the limits; the library treats 0 as no limit."""
    limits = {MEMORY_LIMIT: str(_amount(gpu, GPU_MEMORY))}
    if GPU_CORE in gpu.resources and (core := gpu.resources[GPU_CORE].value()):
        if not 0 < core <= WHOLE_DEVICE:
            raise _invalid(GPU_CORE, f"must be between 0 and {WHOLE_DEVICE}, got {core}")
        limits[CORE_LIMIT] = str(core)
    return limits


def _amount(gpu: DeviceAllocation, name: str) -> int:
    quantity = gpu.resources.get(name)
    if quantity is None or not 0 < quantity.value() <= _MOST:
        got = "nothing" if quantity is None else str(quantity)
        raise _invalid(name, f"must be between 1 and {_MOST} for a shared GPU, got {got}")
    return quantity.value()


def _invalid(name: str, problem: str) -> InputError:
    return InputError(problem, path=f"{ALLOCATED.path}.gpu[0].resources[{name}]")
