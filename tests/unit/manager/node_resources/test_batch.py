"""Batch resources: formulas, their terms, and messages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.manager.node_resources.nodes import (
    amounts,
    application,
    metric,
    node,
    pod,
    usage,
    use,
)

from koordinator.api.node import Node
from koordinator.manager.configuration.ranges import Strategy
from koordinator.manager.node_resources.batch import BatchTerms, batch_terms
from koordinator.manager.node_resources.node import NodeUse, milli, units

MACHINE = node(amounts(32, "128Gi"), amounts(30, "124Gi"))


def example() -> NodeUse:
    """Return the use of the specification's worked example (5.2)."""
    pods = [
        pod("web", amounts(8, "16Gi")),
        pod("pin", amounts(4, "8Gi"), qos="LSE"),
        pod("fresh", amounts(2, "4Gi"), phase="Pending"),
        pod("job", amounts(0, 0), priority=5500, qos="BE"),
    ]
    report = metric(
        system=amounts(1, "3Gi"),
        applications=[
            application("a", amounts("500m", "1Gi"), "koord-prod"),
            application("b", amounts(2, "4Gi"), "koord-batch"),
        ],
        pods=[
            usage("web", amounts(5, "10Gi")),
            usage("pin", amounts(1, "9Gi")),
            usage("job", amounts(3, "2Gi"), "koord-batch"),
            usage("gone", amounts("1500m", "1Gi")),
        ],
    )
    return use(report, pods)


def result(terms: BatchTerms) -> tuple[int, int]:
    """Return milli-CPU and bytes."""
    batch = terms.batch()
    return milli(batch.cpu), units(batch.memory)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("settings", "cpu", "memory_gib"),
    [
        ({}, 4700, 55.2),
        ({"cpu_policy": "request", "memory_policy": "request"}, 4700, 51.2),
        ({"cpu_policy": "maxUsageRequest", "memory_policy": "maxUsageRequest"}, 3700, 53.2),
        ({"batch_cpu_percent": 10, "batch_memory_percent": 10}, 3200, 12.8),
    ],
)
def test_the_policies_of_the_worked_example(
    settings: dict[str, Any], cpu: int, memory_gib: float
) -> None:
    """Usage, request (which CPU doesn't know) and the larger of both, with and without a limit."""
    terms = batch_terms(Strategy(**settings), MACHINE, example())

    assert result(terms) == (cpu, pytest.approx(memory_gib * GIB, abs=1))


def test_memory_is_exact_to_the_byte() -> None:
    """The margin is cut to whole bytes, then subtracted."""
    assert result(batch_terms(Strategy(), MACHINE, example()))[1] == 59270548685


def test_the_messages_are_those_of_the_original() -> None:
    """Operators read them in logs: CPU in thousandths, memory in 10^9 rounded up."""
    terms = batch_terms(Strategy(), MACHINE, example())
    assert terms.cpu_message() == (
        "batchAllocatable[CPU(Milli-Core)]:4700 = nodeCapacity:32000 - nodeSafetyMargin:12800 - "
        "systemUsageOrNodeReserved:2000 - podHPUsed:12500"
    )
    assert terms.memory_message() == (
        "batchAllocatable[Mem(GB)]:60 = nodeCapacity:138 - nodeSafetyMargin:49 - systemUsage:5 - "
        "podHPUsed:26"
    )
    limited = batch_terms(
        Strategy(batch_cpu_percent=10, batch_memory_percent=40), MACHINE, example()
    )
    assert "min(nodeCapacity:32000 * thresholdRatio:0.1, nodeCapacity" in limited.cpu_message()
    assert "podHPMaxUsedRequest:28)" in limited.memory_message()


def test_percentages_above_100_give_away_more_than_is_there() -> None:
    """The margin is negative then."""
    empty = use(metric())

    assert (
        result(batch_terms(Strategy(cpu_reclaim_percent=150), node(amounts(10, "1Gi")), empty))[0]
        == 15_000
    )


