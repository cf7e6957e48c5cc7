"""Explanations for nodes whose devices do not suffice."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from koordinator.api.resource_names import (
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    RDMA,
    WHOLE_DEVICE,
)
from koordinator.domain.devices.allocation import NAMES
from koordinator.domain.devices.pod_request import DeviceTypeRequest, PodDeviceRequest
from koordinator.domain.devices.requests import CALLED, names_of
from koordinator.foundation.text import pluralized
from koordinator.scheduler.diagnosis import quantity
from koordinator.scheduler.snapshot import Snapshot

#: Resources with 100 for each whole device.
_IN_PERCENT: Final = frozenset({GPU, GPU_CORE, GPU_MEMORY_RATIO, RDMA, FPGA})


class DeviceCounts(Struct, frozen=True):
    """Number of devices of a type, and how many have enough left."""

    existing: int
    large: int  # devices that have the requested amounts when they are healthy and free
    enough: int  # devices with the requested amounts left
    unhealthy: tuple[int, ...]  # minors
    repairable: tuple[int, ...]  # minors of unhealthy devices that would have enough left


def shortage_in_words(view: Snapshot, pod_request: PodDeviceRequest) -> str:
    """Return the requested and free devices of each type that the only row has too few of."""
    return "; ".join(filter(None, (_short(view, want) for want in pod_request.wants)))


def together_in_words(view: Snapshot, pod_request: PodDeviceRequest) -> str:
    """Return the request of a pod whose devices are free but cannot be allocated together."""
    listed = " and ".join(_request(want) for want in pod_request.wants)
    sizes = ""
    report = view.devices.reports.get(int(view.row_numbers[0]))
    model = report.model if report is not None else None
    table = model.partitions if model is not None else None
    if (
        model is not None
        and table is not None
        and (pod_request.partition or model.honors_partitions)
    ):
        sizes = f"; its partitions are of {', '.join(map(str, sorted(table.groups)))} GPUs"
    return f"requests {listed}, which are free but cannot be allocated together{sizes}"


def to_repair(view: Snapshot, pod_request: PodDeviceRequest) -> str:
    """Return the unhealthy devices to repair; empty if that would not be enough."""
    node, steps = view.node_names[0], []
    for want in pod_request.wants:
        count = _count(view, want)
        if count is None or count.enough + len(count.repairable) < want.request.count:
            return ""
        if count.enough < want.request.count:
            named = ", ".join(map(str, count.repairable))
            steps.append(f"repair {CALLED[want.kind]} {named} of {node}, reported as unhealthy")
    return " and ".join(steps)


def fewer_devices(
    view: Snapshot, pod_request: PodDeviceRequest, requests: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return requests for fewer devices, the largest number first."""
    count, most = 0, 0
    for want in pod_request.wants:
        counts = _count(view, want)
        if counts is None or (want.request.count == 1 and not counts.enough):
            return []
        if counts.enough < want.request.count or len(pod_request.wants) == 1:
            count, most = want.request.count, min(counts.enough, want.request.count - 1)
            names = names_of(want.kind)
    if most < 1:
        return []
    return [
        {
            name: amount * fewer // count
            for name, amount in requests.items()
            if name in names and amount * fewer % count == 0
        }
        for fewer in range(most, 0, -1)
    ]


def smaller_shares(
    view: Snapshot, pod_request: PodDeviceRequest, requests: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return the request for one device, reduced to a device's free amounts; the largest first.

    Resources whose amounts no device reports by that name keep their request.
    """
    if len(pod_request.wants) != 1 or pod_request.wants[0].request.count != 1:
        return []
    kind, row = pod_request.wants[0].kind, int(view.row_numbers[0])
    report = view.devices.reports.get(row)
    if report is None or report.model.group(kind) is None:
        return []
    healthy, left = report.healthy.get(kind, 0), view.devices.columns[kind].left[row].tolist()
    shares = {
        tuple(
            (name, min(requests[name], amount))
            for name, amount in zip(NAMES[kind], amounts, strict=True)
            if name in requests
        )
        for minor, amounts in enumerate(left)
        if healthy >> minor & 1
    }
    usable = [share for share in shares if share and all(amount > 0 for _, amount in share)]
    return [dict(share) for share in sorted(usable, reverse=True)]


def whole_devices(requests: Mapping[str, int]) -> dict[str, int]:
    """Return requests in percent for neither a part of a device nor whole ones, rounded down."""
    return {
        name: amount - amount % WHOLE_DEVICE
        for name, amount in requests.items()
        if name in _IN_PERCENT and amount > WHOLE_DEVICE and amount % WHOLE_DEVICE
    }


def size_in_words(view: Snapshot, pod_request: PodDeviceRequest) -> str:
    """Return the devices that a node must have; empty if it has enough that are large enough."""
    parts = []
    for want in pod_request.wants:
        counts = _count(view, want)
        large = 0 if counts is None else counts.large
        if large < want.request.count:
            parts.append(f"{_request(want)} (it has {large})")
    return " and ".join(parts)


def _request(want: DeviceTypeRequest) -> str:
    count, called = want.request.count, CALLED[want.kind]
    text = pluralized(count, called)
    parts = [
        f"{quantity(name, amount)} of {name}"
        for name, amount in zip(NAMES[want.kind], want.request.amounts, strict=True)
        if amount
    ]
    amounts = want.request.amounts
    is_whole = all(amount in (0, WHOLE_DEVICE) for amount in amounts)
    return text if is_whole else f"{text} with {' and '.join(parts)}{' each' if count > 1 else ''}"


def _count(view: Snapshot, want: DeviceTypeRequest) -> DeviceCounts | None:
    """Count devices with enough left; partitions and NUMA nodes are not considered."""
    row, kind = int(view.row_numbers[0]), want.kind
    report = view.devices.reports.get(row)
    group = report.model.group(kind) if report is not None else None
    if report is None or group is None:
        return None
    columns, healthy = view.devices.columns[kind], report.healthy.get(kind, 0)
    left = np.maximum(columns.left[row], 0)
    reported = [device.minor for device in group.devices]
    unhealthy = tuple(minor for minor in reported if not healthy >> minor & 1)
    amounts = np.array(want.request.amounts)
    healthy_left = group.totals - columns.used[row, : group.width]
    return DeviceCounts(
        existing=len(reported),
        large=sum(bool((group.totals[m] >= amounts).all()) for m in reported),
        enough=sum(bool((left[m] >= amounts).all()) for m in reported if m not in unhealthy),
        unhealthy=unhealthy,
        repairable=tuple(m for m in unhealthy if (healthy_left[m] >= amounts).all()),
    )


def _short(view: Snapshot, want: DeviceTypeRequest) -> str:
    counts, request = _count(view, want), f"{want.kind}: requests {_request_of(want)}"
    if counts is None:
        return f"{request}, none is reported"
    if counts.enough >= want.request.count and not counts.unhealthy:
        return ""
    parts = [
        f"{counts.enough} of {counts.existing} have enough left",
        *_unhealthy(counts.unhealthy),
    ]
    return f"{request}, {', '.join(parts)}"


def _request_of(want: DeviceTypeRequest) -> str:
    """Return the count, with the amounts per device if those are not whole."""
    return _request(want).replace(f" {CALLED[want.kind]}s", "").replace(f" {CALLED[want.kind]}", "")


def _unhealthy(minors: tuple[int, ...]) -> Iterator[str]:
    if minors:
        named = ", ".join(map(str, minors))
        yield f"{len(minors)} {'is' if len(minors) == 1 else 'are'} unhealthy (minor {named})"
