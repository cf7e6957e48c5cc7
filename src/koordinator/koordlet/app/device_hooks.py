"""What containers get of devices when they are made, put together for this machine."""

import logging
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from koordinator.foundation.errors import HostError
from koordinator.host.port import Files
from koordinator.host.roots import Roots
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

log = logging.getLogger(__name__)


def device_hooks(
    gates: Collection[str], files: Files, roots: Roots, hami_core: HamiCoreSettings
) -> dict[str, CreationHook]:
    """Return the hooks that are switched on, by the names that the original gives them."""
    found: dict[str, CreationHook] = {}
    if "GPUEnvInject" in gates:
        found["GPUEnvInject"] = partial(_adjust_gpus, files=files, settings=hami_core)
    if "RDMADeviceInject" in gates:
        verbs = SysfsVerbs(files, roots.sys)
        found["RDMADeviceInject"] = partial(rdma_adjustment, verbs=verbs)
    return found


def _adjust_gpus(
    creation: ContainerCreation, files: Files, settings: HamiCoreSettings
) -> ContainerAdjustment:
    """Return the adjustment; without a region of its own where there can be no folder for it."""
    name = region_folder(creation, settings)
    if name is not None:
        try:
            _empty(files, f"{settings.regions}/{name}")
        except HostError as error:
            # A container without its limits would be worse than one that is not watched.
            log.warning("region not kept", extra={"container": creation.owner, "error": error})
            settings = replace(settings, keeps_regions=False)
    adjustment = gpu_adjustment(creation, settings)
    _check_sources(files, adjustment, settings)
    return adjustment


def _check_sources(
    files: Files, adjustment: ContainerAdjustment, settings: HamiCoreSettings
) -> None:
    """Raise HostError if something is to be mounted that is not there.

    The runtime would not start the container then.
    """
    sources = [mount.source for mount in adjustment.mounts]
    if LOCK_FOLDER in sources and not files.exists(LOCK_FOLDER):
        files.make_folder(LOCK_FOLDER)
    if settings.library in sources and not files.exists(settings.library):
        raise HostError(f"{settings.library} of HAMi-core is not on this node")


def _empty(files: Files, folder: str) -> None:
    """Make a folder, and take out what a container left that ended.

    What can't be taken out was made by the container itself, and stands in nobody else's way.
    Raises HostError where the folder can't be made.
    """
    files.make_folder(folder.rpartition("/")[0])
    files.make_folder(folder)
    for name in files.names(folder):
        try:
            files.remove(f"{folder}/{name}")
        except HostError as error:
            log.warning("left in a region's folder", extra={"file": name, "error": error})