def test_a_pod_without_usage_counts_by_its_request_but_not_in_the_larger_of_both() -> None:
    """Policy maxUsageRequest ignores a pod without usage, as in the original."""
    pods = [pod("new", amounts(4, "1Gi"))]
    empty = metric()
    machine = node(amounts(10, "10Gi"))

    used = batch_terms(Strategy(cpu_reclaim_percent=100), machine, use(empty, pods))
    strategy = Strategy(cpu_reclaim_percent=100, cpu_policy="maxUsageRequest")
    largest = batch_terms(strategy, machine, use(empty, pods))

    assert (result(used)[0], result(largest)[0]) == (6_000, 10_000)


@pytest.mark.parametrize(
    ("annotation", "cpu"),
    [
        ('{"resources":{"cpu":"4"}}', 28_000),
        ('{"resources":{"cpu":"4"},"reservedCPUs":"0-5"}', 26_000),
        ('{"resources":{"cpu":"1"}}', 30_000),
        ('{"resources":', 30_000),
    ],
)
def test_the_larger_reserve_counts(annotation: str, cpu: int) -> None:
    """The kubelet keeps 2 CPUs; a list of CPUs goes before an amount, nonsense reserves nothing."""
    machine: Node = node(
        amounts(32, "1Gi"),
        amounts(30, "1Gi"),
        annotations={"node.koordinator.sh/reservation": annotation},
    )

    terms = batch_terms(Strategy(cpu_reclaim_percent=100), machine, use(metric()))

    assert result(terms)[0] == cpu


def test_ended_pods_count_as_dangling_usage() -> None:
    """A pod that has ended is not there; what was reported of it is still in use somehow."""
    report = metric(pods=[usage("done", amounts(3, "1Gi"))])
    machine = node(amounts(10, "10Gi"))
    pods = [pod("done", amounts(8, "1Gi"), phase="Succeeded")]

    terms = batch_terms(Strategy(cpu_reclaim_percent=100), machine, use(report, pods))

    assert result(terms)[0] == 7_000


@pytest.mark.parametrize(("band", "cpu"), [("koord-batch", 10), ("koord-free", 10), ("", 8)])
def test_unknown_usage_counts_unless_the_band_is_low(band: str, cpu: int) -> None:
    """An empty priority counts as prod."""
    report = metric(pods=[usage("x", amounts(2, 0), band)])
    machine = node(amounts(10, "10Gi"))

    terms = batch_terms(Strategy(cpu_reclaim_percent=100), machine, use(report))

    assert result(terms)[0] == cpu * 1000


def test_absurd_reports_give_nothing_away() -> None:
    """Negative usage counts as 0, and usage above the capacity leaves 0."""
    machine = node(amounts(10, "10Gi"))
    negative = use(metric(system=amounts(-5, "-5Gi"), pods=[usage("x", amounts(-3, 0))]))
    immense = use(metric(system=amounts(500, "500Gi")))

    assert result(batch_terms(Strategy(), machine, negative))[0] == 6_000
    assert result(batch_terms(Strategy(), machine, immense)) == (0, 0)


@given(
    capacity=st.integers(0, 500_000),
    system=st.integers(0, 200_000),
    used=st.lists(st.integers(0, 100_000), max_size=5),
    percent=st.integers(0, 200),
)
def test_batch_is_never_negative_and_falls_as_usage_rises(
    capacity: int, system: int, used: list[int], percent: int
) -> None:
    """More usage leaves less."""
    machine = node(amounts(f"{capacity}m", 0))
    strategy = Strategy(cpu_reclaim_percent=percent)

    def batch(extra: int) -> int:
        pods = [usage(f"p{i}", amounts(f"{one + extra}m", 0)) for i, one in enumerate(used)]
        report = metric(system=amounts(f"{system}m", 0), pods=pods)
        return result(batch_terms(strategy, machine, use(report)))[0]

    assert 0 <= batch(1000) <= batch(0) <= capacity * 2
