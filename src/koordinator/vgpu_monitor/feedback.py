"""Precedence of containers on a shared GPU, and enforcement of core limits.

The decision is a pure function of the containers' activity in the last round.  If the core limit is
not enforced, the main line of HAMi-core does not record kernels in ``recent_kernel``, but still
records the time of the last kernel; therefore either of them makes a container active.
Source: HAMi cmd/vGPUmonitor/feedback.go, ``Observe``, ``CheckBlocking``, ``CheckPriority``;
HAMi-core src/multiprocess/multiprocess_utilization_watcher.c, ``rate_limiter``.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from koordinator.foundation.lazy_dataclass import dataclass

#: Value that HAMi-core writes with each kernel: the container is active for one more round.
JUST_LAUNCHED: Final = 2
WAITING: Final = -1
ACTIVE_S: Final = 10.0  # after the last kernel: two rounds, as long as ``recent_kernel`` lasts


@dataclass(frozen=True, slots=True)
class GpuSharer:
    """Container with its GPUs by minor.

    A smaller ``priority`` has precedence; containers with a negative one neither wait nor make
    others wait.  ``recent_kernel`` and ``idle_s``, the time since the last kernel, come from the
    container's region and may have any value; ``idle_s`` is None without a recorded kernel.
    """

    gpus: frozenset[int]
    priority: int
    recent_kernel: int
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class SharerOrder:
    """Numbers to write into a region; ``recent_kernel`` -1 makes the container wait."""

    recent_kernel: int
    switch: int


def orders(sharers: Sequence[GpuSharer]) -> list[SharerOrder]:
    """Return the order for each container, in the order of ``sharers``.

    A container waits while one with precedence is active on one of its GPUs.  Its core limit is
    enforced while it waits, or while another one of equal priority is active there.
    """
    recent = [_aged(each.recent_kernel) for each in sharers]
    active: defaultdict[int, Counter[int]] = defaultdict(Counter)  # by GPU and priority
    for sharer, left in zip(sharers, recent, strict=True):
        if sharer.priority >= 0 and (left > 0 or _is_busy(sharer)):
            for gpu in sharer.gpus:
                active[gpu][sharer.priority] += 1
    first = {gpu: min(priorities) for gpu, priorities in active.items()}
    result = []
    for sharer, left in zip(sharers, recent, strict=True):
        own = sharer.priority
        shared = [gpu for gpu in sharer.gpus if gpu in active and own >= 0]
        waits = any(first[gpu] < own for gpu in shared)
        competes = waits or any(active[gpu][own] > 1 for gpu in shared)
        result.append(SharerOrder(WAITING if waits else max(left, 0), int(competes)))
    return result


def _is_busy(sharer: GpuSharer) -> bool:
    """Return whether a kernel was launched recently; times in the future do not count."""
    return sharer.idle_s is not None and abs(sharer.idle_s) < ACTIVE_S


def _aged(recent_kernel: int) -> int:
    """Return the value after one round; values above the one of a kernel are capped."""
    return min(recent_kernel, JUST_LAUNCHED) - 1 if recent_kernel > 0 else recent_kernel
