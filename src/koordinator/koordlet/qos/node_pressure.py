"""Eviction strategies for pressure on CPU and memory of the node.

The original counts the memory usage of pods above best effort a thousandfold, which ends the
eviction early; this module does not.

Source: koordinator pkg/koordlet/qosmanager/plugins/cpuevict/cpu_evict.go and
pkg/koordlet/qosmanager/plugins/memoryevict/memory_evict.go.
"""

from collections.abc import Callable, Collection

from koordinator.api.node_slo import ResourceThresholdStrategy
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordinator.koordlet.metrics import Aggregate, Metric
from koordinator.koordlet.qos.eviction import (
    EvictionCandidate,
    StrategyInputs,
    Target,
    Task,
    best_effort_pods,
    by_priority,
    requested_task,
)
from koordinator.koordlet.view.pods import PodView

# feature gates, one for each strategy
BE_CPU_EVICT = "BECPUEvict"
CPU_ALLOCATABLE_EVICT = "CPUAllocatableEvict"
CPU_EVICT = "CPUEvict"
BE_MEMORY_EVICT = "BEMemoryEvict"
MEMORY_ALLOCATABLE_EVICT = "MemoryAllocatableEvict"
MEMORY_EVICT = "MemoryEvict"

_MILLI = 1000
_BUSY_PERCENT = 90  # usage of the limit at which best effort counts as busy, by default
_BUFFER_PERCENT = 2  # below the threshold, by default
_ENOUGH_SAMPLES = 3  # the reciprocal share of a window that must be sampled
_MAX_LOWER, _MAX_UPPER = 60, 100


def cpu_tasks(inputs: StrategyInputs, features: Collection[str]) -> list[Task]:
    """Return the eviction tasks; ``features`` are the enabled ones."""
    if not inputs.view.threshold.enable or inputs.view.machine.capacity_milli <= 0:
        return []
    builders = {
        BE_CPU_EVICT: _cpu_satisfaction,
        CPU_ALLOCATABLE_EVICT: _cpu_allocatable,
        CPU_EVICT: _cpu_usage,
    }
    built = (build(inputs) for feature, build in builders.items() if feature in features)
    return [task for task in built if task is not None and task.release]


def satisfaction_release(
    request_milli: float, limit_milli: float, lower_percent: int, upper_percent: int
) -> int:
    """Return the milli-CPU of requests to evict, so that the others get ``upper`` percent.

    Return 0 while the granted share is above ``lower`` percent of the requests.
    """
    if request_milli <= 0:
        return 0
    rate = limit_milli / request_milli
    gap = upper_percent / 100 - rate
    if rate > lower_percent / 100 or gap <= 0:
        return 0
    return int(request_milli * gap)


def _cpu_satisfaction(inputs: StrategyInputs) -> Task | None:
    threshold = inputs.view.threshold
    lower = threshold.cpu_evict_be_satisfaction_lower_percent
    upper = threshold.cpu_evict_be_satisfaction_upper_percent
    if (
        lower is None
        or upper is None
        or not 0 < lower <= _MAX_LOWER
        or not (lower <= upper < _MAX_UPPER)
    ):
        return None
    window_s = _window_s(inputs)
    average = _best_effort_numbers(inputs, window_s, Aggregate.average)
    latest = _best_effort_numbers(inputs, 2 * inputs.interval_s, Aggregate.last)
    if average is None or latest is None:
        return None
    release = None
    for request, limit, used in (average, latest):
        if not _is_busy(used, limit, threshold.cpu_evict_be_usage_threshold_percent):
            return None
        if release is not None and (request, limit) == average[:2]:
            break
        candidate = satisfaction_release(request, limit, lower, upper)
        if candidate <= 0:
            return None
        release = candidate if release is None else min(release, candidate)
    request, limit, _ = average
    return Task(
        BE_CPU_EVICT,
        Target.REQUESTED,
        {BATCH_CPU: float(release or 0)},
        _by_priority_and_share(inputs),
        lambda candidate: {BATCH_CPU: candidate.requested},
        f"best-effort pods have {limit:.0f}m of {request:.0f}m requested, below {lower} %",
    )


def _cpu_allocatable(inputs: StrategyInputs) -> Task | None:
    threshold = inputs.view.threshold
    return requested_task(
        inputs.view,
        CPU_ALLOCATABLE_EVICT,
        CPU,
        (
            threshold.cpu_allocatable_evict_threshold_percent,
            threshold.cpu_allocatable_evict_lower_percent,
        ),
        lambda highest: _candidates(
            inputs, CPU_ALLOCATABLE_EVICT, CPU, highest, lambda each: each.requested
        ),
    )


def _cpu_usage(inputs: StrategyInputs) -> Task | None:
    threshold = inputs.view.threshold
    percent, highest = (
        threshold.cpu_evict_threshold_percent,
        threshold.evict_enabled_priority_threshold,
    )
    if percent is None or highest is None:
        return None
    stated = threshold.cpu_evict_lower_percent
    lower = percent - _BUFFER_PERCENT if stated is None else stated
    if lower >= percent:
        return None
    used = inputs.window(Metric.NODE_CPU, _window_s(inputs))
    if used is None:
        return None
    release = usage_release(
        int(used.average() * _MILLI), inputs.view.machine.capacity_milli, percent, lower
    )
    if release is None:
        return None
    return Task(
        CPU_EVICT,
        Target.USED,
        {CPU: float(release)},
        _candidates(inputs, CPU_EVICT, CPU, highest, lambda each: each.used),
        lambda candidate: {CPU: candidate.used},
        f"the node uses {used.average():.1f} cores, {percent} % or more",
    )


