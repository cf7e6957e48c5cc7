"""Loop of the monitor: read all regions every five seconds, and write who waits.

An invalid region affects only its own container.  No state of a region is kept between rounds, so a
restarted container with a file of the same name is recognized immediately.
Source: HAMi cmd/vGPUmonitor/main.go, pkg/monitor/nvidia/cudevshr.go, ``Update``.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Final

from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.cluster.port import Cluster, EventType
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError, HostError, InputError, MissingFileError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.gpus import Gpu, Gpus
from koordinator.host.port import RegionFile, RegionFolders
from koordinator.vgpu_monitor.feedback import WAITING, GpuSharer, orders
from koordinator.vgpu_monitor.placement import (
    CACHE,
    GpuPod,
    RegionOwner,
    folder_parts,
    owners_of,
    region_file,
)
from koordinator.vgpu_monitor.region import RegionReading, read_region

log = logging.getLogger(__name__)

ROUND_S: Final = 5.0
RETENTION_S: Final = 300.0
MOST_REGIONS: Final = 1024  # per node; eight GPUs in a hundred shares each are fewer
_MOST_FILES: Final = 64  # listed in the folder of one container
_REMOVED_AT_ONCE: Final = 1024  # entries per round
_GPUS_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class OwnedRegion:
    """Usage of a container, limited to GPUs that are allocated to its pod."""

    owner: RegionOwner
    reading: RegionReading
    is_waiting: bool


@dataclass(frozen=True, slots=True)
class VgpuSnapshot:
    """Result of the last round; ``refused`` has the reasons by folder.

    ``idle`` are containers with a folder but without a region, which the library creates with the
    first CUDA call.
    """

    regions: Sequence[OwnedRegion] = ()
    idle: Sequence[RegionOwner] = ()
    gpus: Sequence[Gpu] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Opened:
    name: str
    file: RegionFile
    owner: RegionOwner
    reading: RegionReading


class VgpuMonitor:
    """Monitor.  One thread calls ``step``; any thread may read ``snapshot``.

    ``wall_clock`` is the clock of the containers, which record the time of their kernels.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        regions: RegionFolders,
        gpus: Gpus,
        node_name: str,
        wall_clock: Clock | None = None,
        retention_s: float = RETENTION_S,
    ) -> None:
        self.snapshot = VgpuSnapshot()
        self._clock = clock
        self._wall_clock = wall_clock or clock
        self._regions = regions
        self._gpus = gpus
        self._retention_s = retention_s
        self._watch = cluster.watch((GpuPod,), {GpuPod: f"spec.nodeName={node_name}"})
        self._cluster = cluster
        self._is_synced = False
        self._claims: dict[str, Mapping[str, ResourceClaim]] = {}  # by UID, by entry of the pod
        self._claiming: dict[str, GpuPod] = {}  # by UID: pods with claims that are not read yet
        self._owners: dict[str, dict[str, RegionOwner]] = {}  # by UID and container
        self._unknown_since: dict[str, float] = {}  # by folder: pods that are not on this node
        self._devices: tuple[float, Sequence[Gpu]] = (float("-inf"), ())
        self._next_s = clock.now_s()

    @property
    def is_ready(self) -> bool:
        """Whether the first list of the node's pods is complete."""
        return self._is_synced

    def next_s(self) -> float:
        """Return the time of the next round."""
        return self._next_s

    def step(self) -> None:
        """Apply events of pods, and run a round if one is due."""
        self._apply_events()
        now_s = self._clock.now_s()
        if now_s < self._next_s or not self._is_synced:
            return
        self._next_s = max(self._next_s + ROUND_S, now_s)
        self._read_claims()
        self._round(now_s)

    def close(self) -> None:
        """Release all waiting containers, because no other component does."""
        self._watch.close()
        opened, _ = self._open_all(self._regions.names(MOST_REGIONS))
        for each in opened:
            if each.reading.recent_kernel < 0:
                self._write(each, each.reading.layout.recent_kernel, 0)
            each.file.close()

    def _apply_events(self) -> None:
        for event in self._watch.poll():
            if event.type is EventType.BOOKMARK:
                self._is_synced = True
                continue
            pod = event.object
            if not isinstance(pod, GpuPod):
                continue
            uid = pod.metadata.uid
            self._claiming.pop(uid, None)
            if event.type is EventType.DELETED:
                self._owners.pop(uid, None)
                self._claims.pop(uid, None)
                continue
            if pod.claims and uid not in self._claims:
                self._claiming[uid] = pod
            self._set_owners(pod)

    def _set_owners(self, pod: GpuPod) -> None:
        uid = pod.metadata.uid
        try:
            self._owners[uid] = owners_of(pod, self._claims.get(uid, {}))
        except InputError as error:
            self._owners[uid] = {}
            log.warning("pod ignored", extra={"pod": pod.key, "error": str(error)})

    def _read_claims(self) -> None:
        """Read the claims of pods, once: the claims of a bound pod do not change."""
        for uid, pod in list(self._claiming.items()):
            namespace = pod.metadata.namespace
            try:
                self._claims[uid] = {
                    entry: self._cluster.get(ResourceClaim, name, namespace)
                    for entry, name in pod.claims.items()
                }
            except ClusterError as error:  # retried in the next round
                log.warning(
                    "resource claims not readable", extra={"pod": pod.key, "error": str(error)}
                )
                continue
            del self._claiming[uid]
            self._set_owners(pod)

    def _round(self, now_s: float) -> None:
        names = self._regions.names(MOST_REGIONS)
        opened, refused = self._open_all(names)
        read = {each.name for each in opened}
        try:
            waiting = self._write_orders(opened)
        finally:
            for each in opened:
                each.file.close()
        for name in refused.keys() - self.snapshot.refused.keys():
            log.warning("region refused", extra={"folder": name, "why": refused[name]})
        self.snapshot = VgpuSnapshot(
            [OwnedRegion(each.owner, each.reading, each.name in waiting) for each in opened],
            [
                owner
                for name in names
                if name not in read
                and name not in refused
                and (owner := self._owner(name)) is not None
                and not owner.has_ended
            ],
            self._known_gpus(now_s),
            refused,
        )
        self._remove_unknown(names, now_s)

    def _open_all(self, names: Sequence[str]) -> tuple[list[_Opened], dict[str, str]]:
        opened, refused = [], {}
        for name in names:
            try:
                region = self._open(name)
            except MissingFileError:
                continue  # the container is restarting
            except (HostError, InputError) as error:
                refused[name] = str(error)
                continue
            if region is not None:
                opened.append(region)
        return opened, refused

    def _open(self, name: str) -> _Opened | None:
        """Return the region in a folder; None without one, or if the container has ended."""
        parts = folder_parts(name)
        containers = self._owners.get(parts[0]) if parts else None
        if parts is None or containers is None:
            return None
        owner = containers.get(parts[1])
        if owner is None:
            raise InputError("the pod has no container of that name with GPUs", source=name)
        if owner.has_ended:
            return None
        file = self._open_file(name)
        if file is None:
            return None
        try:
            return _Opened(name, file, owner, read_region(file))
        except BaseException:
            file.close()
            raise

    def _owner(self, name: str) -> RegionOwner | None:
        """Return the container of a folder; None unless a pod with GPUs on this node has it."""
        parts = folder_parts(name)
        return self._owners.get(parts[0], {}).get(parts[1]) if parts else None

    def _open_file(self, name: str) -> RegionFile | None:
        with suppress(MissingFileError):
            return self._regions.open(name, f"{name}{CACHE}")
        other = region_file(name, self._regions.files(name, _MOST_FILES))
        return self._regions.open(name, other) if other else None

    def _write_orders(self, opened: Sequence[_Opened]) -> set[str]:
        """Write the orders into the regions; return the folders of waiting containers."""
        waiting = set()
        now_s = self._wall_clock.now_s()
        sharers = [
            GpuSharer(
                frozenset(each.owner.gpus),
                each.owner.priority,
                each.reading.recent_kernel,
                now_s - each.reading.last_kernel_s if each.reading.last_kernel_s else None,
            )
            for each in opened
        ]
        for each, order in zip(opened, orders(sharers), strict=True):
            reading = each.reading
            if order.recent_kernel == WAITING:
                waiting.add(each.name)
            if order.recent_kernel != reading.recent_kernel:
                self._write(each, reading.layout.recent_kernel, order.recent_kernel)
                if WAITING in {order.recent_kernel, reading.recent_kernel}:
                    extra = {"folder": each.name, "waits": order.recent_kernel == WAITING}
                    log.info("container waits or continues", extra=extra)
            if order.switch != reading.switch:
                self._write(each, reading.layout.switch, order.switch)
        return waiting

    def _write(self, each: _Opened, offset: int, value: int) -> None:
        try:
            each.file.write_int(offset, value)
        except HostError as error:
            log.warning("region not written", extra={"folder": each.name, "why": str(error)})

    def _known_gpus(self, now_s: float) -> Sequence[Gpu]:
        read_s, gpus = self._devices
        if now_s - read_s >= _GPUS_S:
            with suppress(HostError):  # keep the last known ones
                gpus = self._gpus.devices()
            self._devices = (now_s, gpus)
        return gpus

    def _remove_unknown(self, names: Sequence[str], now_s: float) -> None:
        """Remove the folders of pods that are unknown for longer than the retention time.

        The time is measured here, because a container may set any time on its folder.
        """
        unknown = {
            name
            for name in names
            if (parts := folder_parts(name)) is not None and parts[0] not in self._owners
        }
        self._unknown_since = {
            name: self._unknown_since.get(name, now_s) for name in sorted(unknown)
        }
        for name, since_s in self._unknown_since.items():
            if now_s - since_s < self._retention_s:
                continue
            try:
                is_complete = self._regions.remove(name, _REMOVED_AT_ONCE)
            except HostError as error:
                log.warning("folder not removed", extra={"folder": name, "why": str(error)})
                continue
            log.info("folder removed", extra={"folder": name, "whole": is_complete})
            if not is_complete:
                return
