"""Devices in a row, the best first: the choice where nothing but each device counts.

Source: koordinator pkg/scheduler/plugins/deviceshare: device_allocator.go
``defaultAllocateDevices``; device_resources.go ``sortDeviceResourcesByPreferredPCIe``.
"""

from collections.abc import Collection, Sequence

from koordinator.domain.devices.model import DeviceGroup


def best_first(minors: Sequence[int], scores: Sequence[int]) -> list[int]:
    """Return devices by highest score, those of equal score in the order they are in."""
    ranked = sorted(zip(scores, minors, strict=True), key=lambda each: -each[0])
    return [minor for _, minor in ranked]


def round_robin(group: DeviceGroup, minors: Sequence[int], roots: Collection[str]) -> list[int]:
    """Return those on the PCIe ``roots`` before others.

    The roots take turns: the first of every root, then the second of every root, ….  Within each
    turn, and among the others, the order stays as it is.
    """
    attempts: list[list[int]] = []
    others: list[int] = []
    seen: dict[str, int] = {}
    for minor in minors:
        root = group.by_minor[minor].pcie
        if root is None or root not in roots:
            others.append(minor)
            continue
        attempt = seen[root] = seen.get(root, -1) + 1
        if attempt == len(attempts):
            attempts.append([])
        attempts[attempt].append(minor)
    return [minor for attempt in attempts for minor in attempt] + others
