"""Batch resources of NUMA nodes."""

import json
from typing import Any

import pytest
from tests.unit.manager.node_resources.nodes import amounts, metric, node, pod, usage, use

from koordinator.api.codec import decode
from koordinator.api.node import NodeResourceTopology
from koordinator.manager.configuration.ranges import Strategy
from koordinator.manager.node_resources.batch import (
    has_zones,
    with_amounts,
    zone_amounts,
    zone_terms,
)

MACHINE = node(amounts(32, "64Gi"))
BATCH_CPU = "kubernetes.io/batch-cpu"


def topology(*zones: dict[str, str | int]) -> NodeResourceTopology:
    """Return NUMA nodes with these resources."""
    listed = [
        {
            "name": f"node-{i}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": each, "allocatable": each, "available": each}
                for name, each in zone.items()
            ],
        }
        for i, zone in enumerate(zones)
    ]
    meta = {"name": "n"}
    return decode({"metadata": meta, "topologyPolicies": [], "zones": listed}, NodeResourceTopology)


def bound_to(*nodes: int) -> dict[str, str]:
    """Return the annotation of a pod that was given NUMA nodes."""
    status = {"numaNodeResources": [{"node": each} for each in nodes]}
    return {"scheduling.koordinator.sh/resource-status": json.dumps(status)}


TWO = topology(amounts(16, "32Gi"), amounts(16, "32Gi"))


@pytest.mark.parametrize(
    ("nodes", "cpus"),
    [
        ((0,), ["5600", "8600"]),
        ((0, 1), ["7100", "7100"]),
        ((), ["7100", "7100"]),
        ((7, -1), ["7100", "7100"]),
        ((1, 9), ["8600", "5600"]),
    ],
)
def test_usage_counts_where_the_pod_was_bound(nodes: tuple[int, ...], cpus: list[str]) -> None:
    """System usage is split; ids that can't be are ignored (5.3 of the specification)."""
    report = metric(system=amounts(2, 0), pods=[usage("p", amounts(3, 0))])
    pods = [pod("p", amounts(4, 0), annotations=bound_to(*nodes))]

    terms = zone_terms(Strategy(), MACHINE, TWO, use(report, pods))

    assert [str(zone[BATCH_CPU]) for zone in zone_amounts(terms, 1.0)] == cpus


def test_a_pod_without_usage_counts_in_the_larger_of_both_here() -> None:
    """Unlike for the whole node."""
    strategy = Strategy(cpu_reclaim_percent=100, cpu_policy="maxUsageRequest")
    pods = [pod("p", amounts(4, 0), annotations=bound_to(0))]

    terms = zone_terms(strategy, MACHINE, TWO, use(metric(), pods))

    assert [str(zone[BATCH_CPU]) for zone in zone_amounts(terms, 1.0)] == ["12k", "16k"]


def test_cpus_that_are_worth_more_are_more() -> None:
    """The ratio is applied as for the node, but not rounded up."""
    terms = zone_terms(Strategy(cpu_reclaim_percent=50), MACHINE, TWO, use(metric()))

    assert str(zone_amounts(terms, 1.333)[0][BATCH_CPU]) == "10664"


@pytest.mark.parametrize(
    ("shown", "changed"), [(None, True), ("8000", False), ("8800", False), ("7000", True)]
)
def test_small_differences_are_not_applied(shown: str | None, changed: bool) -> None:
    """8000 is what it should be; up to a tenth of what is shown is left."""
    extra: dict[str, Any] = {} if shown is None else {BATCH_CPU: shown}
    zone = amounts(16, "32Gi") | {"kubernetes.io/batch-memory": "0"} | extra
    result = topology(zone)
    terms = zone_terms(
        Strategy(cpu_reclaim_percent=50, memory_reclaim_percent=0), MACHINE, result, use(metric())
    )

    zones = with_amounts(result.zones, zone_amounts(terms, 1.0), 0.1)

    assert (zones != result.zones) is changed
    assert [r.name for r in zones[0].resources] == sorted(r.name for r in zones[0].resources) or (
        shown is not None
    )


def test_zones_without_cpus_and_memory_are_left_alone() -> None:
    """A topology without CPUs and memory belongs to another component."""
    assert has_zones(TWO)
    assert not has_zones(topology({"example.com/x": 1}))
    assert not has_zones(topology())
