"""Block I/O limits of the best-effort tier, the node and pods.

Source: koordinator pkg/koordlet/qosmanager/plugins/blkio/blkio_reconcile.go.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from koordinator.api.qos import QosClass
from koordinator.api.resource_qos import BlockDevice, BlockIoLimits, BlockIoQos, ResourceQos
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.koordlet.intents import Intent, SetBlockDevice
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_LATENCY_US, _LATENCY_PERCENT = 3000, 95
_NUMBER = re.compile(r"[0-9]+:[0-9]+")
_LIMITS: Final[Mapping[CgroupFile, tuple[str, int]]] = MappingProxyType(
    {
        CgroupFile.READ_IOPS: ("read_iops", 0),
        CgroupFile.READ_BPS: ("read_bps", 0),
        CgroupFile.WRITE_IOPS: ("write_iops", 0),
        CgroupFile.WRITE_BPS: ("write_bps", 0),
        CgroupFile.IO_WEIGHT: ("io_weight_percent", 100),
    }
)

BlkioValues = dict[CgroupFile, str]


class DiskLookup(Protocol):
    """Lookup of disks; methods return ``major:minor``, or None if there is no such disk.

    Rule R8: ``app``, which implements it, is above the strategies.
    """

    def of_device(self, name: str) -> str | None: ...

    def of_volume_group(self, group: str) -> str | None: ...

    def of_pod_volume(self, pod: PodView, volume: str) -> str | None: ...


def plan_blkio(view: NodeView, disks: DiskLookup) -> list[Intent]:
    """Return the limits of the node, of the best-effort tier and of pods; reset obsolete ones.

    Unknown disks are skipped.
    """
    strategy, layout = view.qos_strategy, view.layout
    # The kernel accepts weights of a disk only after its cost model was enabled at the root.
    intents = list(_plan_root(view, _blocks(strategy.cgroup_root), disks))
    intents += _plan(view, layout.besteffort, _blocks(strategy.be_class), disks, None)
    for pod in view.active_pods:
        if pod.labelled_qos is QosClass.NONE or not pod.containers:
            continue  # the phase is Pending while init containers run
        own = pod.block_devices
        if own is not None:
            intents += _plan(view, pod.folder, own, disks, pod)
    return intents


def limit_values(limits: BlockIoLimits) -> BlkioValues:
    """Return the value of each file for a disk."""
    values: BlkioValues = {}
    for file, (name, default) in _LIMITS.items():
        stated = getattr(limits, name)
        values[file] = str(default if stated is None else stated)
    return values


def root_values(limits: BlockIoLimits) -> BlkioValues:
    """Return the latency targets and the cost model of a disk."""

    def stated(value: int | None, default: int) -> int:
        return default if value is None else value

    quality = (
        f"enable=1 ctrl=user rpct={stated(limits.read_latency_percent, _LATENCY_PERCENT)} "
        f"rlat={stated(limits.read_latency, _LATENCY_US)} "
        f"wpct={stated(limits.write_latency_percent, _LATENCY_PERCENT)} "
        f"wlat={stated(limits.write_latency, _LATENCY_US)}"
    )
    model = "ctrl=auto"
    if limits.enable_user_model:
        model = (
            f"ctrl=user rbps={stated(limits.model_read_bps, 0)} "
            f"rseqiops={stated(limits.model_read_seq_iops, 0)} "
            f"rrandiops={stated(limits.model_read_rand_iops, 0)} "
            f"wbps={stated(limits.model_write_bps, 0)} "
            f"wseqiops={stated(limits.model_write_seq_iops, 0)} "
            f"wrandiops={stated(limits.model_write_rand_iops, 0)}"
        )
    return {CgroupFile.IO_QOS: quality, CgroupFile.IO_MODEL: model}


def _blocks(qos: ResourceQos | None) -> tuple[BlockDevice, ...]:
    blkio = (qos.blkio_qos if qos is not None else None) or BlockIoQos()
    return blkio.blocks if blkio.enable else ()


def _plan(
    view: NodeView,
    folder: str,
    blocks: tuple[BlockDevice, ...],
    disks: DiskLookup,
    pod: PodView | None,
) -> Iterator[Intent]:
    owner = pod.key if pod is not None else "besteffort"
    wanted = {}
    for block in blocks:
        number = _number_of(block, disks, pod)
        if number is not None:
            wanted[number] = limit_values(block.io_cfg)
    no_limits = limit_values(BlockIoLimits())
    yield from _writes(view, folder, wanted, no_limits, owner)


def _plan_root(
    view: NodeView, blocks: tuple[BlockDevice, ...], disks: DiskLookup
) -> Iterator[Intent]:
    wanted = {
        number: root_values(block.io_cfg)
        for block in blocks
        if (number := _number_of(block, disks, None)) is not None
    }
    yield from _writes(view, "", wanted, {CgroupFile.IO_QOS: "enable=0"}, "node")


def _writes(
    view: NodeView,
    folder: str,
    wanted: Mapping[str, BlkioValues],
    defaults: BlkioValues,
    owner: str,
) -> Iterator[Intent]:
    files = next(iter(wanted.values()), defaults).keys()
    obsolete = {
        number for file in files for number in _devices(view.cgroups.lines(file, folder))
    } - wanted.keys()
    for number, values in wanted.items():
        for file, value in values.items():
            is_reset = value == defaults.get(file)
            yield SetBlockDevice(file, folder, number, value, "blkio QoS", owner, is_reset)
    for number in sorted(obsolete):
        for file, value in defaults.items():
            reason = "blkio QoS: no longer configured"
            yield SetBlockDevice(file, folder, number, value, reason, owner, reset=True)


def _devices(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        number = line.partition(" ")[0]
        if _NUMBER.fullmatch(number):
            yield number


def _number_of(block: BlockDevice, disks: DiskLookup, pod: PodView | None) -> str | None:
    match block.type:
        case "device":
            return disks.of_device(block.name)
        case "volumegroup":
            return disks.of_volume_group(block.name)
        case "podvolume" if pod is not None:
            return disks.of_pod_volume(pod, block.name)
        case _:
            return None
