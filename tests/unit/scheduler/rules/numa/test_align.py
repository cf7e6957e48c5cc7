"""The one set of NUMA nodes that suits all resources."""

import json
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.foundation.masks import (
    mask_of,
    mask_text,
    subsets,
    zones_of,
)
from koordinator.scheduler.rules.numa.align import (
    Alignment,
    NumaMachine,
    ResourceHints,
    TopologyHint,
    ZoneState,
    align,
)

BEST_EFFORT, RESTRICTED = NumaTopologyPolicy.BEST_EFFORT, NumaTopologyPolicy.RESTRICTED
SINGLE = NumaTopologyPolicy.SINGLE_NUMA_NODE
GOLDEN = Path(__file__).parents[4] / "golden" / "numa" / "alignments.jsonl"

IDLE = NumaMachine({0: ZoneState.IDLE, 1: ZoneState.IDLE})
BOTH_FIRST_SHARED = NumaMachine({0: ZoneState.SHARED, 1: ZoneState.IDLE})
CPU = [TopologyHint(0b01, True, 40), TopologyHint(0b10, True, 70), TopologyHint(0b11, False, 55)]
GPU = [TopologyHint(0b01, True, 500), TopologyHint(0b10, True, 0), TopologyHint(0b11, False, 500)]
BOTH = [TopologyHint(0b11, True, 55)]


def test_devices_outweigh_cpu_and_memory() -> None:
    """The GPU has its place on node 0; without it, node 1 is the emptier one."""
    own = {"cpu": CPU, "memory": CPU}

    assert align(SINGLE, [own, {"gpu": GPU}], IDLE) == Alignment(True, 0b01, 580)
    assert align(SINGLE, [own], IDLE) == Alignment(True, 0b10, 140)


def test_a_pod_keeps_away_from_pods_on_several_numa_nodes_if_it_requires_so() -> None:
    """The GPU's NUMA node is rejected only if exclusiveness is required."""
    providers = [{"cpu": CPU, "memory": CPU}, {"gpu": GPU}]

    assert align(SINGLE, providers, BOTH_FIRST_SHARED, "Required").zones == 0b10
    assert align(SINGLE, providers, BOTH_FIRST_SHARED, "Preferred").zones == 0b01


@pytest.mark.parametrize(("state", "admitted"), [("single", False), ("shared", True)])
def test_a_pod_on_several_keeps_away_from_pods_on_one(state: str, admitted: bool) -> None:
    """Exclusiveness applies in both directions."""
    numa_machine = NumaMachine({0: ZoneState(state), 1: ZoneState.IDLE})

    assert align(RESTRICTED, [{"cpu": BOTH}], numa_machine, "Required").admitted is admitted


def test_resources_that_prefer_sets_of_different_size_cannot_be_aligned() -> None:
    """CPU needs both NUMA nodes, the GPU prefers one: Restricted rejects, BestEffort accepts."""
    providers: list[ResourceHints] = [{"cpu": BOTH}, {"gpu": GPU}]

    refused = align(RESTRICTED, providers, IDLE)

    cause = "Unaligned NUMA Hint cause "
    cpu, gpu = "cpu prefer [11] among [11]", "gpu prefer [01 10] among [01 10 11]"
    assert refused.reasons == (f"{cause}{cpu} & {gpu}",)
    assert align(BEST_EFFORT, providers, IDLE) == Alignment(True, 0b11)
    assert align(SINGLE, providers, IDLE).reasons == (f"{cause}{cpu},{gpu}",)


@pytest.mark.parametrize("policy", [RESTRICTED, SINGLE])
def test_a_resource_that_no_set_has_is_named(policy: NumaTopologyPolicy) -> None:
    """BestEffort admits nevertheless."""
    providers: list[ResourceHints] = [{"cpu": CPU, "memory": []}]

    assert align(policy, providers, IDLE) == Alignment(False, reasons=("Unsatisfied NUMA memory",))
    assert align(BEST_EFFORT, providers, IDLE) == Alignment(True, 0b11)


@pytest.mark.parametrize("providers", [[], [{}], [{"cpu": None}], [{}, {"gpu": None}]])
def test_without_opinions_every_policy_admits(providers: list[ResourceHints]) -> None:
    """On all NUMA nodes, or, for SingleNUMANode, without regard to them."""
    assert align(RESTRICTED, providers, IDLE) == Alignment(True, 0b11)
    assert align(SINGLE, providers, IDLE) == Alignment(True)


def test_the_only_numa_node_is_no_restriction() -> None:
    """SingleNUMANode on a machine with one: admitted without regard to it."""
    lone = NumaMachine({0: ZoneState.IDLE})

    assert align(SINGLE, [{"cpu": [TopologyHint(0b1, True, 9)]}], lone) == Alignment(True)
    assert align(RESTRICTED, [{"cpu": [TopologyHint(0b1, True, 9)]}], lone) == Alignment(
        True, 0b1, 9
    )
    assert align(NumaTopologyPolicy.NONE, [{"cpu": []}], lone) == Alignment(True)


def test_best_effort_gives_up_where_there_are_too_many_combinations() -> None:
    """Eight NUMA nodes and three resources that agree on nothing: at once, on all of them."""
    machine = NumaMachine(dict.fromkeys(range(8), ZoneState.IDLE))
    every = [TopologyHint(zones, False) for zones in subsets(machine.zones)]

    assert align(BEST_EFFORT, [{"a": every, "b": every, "c": every}], machine).zones == 0xFF


def test_sets_are_tried_from_small_to_large() -> None:
    """Of many NUMA nodes only single ones and all."""
    assert subsets((0, 2, 3)) == (0b1, 0b100, 0b1000, 0b101, 0b1001, 0b1100, 0b1101)
    assert subsets(tuple(range(9))) == (*(1 << zone for zone in range(9)), 0x1FF)


@pytest.mark.parametrize(
    ("zones", "text"),
    [(0b1, "01"), (0b10, "10"), (0b11, "11"), (0b100, "100"), (0b101, "0101"), (None, "<nil>")],
)
def test_sets_in_messages_are_pairs_of_digits(zones: int | None, text: str) -> None:
    """In pairs of digits, but for a lone bit at an even place."""
    assert mask_text(zones) == text


def hints(listed: Any) -> list[TopologyHint] | None:
    if listed is None:
        return None
    return [TopologyHint(None if m is None else mask_of(m), p, score) for m, p, score in listed]


def recorded() -> list[Any]:
    """Return inputs and outputs of the original."""
    return [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("case", recorded(), ids=range(140))
def test_the_original_aligns_alike(case: Any) -> None:
    """Up to three NUMA nodes, hints of two plugins, every policy."""
    parameters, want = case["input"], case["output"]
    providers = [{name: hints(h) for name, h in p.items()} for p in parameters["providers"]]
    states = {zone: ZoneState(state) for zone, state in enumerate(parameters["states"])}

    got = align(
        NumaTopologyPolicy(parameters["policy"]),
        providers,
        NumaMachine(states),
        parameters["exclusive"],
    )

    assert got.admitted is want["admitted"]
    assert sorted(got.reasons) == want["reasons"]
    assert (None if got.zones is None else [*zones_of(got.zones)]) == want["numa_nodes"]