def usage_release(used: int, capacity: int, threshold_percent: int, lower: int) -> int | None:
    """Return the amount to evict for usage of ``lower`` percent; None below the threshold.

    Percentages are whole; ``used`` and ``capacity`` have the same unit.
    """
    percent = used * 100 // capacity
    if percent < threshold_percent:
        return None
    return capacity * (percent - lower) // 100


def _candidates(
    inputs: StrategyInputs,
    feature: str,
    resource: str,
    highest: int,
    weight: Callable[[EvictionCandidate], float],
) -> list[EvictionCandidate]:
    """Return the pods up to the highest priority in order of eviction."""
    used = _used_milli if resource == CPU else _used_bytes
    return by_priority(
        inputs.view,
        feature,
        resource,
        highest_priority=highest,
        used=lambda pod: used(inputs, pod),
        weight=weight,
    )


def _by_priority_and_share(inputs: StrategyInputs) -> list[EvictionCandidate]:
    """Return best-effort pods, lowest priority first, then highest share of their request."""
    pods = best_effort_pods(inputs.view, lambda pod: _used_milli(inputs, pod), BATCH_CPU)
    return sorted(
        pods,
        key=lambda each: (
            each.pod.pod.spec.priority or 0,
            -(each.used / each.requested if each.requested > 0 else 0.0),
        ),
    )


def _used_milli(inputs: StrategyInputs, pod: PodView) -> float | None:
    used = inputs.last(Metric.POD_CPU, pod.uid)
    return None if used is None else float(int(used * _MILLI))


def _window_s(inputs: StrategyInputs) -> float:
    stated = inputs.view.threshold.cpu_evict_time_window_seconds
    return max(inputs.interval_s, float(stated or 0))


def _best_effort_numbers(
    inputs: StrategyInputs, window_s: float, number: Callable[[Aggregate], float]
) -> tuple[float, float, float] | None:
    """Return request, limit and usage of best effort in milli-CPU, aggregated over a window.

    Return None if one is unknown, or has too few samples.
    """
    kinds = (Metric.BE_CPU_REQUEST, Metric.BE_CPU_LIMIT, Metric.BE_CPU)
    windows = [inputs.window(kind, window_s) for kind in kinds]
    parts = [part for part in windows if part is not None]
    if len(parts) < len(kinds):
        return None
    if any(part.count * inputs.interval_s < window_s // _ENOUGH_SAMPLES for part in parts):
        return None
    request, limit, used = (number(part) for part in parts)
    threshold: ResourceThresholdStrategy = inputs.view.threshold
    if threshold.cpu_evict_policy == "evictByAllocatable":
        allocatable = inputs.view.machine.allocatable.get(BATCH_CPU)
        if allocatable is None:
            return None
        limit = float(allocatable or 1)
    return request, limit, used * _MILLI


def _is_busy(used_milli: float, limit_milli: float, percent: int | None) -> bool:
    """Return whether best effort uses its limit; below one core this is assumed."""
    if limit_milli <= 0:
        return False
    if limit_milli < _MILLI:
        return True
    return used_milli / limit_milli >= (_BUSY_PERCENT if percent is None else percent) / 100


def memory_tasks(inputs: StrategyInputs, features: Collection[str]) -> list[Task]:
    """Return the eviction tasks; ``features`` are the enabled ones."""
    if not inputs.view.threshold.enable or inputs.view.machine.memory_bytes <= 0:
        return []
    tasks = []
    usage = _memory_release(inputs)
    if BE_MEMORY_EVICT in features and usage is not None:
        candidates = _best_effort_by_memory(inputs)
        tasks.append(_by_usage(BE_MEMORY_EVICT, usage, candidates))
    if MEMORY_ALLOCATABLE_EVICT in features:
        task = _memory_allocatable(inputs)
        if task is not None and task.release:
            tasks.append(task)
    highest = inputs.view.threshold.evict_enabled_priority_threshold
    if MEMORY_EVICT in features and usage is not None and highest is not None:
        candidates = _candidates(inputs, MEMORY_EVICT, MEMORY, highest, lambda each: each.used)
        tasks.append(_by_usage(MEMORY_EVICT, usage, candidates))
    return tasks


def _memory_release(inputs: StrategyInputs) -> tuple[int, str] | None:
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


def _memory_allocatable(inputs: StrategyInputs) -> Task | None:
    threshold = inputs.view.threshold
    return requested_task(
        inputs.view,
        MEMORY_ALLOCATABLE_EVICT,
        MEMORY,
        (
            threshold.memory_allocatable_evict_threshold_percent,
            threshold.memory_allocatable_evict_lower_percent,
        ),
        lambda highest: _candidates(
            inputs, MEMORY_ALLOCATABLE_EVICT, MEMORY, highest, lambda each: each.requested
        ),
    )


def _best_effort_by_memory(inputs: StrategyInputs) -> list[EvictionCandidate]:
    """Return best-effort pods by priority, then by memory and name in descending order."""
    pods = best_effort_pods(inputs.view, lambda pod: _used_bytes(inputs, pod), BATCH_MEMORY)
    by_name = sorted(pods, key=lambda each: each.pod.pod.metadata.name, reverse=True)
    return sorted(by_name, key=lambda each: (each.pod.pod.spec.priority or 0, -each.used))


def _used_bytes(inputs: StrategyInputs, pod: PodView) -> float | None:
    return inputs.last(Metric.POD_MEMORY, pod.uid)
