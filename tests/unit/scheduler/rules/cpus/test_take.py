"""Choice of CPUs for a pod."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines import machine

from koordinator.api.annotations.numa import CpuBindPolicy, CpuExclusivePolicy
from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.cpus.ledger import CpuLedger, ExclusiveCpus, FreeCpus
from koordinator.scheduler.rules.cpus.take import CpuPreference, take_cpus, take_preferred_cpus

FULL, SPREAD = CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS
PCPU, NUMA = CpuExclusivePolicy.PCPU_LEVEL, CpuExclusivePolicy.NUMA_NODE_LEVEL
GOLDEN = Path(__file__).parents[4] / "golden" / "numa" / "choices.jsonl"


def taken(
    layout: CpuLayout,
    busy: str,
    count: int,
    preference: CpuPreference,
    *,
    exclusive: str = "",
    preferred: str = "",
) -> str | None:
    """Return the choice as a list; ``exclusive`` is the policy of the pods on the busy CPUs."""
    ledger = CpuLedger()
    ledger.add("others", ExclusiveCpus(parse_cpu_list(busy), exclusive))
    cpus = take_preferred_cpus(
        layout, ledger.free(layout), parse_cpu_list(preferred), count, preference
    )
    return None if cpus is None else format_cpu_list(cpus)


@pytest.mark.parametrize(
    ("count", "full_packed", "full", "spread_packed", "spread"),
    [
        (2, "12-13", "4-5", "12,18", "3-4"),
        (4, "12-13,18-19", "4-7", "12,18,21-22", "3-4,6,8"),
        (5, "12-13,18-19,22", "4-8", "3-4,6,8,10", "3-4,6,8,10"),
        (8, "4-11", "4-11", "3-10", "3-10"),
        (10, "4-13", "4-13", "3-4,6,8,10,12-13,18,21-22", "3-6,8,10,12,18,21-22"),
        (14, "4-13,18-19,22-23", "4-13,18-19,22-23", "3-8,10,12-13,18-19,21-23", "3-13,18,21-22"),
    ],
)
def test_policy_decides_which_cpus_of_a_fragmented_machine_are_taken(
    count: int, full_packed: str, full: str, spread_packed: str, spread: str
) -> None:
    """Socket 0 has five free cores and a half, socket 1 three and a half: each policy its own."""
    layout, busy = machine(2, 1, 6, 2), "0-2,14-17,20"

    assert taken(layout, busy, count, CpuPreference(FULL, pack=True)) == full_packed
    assert taken(layout, busy, count, CpuPreference(FULL)) == full
    assert taken(layout, busy, count, CpuPreference(SPREAD, pack=True)) == spread_packed
    assert taken(layout, busy, count, CpuPreference(SPREAD)) == spread


@pytest.mark.parametrize(
    ("shape", "busy", "count", "cpus"),
    [
        ((1, 1, 4, 2), "", 2, "0-1"),
        ((2, 1, 4, 2), "0-1", 8, "8-15"),  # the whole socket
        ((2, 1, 4, 2), "", 12, "0-11"),
        ((2, 2, 4, 2), "0-5,16-23", 6, "24-29"),  # the NUMA node with less, if it is enough
        ((2, 2, 4, 2), "0-5,16-23", 12, "6-15,24-25"),
        ((2, 2, 2, 2), "0,2,4,8,12", 4, "10-11,14-15"),
        ((2, 2, 2, 2), "0,2,4,8,10,12", 6, "5-7,13-15"),  # full cores first, then near them
    ],
)
def test_full_cores_are_taken_from_the_fullest_numa_node_with_enough(
    shape: tuple[int, int, int, int], busy: str, count: int, cpus: str
) -> None:
    """The fullest NUMA node that has enough full cores, then sockets, then fragments."""
    assert taken(machine(*shape), busy, count, CpuPreference(FULL, pack=True)) == cpus


@pytest.mark.parametrize(
    ("policy", "preference", "cpus"),
    [
        (PCPU, CpuPreference(SPREAD, PCPU, pack=True), "4,6,8,10"),
        (PCPU, CpuPreference(SPREAD, pack=True), "1,3-4,6"),
        (PCPU, CpuPreference(SPREAD, NUMA, pack=True), "1,3-4,6"),  # of another policy: no matter
        (NUMA, CpuPreference(SPREAD, NUMA, pack=True), "12,14,16,18"),
        (NUMA, CpuPreference(FULL, NUMA, pack=True), "12-15"),
        (NUMA, CpuPreference(FULL, pack=True), "4-7"),
    ],
)
def test_exclusive_pods_of_one_policy_keep_apart(
    policy: str, preference: CpuPreference, cpus: str
) -> None:
    """CPUs 0 and 2 are held; the same policy avoids their cores or their NUMA node."""
    assert taken(machine(2, 1, 6, 2), "0,2", 4, preference, exclusive=policy) == cpus


def test_exclusive_is_a_wish() -> None:
    """More CPUs than cores: second CPUs of cores are taken after all."""
    preference = CpuPreference(SPREAD, PCPU, pack=True)

    assert taken(machine(2, 1, 4, 2), "", 10, preference) == "0-4,6,8,10,12,14"


@pytest.mark.parametrize(
    ("count", "preferred", "cpus"), [(2, "11,13,15,17", "11,13"), (3, "20", "0,2,20"), (1, "", "0")]
)
def test_cpus_of_a_reservation_come_first(count: int, preferred: str, cpus: str) -> None:
    """Further CPUs are taken as without a reservation."""
    layout = machine(2, 1, 16, 2)

    assert taken(layout, "", count, CpuPreference(SPREAD, pack=True), preferred=preferred) == cpus


def test_shared_cpus_fill_up_the_least_used_first() -> None:
    """Two holders per CPU: four pods of 16 on 32 CPUs, full cores and spread in turn."""
    layout, ledger, got = machine(1, 1, 16, 2), CpuLedger(), []
    for number, policy in enumerate((SPREAD, FULL, SPREAD, FULL)):
        free = ledger.free(layout, max_holders=2)
        cpus = take_cpus(layout, free, 16, CpuPreference(policy, pack=True))
        assert cpus is not None
        ledger.add(str(number), ExclusiveCpus(cpus))
        got.append(format_cpu_list(cpus))

    assert got == [
        ",".join(map(str, range(0, 32, 2))),
        "0-15",
        ",".join(map(str, range(1, 32, 2))),
        "16-31",
    ]
    assert not ledger.free(layout, max_holders=2).cpus


def test_never_more_cpus_than_requested() -> None:
    """Eleven of three sockets: the original gives twelve."""
    assert taken(machine(3, 1, 4, 2), "", 11, CpuPreference(FULL)) == "0-10"


def test_too_few_are_none_and_nothing_is_free_of_charge() -> None:
    """None means too few free CPUs; an empty set, that no CPU was requested."""
    assert taken(machine(1, 1, 2, 2), "0", 4, CpuPreference(FULL)) is None
    assert not taken(machine(1, 1, 2, 2), "0-3", 0, CpuPreference(FULL))


@st.composite
def situations(draw: st.DrawFn) -> tuple[CpuLayout, FreeCpus, CpuPreference]:
    """Any machine, anything held by anyone."""
    shape = draw(st.sampled_from(((1, 1, 4, 2), (2, 2, 2, 2), (3, 1, 2, 2), (2, 1, 4, 1))))
    layout = machine(*shape, split=draw(st.booleans()))
    sets = st.integers(0, layout.cpus)
    first, second = draw(sets), draw(sets)
    free = FreeCpus((first, second & ~first), draw(sets), draw(sets))
    policies = st.sampled_from((*CpuBindPolicy, ""))
    exclusive = st.sampled_from((*CpuExclusivePolicy, ""))
    return layout, free, CpuPreference(draw(policies), draw(exclusive), draw(st.booleans()))


@given(situations(), st.integers(0, 16), st.integers(0, 1 << 16))
def test_a_choice_has_the_requested_size_and_free_cpus(
    inputs: tuple[CpuLayout, FreeCpus, CpuPreference], count: int, preferred: int
) -> None:
    """The choice fails only with fewer free CPUs; preferred ones are used up first."""
    layout, free, preference = inputs

    cpus = take_preferred_cpus(layout, free, preferred, count, preference)

    if free.cpus.bit_count() < count:
        assert cpus is None
    else:
        assert cpus is not None
        assert cpus & ~free.cpus == 0
        assert cpus.bit_count() == count
        wanted = min(count, (free.cpus & preferred).bit_count())
        assert (cpus & preferred).bit_count() == wanted


@given(situations(), st.integers(1, 8))
def test_full_cores_are_given_whole_while_there_are_enough(
    inputs: tuple[CpuLayout, FreeCpus, CpuPreference], cores: int
) -> None:
    """No core is broken up for a pod of FullPCPUs."""
    layout, free, preference = inputs
    count = cores * layout.cpus_per_core
    whole = layout.whole_cores(free.cpus)
    if whole.bit_count() >= cores:
        cpus = take_cpus(
            layout, free, count, CpuPreference(FULL, preference.exclusive_policy, preference.pack)
        )

        assert cpus is not None
        assert layout.cores_of(cpus).bit_count() == cores


def recorded() -> list[Any]:
    """Return inputs and outputs of the original."""
    return [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("case", recorded(), ids=range(240))
def test_the_original_chooses_the_same(case: Any) -> None:
    """CPU by CPU, on machines of every kind, with every policy."""
    parameters = case["input"]
    layout = machine(
        *parameters["machine"],
        split=parameters.get("split", False),
        offline=parameters.get("offline", ""),
    )
    ledger = CpuLedger()
    for number, (cpus, exclusive) in enumerate(parameters.get("pods", [])):
        ledger.add(str(number), ExclusiveCpus(parse_cpu_list(cpus), exclusive))
    preferred = parse_cpu_list(parameters.get("preferred", ""))
    free = ledger.free(
        layout,
        unusable=parse_cpu_list(parameters.get("unusable", "")),
        max_holders=parameters["max_holders"],
        given_back=(preferred,),
    )
    preference = CpuPreference(
        parameters["bind"], parameters.get("exclusive", ""), parameters.get("pack", False)
    )

    cpus = take_preferred_cpus(layout, free, preferred, parameters["count"], preference)

    assert (None if cpus is None else format_cpu_list(cpus)) == case["output"]["cpus"]
