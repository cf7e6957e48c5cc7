"""Memory eviction: evict the least important pods before the node runs out of memory.

Source: koordinator pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go.  The original
counts the usage of pods above best effort a thousandfold, which ends the eviction early; this
module does not.
"""

from collections.abc import Callable, Collection

from koordinator.api.resource_names import BATCH_MEMORY, MEMORY
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.qos.cpu_evict import usage_release
from koordinator.koordlet.qos.eviction import (
    EvictionCandidate,
    Target,
    Task,
    best_effort_pods,
    by_priority,
    requested_task,
)
from koordinator.koordlet.qos.inputs import StrategyInputs
from koordinator.koordlet.view.pods import PodView

BEST_EFFORT = "BEMemoryEvict"
ALLOCATABLE = "MemoryAllocatableEvict"
USAGE = "MemoryEvict"

_BUFFER_PERCENT = 2


def memory_tasks(inputs: StrategyInputs, features: Collection[str]) -> list[Task]:
    """Return the eviction tasks; ``features`` are the enabled ones."""
    if not inputs.view.threshold.enable or inputs.view.machine.memory_bytes <= 0:
        return []
    tasks = []
    usage = _usage_release(inputs)
    if BEST_EFFORT in features and usage is not None:
        candidates = _best_effort(inputs)
        tasks.append(_by_usage(BEST_EFFORT, usage, candidates))
    if ALLOCATABLE in features:
        task = _allocatable(inputs)
        if task is not None and task.release:
            tasks.append(task)
    highest = inputs.view.threshold.evict_enabled_priority_threshold
    if USAGE in features and usage is not None and highest is not None:
        candidates = _candidates(inputs, USAGE, highest, lambda each: each.used)
        tasks.append(_by_usage(USAGE, usage, candidates))
    return tasks


def _usage_release(inputs: StrategyInputs) -> tuple[int, str] | None:
    """Return the bytes to release and the reason; None below the threshold or if unknown."""
    threshold = inputs.view.threshold
    percent = threshold.memory_evict_threshold_percent
    if percent is None:
        return None
    stated = threshold.memory_evict_lower_percent
    lower = percent - _BUFFER_PERCENT if stated is None else stated
    used = inputs.last(Metric.NODE_MEMORY)
    if lower >= percent or used is None:
        return None
    capacity = inputs.view.machine.memory_bytes
    release = usage_release(int(used), capacity, percent, lower)
    if release is None:
        return None
    return release, f"the node uses {used / capacity:.0%} of its memory, {percent} % or more"


def _by_usage(feature: str, usage: tuple[int, str], candidates: list[EvictionCandidate]) -> Task:
    release, why = usage
    return Task(
        feature,
        Target.USED,
        {MEMORY: float(release)},
        candidates,
        lambda candidate: {MEMORY: candidate.used},
        why,
    )


def _allocatable(inputs: StrategyInputs) -> Task | None:
    threshold = inputs.view.threshold
    return requested_task(
        inputs.view,
        ALLOCATABLE,
        MEMORY,
        (
            threshold.memory_allocatable_evict_threshold_percent,
            threshold.memory_allocatable_evict_lower_percent,
        ),
        lambda highest: _candidates(inputs, ALLOCATABLE, highest, lambda each: each.requested),
    )


def _best_effort(inputs: StrategyInputs) -> list[EvictionCandidate]:
    """Return best-effort pods by priority, then by memory and name in descending order."""
    pods = best_effort_pods(inputs.view, lambda pod: _used(inputs, pod), BATCH_MEMORY)
    by_name = sorted(pods, key=lambda each: each.pod.pod.metadata.name, reverse=True)
    return sorted(by_name, key=lambda each: (each.pod.pod.spec.priority or 0, -each.used))


def _candidates(
    inputs: StrategyInputs, feature: str, highest: int, weight: Callable[[EvictionCandidate], float]
) -> list[EvictionCandidate]:
    return by_priority(
        inputs.view,
        feature,
        MEMORY,
        highest_priority=highest,
        used=lambda pod: _used(inputs, pod),
        weight=weight,
    )


def _used(inputs: StrategyInputs, pod: PodView) -> float | None:
    return inputs.last(Metric.POD_MEMORY, pod.uid)
