"""Runtime hooks that inject devices into new containers, assembled for this machine."""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from koordinator.api.annotations.devices import DeviceAllocation
from koordinator.foundation.errors import HostError
from koordinator.host.port import Files
from koordinator.host.roots import Roots
from koordinator.host.vgpu_regions import RegionFolders
from koordinator.koordlet.adjustments import ContainerAdjustment
from koordinator.koordlet.collectors.pci import SysfsVerbs
from koordinator.koordlet.hooks.gpu_sharing import (
    LOCK_FOLDER,
    HamiCoreSettings,
    gpu_adjustment,
    region_folder,
)
from koordinator.koordlet.hooks.pod_hooks import CreationHook
from koordinator.koordlet.hooks.rdma_devices import rdma_adjustment
from koordinator.koordlet.view.container_creation import ContainerCreation
from koordinator.koordlet.view.pods import PodView

log = logging.getLogger(__name__)
#: GPUs allocated to a container by resource claims; see ``GpuClaims.gpus_of``.
ClaimedGpus = Callable[[ContainerCreation], tuple[DeviceAllocation, ...]]


def device_hooks(
    gates: Collection[str],
    files: Files,
    roots: Roots,
    hami_core: HamiCoreSettings,
    regions: RegionFolders,
    *,
    check_devices: Callable[[PodView], None],
    claimed_gpus: ClaimedGpus,
) -> dict[str, CreationHook]:
    """Return the enabled hooks by the names of the original.

    ``regions`` are the folders below ``hami_core.regions``.  ``check_devices`` raises InputError
    for a pod whose device another pod owns.  ``claimed_gpus`` returns the GPUs of resource claims.
    """

    def checked(hook: CreationHook) -> CreationHook:
        def adjust(creation: ContainerCreation) -> ContainerAdjustment:
            check_devices(creation.pod)
            return hook(creation)

        return adjust

    hooks: dict[str, CreationHook] = {}
    if "GPUEnvInject" in gates:
        adjust_gpus = partial(
            _adjust_gpus,
            files=files,
            settings=hami_core,
            regions=regions,
            claimed_gpus=claimed_gpus,
        )
        hooks["GPUEnvInject"] = checked(adjust_gpus)
    if "RDMADeviceInject" in gates:
        verbs = SysfsVerbs(files, roots.sys)
        hooks["RDMADeviceInject"] = checked(partial(rdma_adjustment, verbs=verbs))
    return hooks


def device_expectations(
    gates: Collection[str], hami_core: HamiCoreSettings, claimed_gpus: ClaimedGpus
) -> dict[str, CreationHook]:
    """Return hooks that compute the adjustment of a container without side effects."""

    def gpus(creation: ContainerCreation) -> ContainerAdjustment:
        if creation.pod.wants_gpu_limits:
            creation = replace(creation, claimed_gpus=claimed_gpus(creation))
        return gpu_adjustment(creation, replace(hami_core, keeps_regions=False))

    return {"GPUEnvInject": gpus} if "GPUEnvInject" in gates else {}


def _adjust_gpus(
    creation: ContainerCreation,
    files: Files,
    settings: HamiCoreSettings,
    regions: RegionFolders,
    claimed_gpus: ClaimedGpus,
) -> ContainerAdjustment:
    """Return the adjustment, without a shared region if its folder can't be created."""
    if creation.pod.wants_gpu_limits:
        creation = replace(creation, claimed_gpus=claimed_gpus(creation))
    name = region_folder(creation, settings)
    if name is not None:
        try:
            regions.renew(name)
        except HostError as error:
            # Enforcing the limits matters more than monitoring them.
            log.warning("vGPU region not kept", extra={"container": creation.owner, "error": error})
            settings = replace(settings, keeps_regions=False)
    adjustment = gpu_adjustment(creation, settings)
    _check_sources(files, adjustment, settings)
    return adjustment


def _check_sources(
    files: Files, adjustment: ContainerAdjustment, settings: HamiCoreSettings
) -> None:
    """Raise HostError if a mount source is missing: the runtime would reject the container."""
    sources = [mount.source for mount in adjustment.mounts]
    if LOCK_FOLDER in sources and not files.exists(LOCK_FOLDER):
        files.make_folder(LOCK_FOLDER)
    if settings.library in sources and not files.exists(settings.library):
        raise HostError(f"{settings.library} of HAMi-core does not exist on this node")
