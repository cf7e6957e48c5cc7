"""Mid resources: unused requests of prod pods, and a part of the unallocated capacity."""

from typing import Any

import pytest
from tests.unit.manager.node_resources.nodes import amounts, metric, node, pod, use

from koordinator.manager.configuration.ranges import Strategy
from koordinator.manager.node_resources.calculation import mid_terms

MACHINE = node(amounts(40, "40Gi"), amounts(36, "36Gi"))
GIB = 1 << 30


def test_mid_resources_equal_the_worked_example() -> None:
    """The sum of both parts, limited by a part of the capacity (5.4 of the specification)."""
    report = metric(used=amounts(22, "22Gi"), reclaimable=amounts(9, "9Gi"))
    strategy = Strategy(mid_unallocated_percent=50, mid_cpu_percent=40, mid_memory_percent=40)

    mid = mid_terms(strategy, MACHINE, use(report, [pod("web", amounts(20, "20Gi"))]))

    assert (mid.cpu_milli, mid.memory_bytes) == (16_000, 16 * GIB)
    assert mid.cpu_message() == (
        "midAllocatable[CPU(milli-core)]:16000 = min(min(ProdReclaimable:9000, NodeUnused:18000) "
        "+ Unallocated:16000 * midUnallocatedRatio:0.5, NodeCapacity:40000 * thresholdRatio:0.4)"
    )


@pytest.mark.parametrize(
    ("reported", "cpu"),
    [
        ({"used": amounts(22, 1), "reclaimable": amounts(9, 1)}, 9_000),
        ({"used": amounts(36, 1), "reclaimable": amounts(9, 1)}, 4_000),
        ({"used": amounts(50, 1), "reclaimable": amounts(9, 1)}, 0),
        ({"used": {"cpu": 22}, "reclaimable": amounts(9, 1)}, 0),
        ({"used": amounts(22, 1)}, 0),
    ],
)
def test_no_more_is_reclaimed_than_is_unused(reported: dict[str, Any], cpu: int) -> None:
    """Without the usage of the node nothing is known to be unused."""
    assert mid_terms(Strategy(), MACHINE, use(metric(**reported))).cpu_milli == cpu


def test_static_mode_reads_no_metric() -> None:
    """A part of the capacity, limited like the rest."""
    strategy = Strategy(
        mid_is_static=True,
        mid_static_cpu_percent=30,
        mid_static_memory_percent=80,
        mid_memory_percent=50,
    )

    mid = mid_terms(strategy, MACHINE, use(metric()))

    assert (mid.cpu_milli, mid.memory_bytes) == (12_000, 20 * GIB)
    assert mid.memory_message() == (
        "midAllocatable[Memory(GB)]:22 = min(nodeCapacity:43 * staticReservedPercent:0.8, "
        "nodeCapacity:43 * thresholdRatio:0.5)"
    )


@pytest.mark.parametrize(("priority", "cpu"), [(9500, 8_000), (7500, 18_000), (5500, 18_000)])
def test_requests_of_mid_and_batch_pods_leave_cpus_unallocated(priority: int, cpu: int) -> None:
    """Mid and batch pods request no native CPUs."""
    report = metric(used=amounts(0, 0))
    strategy = Strategy(mid_unallocated_percent=50)

    mid = mid_terms(
        strategy, MACHINE, use(report, [pod("p", amounts(20, 0), priority=priority, qos="")])
    )

    assert mid.cpu_milli == cpu
