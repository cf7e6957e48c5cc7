"""Choice of CPUs for best-effort pods: whole cores, distributed over NUMA nodes.

Source: koordinator pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go,
``calculateBESuppressCPUSetPolicy``.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from koordinator.api.annotations.numa import CpuInfo


def choose_cpus(count: int, among: Sequence[CpuInfo]) -> list[int]:
    """Return ``count`` CPU ids in order of choice; none if there are too few CPUs.

    CPUs are grouped by NUMA node and socket, the largest group first, then the group with the
    lowest CPU.  In round-robin order, each group contributes two threads of one core while two
    are needed; then single CPUs follow from the group at which that ended.
    """
    if count <= 0 or len(among) < count:
        return []
    groups = _groups(among)
    chosen: list[int] = []
    place = _take_pairs(groups, count, chosen)
    for step in range(len(among) * len(groups)):
        if len(chosen) == count:
            break
        group = groups[(place + step) % len(groups)]
        if group:
            chosen.append(group.pop(0).id)
    return chosen


def _take_pairs(groups: list[list[CpuInfo]], count: int, chosen: list[int]) -> int:
    """Take pairs of threads of one core; return the group at which that ended."""
    place = idle = 0
    while count - len(chosen) > 1 and idle < len(groups):
        pair = _pair(groups[place])
        if pair is None:
            idle += 1
        else:
            idle = 0
            chosen += [cpu.id for cpu in pair]
            for cpu in pair:
                groups[place].remove(cpu)
        place = (place + 1) % len(groups)
    # If no group has a pair left, the original starts again at its first group.
    return 0 if idle == len(groups) else place


def _pair(group: list[CpuInfo]) -> tuple[CpuInfo, CpuInfo] | None:
    for first, second in pairwise(group):
        if first.core == second.core:
            return first, second
    return None


def _groups(among: Sequence[CpuInfo]) -> list[list[CpuInfo]]:
    by_place: dict[tuple[int, int], list[CpuInfo]] = defaultdict(list)
    for cpu in among:
        by_place[cpu.node, cpu.socket].append(cpu)
    groups = [sorted(group, key=lambda cpu: (cpu.core, cpu.id)) for group in by_place.values()]
    return sorted(groups, key=lambda group: (-len(group), group[0].id))
