"""The device hooks of this machine: which are on, and where the regions of GPU shares are."""

import stat
from pathlib import Path

import pytest
from tests.unit.koordlet.hooks.test_gpu_sharing import creation, gpus

from koordinator.foundation.errors import HostError
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.trees import Tree, Trees
from koordinator.host.linux.vgpu_regions import LinuxRegionFolders
from koordinator.host.port import Roots
from koordinator.koordlet.app.device_hooks import device_hooks
from koordinator.koordlet.hooks.devices import LOCK_FOLDER, HamiCoreSettings
from koordinator.koordlet.hooks.pod_hooks import CreationHook
from koordinator.koordlet.view.pods import PodView

GATES = {"GPUEnvInject", "RDMADeviceInject"}


def anything(_: PodView) -> None:
    """Accept each device."""


def hook_of(tmp_path: Path, settings: HamiCoreSettings) -> CreationHook:
    """Return the hook for GPUs, which sees this folder of the machine and the locks."""
    trees = Trees((Tree(str(tmp_path)), Tree(LOCK_FOLDER.rpartition("/")[0])))
    host = LinuxHost(kept_open=0, trees=trees)
    regions = LinuxRegionFolders(settings.regions)
    return hooks(GATES, host, settings, regions)["GPUEnvInject"]


def hooks(
    gates: set[str], host: LinuxHost, settings: HamiCoreSettings, regions: LinuxRegionFolders
) -> dict[str, CreationHook]:
    """Return the hooks of a node whose pods claim nothing."""
    return device_hooks(
        gates,
        host,
        Roots(),
        settings,
        regions,
        check_devices=anything,
        claimed_gpus=lambda _: (),
    )


def test_only_enabled_hooks_run(tmp_path: Path) -> None:
    """Each hook has a gate of its own."""
    host, settings = LinuxHost(), HamiCoreSettings(f"{tmp_path}/libvgpu.so")
    regions = LinuxRegionFolders(settings.regions)
    assert list(hooks(GATES, host, settings, regions)) == sorted(GATES)
    assert list(hooks({"CPUSetAllocator"}, host, settings, regions)) == []


def test_a_container_that_starts_again_finds_no_region_of_before(tmp_path: Path) -> None:
    """Limits are written into a region once; what a container planted there changes nothing."""
    settings = HamiCoreSettings(f"{tmp_path}/libvgpu.so", keeps_regions=True)
    hook = hook_of(tmp_path, settings)
    (tmp_path / "libvgpu.so").touch()
    own = tmp_path / "containers/0a-1b_main"
    outside = tmp_path / "outside"
    outside.write_text("kept")

    first = hook(creation(gpus(1)))
    assert first.mounts[0].source == str(own)
    assert list(own.iterdir()) == []
    assert stat.S_IMODE(own.stat().st_mode) == 0o777  # programs in containers are seldom root

    (own / "old.cache").write_text("limits of before")
    (own / "link").symlink_to(outside)
    (own / "folder/below").mkdir(parents=True)
    assert hook(creation(gpus(1))) == first
    assert list(own.iterdir()) == []
    assert outside.read_text() == "kept"


def test_without_a_place_for_regions_the_limits_stay(tmp_path: Path) -> None:
    """A share that is not watched is better than one without limits."""
    settings = HamiCoreSettings(f"{tmp_path}/libvgpu.so", keeps_regions=True)
    (tmp_path / "libvgpu.so").touch()
    (tmp_path / "containers").touch()  # no folder
    adjustment = hook_of(tmp_path, settings)(creation(gpus(1)))
    assert adjustment.env["CUDA_DEVICE_SM_LIMIT"] == "25"
    assert "CUDA_DEVICE_MEMORY_SHARED_CACHE" not in adjustment.env


def test_missing_library_raises(tmp_path: Path) -> None:
    """The runtime would not start a container that it is to be mounted into."""
    settings = HamiCoreSettings(f"{tmp_path}/libvgpu.so")
    with pytest.raises(HostError, match="of HAMi-core does not exist on this node"):
        hook_of(tmp_path, settings)(creation(gpus(1)))
    whole = hook_of(tmp_path, settings)(creation(gpus(1), labels={}))
    assert whole.env == {"NVIDIA_VISIBLE_DEVICES": "1"}
