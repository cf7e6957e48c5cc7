"""Which GPUs a container sees, and how HAMi-core holds it to its share of them.

HAMi-core is a library that is loaded before the program; it holds programs to limits that don't
try to get around it, and is no boundary against those that do.
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
_MOST: Final = 2**63 - 1  # more is no limit to the library
_READ_ONLY: Final = ("rbind", "ro")
_OF_ONE_GPU = re.compile(rf"(?P<limit>{MEMORY_LIMIT}|{CORE_LIMIT})_[0-9]+")


@dataclass(frozen=True, slots=True)
class HamiCoreSettings:
    """Where the library is, in the container as on the node.

    ``keeps_regions`` gives every container a folder of its own for its region, which the monitor of
    slices reads.  Raises InputError for a path that is not absolute, or has ``..``.
    """

    library: str = DEFAULT_LIBRARY
    keeps_regions: bool = False

    def __post_init__(self) -> None:
        """Check the path as one that is mounted."""
        try:
            ContainerMount(self.library, self.library)
        except InputError as error:
            raise InputError(error.problem, path="hami-core-library-directory-path") from None
        if self.folder == "/":
            raise InputError(
                f"found {self.library!r}; accepted is a library in a folder of its own",
                path="hami-core-library-directory-path",
            )

    @property
    def folder(self) -> str:
        """The folder of the library."""
        return str(PurePosixPath(self.library).parent)

    @property
    def regions(self) -> str:
        """The folder that has one folder per container, on the node."""
        return f"{self.folder}/containers"


def gpu_adjustment(creation: ContainerCreation, settings: HamiCoreSettings) -> ContainerAdjustment:
    """Return the GPUs that a container sees, and the limits of one that shares them.

    Every container of a pod gets all GPUs of the pod, and the limits of the first of them.  One
    that claims GPUs has them from the runtime already, and gets the limits alone.
    Raises InputError for an allocation that can't be read, or has no amounts to hold anybody to.
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
    limits |= {  # those of single GPUs go before those of all: nobody sets them but us
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
    """Return the folder below ``settings.regions`` that has to be made anew; None for none.

    Limits are written into the region once, by the first process that finds none: a container that
    is started again must not find the one of before.  Raises as ``gpu_adjustment``.
    """
    gpus = _gpus(creation)
    if not settings.keeps_regions or not gpus or not _is_shared(creation, gpus):
        return None
    return region_name(creation)


def region_name(creation: ContainerCreation) -> PathComponent:
    """Return how the folder of a container is called.  Raises InputError for what is no name."""
    uid = creation.pod.uid
    if "_" in uid:
        raise InputError(f"found {uid!r}; accepted is a UID without '_'", path="metadata.uid")
    return path_component(f"{uid}_{creation.container.name}", path="spec.containers[].name")


def _gpus(creation: ContainerCreation) -> Sequence[DeviceAllocation]:
    if creation.claimed_gpus:  # an annotation that anybody may write lifts no limit of a claim
        return creation.claimed_gpus
    gpus = creation.pod.devices.get(DeviceType.GPU, ())
    if len(gpus) > MOST_DEVICES:
        raise InputError(
            f"found {len(gpus)} GPUs; accepted are {MOST_DEVICES}", path=f"{ALLOCATED.path}.gpu"
        )
    for index, gpu in enumerate(gpus):
        if gpu.minor < 0:
            raise InputError(
                f"found {gpu.minor}; accepted is the number of a GPU",
                path=f"{ALLOCATED.path}.gpu[{index}].minor",
            )
    return gpus


def _is_shared(creation: ContainerCreation, gpus: Sequence[DeviceAllocation]) -> bool:
    if not creation.pod.wants_gpu_limits:
        return False
    is_part = not creation.claimed_gpus and creation.pod.requests_gpu_share
    return is_part or _amount(gpus[0], GPU_MEMORY_RATIO) < WHOLE_DEVICE


def _limits(gpu: DeviceAllocation) -> dict[str, str]:
    """Return the variables that limit; 0 would be no limit at all."""
    limits = {MEMORY_LIMIT: str(_amount(gpu, GPU_MEMORY))}
    if GPU_CORE in gpu.resources and (core := gpu.resources[GPU_CORE].value()):
        if not 0 < core <= WHOLE_DEVICE:
            raise _wrong(GPU_CORE, f"found {core}; accepted is 0 to {WHOLE_DEVICE}")
        limits[CORE_LIMIT] = str(core)
    return limits


def _amount(gpu: DeviceAllocation, name: str) -> int:
    quantity = gpu.resources.get(name)
    if quantity is None or not 0 < quantity.value() <= _MOST:
        found = "nothing" if quantity is None else str(quantity)
        raise _wrong(name, f"found {found}; accepted of a GPU that is shared is 1 to {_MOST}")
    return quantity.value()


def _wrong(name: str, problem: str) -> InputError:
    return InputError(problem, path=f"{ALLOCATED.path}.gpu[0].resources[{name}]")
