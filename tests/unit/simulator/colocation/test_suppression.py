"""CPU suppress of all nodes at once equals the node agent's, node by node."""

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from tests.nodes import Tree, machine

from koordinator.api.node_slo import NodeSloSpec, ResourceThresholdStrategy
from koordinator.domain.cgroups.files import UNLIMITED
from koordinator.foundation.arrays import IntArray
from koordinator.koordlet.qos.cpu_suppress import CpuDemand, wanted_cpus, wanted_quota_us
from koordinator.simulator.colocation.suppression import (
    NodeThresholds,
    Suppressor,
    headroom_milli,
    next_cpus,
    next_quota_us,
)

percents = st.integers(0, 100)
capacities = st.integers(1, 256).map(lambda cpus: cpus * 1000)
headrooms = st.integers(-50_000, 300_000)


def of(value: int) -> IntArray:
    return np.array([value], np.int64)


def thresholds(strategy: ResourceThresholdStrategy) -> NodeThresholds:
    of_nodes = NodeThresholds.none(1)
    of_nodes.put(0, NodeSloSpec(resource_used_threshold_with_be=strategy))
    return of_nodes


@given(capacities, st.integers(0, 300_000), st.integers(0, 9_000), percents, st.none() | percents)
def test_the_room_is_the_same(
    capacity: int, services: int, system: int, percent: int, least: int | None
) -> None:
    """To the milli-CPU."""
    known = thresholds(
        ResourceThresholdStrategy(
            enable=True, cpu_suppress_threshold_percent=percent, cpu_suppress_min_percent=least
        )
    )
    demand = CpuDemand(capacity=capacity, pods=services, host_applications=0, system=system)

    by_node = headroom_milli(known, of(capacity), of(services), of(system))

    assert by_node.tolist() == [demand.headroom_milli(percent, least)]


@given(capacities, headrooms, st.just(UNLIMITED) | st.integers(2_000, 30_000_000))
def test_the_quota_of_a_round_is_the_same(capacity: int, headroom: int, current: int) -> None:
    """The cases include changes below the minimum and above the largest step."""
    wanted = wanted_quota_us(capacity, headroom, current)

    by_node = next_quota_us(of(capacity), of(headroom), of(current))

    assert by_node.tolist() == [current if wanted is None else wanted]


@given(st.integers(1, 64), headrooms, st.integers(1, 64))
def test_the_number_of_cpus_of_a_round_is_the_same(cpus: int, headroom: int, current: int) -> None:
    """On a node without exclusive CPUs."""
    current = min(current, cpus)
    chosen = wanted_cpus(Tree().view(machine_=machine(cpu=cpus)), headroom, current)

    assert next_cpus(of(cpus), of(headroom), of(current)).tolist() == [len(chosen) or current]


@given(capacities, st.lists(st.integers(0, 256_000), min_size=1, max_size=4), st.booleans())
@example(18_000, [11_521], True)  # the room is nearly as small as "unlimited" is as a number
def test_best_effort_and_services_stay_below_the_threshold(
    capacity: int, loads: list[int], by_quota: bool
) -> None:
    """Whenever the load has stood still for ten seconds, but for the least that it always gets.

    A CPU set is of whole CPUs, and a quota is not changed for less than a hundredth of the node.
    """
    policy = "cfsQuota" if by_quota else "cpuset"
    known = thresholds(
        ResourceThresholdStrategy(
            enable=True, cpu_suppress_threshold_percent=65, cpu_suppress_policy=policy
        )
    )
    suppressor = Suppressor(of(capacity), known)
    for load in loads:
        services = min(load, capacity)
        suppressor.converge(of(services), of(0))
        headroom = capacity * 65 // 100 - services
        slack = math.ceil(capacity * 0.01) if by_quota else 1000
        least = 20 if by_quota else min(2000, capacity)

        assert suppressor.limit[0] <= max(headroom + slack, least)


def test_without_a_node_slo_no_pod_is_suppressed() -> None:
    """A node before its first NodeSLO suppresses none, either."""
    suppressor = Suppressor(of(8000), NodeThresholds.none(1))
    suppressor.converge(of(7900), of(0))

    assert suppressor.limit.tolist() == [8000]
