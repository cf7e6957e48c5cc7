"""Devices of new containers: visible GPUs with limits in HAMi-core, and RDMA device nodes.

HAMi-core is a preloaded library.  It limits cooperative programs, and is no security boundary
against programs that circumvent it.
Source: koordinator pkg/koordlet/runtimehooks/hooks/gpu/gpu.go, rdma/rdma.go; HAMi-core docs,
environment; Linux drivers/infiniband/core: uverbs_main.c, ucma.c.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final, Protocol

from koordinator.api.annotations.devices import ALLOCATED, DeviceAllocation
from koordinator.api.device import DeviceType
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE_DEVICE
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import PathComponent, path_component
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.adjustments import ContainerAdjustment, ContainerDevice, ContainerMount
from koordinator.koordlet.view.pods import ContainerCreation

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

MOST_FUNCTIONS: Final = 512  # of one pod: two cards with all their virtual functions
_PATH: Final = f"{ALLOCATED.path}.rdma"
_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


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
        name: limits[match["limit"]]
        for name in creation.env
        if (match := _OF_ONE_GPU.fullmatch(name)) and match["limit"] in limits
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


class VerbsLookup(Protocol):
    """Current RDMA devices of the machine; virtual functions appear and disappear.

    Rule R8: ``collectors``, which implements it, is above the hooks.
    """

    def connection_manager(self) -> ContainerDevice | None:
        """Return ``/dev/infiniband/rdma_cm``; None if its module is not loaded."""

    def of_function(self, bus_id: str) -> Sequence[ContainerDevice]:
        """Return the ``/dev/infiniband/uverbs…`` of a PCI function; empty if it has none."""


def rdma_adjustment(creation: ContainerCreation, verbs: VerbsLookup) -> ContainerAdjustment:
    """Return the device nodes of a container; each container gets all of its pod's.

    Raises InputError for an invalid allocation, and for a card that this node does not have.
    """
    allocated = creation.pod.devices
    functions = list(_functions(allocated.get(DeviceType.RDMA, ())))
    if not functions:
        return ContainerAdjustment()
    if len(functions) > MOST_FUNCTIONS:
        raise InputError(
            f"must have at most {MOST_FUNCTIONS} functions, got {len(functions)}", path=_PATH
        )
    manager = verbs.connection_manager()
    if manager is None:
        raise InputError("this node has no /dev/infiniband/rdma_cm; load the module rdma_ucm")
    devices = [manager]
    for path, bus_id in functions:
        verbs_devices = verbs.of_function(bus_id)
        if not verbs_devices:
            raise InputError(f"PCI function {bus_id} has no RDMA device on this node", path=path)
        devices += verbs_devices
    return ContainerAdjustment(devices=tuple({each.path: each for each in devices}.values()))


def _functions(cards: Sequence[DeviceAllocation]) -> Iterator[tuple[str, str]]:
    """Yield the path in the annotation and the PCI address of virtual functions or the card."""
    for index, card in enumerate(cards):
        vfs = card.extension.vfs if card.extension is not None else ()
        addresses = [
            (f"{_PATH}[{index}].extension.vfs[{at}].busID", vf.bus_id) for at, vf in enumerate(vfs)
        ]
        for path, bus_id in addresses or [(f"{_PATH}[{index}].id", card.id)]:
            if not _BUS_ID.fullmatch(bus_id):
                raise InputError(
                    f"must be a PCI address such as 0000:01:00.2, got {bus_id[:80]!r}",
                    path=path,
                )
            yield path, bus_id
