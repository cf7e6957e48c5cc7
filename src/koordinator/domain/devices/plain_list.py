"""Devices in a row, the best first: the choice where nothing but each device counts.

Source: koordinator pkg/scheduler/plugins/deviceshare: device_allocator.go
``defaultAllocateDevices``; device_resources.go ``sortDeviceResourcesByPreferredPCIe``.
"""

from collections.abc import Collection, Sequence

from koordinator.domain.devices.masks import minors_of
from koordinator.domain.devices.model import DeviceGroup


def ordered(
    group: DeviceGroup,
    offered: int,
    scores: Sequence[int],
    *,
    preferred: int = 0,
    roots: Collection[str] = (),
) -> list[int]:
    """Return the minors of the ``offered`` devices, the best first.

    ``preferred`` devices go before others.  If there are none, those on the PCIe ``roots``
    do, taking turns: the best of every root, then the second of every root, …  Otherwise,
    and within each turn, by highest score (``scores`` are by minor), then lowest minor.
    """
    everyone = sorted(minors_of(offered), key=lambda minor: -scores[minor])
    if preferred:
        return sorted(everyone, key=lambda minor: not preferred >> minor & 1)
    if not roots:
        return everyone
    turns: list[list[int]] = []
    others: list[int] = []
    seen: dict[str, int] = {}
    for minor in everyone:
        root = group.by_minor[minor].pcie
        if root is None or root not in roots:
            others.append(minor)
            continue
        turn = seen[root] = seen.get(root, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(minor)
    return [minor for turn in turns for minor in turn] + others
