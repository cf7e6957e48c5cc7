"""Who waits for whom on a shared GPU, and whose limit of cores is in force.

A pure function of what all containers did in the last round.  A library whose limit is switched
off leaves no trace of its kernels in HAMi-core's main line, but goes on noting their time: so
either of them makes a container active.
Source: HAMi cmd/vGPUmonitor/feedback.go, ``Observe``, ``CheckBlocking``, ``CheckPriority``;
HAMi-core src/multiprocess/multiprocess_utilization_watcher.c, ``rate_limiter``.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: What HAMi-core writes with every kernel: a container counts as active for one round more.
JUST_LAUNCHED: Final = 2
WAITING: Final = -1
ACTIVE_S: Final = 10.0  # since the last kernel: two rounds, as long as a trace lasts


@dataclass(frozen=True, slots=True)
class GpuSharer:
    """A container on its GPUs, by minor.

    The smaller ``priority`` goes first; a negative one neither waits nor makes others wait.
    ``recent_kernel`` is as found in its region, where it may be any number, and so is ``idle_s``,
    the time since its last kernel; None if there was none, or it is not known.
    """

    gpus: frozenset[int]
    priority: int
    recent_kernel: int
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class SharerOrder:
    """What a container's region is to say: ``recent_kernel`` -1 is to wait."""

    recent_kernel: int
    switch: int


def orders(sharers: Sequence[GpuSharer]) -> list[SharerOrder]:
    """Return the order for each container, in their order.

    It waits while one that goes before it is active on one of its GPUs.  Its limit of cores is in
    force while it waits, or while another of its own priority is active there.
    """
    recent = [_aged(each.recent_kernel) for each in sharers]
    active: defaultdict[int, Counter[int]] = defaultdict(Counter)  # by GPU and priority
    for sharer, left in zip(sharers, recent, strict=True):
        if sharer.priority >= 0 and (left > 0 or _is_busy(sharer)):
            for gpu in sharer.gpus:
                active[gpu][sharer.priority] += 1
    first = {gpu: min(priorities) for gpu, priorities in active.items()}
    found = []
    for sharer, left in zip(sharers, recent, strict=True):
        own = sharer.priority
        shared = [gpu for gpu in sharer.gpus if gpu in active and own >= 0]
        waits = any(first[gpu] < own for gpu in shared)
        competes = waits or any(active[gpu][own] > 1 for gpu in shared)
        found.append(SharerOrder(WAITING if waits else max(left, 0), int(competes)))
    return found


def _is_busy(sharer: GpuSharer) -> bool:
    """Return whether a kernel was launched of late; not one that will be launched some day."""
    return sharer.idle_s is not None and abs(sharer.idle_s) < ACTIVE_S


def _aged(recent_kernel: int) -> int:
    """Return a trace one round later; more than a kernel leaves is not believed."""
    return min(recent_kernel, JUST_LAUNCHED) - 1 if recent_kernel > 0 else recent_kernel
