"""Choice, order and number of eviction victims."""

from dataclasses import replace
from typing import Any

import pytest
from tests.nodes import GIB, START_S, Tree, machine, pod, slo

from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.eviction import StrategyInputs, choose_with_copilot
from koordinator.koordlet.qos.node_pressure import (
    cpu_tasks,
    memory_tasks,
    satisfaction_release,
    usage_release,
)
from koordinator.koordlet.view.machine import Machine

EVICTABLE = {"koordinator.sh/eviction-enabled": "true"}


def on(**threshold: Any) -> Any:
    """Return a NodeSLO that evicts."""
    return slo(resourceUsedThresholdWithBE={"enable": True, **threshold})


def inputs(
    pods: list[tuple[Any, float]],
    *,
    spec: Any,
    metric: Metric = Metric.POD_CPU,
    where: Machine | None = None,
    node: dict[Metric, float] | None = None,
    seconds: int = 60,
) -> StrategyInputs:
    """Return a node whose numbers are the same for some seconds."""
    tree, store = Tree(), MetricStore(600, 1)
    views = [tree.add_pod(each) for each, _ in pods]
    for second in range(seconds):
        time_s = START_S - seconds + 1 + second
        for kind, value in (node or {}).items():
            store.add(kind, "", time_s, value)
        for view, (_, used) in zip(views, pods, strict=True):
            store.add(metric, view.uid, time_s, used)
    return StrategyInputs(tree.view(*views, machine_=where, slo=spec), store)


def victims(tasks: list[Any], leaving: tuple[str, ...] = ()) -> list[str]:
    """Return the names of who has to go."""
    return [victim.name for victim in choose_with_copilot(tasks, leaving, ())[0]]


@pytest.mark.parametrize(
    ("request_milli", "limit", "lower", "upper", "release"),
    [
        (80_000, 20_000, 30, 50, 20_000),
        (80_000, 25_000, 30, 50, 0),
        (80_000, 24_000, 30, 50, 16_000),
        (0, 5, 30, 50, 0),
    ],
)
def test_pods_are_evicted_until_the_upper_satisfaction_is_reached(
    request_milli: int, limit: int, lower: int, upper: int, release: int
) -> None:
    """Below the lower share, requests go until the upper one is reached."""
    assert satisfaction_release(request_milli, limit, lower, upper) == release


