"""Utilization of NUMA nodes."""

import numpy as np
import pytest
from msgspec.structs import replace
from tests.machines import GIB, machine, numa_node
from tests.unit.scheduler.rules.numa.holding_score import bound_cpu_milli, score_allocation

from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.scheduler.rules.cpus.binding import CpuBinding
from koordinator.scheduler.rules.numa.ledger import NumaAllocation, NumaLedger
from koordinator.scheduler.rules.numa.node import NumaRequest, Reusable
from koordinator.scheduler.rules.numa.rows import amplified_request, short_of_cpu
from koordinator.scheduler.rules.numa.trial import NumaTrial
from koordinator.scheduler.rules.numa.zone_scorer import ZoneScorer, score_zones

CPU_ONLY = ZoneScorer({"cpu": 1}, pack=False)


@pytest.mark.parametrize(
    ("pack", "score"), [(False, (50 + 75 * 3) // 4), (True, (50 + 25 * 3) // 4)]
)
def test_score_is_a_weighted_mean_of_free_or_used_shares(pack: bool, score: int) -> None:
    """Missing resources, and extended ones that the pod doesn't request, don't count."""
    scorer = ZoneScorer({"cpu": 1, "memory": 3, "example.com/gpu": 9, "hugepages-2Mi": 5}, pack)

    got = scorer.score(
        {"cpu": 2_000, "memory": 2 * GIB},
        {"cpu": 8_000, "memory": 16 * GIB, "example.com/gpu": 8},
        {"cpu": 2_000, "memory": 2 * GIB},
    )

    assert got == score


def test_more_than_there_is_scores_as_full() -> None:
    """0 free, 100 used; without anything to score, 0."""
    assert CPU_ONLY.score({"cpu": 9}, {"cpu": 8}, {}) == 0
    assert ZoneScorer({"cpu": 1}, pack=True).score({"cpu": 9}, {"cpu": 8}, {}) == 100
    assert ZoneScorer({}, pack=True).score({"cpu": 9}, {"cpu": 8}, {}) == 0


def test_a_set_is_scored_by_all_that_it_has() -> None:
    """Four of sixteen CPUs used, four requested."""
    ledger = NumaLedger()
    ledger.add("a", NumaAllocation(zones={0: {"cpu": 4_000}}))
    trial = NumaTrial(numa_node(machine(2, 1, 4, 2), ledger), NumaRequest({"cpu": 4_000}))

    assert [score_zones(trial, zones, CPU_ONLY) for zones in (0b01, 0b10, 0b11)] == [0, 50, 50]


def test_with_cpus_of_its_own_all_bound_cpus_of_the_node_count() -> None:
    """Four CPUs bound on NUMA node 1 make NUMA node 0 score as if it were half full."""
    ledger = NumaLedger()
    ledger.add("a", NumaAllocation(parse_cpu_list("8-11"), {1: {"cpu": 4_000}}))
    node = numa_node(machine(2, 1, 4, 2), ledger)
    shared, own = NumaRequest({"cpu": 2_000}), CpuBinding(2, "FullPCPUs", required=False)

    def score(request: NumaRequest) -> int:
        trial = NumaTrial(node, request)
        got = trial.allocate(0b01)
        assert isinstance(got, NumaAllocation)
        return score_allocation(trial, got, CPU_ONLY)

    assert score(shared) == 75
    assert score(replace(shared, binding=own)) == 25


def test_the_rest_of_a_reservation_counts_as_free() -> None:
    """Four CPUs reserved, two taken by the pod; the node shows half as much again."""
    ledger = NumaLedger()
    ledger.add("reservation", NumaAllocation(parse_cpu_list("0-3"), {0: {"cpu": 4_000}}))
    node = replace(numa_node(machine(2, 1, 4, 2), ledger), cpu_ratio=1.5)
    trial = NumaTrial(node, NumaRequest({}), Reusable(preferred_cpus=0b1111))

    assert bound_cpu_milli(trial, NumaAllocation(0b0011)) == 3_000


def test_bound_cpus_count_amplified_on_an_amplified_node() -> None:
    """40 CPUs shown as 52; of 10 requested 4 are bound, so 40.8 are left; six bound cost 7.8."""
    requested, bound = np.array([10_000]), np.array([4_000])
    ratios, allocatable = np.array([1.3]), np.array([52_000])
    facts = {"allocatable": allocatable, "requested": requested, "bound": bound, "ratios": ratios}
    yes, no = np.array([True]), np.array([False])

    assert amplified_request(requested, bound, ratios).tolist() == [11_200]
    assert [short_of_cpu(cpu, binds=no, **facts).item() for cpu in (40_800, 40_801)] == [
        False,
        True,
    ]
    assert [short_of_cpu(cpu, binds=yes, **facts).item() for cpu in (31_000, 32_000)] == [
        False,
        True,
    ]
    plain = {**facts, "ratios": np.array([1.0])}
    assert not short_of_cpu(60_000, binds=yes, **plain).item()  # NodeResourcesFit rejects it
    assert not short_of_cpu(0, binds=no, **{**facts, "requested": np.array([99_000])}).item()
