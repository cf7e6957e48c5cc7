"""Pages of devices: totals, free and used amounts, and holders.

Source: koordinator pkg/scheduler/plugins/deviceshare: service.go; device_cache.go,
``getNodeDeviceSummary`` (paths, fields and the message).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from koordinator.api.device import DeviceType
from koordinator.api.resource_names import GPU_MEMORY
from koordinator.domain.devices.amounts import NAMES
from koordinator.foundation.errors import NotFoundError
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.snapshot import ClusterState

Amounts = dict[str, int]  # by resource
Detail = dict[DeviceType, dict[int, Amounts]]  # by minor


def device_summaries(state: ClusterState) -> dict[str, Any]:
    """Return the summaries of all nodes with reported or allocated devices."""
    return {
        name: _summary(state, row)
        for name, row in sorted(state.nodes.rows.items())
        if _is_known(state, row)
    }


def device_summary(state: ClusterState, name: str) -> dict[str, Any]:
    """Return the summary of one node.  Raises NotFoundError without devices."""
    row = state.nodes.rows.get(name)
    if row is None or not _is_known(state, row):
        raise NotFoundError(f"cannot find node {name}")
    return _summary(state, row)


def _is_known(state: ClusterState, row: int) -> bool:
    devices = state.nodes.devices
    return row in devices.reports or any(c.holders[row].any() for c in devices.columns.values())


def _summary(state: ClusterState, row: int) -> dict[str, Any]:
    devices = state.nodes.devices
    report = devices.reports.get(row)
    total: Detail = {}
    free: Detail = {}
    used: Detail = {}
    for kind, columns in devices.columns.items():
        group = report.model.group(kind) if report else None
        for minor in (device.minor for device in group.devices) if group else ():
            here = _named(kind, columns.total[row, minor].tolist())
            left = dict(zip(NAMES[kind], columns.left[row, minor].tolist(), strict=True))
            total.setdefault(kind, {})[minor] = here
            free.setdefault(kind, {})[minor] = {name: max(left[name], 0) for name in here}
        for minor in columns.holders[row].nonzero()[0].tolist():
            used.setdefault(kind, {})[minor] = _named(kind, columns.used[row, minor].tolist())
    return {
        "deviceTotal": _texts(_sum(total)),
        "deviceFree": _texts(_sum(free)),
        "deviceUsed": _texts(_sum(used)),
        "deviceTotalDetail": _detail(total),
        "deviceFreeDetail": _detail(free),
        "deviceUsedDetail": _detail(used),
        "allocateSet": _allocate_set(state, row),
    }


def _allocate_set(state: ClusterState, row: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the allocations by type, pod and minor."""
    held: dict[str, dict[str, dict[str, Any]]] = {}
    for key, placed in sorted(state.pods.on_row[row].items()):
        for kind, devices in placed.pod_allocation.devices.items():
            held.setdefault(str(kind), {})[key] = {
                str(taken.minor): _texts(_named(kind, taken.amounts)) for taken in devices
            }
    return held


def _named(kind: DeviceType, amounts: Iterable[int]) -> Amounts:
    return {name: amount for name, amount in zip(NAMES[kind], amounts, strict=True) if amount}


def _sum(detail: Detail) -> Amounts:
    total: Amounts = {}
    for by_minor in detail.values():
        for amounts in by_minor.values():
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount
    return total


def _detail(detail: Detail) -> dict[str, dict[str, dict[str, str]]]:
    return {
        str(kind): {str(minor): _texts(amounts) for minor, amounts in by_minor.items()}
        for kind, by_minor in detail.items()
    }


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {
        name: str(Quantity.from_int(amount, binary=name == GPU_MEMORY))
        for name, amount in amounts.items()
    }
