"""Injection of devices into new containers, and ownership of the node's devices.

The scheduler writes the allocation into an annotation of the pod, and so can every client that may
patch the pod.  The annotation proves nothing, so devices are injected only within the limits that
every scheduler respects: a virtual function belongs to one pod, no device is allocated beyond 100
percent, and the first pod that receives a device keeps it.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from koordinator.api.annotations.devices import ALLOCATED, DeviceAllocation, DeviceAllocations
from koordinator.api.device import DeviceType
from koordinator.api.resource_names import (
    FPGA,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    RDMA,
    WHOLE_DEVICE,
)
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import Files, RegionFolders, Roots
from koordinator.koordlet.adjustments import ContainerAdjustment
from koordinator.koordlet.collectors.accelerators import SysfsVerbs
from koordinator.koordlet.hooks.devices import (
    LOCK_FOLDER,
    HamiCoreSettings,
    gpu_adjustment,
    rdma_adjustment,
    region_folder,
)
from koordinator.koordlet.hooks.pod_hooks import CreationHook
from koordinator.koordlet.view.pods import ContainerCreation, PodView

#: Percentages of a device by type; devices of other types are not injected.
_PERCENTAGES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        DeviceType.GPU: (GPU_CORE, GPU_MEMORY_RATIO),
        DeviceType.RDMA: (RDMA,),
        DeviceType.FPGA: (FPGA,),
    }
)
_FUNCTION: Final = "virtual function"
_MOST_GRANTS: Final = 1024  # of pods that were not published yet

_Slot = tuple[str, str, str]  # type, device, resource
_Shares = Mapping[_Slot, int]  # percent

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Devices that a pod's annotation (``text``) allocates to it."""

    key: str
    uid: str
    folder: str
    text: str
    shares: _Shares


class DeviceHolders:
    """Thread-safe registry of device allocations; only the loop calls ``publish``.

    ``exists`` tests for a cgroup.  A pod whose cgroup has disappeared has ended, even if the next
    pod starts before the API server reports it.
    """

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._lock = threading.Lock()
        self._claims: dict[str, _Claim] = {}  # by UID, in order of precedence
        self._granted: dict[str, _Claim] = {}  # by UID: claims whose devices were injected
        self._started: set[str] = set()  # UIDs of pods whose cgroup existed at some time

    def publish(self, pods: Iterable[PodView]) -> None:
        """Replace the pods of the node.

        Pods published together are ordered by their start.  A changed annotation replaces the
        claim of the previous one.
        """
        known = self._claims
        live = {str(pod.uid): pod for pod in sorted(pods, key=_age) if pod.is_active}
        claims = {
            uid: it
            for uid, it in known.items()
            if uid in live and it.text == live[uid].devices_text
        }
        for uid, pod in live.items():
            if uid not in claims and (claim := _claim(pod)) is not None:
                claims[uid] = claim
        started = {uid for uid, it in claims.items() if self._exists(it.folder)}
        with self._lock:
            self._claims = claims
            # Keep the grant of a pod that was checked before it was first published.
            self._granted = {
                uid: it
                for uid, it in self._granted.items()
                if uid in claims or (uid not in known and self._exists(it.folder))
            }
            self._started = started | (self._started & (claims.keys() | self._granted.keys()))

    def check(self, pod: PodView) -> None:
        """Grant the devices of a pod.  Raises InputError if another pod owns one of them."""
        claim = _claim(pod)
        if claim is None:
            return
        with self._lock:
            known = self._granted.get(claim.uid)
            if known is None or known.text != claim.text:
                self._check(claim, self._prior_claims(claim))
                if claim.uid in self._claims or len(self._granted) < _MOST_GRANTS:
                    self._granted[claim.uid] = claim
            if self._exists(claim.folder):
                self._started.add(claim.uid)

    def _prior_claims(self, claim: _Claim) -> list[_Claim]:
        """Return the claims with precedence: published earlier, or granted already."""
        earlier: dict[str, _Claim] = {}
        for uid, other in self._claims.items():
            if uid == claim.uid and other.text == claim.text:
                break
            earlier[uid] = other
        prior = {**earlier, **self._granted}
        prior.pop(claim.uid, None)
        return [  # a pod that had a cgroup and has none any more has ended
            other
            for other in prior.values()
            if other.uid not in self._started or self._exists(other.folder)
        ]

    def _check(self, claim: _Claim, prior: Iterable[_Claim]) -> None:
        allocated: dict[_Slot, int] = {}
        for other in prior:
            for slot in sorted(other.shares.keys() & claim.shares.keys()):
                allocated[slot] = allocated.get(slot, 0) + other.shares[slot]
                if allocated[slot] + claim.shares[slot] > WHOLE_DEVICE:
                    kind, device, _ = slot
                    raise InputError(
                        f"{kind} {device[:80]!r} is allocated to pod {other.key} on this node",
                        path=f"{ALLOCATED.path}.{kind}",
                    )


def _claim(pod: PodView) -> _Claim | None:
    """Return the claim of a pod; None without an annotation or if it is invalid."""
    text = pod.devices_text
    if not text:
        return None
    try:
        shares = _shares(pod.devices)
    except InputError:  # the hooks inject nothing for it
        return None
    return _Claim(pod.key, str(pod.uid), pod.folder, text, shares) if shares else None


def _shares(allocated: DeviceAllocations) -> _Shares:
    shares: dict[_Slot, int] = {}
    for kind, devices in allocated.items():
        for device in devices if kind in _PERCENTAGES else ():
            for slot, percent in _shares_of(kind, device):
                shares[slot] = max(shares.get(slot, 0), percent)
    return shares


def _shares_of(kind: str, device: DeviceAllocation) -> Iterable[tuple[_Slot, int]]:
    functions = device.extension.vfs if device.extension is not None else ()
    if functions:
        return [((kind, vf.bus_id, _FUNCTION), WHOLE_DEVICE) for vf in functions]
    names = _PERCENTAGES[kind]
    amounts = {
        name: min(device.resources[name].value(), WHOLE_DEVICE)
        for name in names
        if name in device.resources and device.resources[name].value() > 0
    }
    if not amounts:  # without a share the device is allocated as a whole
        amounts = dict.fromkeys(names, WHOLE_DEVICE)
    # One annotation may name a device by its minor, another one by its id.
    ids = [device.id] if device.id else []
    if kind == DeviceType.GPU or not ids:
        ids.append(f"minor {device.minor}")
    return [((kind, one, name), percent) for one in ids for name, percent in amounts.items()]


def _age(pod: PodView) -> tuple[bool, float, str]:
    """Return a sort key by start time; pods that have not started come last."""
    started = pod.pod.status.start_time
    return (started is None, started.timestamp() if started is not None else 0.0, pod.key)


#: GPUs allocated to a container by resource claims; see ``GpuClaims.gpus_of``.
ClaimedGpuLookup = Callable[[ContainerCreation], tuple[DeviceAllocation, ...]]


def device_hooks(
    gates: Collection[str],
    files: Files,
    roots: Roots,
    hami_core: HamiCoreSettings,
    regions: RegionFolders,
    *,
    check_devices: Callable[[PodView], None],
    claimed_gpus: ClaimedGpuLookup,
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
    gates: Collection[str], hami_core: HamiCoreSettings, claimed_gpus: ClaimedGpuLookup
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
    claimed_gpus: ClaimedGpuLookup,
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