@pytest.mark.parametrize(
    ("used", "capacity", "threshold", "lower", "release"),
    [
        (88_400, 96_000, 90, 85, 6720),
        (200 * GIB, 256 * GIB, 75, 70, 256 * GIB * 8 // 100),
        (86_000, 96_000, 90, 85, None),
    ],
)
def test_percentages_of_usage_are_truncated(
    used: int, capacity: int, threshold: int, lower: int, release: int | None
) -> None:
    """Percentages are whole numbers, cut off."""
    assert usage_release(used, capacity, threshold, lower) == release


def be(name: str, batch_cpu: int = 10_000, priority: int = 5000, **kwargs: Any) -> Any:
    """Return a best-effort pod."""
    requests = {"kubernetes.io/batch-cpu": batch_cpu}
    return pod(name, "BE", requests=requests, priority=priority, **kwargs)


STARVED = {Metric.BE_CPU: 3.9, Metric.BE_CPU_REQUEST: 40_000.0, Metric.BE_CPU_LIMIT: 4000.0}
SATISFACTION = {
    "cpuEvictBESatisfactionLowerPercent": 30,
    "cpuEvictBESatisfactionUpperPercent": 40,
    "cpuEvictTimeWindowSeconds": 30,
}


def test_starving_best_effort_gives_up_its_hungriest() -> None:
    """40000m asked, 4000m granted: 12000m have to go; lowest priority, then most used of asked."""
    pods = [(be("idle"), 0.1), (be("busy"), 2.0), (be("low", priority=4000), 0.1), (be("b"), 1.0)]

    tasks = cpu_tasks(inputs(pods, spec=on(**SATISFACTION), node=STARVED), {"BECPUEvict"})

    assert victims(tasks) == ["low", "busy"]


@pytest.mark.parametrize(
    ("node", "settings", "seconds"),
    [
        ({Metric.BE_CPU: 3.0}, {}, 60),  # it does not use what it gets
        ({Metric.BE_CPU_LIMIT: 39_000.0, Metric.BE_CPU: 38.0}, {}, 60),
        ({}, {"cpuEvictBESatisfactionLowerPercent": 61}, 60),
        ({}, {"cpuEvictBESatisfactionUpperPercent": 20}, 60),
        ({}, {}, 9),  # too few samples of the window
        ({}, {"enable": False}, 60),
    ],
)
def test_no_pod_is_evicted_without_pressure(
    node: dict[Metric, float], settings: dict[str, Any], seconds: int
) -> None:
    """No pod is evicted with contradicting settings, either."""
    spec = on(**(SATISFACTION | settings))
    made = inputs([(be("a"), 3.0)], spec=spec, node=STARVED | node, seconds=seconds)

    assert cpu_tasks(made, {"BECPUEvict"}) == []


def test_latest_sample_counts_if_it_is_lower() -> None:
    """On average 12000m have to go, by the newest samples 4000m."""
    pods = [(be(f"p{n}", 2000), 1.0) for n in range(5)]
    made = inputs(pods, spec=on(**SATISFACTION), node=STARVED)
    for metric, value in ((Metric.BE_CPU, 3.9), (Metric.BE_CPU_REQUEST, 20_000.0)):
        made.store.add(metric, "", START_S + 0.5, value)
    later = replace(made, view=replace(made.view, now_s=START_S + 0.5))

    (task,) = cpu_tasks(later, {"BECPUEvict"})

    assert task.release == {"kubernetes.io/batch-cpu": 4000.0}


def test_limit_by_allocatable_is_the_node_s_batch_cpu() -> None:
    """0 counts as one milli, a node without batch CPU is passed over."""
    spec = on(**SATISFACTION, cpuEvictPolicy="evictByAllocatable")
    pods = [(be("a"), 3.0)]

    for allocatable, count in (({"kubernetes.io/batch-cpu": 0}, 1), ({}, 0)):
        where = machine(allocatable=allocatable)
        made = inputs(pods, spec=spec, node=STARVED, where=where)
        assert len(cpu_tasks(made, {"BECPUEvict"})) == count


def test_an_overcommitted_band_releases_down_to_the_lower_share() -> None:
    """26000m of 20000m are 130 %: 6000m have to go."""
    spec = on(
        cpuAllocatableEvictThresholdPercent=120,
        cpuAllocatableEvictLowerPercent=100,
        allocatableEvictPriorityThreshold=5999,
    )
    where = machine(allocatable={"kubernetes.io/batch-cpu": 20_000})
    pods = [
        (be("small", 4000, labels=EVICTABLE), 1.0),
        (be("large", 7000, labels=EVICTABLE), 1.0),
        (be("kept", 15_000), 1.0),
    ]
    (task,) = cpu_tasks(inputs(pods, spec=spec, where=where), {"CPUAllocatableEvict"})

    assert task.release == {"kubernetes.io/batch-cpu": 6000.0}
    assert victims([task]) == ["large"]


def test_overloaded_node_evicts_consenting_pods_by_priority() -> None:
    """Annotation, then priority, then label, then usage."""
    spec = on(
        cpuEvictThresholdPercent=80, cpuEvictLowerPercent=50, evictEnabledPriorityThreshold=6999
    )

    def last(value: str) -> dict[str, str]:
        return {"koordinator.sh/eviction-priority": value}

    pods = [
        (be("late", labels=EVICTABLE, annotations=last("5")), 1.0),
        (be("prod", priority=9000, labels=EVICTABLE), 1.0),
        (be("silent"), 1.0),
        (be("first", labels=EVICTABLE, annotations=last("-1")), 0.5),
        (be("low", priority=4000, labels=EVICTABLE), 0.5),
        (be("sub", labels=EVICTABLE | {"koordinator.sh/priority": "1"}), 0.5),
        (be("busy", labels=EVICTABLE), 0.9),
        (be("calm", labels=EVICTABLE), 0.2),
        (be("other", labels=EVICTABLE,
            annotations={"koordinator.sh/eviction-policy": '["MemoryEvict"]'}), 1.0),
    ]  # fmt: skip
    made = inputs(pods, spec=spec, node={Metric.NODE_CPU: 7.9})

    (task,) = cpu_tasks(made, {"CPUEvict"})

    names = [candidate.pod.pod.metadata.name for candidate in task.candidates]
    assert names == ["first", "low", "sub", "busy", "calm", "late"]


MEMORY = {"memoryEvictThresholdPercent": 70, "memoryEvictLowerPercent": 60}


def test_memory_goes_by_priority_then_size() -> None:
    """75 % of 32 GiB used: 4.8 GiB have to go."""
    pods = [(be("small"), 1.0 * GIB), (be("large"), 4.0 * GIB), (be("low", priority=4000), GIB)]
    made = inputs(
        pods, spec=on(**MEMORY), metric=Metric.POD_MEMORY, node={Metric.NODE_MEMORY: 24.0 * GIB}
    )

    assert victims(memory_tasks(made, {"BEMemoryEvict"})) == ["low", "large"]


def test_terminating_pod_counts_as_released() -> None:
    """No further pod is evicted for the same pressure."""
    pods = [(be("large"), 6.0 * GIB), (be("small"), GIB)]
    made = inputs(
        pods, spec=on(**MEMORY), metric=Metric.POD_MEMORY, node={Metric.NODE_MEMORY: 24.0 * GIB}
    )
    tasks = memory_tasks(made, {"BEMemoryEvict"})

    assert victims(tasks) == ["large"]
    assert victims(tasks, leaving=("uid-large",)) == []


def test_one_victim_serves_several_tasks() -> None:
    """An amount that both tasks count is counted once, and a pod is evicted once."""
    spec = on(**MEMORY, evictEnabledPriorityThreshold=6999)
    pods = [(be("a", labels=EVICTABLE), 3.0 * GIB), (be("b", labels=EVICTABLE), 3.0 * GIB)]
    made = inputs(pods, spec=spec, metric=Metric.POD_MEMORY, node={Metric.NODE_MEMORY: 23.0 * GIB})

    assert len(victims(memory_tasks(made, {"BEMemoryEvict", "MemoryEvict"}))) == 2


def test_node_without_samples_evicts_no_pod() -> None:
    """Old or missing samples are no pressure."""
    made = inputs([(be("a"), 1.0)], spec=on(**MEMORY), metric=Metric.POD_MEMORY)

    assert memory_tasks(made, {"BEMemoryEvict", "MemoryEvict"}) == []
