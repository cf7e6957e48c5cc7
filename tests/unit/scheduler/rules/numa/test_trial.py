"""One pod on one node."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.machines import GIB, machine, numa_node

from koordinator.api.annotations.numa import CpuBindPolicy, NumaTopologyPolicy
from koordinator.domain.amounts import amplified
from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.foundation.masks import mask_of, zones_of
from koordinator.scheduler.rules.cpus.binding import CpuBinding
from koordinator.scheduler.rules.numa.align import TopologyHint, align
from koordinator.scheduler.rules.numa.ledger import NumaAllocation, NumaLedger
from koordinator.scheduler.rules.numa.node import NumaNode, NumaRequest, Reusable
from koordinator.scheduler.rules.numa.trial import NumaShortage, NumaTrial
from koordinator.scheduler.rules.numa.zone_scorer import ZoneScorer, resource_hints

FULL, SPREAD = CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS
BOTH = 0b11
GOLDEN = Path(__file__).parents[4] / "golden" / "numa"


def bound(count: int, policy: str = FULL, *, required: bool = False) -> NumaRequest:
    return NumaRequest({"cpu": count * 1000}, CpuBinding(count, policy, required))


def ledger_of(*allocations: NumaAllocation) -> NumaLedger:
    ledger = NumaLedger()
    for number, allocation in enumerate(allocations):
        ledger.add(str(number), allocation)
    return ledger


def in_use(cpus: str = "", **zones: int) -> NumaAllocation:
    """Return CPUs, and milli-CPU by NUMA node (``n0``, ``n1``)."""
    return NumaAllocation(
        parse_cpu_list(cpus), {int(z[1:]): {"cpu": cpu} for z, cpu in zones.items()}
    )


def test_amounts_are_divided_evenly_the_emptier_node_takes_the_rest() -> None:
    """24 CPU where 20 and 7 are left: 17 and 7; memory in halves."""
    node = numa_node(machine(2, 1, 10, 2), ledger_of(in_use(n1=13_000)))
    request = NumaRequest({"cpu": 24_000, "memory": 30 * GIB})

    got = NumaTrial(node, request).allocate(BOTH)

    assert got == NumaAllocation(
        zones={
            0: {"cpu": 17_000, "memory": 15 * GIB},
            1: {"cpu": 7_000, "memory": 15 * GIB},
        }
    )


def test_the_emptier_of_any_two_nodes_takes_the_rest() -> None:
    """Of NUMA nodes 2 and 3, whatever is free on 0 and 1: the original mixes them up."""
    node = numa_node(machine(2, 2, 5, 2), ledger_of(in_use(n1=9_000, n3=8_000)))

    got = NumaTrial(node, NumaRequest({"cpu": 11_000})).allocate(0b1100)

    assert got == NumaAllocation(zones={2: {"cpu": 9_000}, 3: {"cpu": 2_000}})


def test_missing_resources_are_named() -> None:
    """Every resource that is short; one that no NUMA node reports is ignored."""
    node = numa_node(machine(2, 1, 4, 2))
    request = NumaRequest({"cpu": 9_000, "memory": 65 * GIB, "example.com/gpu": 4})

    assert NumaTrial(node, request).allocate(0b01) == NumaShortage(
        ("Insufficient NUMA cpu", "Insufficient NUMA memory")
    )
    assert NumaTrial(node, NumaRequest({"example.com/gpu": 4})).allocate(0b01) == NumaAllocation()


@pytest.mark.parametrize(
    ("request_", "zones", "cpus"),
    [
        (bound(4), BOTH, "0-1,8-9"),
        (bound(4), 0b10, "8-11"),
        (bound(4, SPREAD), BOTH, "0,2,8,10"),
        (bound(6, FULL, required=True), BOTH, "0-1,8-11"),  # cores are not divided
        (bound(4), None, "0-3"),
    ],
)
def test_cpus_come_from_the_numa_nodes_that_are_charged(
    request_: NumaRequest, zones: int | None, cpus: str
) -> None:
    """As many of each as it is charged; without NUMA nodes from anywhere."""
    got = NumaTrial(numa_node(machine(2, 1, 4, 2)), request_).allocate(zones)

    assert isinstance(got, NumaAllocation)
    assert format_cpu_list(got.cpus) == cpus
    charged = {z: share["cpu"] // 1000 for z, share in got.zones.items()}
    layout = machine(2, 1, 4, 2)
    assert all((got.cpus & layout.numa_nodes[z]).bit_count() == n for z, n in charged.items())


def test_a_required_policy_is_kept_or_the_pod_stays_out() -> None:
    """Every core of NUMA node 0 is broken up."""
    node = numa_node(machine(2, 1, 4, 2), ledger_of(in_use("0,2,4,6", n0=4_000)))

    refused = NumaTrial(node, bound(4, FULL, required=True)).allocate(0b01)
    assert refused == NumaShortage(("Insufficient NUMA cpu",))
    assert isinstance(NumaTrial(node, bound(4, FULL)).allocate(0b01), NumaAllocation)
    spread = NumaTrial(node, bound(4, SPREAD, required=True)).allocate(0b01)
    assert isinstance(spread, NumaAllocation)
    assert format_cpu_list(spread.cpus) == "1,3,5,7"


def test_cpus_of_a_reservation_are_free_for_its_pod_and_taken_first() -> None:
    """The reservation holds 4-7 and their amounts."""
    node = numa_node(
        machine(2, 1, 4, 2), ledger_of(in_use("4-7", n0=4_000), in_use("0-3", n0=4_000))
    )
    reservation = Reusable(preferred_cpus=parse_cpu_list("4-7"), zones={0: {"cpu": 4_000}})

    got = NumaTrial(node, bound(2), reservation).allocate(0b01)

    assert got == in_use("4-5", n0=2_000)
    assert isinstance(NumaTrial(node, bound(2)).allocate(0b01), NumaShortage)
    only = replace(reservation, only={0: {"cpu": 1_000}})
    assert isinstance(NumaTrial(node, bound(2), only).allocate(0b01), NumaShortage)


def test_an_unknown_layout_binds_nothing() -> None:
    """Amounts without CPUs are allocated, too."""
    node = NumaNode(None, NumaLedger(), {0: {"cpu": 8_000}})

    assert NumaTrial(node, bound(2)).allocate(0b1) == NumaShortage(
        ("node(s) invalid CPU Topology",)
    )
    assert NumaTrial(node, NumaRequest({"cpu": 2_000})).allocate(0b1) == in_use(n0=2_000)


def test_bound_cpus_use_up_more_of_an_amplified_node() -> None:
    """8 CPUs shown as 12: four bound ones count 6, so 6 are left to others."""
    node = replace(
        numa_node(machine(2, 1, 4, 2), ledger_of(in_use("0-3", n0=4_000))),
        zones={0: {"cpu": 12_000}, 1: {"cpu": 12_000}},
        cpu_ratio=1.5,
    )

    assert node.available({}) == {0: {"cpu": 6_000}, 1: {"cpu": 12_000}}
    assert isinstance(NumaTrial(node, NumaRequest({"cpu": 6_001})).allocate(0b01), NumaShortage)
    assert NumaTrial(node, bound(4)).request.counted(1.5) == {"cpu": 6_000}


def test_hints_are_the_sets_that_have_enough_of_everything() -> None:
    """Ten CPU fit neither NUMA node of 8 alone; under Restricted every set is preferred."""
    node = numa_node(machine(2, 1, 4, 2))
    scorer = ZoneScorer({"cpu": 1}, pack=False)

    def hints(cpu: int, policy: NumaTopologyPolicy) -> list[TopologyHint]:
        trial = NumaTrial(node, NumaRequest({"cpu": cpu, "example.com/gpu": 1}))
        result = resource_hints(trial, policy, scorer)
        assert set(result) == {"cpu"}
        return result["cpu"]

    single, restricted = NumaTopologyPolicy.SINGLE_NUMA_NODE, NumaTopologyPolicy.RESTRICTED
    assert hints(10_000, single) == [TopologyHint(0b11, True, 37)]
    assert hints(4_000, single) == [
        TopologyHint(0b01, True, 50),
        TopologyHint(0b10, True, 50),
        TopologyHint(0b11, False, 75),
    ]
    assert all(hint.preferred for hint in hints(4_000, restricted))
    assert hints(17_000, single) == []


def test_a_numa_node_that_has_nothing_of_a_resource_is_no_place_for_it() -> None:
    """Huge pages are on NUMA node 1 only; CPU of both is still allocated."""
    node = numa_node(machine(2, 1, 4, 2))
    zones = {0: node.zones[0], 1: {**node.zones[1], "hugepages-1Gi": GIB}}
    request = NumaRequest({"cpu": 10_000, "hugepages-1Gi": GIB})

    result = resource_hints(
        NumaTrial(replace(node, zones=zones), request),
        NumaTopologyPolicy.RESTRICTED,
        ZoneScorer({"cpu": 1}, pack=False),
    )

    assert [hint.zones for hint in result["cpu"]] == [0b11]
    assert result["hugepages-1Gi"] == []


@st.composite
def trials(draw: st.DrawFn) -> NumaTrial:
    """Any pod on any half-filled node."""
    layout = machine(*draw(st.sampled_from(((2, 1, 4, 2), (1, 2, 4, 1), (2, 2, 2, 2)))))
    ledger, free = NumaLedger(), layout.cpus
    for number in range(draw(st.integers(0, 3))):
        cpus = draw(st.integers(0, layout.cpus)) & free & draw(st.integers(0, layout.cpus))
        free &= ~cpus
        zones = {
            zone: {"cpu": (cpus & own).bit_count() * 1000 + draw(st.sampled_from((0, 500)))}
            for zone, own in layout.numa_nodes.items()
        }
        ledger.add(str(number), NumaAllocation(cpus, zones))
    count = draw(st.integers(1, 8))
    policy = draw(st.sampled_from((FULL, SPREAD)))
    binding = draw(
        st.sampled_from((None, CpuBinding(count, policy, True), CpuBinding(count, policy, False)))
    )
    amounts = {"cpu": count * 1000, "memory": draw(st.integers(1, 80)) * GIB}
    return NumaTrial(numa_node(layout, ledger), NumaRequest(amounts, binding))


@pytest.mark.slow
@given(trials(), st.integers(0, 15))
def test_an_allocation_is_whole_and_counting_foresees_it(trial: NumaTrial, some: int) -> None:
    """Amounts add up, CPUs are free and as many; ``fits`` is right without choosing any."""
    zones = some & mask_of(trial.node.zones) or None

    got = trial.allocate(zones)

    assert trial.fits(zones) == isinstance(got, NumaAllocation)
    if isinstance(got, NumaAllocation):
        if zones is not None:
            for name, amount in trial.request.amounts.items():
                assert sum(share.get(name, 0) for share in got.zones.values()) == amount
            for zone, share in got.zones.items():
                assert all(n <= trial.available[zone][name] for name, n in share.items())
        binding = trial.request.binding
        assert got.cpus.bit_count() == (binding.count if binding else 0)
        assert got.cpus & trial.node.ledger.cpus.in_use == 0


def recorded(file: str) -> list[Any]:
    """Return inputs and outputs of the original."""
    return [json.loads(line) for line in (GOLDEN / file).read_text("utf-8").splitlines()]


def recorded_trial(parameters: Any) -> NumaTrial:
    """Return the trial that a recorded input describes."""
    layout = machine(
        *parameters["machine"],
        split=parameters.get("split", False),
        offline=parameters.get("offline", ""),
    )
    ledger = ledger_of(
        *(
            NumaAllocation(parse_cpu_list(cpus), {int(z): a for z, a in zones.items()}, exclusive)
            for cpus, exclusive, zones in parameters.get("pods", [])
        )
    )
    ratio = parameters.get("ratio", 1.0)
    zones = {
        zone: {name: amplified(n, ratio if name == "cpu" else 1.0) for name, n in here.items()}
        for zone, here in enumerate(parameters["zones"])
    }
    node = NumaNode(layout, ledger, zones, cpu_ratio=ratio, pack=parameters.get("pack", False))
    binding = None
    if "binding" in parameters:
        policy, required, exclusive = parameters["binding"]
        binding = CpuBinding(parameters["amounts"]["cpu"] // 1000, policy, required, exclusive)
    reusable = Reusable(preferred_cpus=parse_cpu_list(parameters.get("preferred", "")))
    return NumaTrial(node, NumaRequest(parameters["amounts"], binding), reusable)


@pytest.mark.parametrize("case", recorded("allocations.jsonl"), ids=range(140))
def test_the_original_allocates_alike(case: Any) -> None:
    """CPUs, amounts by NUMA node, reasons."""
    parameters, want = case["input"], case["output"]
    affinity = parameters["affinity"]

    got = recorded_trial(parameters).allocate(None if affinity is None else mask_of(affinity))

    if isinstance(got, NumaShortage):
        assert sorted(got.reasons) == want["reasons"]
    else:
        assert format_cpu_list(got.cpus) == want["cpus"]
        assert {str(zone): share for zone, share in got.zones.items()} == want["zones"]


@pytest.mark.parametrize("case", recorded("hints.jsonl"), ids=range(120))
def test_the_original_hints_and_aligns_alike(case: Any) -> None:
    """Sets, preference and score by resource; and what follows from them."""
    parameters, want = case["input"], case["output"]
    trial, policy = recorded_trial(parameters), NumaTopologyPolicy(parameters["policy"])
    scorer = ZoneScorer(parameters["weights"], parameters.get("score_packed", False))

    hints = resource_hints(trial, policy, scorer)
    got = align(policy, [hints], trial.node.machine, parameters.get("exclusive", ""))

    assert {
        name: [[[*zones_of(h.zones or 0)], h.preferred, h.score] for h in listed]
        for name, listed in hints.items()
    } == want["hints"]
    assert got.admitted is want["admitted"]
    assert sorted(got.reasons) == want["reasons"]
    assert (None if got.zones is None else [*zones_of(got.zones)]) == want["numa_nodes"]
